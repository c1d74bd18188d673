"""Figures carry the facts that their saved files need."""

import json

import pytest

import mha_core as mha
from mha_core.analysis import frames
from mha_core.traces.source import ArraySource
from pages._kit import charts

pytestmark = pytest.mark.slow

NASTY = "<img src=x onerror=alert(1)> </script> &amp; =1+1"


def test_a_matrix_carries_its_sentence_weights_layer_and_head(opened_on, heatmaps):
    link = {"source": "random", "twin": "", "layers": 2, "layer": 2, "head": 3, "token": 8, "h": 4, "seed": 7}
    app = opened_on("understand/steps.py", text=NASTY, **link)
    for matrix in heatmaps(app, "steps").values():
        sentence, source = matrix["saved"]["caption"]
        assert sentence == f"“{NASTY}”"
        of_head = "" if matrix["symbol"] in "QKV" else " · head 3"
        facts = "random weights, h 4, d_model 64, seed 7, mask: full, positions: sinusoidal"
        assert source == f"{facts} · layer 2{of_head} · Headscope"
        assert "-layer-2-" in matrix["saved"]["file"]
        assert "img-src-x-onerror" in matrix["saved"]["file"]
    saved = [matrix["saved"]["file"] for matrix in heatmaps(app, "steps").values()]
    assert len(set(saved)) == len(saved)


def test_a_trained_model_is_named_with_its_training():
    found = mha.trace("the cat saw the dog", source="mini", h=4, d_model=32)
    said = charts.caption(frames.origin(found, layer=1, head=0))
    assert said == [
        "“the cat saw the dog”",
        f"small trained model, readable, h 4, d_model 32, seed 0, {found.source.step:,} training steps"
        " · layer 2 · head 1 · Headscope",
    ]
    before = mha.trace("the cat saw the dog", source="mini", h=4, d_model=32, trained=False)
    assert "before training" in charts.caption(frames.origin(before))[1]


def test_the_edits_of_numbers_are_in_their_caption_and_file_name():
    edits = [mha.edits.Hide(layer=1, rows=2, keys=1), mha.edits.Temperature(temperature=3.0)]
    options = {"source": "mini", "h": 4, "d_model": 32}
    before, found = (mha.trace("the cat saw", **options, edits=made) for made in ((), edits))
    (_, unedited), (_, said) = (charts.caption(frames.origin(one, layer=1)) for one in (before, found))
    assert said != unedited
    assert said.startswith(unedited.split(" · ")[0])  # the same model
    assert all(edit.describe() in said for edit in edits)
    many = [mha.edits.Hide(layer=0, rows=row, keys=0) for row in (1, 2)] * 20
    [*_, said] = charts.caption(frames.origin(mha.trace("the cat saw", **options, edits=many)))
    assert "40 changes: " in said
    [sentence, _] = charts.caption(frames.Origin(ArraySource("mine"), "word " * 1000))
    assert (len(sentence), sentence[-2:]) == (charts.MAX_TEXT + 2, "…”")  # a long one is cut
    names = [charts.described("weights", "", frames.origin(one))["file"] for one in (before, found)]
    assert ["edited" in name for name in names] == [False, True]


@pytest.mark.parametrize("page", ["understand/embeddings.py", "learn/train.py?train_view=heads"])
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
