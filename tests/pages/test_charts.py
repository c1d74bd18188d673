"""Figures can be clicked, sorted and compared on one scale, and carry what their files need to say."""

import json

import numpy as np
import pytest
from pages.see._heads.one_head import AS_THEY_ARE, BY_TOKEN, BY_VARIANCE, EACH, ENDS, ORDERS, SHARED

import mha_core as mha
from mha_core.analysis import frames
from mha_core.traces.source import ArraySource
from pages._kit import charts
from pages._kit.state import Scene
from pages._kit.text import literal

pytestmark = pytest.mark.slow

VECTORS = ("q", "k", "v")
SIX = (*VECTORS, "scores", "weights", "output")
NASTY = "<img src=x onerror=alert(1)> </script> &amp; =1+1"


@pytest.fixture
def opened(opened_on_random):
    return opened_on_random


def trace(**settings) -> mha.AttentionTrace:
    return mha.trace(**(Scene(source="random").settings() | settings))


def spec(app, name: str) -> dict:
    return json.loads(app.get_by_key(f"matrix-{name}").proto.spec)


def cells(app, name: str) -> dict:
    return spec(app, name)["data"][0]


def vectors(recorded: mha.LayerTrace, head: int = 0) -> dict[str, np.ndarray]:
    return {"q": recorded.q[head], "k": recorded.k[head], "v": recorded.v[head]}


def pick(click, app, row: int, column: int | None, chart: str = "matrix-weights"):
    return click(app, "charts", {"chart": chart, "row": row, "column": column})


# A click on a cell


def test_a_click_on_a_cell_moves_the_token_and_tells_the_cells_numbers(opened, click, english, said):
    app = pick(click, opened(head=2), row=4, column=9)
    assert not app.exception
    assert app.number_input(key="token").value == 5
    assert app.number_input(key="key_token").value == 10
    layer, names = trace().layers[0], trace().tokens.labels
    numbers = {
        name: f"{matrix(1)[4, 9]:.6g}"
        for name, matrix in {
            "score": layer.scores,
            "scaled": layer.scaled,
            "weight": layer.weights,
        }.items()
    }
    words = {"query": f"\u2068{literal(names[4])}\u2069", "key": f"\u2068{literal(names[9])}\u2069"}
    assert english("detail.cell", **words, **numbers) in said(app)
    # The click is spent: what is asked for next is not overruled by it.
    app.number_input(key="token").set_value(2).run()
    assert app.number_input(key="token").value == 2
    assert app.number_input(key="key_token").value == 10


def test_a_click_on_vectors_chooses_the_token_of_the_row_alone(opened, click):
    app = pick(click, opened(key_token=3), row=6, column=None, chart="matrix-q")
    assert app.number_input(key="token").value == 7
    assert app.number_input(key="key_token").value == 3


@pytest.mark.parametrize("place", [-1, "2", 1.5])
def test_what_no_figure_can_have_sent_changes_nothing(opened, click, place):
    app = pick(click, opened(), row=place, column=place)
    assert not app.exception
    assert app.number_input(key="token").value == 8
    assert app.number_input(key="key_token").value is None


def test_a_cell_beyond_the_sentence_becomes_its_last(opened, click):
    app = pick(click, opened(), row=10**9, column=10**9)
    assert not app.exception
    assert app.number_input(key="token").value == 12
    assert app.number_input(key="key_token").value == 12


def test_the_cell_of_the_link_is_marked_where_columns_are_tokens(opened):
    app = opened(token=2, key_token=4)
    for name in SIX:
        shapes = spec(app, name)["layout"].get("shapes", [])
        single = {(s["x0"], s["x1"], s["y0"], s["y1"]) for s in shapes if s["x1"] - s["x0"] == 1}
        assert single == ({(2.5, 3.5, 0.5, 1.5)} if name in ("scores", "weights") else set()), name


def test_without_a_cell_the_page_says_how_to_choose_one(opened, english):
    app = opened()
    assert english("detail.cell_none") in [caption.value for caption in app.caption]
    assert app.number_input(key="key_token").value is None


def test_a_hidden_cell_is_said_to_be_hidden(opened, said):
    texts = said(opened(mask="causal", token=2, key_token=4))
    assert [text for text in texts if text.endswith("hidden by the mask: weight **0**")]


def test_figures_say_which_cells_a_click_reports(opened):
    app = opened()
    for name in SIX:
        start = spec(app, name)["layout"]["meta"]["start"]
        assert start == ([0, 0] if name in ("scores", "weights") else [0, None]), name


# The order of dimensions


@pytest.mark.parametrize("by", ["control", "link"])
@pytest.mark.parametrize("order", ORDERS)
def test_dimensions_are_ordered_by_the_control_and_by_a_link(opened, drawn, order, by):
    if by == "link":
        app = opened(token=3, order=order)
    else:
        app = opened(token=3)
        app.segmented_control(key="order").set_value(order).run()
    for name, values in vectors(trace().layers[0]).items():
        by_what = {AS_THEY_ARE: -np.arange(16), BY_TOKEN: values[2], BY_VARIANCE: values.var(axis=0)}[order]
        expected = np.argsort(-by_what, kind="stable")
        np.testing.assert_array_equal(drawn(app, f"matrix-{name}"), values[:, expected])
        assert [int(number) for number in spec(app, name)["layout"]["meta"]["columns"]] == [*(expected + 1)]
        if order != AS_THEY_ARE:
            assert cells(app, name)["x"] == [str(number + 1) for number in expected]
            assert "sorted" in spec(app, name)["layout"]["xaxis"]["title"]["text"]


