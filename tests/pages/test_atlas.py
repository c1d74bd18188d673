"""The page Atlas: what it says and draws are the atlas's numbers, and its texts open on other pages."""

import re

import numpy as np
import pytest

import mha_core as mha
from mha_core import resources
from mha_core.atlases import library, measures
from mha_core.scene.scene import Scene
from pages._kit import compute
from pages._kit.text import literal
from tests.pages.conftest import figure, numbers, texts

ATLAS = "models/atlas.py"
TEXTS = [f"The {one} saw the {other}." for one in ("cat", "dog", "bird", "fox") for other in "abcde"]
OWN = {"h": 2, "d_model": 64}  # a small model without an atlas


@pytest.fixture(autouse=True)
def _atlases_are_looked_up_again():
    """A server keeps the atlases that it was started with; each test here starts with its own."""
    compute.caches["results"].clear()
    yield
    compute.caches["results"].clear()


def shipped(name: str = "glass-box-en-h4-d64") -> mha.Atlas:
    return mha.Atlas(resources.path(*library.FOLDER) / name)


def trace_of(figure: dict, name: str) -> dict:
    return next(trace for trace in figure["data"] if trace.get("name") == name)


def link_to_atlas(app) -> list[str]:
    return [link.proto.label for link in app.get("page_link") if link.proto.page == "atlas"]


@pytest.fixture(scope="module")
def own_folder(tmp_path_factory):
    """An atlas of 20 short texts."""
    folder = tmp_path_factory.mktemp("atlases") / "mine"
    mha.atlas(TEXTS, out=folder, **OWN)
    return folder


def test_it_opens_on_the_head_that_finds_the_noun_and_says_how_sure_that_is(opened_on, english):
    app, row = opened_on(ATLAS), shipped().head(1, 0).loc["pronoun to noun"]
    share = {name: f"{row[name]:.0%}" for name in ("mean", "shuffled", "chance", "fixed")}
    assert row["low"] == row["high"] == 1  # without an interval
    claim = english("atlas.claim_role", measure="Pronoun → noun", share=share["mean"], count="489")
    assert literal(claim) in texts(app)
    compared = {name: share[name] for name in ("shuffled", "chance", "fixed")}
    assert english("atlas.compared_fixed", **compared) in texts(app)
    assert any(words.startswith("Also: article") for words in texts(app))


def test_a_head_that_looks_by_position_is_said_to_and_has_the_value_of_your_sentence(opened_on, english):
    text = "The cat sat on the mat."
    app = opened_on(ATLAS, text=text, layer=2, head=4)
    trace = mha.trace(text, source="mini", h=4, d_model=64)
    values = measures.of_layer(trace.layers[1]).value[3]
    row = shipped().head(1, 3).loc["previous token"]
    interval = f"({100 * row['low']:.1f}–{100 * row['high']:.1f}%)"
    assert any(words.endswith(literal(interval)) for words in texts(app))
    own = english("atlas.own", share=f"{values[0]:.0%}")
    assert any(english("atlas.by_position") in words and own in words for words in texts(app))
    drawn = trace_of(figure(app, "atlas_measures"), english("atlas.column.own"))
    shares = np.array(values[: measures.MEASURES.index("distance")])
    np.testing.assert_allclose(numbers(drawn["x"]), shares[~np.isnan(shares)])


def test_a_head_in_which_nothing_stands_out_says_so(opened_on, english):
    app = opened_on(ATLAS, h=8, layer=2, head=8)
    assert english("atlas.none") in texts(app)
    count = len(shipped("glass-box-en-h8-d64").measures)
    assert english("atlas.none_why", count=count) in texts(app)


def test_every_head_is_on_the_map_at_the_chosen_measures(opened_on, english):
    app = opened_on(ATLAS, atlas_x="entropy", atlas_y="verb to object")
    rows, drawn = shipped().heads(), figure(app, "atlas_map-1-0")
    for layer in range(2):
        marks = trace_of(drawn, english("atlas.show_layer", layer=layer + 1))
        for letter, measure in (("x", "entropy"), ("y", "verb to object")):
            chosen = rows[(rows["layer"] == layer) & (rows["measure"] == measure)]
            np.testing.assert_allclose(numbers(marks[letter]), chosen["mean"])
    table = next(one.value for one in app.dataframe if len(one.value) == 8)
    assert {"entropy · mean", "verb → object · words shuffled"} <= {*table.columns}


