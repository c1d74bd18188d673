"""The view Decode of the page Steps: a step, the next word, and a cache that is touched."""

import html
import re

import numpy as np
import pytest

import mha_core as mha
from mha_core import edits
from mha_core.analysis.cost import spec_of, step_flops
from pages._kit.text import literal
from pages.learn._lessons import reveal
from pages.understand._steps.decode import typed
from tests.pages.conftest import RANDOM

PAGE = "understand/steps.py"
TEXT = "The dog couldn't cross the street because it was too tired"


@pytest.fixture
def open_decode(opened_on):
    return lambda **link: opened_on(PAGE, **{"steps_view": "decode", "text": TEXT} | link)


def drawn_rows(app):
    """The rows of the drawn cache: kind, word and weight of each."""
    [drawn] = [one.proto.body for one in app.get("html") if "cache-rows" in one.proto.body]
    lines = re.findall(r'<tr class="(kept|new|gone)">(.*?)</tr>', html.unescape(drawn))
    weight = r"</u>([\d.<]+)</div>"
    return [
        (kind, re.search(r'scope="row">([^<]*)<', line)[1], re.search(weight, line)[1])
        for kind, line in lines
    ]


def decoded(*touched, text=TEXT):
    return mha.trace(text, source="mini", architecture="decoder", edits=touched)


def test_the_newest_row_is_marked_and_has_the_weights_of_the_full_run(open_decode, heatmaps, english):
    app = open_decode(row=9, layer=2, head=3)
    layer, labels = decoded().layers[1], decoded().tokens.labels
    weights = [
        f"{weight:.2f}" if weight >= 0.005 else "<0.01" for weight in layer.weights(2, rows=[8])[0, :9]
    ]
    kinds = ["kept"] * 8 + ["new"]
    assert drawn_rows(app) == list(zip(kinds, labels[:9], weights, strict=True))
    matrix = heatmaps(app, "decode-matrix")["weights"]
    assert matrix["row"] == 8
    np.testing.assert_allclose(matrix["values"][8], layer.weights(2, rows=[8])[0, :9], atol=1e-6)
    [badge] = [one.value for one in app.markdown if "badge" in one.value]
    assert badge.startswith(":green-badge[:material/check: ")
    [table] = [one.value for one in app.table]
    assert (
        next(iter(table[english("decode.column_token")])) == "1.024\u00a0kB"
    )  # 2 layers · 128 numbers · 4 bytes
    flops = 2 * step_flops(spec_of(layer), 9)
    assert any(f"{flops / 1000:.3g}\u00a0k" in one.value for one in app.caption)


def test_the_row_that_is_chosen_is_dropped_before_a_run_has_seen_it(open_decode):
    app = open_decode(row=11)
    app.selectbox(key="decode_drop_row").select_index(2)
    app.button(key="drop_apply").click().run()
    assert app.session_state["edits"] == "evict,to=3,since=11"


def test_next_and_back_walk_through_the_text_and_write_on(open_decode):
    app = open_decode(row=11)
    app.get_by_key("decode_next").click().run()
    assert app.query_params["row"] == "12"
    app.get_by_key("decode_back").click().run()
    app.get_by_key("decode_back").click().run()
    assert drawn_rows(app)[-1][:2] == ("new", "was")
    for _ in range(3):
        app.get_by_key("decode_next").click().run()
    trace = decoded()
    assert "row" not in app.query_params
    longer = app.text_area[0].value
    assert longer.startswith(TEXT)
    assert longer.removeprefix(TEXT).strip() == trace.answers[-1][0][0]


@pytest.mark.parametrize(
    ("text", "word", "longer"),
    [("The cat", "sat", "The cat sat"), ("The cat", ".", "The cat."), ("猫", "坐", "猫坐"), ("", "A", "A")],
)
def test_a_typed_word_is_written_as_people_write_it(text, word, longer):
    assert typed(text, word) == longer


def test_changes_of_the_cache_act_from_the_link_and_are_lifted(open_decode, english):
    link = "mask,mask=streaming:2;evict,to=1,since=10;exchange,from=9,to=10,since=12"
    app = open_decode(edits=link)
    mask = edits.Mask(mask="streaming:2")
    touched = [mask, edits.Evict(keys=[0], since=9), edits.Exchange(one=8, other=9, since=11)]
    after, before = decoded(*touched), decoded()
    kinds = [kind for kind, *_ in drawn_rows(app)]
    assert kinds == ["gone"] * 9 + ["kept"] * (len(kinds) - 10) + ["new"]
    [said] = [one.value for one in app.markdown if "Without your changes" in one.value]
    for trace in (before, after):
        assert (
            f"“**{literal(trace.answers[-1][0][0])}**” {trace.answers[-1][0][1]:.0%}" in said
        )  # a full stop
    [lifted] = [
        one for one in app.button if one.label == english("decode.drop_says", words="\\[CLS\\]", since=10)
    ]
    lifted.click().run()
    assert app.session_state["edits"] == "mask,mask=streaming:2;exchange,from=9,to=10,since=12"


@pytest.mark.parametrize(
    "link", [RANDOM | {"text": TEXT}, {"architecture": "grouped-query"}, {"row": "99"}], ids=str
)
def test_any_scene_has_something_that_decodes(open_decode, link):
    app = open_decode(**link)
    assert not app.exception
    assert drawn_rows(app)[-1][:2] == ("new", "tired")


def test_a_lesson_s_question_about_a_cache_leads_here():
    scene = mha.Scene.of_link("text=How are you?&architecture=multi-query").scene
    assert [one["href"].partition("?")[0] for one in reveal.looks(scene)] == ["./", "./what-if"]
    last = reveal.looks(scene, "cache")[-1]["href"]
    opened = mha.Scene.of_link(last.removeprefix("./"))
    assert opened.refused == ()
    assert (opened.scene.page.name, dict(opened.scene.page.fields)) == ("steps", {"steps_view": "decode"})
    assert opened.scene.architecture == "multi-query"