def test_the_order_changes_with_the_token(opened, drawn):
    first, second = (drawn(opened(order=BY_TOKEN, token=token), "matrix-q") for token in (1, 2))
    assert (np.diff(first[0]) <= 0).all()
    assert (np.diff(second[1]) <= 0).all()
    assert not np.array_equal(first, second)


# The scale of Q, K and V


@pytest.mark.parametrize("by", ["control", "link"])
@pytest.mark.parametrize("end", ENDS)
def test_vectors_have_one_range_of_colours_or_each_its_own(opened, english, said, end, by):
    if by == "link":
        app = opened(vector_scale=end)
    else:
        app = opened()
        app.segmented_control(key="vector_scale").set_value(end).run()
    largest = {name: float(np.abs(v).max()) for name, v in vectors(trace().layers[0]).items()}
    for name, own in largest.items():
        limit = {EACH: own, SHARED: max(largest.values())}[end]
        assert cells(app, name)["zmax"] == pytest.approx(limit)
        assert cells(app, name)["zmin"] == pytest.approx(-limit)
    note = {
        EACH: english("detail.scale_each"),
        SHARED: english("detail.scale_now", limit=f"{max(largest.values()):.4g}"),
    }[end]
    assert note in said(app)


# Long texts


def test_of_a_long_text_the_part_around_the_token_is_shown_and_said(opened, english, drawn, monkeypatch):
    monkeypatch.setitem(frames.around.__kwdefaults__, "size", 5)
    app = opened(token=7, key_token=6)
    assert not app.exception
    layer = trace().layers[0]
    part = slice(4, 9)
    assert [info.value for info in app.info] == [english("detail.part", count=12, first=5, last=9)]
    for name, values in vectors(layer).items():
        np.testing.assert_array_equal(drawn(app, f"matrix-{name}"), values[part])
    np.testing.assert_allclose(drawn(app, "matrix-weights"), layer.weights(0)[part, part], rtol=1e-5)
    np.testing.assert_allclose(drawn(app, "matrix-output"), layer.output(0)[part], rtol=1e-4, atol=1e-6)
    assert spec(app, "weights")["layout"]["meta"]["start"] == [4, 4]
    row, *_, cell = spec(app, "weights")["layout"]["shapes"]
    assert (row["y0"], row["y1"]) == (1.5, 2.5)  # token 7 is the third of 5 to 9
    assert (cell["x0"], cell["y0"]) == (0.5, 1.5)


def test_a_key_outside_the_part_is_told_but_not_marked(opened, said, monkeypatch):
    monkeypatch.setitem(frames.around.__kwdefaults__, "size", 5)
    app = opened(token=7, key_token=1)
    assert len(spec(app, "weights")["layout"]["shapes"]) == 1
    assert [text for text in said(app) if "weight **" in text]


def test_a_sentence_that_fits_is_shown_whole_without_a_word(opened):
    assert not opened().info


# What a figure carries into its files


@pytest.mark.parametrize("name", SIX)
def test_a_figure_carries_its_sentence_weights_layer_and_head(opened, name):
    meta = spec(opened(text=NASTY, layers=2, layer=2, head=3, h=4, seed=7), name)["layout"]["meta"]
    assert meta["caption"] == [
        f"“{NASTY}”",
        "random weights, h 4, d_model 64, seed 7 · layer 2 · head 3 · Headscope",
    ]
    frame = trace(text=NASTY, layers=2, seed=7).frame(name, layer=1, head=2)
    assert meta["rows"] == [*map(str, frame.index)]
    assert meta["columns"] == [*map(str, frame.columns)]
    assert (
        meta["title"].split()[0]
        == {
            "q": "Q₃",
            "k": "K₃",
            "v": "V₃",
            "scores": "S₃",
            "weights": "A₃",
            "output": "head₃",
        }[name]
    )
    assert meta["file"].startswith(f"headscope-{name}-layer-2-head-3-img-src-x-onerror")


def test_a_trained_model_is_named_with_its_training():
    found = mha.trace("the cat saw the dog", source="mini", h=4, d_model=32)
    said = charts.caption(frames.origin(found, layer=1, head=0))
    assert said == [
        "“the cat saw the dog”",
        f"small glass-box model, h 4, d_model 32, {found.source.step:,} training steps"
        " · layer 2 · head 1 · Headscope",
    ]
    before = mha.trace("the cat saw the dog", source="mini", h=4, d_model=32, trained=False)
    assert "before training" in charts.caption(frames.origin(before))[1]


def test_a_long_sentence_is_cut_in_the_caption():
    text = "word " * 1000
    [sentence, _] = charts.caption(frames.Origin(ArraySource("mine"), text))
    assert len(sentence) == charts.MAX_TEXT + 2
    assert sentence.endswith("…”")


@pytest.mark.parametrize(
    "page",
    [
        *("see/heads.py", "understand/steps.py", "understand/hops.py", "understand/embeddings.py"),
        *("learn/before_after.py", "learn/sweep.py"),
    ],
)
def test_every_figure_of_every_page_can_be_saved_under_a_name(opened_on, page):
    app = opened_on(page, source="mini", layer=2)
    figures = list(app.get("plotly_chart"))
    names = [json.loads(figure.proto.spec)["layout"]["meta"]["file"] for figure in figures]
    assert names
    assert len(set(names)) == len(names)
    for figure in figures:
        meta = json.loads(figure.proto.spec)["layout"]["meta"]
        assert meta["title"]
        assert meta["caption"][-1].endswith("Headscope")
