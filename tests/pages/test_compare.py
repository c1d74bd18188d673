"""Compare: a scene and the same one with one change, and the differences of their weights."""

import numpy as np
import pandas as pd
import pytest

import mha_core as mha
from mha_core.analysis.comparison import divergence
from mha_core.focus.focus import Focus
from mha_core.scene.scene import Scene
from pages._kit.text import literal
from tests.pages.conftest import refused_by_link, sent

PAGE = "see/compare.py"

pytestmark = pytest.mark.usefixtures("no_other_model")


def test_both_sides_show_the_same_model_untrained_and_trained(on_page, heatmaps, english):
    app = on_page(h=2, d_model=32, layer=1, head=2)
    for key, trained in (("before", False), ("after", True)):
        shown = mha.trace(Scene.text, source="mini", h=2, d_model=32, trained=trained)
        recorded = shown.layers[0]
        side = english(f"compare.{key}", step=f"{shown.source.step:,}")
        for name, values in (("weights", recorded.weights(1)), ("q", recorded.q[1])):
            drawn = heatmaps(app, f"compare-{name}")[key]
            np.testing.assert_array_equal(drawn["values"], values)
            assert drawn["symbol"].startswith(f"{side} · ")
    weights = heatmaps(app, "compare-weights")
    assert not np.array_equal(weights["before"]["values"], weights["after"]["values"])
    assert weights["before"]["end"] == weights["after"]["end"]
    between = weights["after"]["values"] - weights["before"]["values"]
    np.testing.assert_array_equal(weights["difference"]["values"], between)


def test_the_view_has_the_untrained_and_the_trained_layers_side_by_side(on_page, eye, draws):
    header, panels = eye(app := on_page(), "compare_view")
    scene = Scene()
    before, shown = (mha.trace(scene.text, source="mini", trained=trained) for trained in (False, True))
    draws(app, before, shown, key="compare_view")
    assert (header["layer"], header["head"], header["token"]) == (1, 0, 8)
    assert panels[0]["title"] == f"Before: step 0 · {scene.text}"
    assert panels[1]["title"] == f"After: step {shown.source.step:,} · {scene.text}"
    seed = shown.source.origin.seed
    assert (
        header["source"] == f"small trained model, readable, h 4, d_model 64, seed {seed}"
    )  # no step: there are two
    assert header["follows"] is header["reports"] is True


def explanation(app) -> dict | None:
    return sent(app, "compare-weights")["explanation"]


def test_an_explanation_closes_with_its_matrix(on_page, click, move):
    app = on_page()
    assert explanation(app) is None
    asked = {"id": 7, "name": "after", "row": 3, "column": 5}
    app = click(app, "compare-weights", {"row": 3, "column": None, "explained": asked})
    trained = mha.trace(Scene.text, source="mini", h=4, d_model=64)
    answer = explanation(app)
    assert answer["value"] == pytest.approx(trained.layers[1].weights(0)[3, 5], rel=1e-5)
    assert (answer["id"], answer["to"]) == (7, trained.tokens.labels[5])
    move(app, head=4)
    assert explanation(app) is None
    move(app, head=1)
    assert explanation(app) == answer
    rows = len(trained.tokens)
    app = click(app, "compare-weights", {"row": 3, "column": None, "explained": asked | {"row": rows}})
    assert explanation(app) is None


def test_two_heads_are_drawn_over_each_other_with_their_divergence(on_page, eye, heatmaps, english):
    trace = mha.trace(Scene().text, source="mini", h=4, d_model=64)
    one, other = (trace.layers[1].weights(head) for head in (2, 0))
    bits, words = divergence(pd.DataFrame(one), pd.DataFrame(other)), trace.tokens.labels
    app = on_page(against="head:1", head=3)
    assert eye(app, "compare_view")[0]["on"] == [2, 0]
    np.testing.assert_array_equal(heatmaps(app, "compare-weights")["difference"]["values"], other - one)
    drawn = heatmaps(app, "compare-divergence")["divergence"]["values"][0]
    np.testing.assert_allclose(drawn, bits, atol=1e-5)
    at, largest = int(bits.to_numpy().argmax()), f"{bits.max():.2f}"
    said = {"word": "it", "bits": f"{bits[8]:.2f}", "most": literal(words[at]), "most_bits": largest}
    assert at != 8
    assert english("compare.divergence_here", **said) in [markdown.value for markdown in app.main.markdown]
    app = on_page(against="head:1", head=3, token=words[at])
    most = english("compare.divergence_most", word=literal(words[at]), bits=largest)
    assert most in [markdown.value for markdown in app.main.markdown]  # and not twice