@pytest.mark.parametrize(("shown", "count"), [("claimed", 14), ("2", 8)])
def test_the_map_can_have_only_some_heads(opened_on, shown, count):
    app = opened_on(ATLAS, h=8, atlas_heads=shown)
    drawn = figure(app, "atlas_map-1-0")["data"]
    named = [trace for trace in drawn if str(trace.get("name", "")).startswith("layer")]
    assert sum(len(trace["customdata"]) for trace in named) == count


def test_a_text_of_a_decile_is_drawn_at_its_strongest_cell_and_opens_elsewhere(
    opened_on, eye, english, choose
):
    app = opened_on(ATLAS, layer=2, head=4, atlas_decile=3, atlas_text=2)
    example = shipped().top("previous token", layer=1, head=3, n=2, decile=3).iloc[1]
    header, [panel] = eye(app, "atlas_view")
    trace = mha.trace(example["string"], source="mini", h=4, d_model=64)
    assert panel["tokens"] == list(trace.tokens.labels)
    assert (header["layer"], header["head"], header["token"]) == (1, 3, example["query"])
    weight = trace.layers[1].weights(3)[example["query"], example["key"]]
    words = [literal(trace.tokens.labels[example[side]]) for side in ("query", "key")]
    cell = english("atlas.cell", query=words[0], key=words[1], weight=f"{weight:.2f}")
    assert cell in texts(app)
    [opens] = [words for words in texts(app) if words.startswith("Open this text")]
    addresses = re.findall(r"\]\((.*?)\)", opens)
    scenes = [Scene.of_link(address).scene for address in addresses]
    assert [scene.page.name for scene in scenes] == ["heads", "token", "steps", "what-if"]
    for scene in scenes:
        assert (scene.text, scene.twin, scene.h, scene.d_model) == (example["string"], "", 4, 64)
        assert (scene.focus.layer, scene.focus.head) == (2, 4)
        assert trace.tokens.index(scene.focus.token) == example["query"]
    choose(app, head=1)  # another head begins with its own measure and the strongest texts
    now = [app.session_state[f"atlas_{name}"] for name in ("measure", "decile")]
    assert now == ["pronoun to cue", "10"]


def test_an_atlas_has_the_readers_language_and_a_model_without_one_gets_another(opened_on, english):
    for link in ({}, {"source": "random"}):
        assert opened_on(ATLAS, lang="zh", **link).session_state["atlas"] == "glass-box-zh-h4-d64"
    app = opened_on(ATLAS, h=2)
    assert english("atlas.missing") in texts(app)
    assert app.session_state["atlas"] == "glass-box-en-h4-d64"
    drawn = figure(app, "atlas_measures")["data"]
    assert english("atlas.column.own") not in [trace.get("name") for trace in drawn]
    assert english("atlas.missing") not in texts(opened_on(ATLAS))


def test_an_atlas_of_ones_own_is_there_with_its_texts(opened_on, own_folder, monkeypatch, eye, english):
    monkeypatch.setenv(resources.ATLAS, str(own_folder))
    app = opened_on(ATLAS, **OWN, text=TEXTS[0], layer=1, head=2)
    assert app.session_state["atlas"] == "mine"
    assert english("atlas.missing") not in texts(app)
    header, [panel] = eye(app, "atlas_view")
    assert panel["tokens"] in [list(mha.trace(text, source="mini").tokens.labels) for text in TEXTS]
    assert (header["layer"], header["head"]) == (0, 1)
    marks = {trace.get("name") for trace in figure(app, "atlas_measures")["data"]}
    assert english("atlas.column.own") in marks
    assert english("atlas.column.fixed") not in marks  # no links in these texts
    assert link_to_atlas(opened_on("see/heads.py", **OWN)) == [english("atlas.link", count="20")]


def test_an_atlas_that_cannot_be_read_is_refused_here_and_missed_nowhere(opened_on, monkeypatch, tmp_path):
    monkeypatch.setenv(resources.ATLAS, str(tmp_path))
    app = opened_on(ATLAS)
    assert "is not the folder of an atlas" in app.error[0].value.replace("\u2060", "")
    assert not link_to_atlas(opened_on("see/heads.py"))


@pytest.mark.parametrize(
    "page", ["see/heads.py", "see/token.py", "see/compare.py", "understand/steps.py", "understand/what_if.py"]
)
def test_every_page_about_a_head_links_to_its_passport(opened_on, english, page):
    assert link_to_atlas(opened_on(page, against="twin")) == [english("atlas.link", count="1,000")]