@pytest.mark.parametrize(
    ("source", "against"), [("mini", "h:8"), ("mini", "twin"), ("random", "mask:causal"), ("random", "h:2")]
)
def test_the_other_side_is_the_same_scene_with_one_thing_changed(on_page, heatmaps, source, against):
    app = on_page(source=source, against=against)
    kind, _, value = against.partition(":")
    settings = Scene(source=source).settings()
    settings |= {"text": Scene().twin} if kind == "twin" else {kind: int(value) if kind == "h" else value}
    layers = mha.trace(**settings).layers
    focus = Focus()
    layer = layers[min(focus.layer, len(layers)) - 1]
    weights = layer.weights(min(focus.head, layer.n_heads) - 1)
    drawn = heatmaps(app, "compare-weights")["after"]["values"]
    np.testing.assert_array_equal(np.nan_to_num(drawn), weights)  # hidden cells have no number


def test_views_with_different_h_are_titled(on_page):
    headings = [literal("h = 4"), literal("h = 8")]
    captions = [caption.value for caption in on_page(against="h:8").main.caption]
    assert [text for text in captions if text in headings] == headings


def test_what_a_layer_reads_is_told_of_both_sides_where_it_differs(on_page, english):
    lookup, block = (english(f"model.layer.{kind}", layer=2, layers=2) for kind in ("lookup", "block"))
    for against, notes in (
        ("h:8", [lookup]),
        (
            "architecture:standard",
            [f"architecture = readable · {lookup}", f"architecture = standard · {block}"],
        ),
    ):
        captions = [caption.value for caption in on_page(against=against).main.caption]
        assert [text for text in captions if text.endswith((literal(lookup), literal(block)))] == [
            literal(note) for note in notes
        ]


@pytest.mark.parametrize("source", ["mini", "random"])
def test_every_offer_can_be_compared(on_page, heatmaps, source):
    app = on_page(source=source)
    kinds = app.selectbox(key="against_kind").options
    assert len(kinds) >= 4
    for kind in reversed(kinds):
        app.selectbox(key="against_kind").select(kind).run()
        assert [said.value for said in (*app.error, *app.info)] == [], kind
        assert app.query_params["against"].partition(":")[0] == app.selectbox(key="against_kind").value
        assert list(heatmaps(app, "compare-weights"))[:2] == ["before", "after"]


@pytest.mark.parametrize(
    ("against", "taken"),
    [("mask:causal", "untrained"), ("h:64", "h:1"), ("nonsense", "none")],
)
def test_an_unavailable_other_side_is_reported_and_replaced(on_page, against, taken):
    app = on_page(against=against)
    (line,) = refused_by_link(app)
    assert line == f"The link says against = {against}, which is not possible. Using {taken}."
    shown = "untrained" if taken == "none" else taken.partition(":")[0]
    assert app.selectbox(key="against_kind").value == shown
    app.run()
    assert not refused_by_link(app)


def test_with_only_sentences_to_compare_the_page_asks_for_one(on_page, english, controls, monkeypatch):
    monkeypatch.setattr("pages.see._compare.against.sizes", lambda *_: {})
    monkeypatch.setattr("pages.see._compare.against.models", lambda _: [])
    app = on_page(source="random", h=1, twin="")
    assert [info.value for info in app.info] == [english("compare.none")]
    app.selectbox(key="against_kind").select("twin").run()
    assert "twin" in controls(app)


def test_the_second_sentence_can_be_typed_on_compare(on_page, controls):
    assert "twin" not in controls(on_page())
    app = on_page(against="twin")
    app.text_area(key="twin").set_value("").run()
    assert app.info
