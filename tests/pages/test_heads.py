"""The page Heads sends the browser everything to draw a head, follows it, and offers the numbers."""

from io import BytesIO

import numpy as np
import pandas as pd
import pytest
import streamlit as st

import mha_core as mha
from mha_core.analysis import patterns
from mha_core.analysis.frames import csv
from mha_core.export.payload import size
from pages._kit import head_view, model_info, overview, why
from pages._kit.charts import file_name
from pages._kit.text import literal
from pages.see._heads.folds import HEAD_MATRICES
from tests.pages.conftest import random_trace

PAGE = "pages/see/heads.py"


@pytest.fixture
def opened(opened_on_random):
    return opened_on_random


@pytest.mark.slow
def test_for_two_sentences_the_layers_sent_fit_the_longer_one(opened, eye, monkeypatch):
    texts = {"layers": 2, "text": "It was too tired", "twin": "It was too wide"}
    app = opened(**texts)
    assert [len(panel["layers"]) for panel in eye(app)[1]] == [2, 2]
    room = sum(size(layer, values=True) for layer in random_trace(layers=2, text=texts["text"]).layers)
    monkeypatch.setattr(head_view, "BUDGET", 2 * room)  # each has its half
    assert [len(panel["layers"]) for panel in eye(opened(**texts))[1]] == [2, 2]
    texts["twin"] += " to cross the street"
    assert [len(panel["layers"]) for panel in eye(opened(**texts))[1]] == [1, 1]


@pytest.mark.parametrize(
    ("check", "colour", "said", "values"),
    [
        (None, "green-badge[:material/check: ", "passed", {"difference": "0.0000"}),
        (mha.Check(0.25), "red-badge[", "failed", {"difference": literal("0.25")}),
        (mha.Check(None, reason="a reason"), "gray-badge[", "impossible", {"reason": "a reason"}),
    ],
)
def test_the_numbers_are_compared_with_torch(opened, english, monkeypatch, check, colour, said, values):
    if check is not None:
        monkeypatch.setattr(model_info, "against_torch", lambda layer, rows: check)
    [found] = [element.value for element in opened("numbers").markdown if "badge" in element.value]
    assert found.startswith(f":{colour}")
    assert english(f"check.{said}", **values).rstrip(")") in found


def test_closed_folds_compute_and_send_nothing(opened, monkeypatch):
    """No table, figure or measurement, which take most of a run."""
    measured = ((model_info, "against_torch"), (patterns, "metrics"), (patterns, "similarity"))
    for place, name in (*measured, (why, "attribution")):
        monkeypatch.setattr(place, name, lambda *_, **__: pytest.fail("computed for nobody"))
    monkeypatch.setattr(overview, "overview", lambda *_: pytest.fail("computed for nobody"))
    app = opened(layers=2)
    assert [fold.proto.expanded for fold in app.expander if fold.label != "Advanced"] == [False] * 4
    assert not app.dataframe
    assert not app.get("plotly_chart")
    assert not app.main.download_button


@pytest.mark.parametrize(
    ("fold", "shown"),
    [
        ("numbers", {"table"}),
        ("measurements", {"alike", "alike_blob"}),
        ("overview_open", {"overview", "overview_blob"}),
        ("why", {None, "why-terms", "why-terms_blob"}),
    ],
)
def test_an_open_fold_computes_what_is_in_it_and_nothing_else(opened, fold, shown):
    app, closed = opened(fold, layers=2), opened(layers=2)
    kinds = ("selectbox", "plotly_chart", "bidi_component")
    drawn, drawn_always = ({one.key for kind in kinds for one in page.get(kind)} for page in (app, closed))
    assert drawn - drawn_always == shown
    assert len(app.dataframe) == (fold != "why")


@pytest.mark.parametrize("fold", ["numbers", "measurements"])
def test_an_open_fold_names_its_head(opened, english, fold, move):
    """Choosing another head in the pictures does not rerun the page, so a fold may be about the last one."""
    app = opened(fold, layers=2)
    for layer, head in ((0, 0), (1, 2)):
        app = move(app, layer=layer + 1, head=head + 1)
        assert english("overview.name", layer=layer + 1, head=head + 1) in [c.value for c in app.caption]


def test_each_layer_says_what_it_is_given_and_whether_it_has_collapsed(opened, eye, english):
    """In the view, which knows the layer that it shows; the server may not have heard of it."""
    first, *notes = eye(opened(layers=6, layer=4))[0]["notes"]
    assert first == ""
    spreads = [patterns.collapse(layer) for layer in random_trace(layers=6).layers]
    assert None in spreads[1:]
    assert spreads[3] is not None
    for before, (note, spread) in enumerate(zip(notes, spreads[1:], strict=True), start=1):
        stacked = english("heads.stacked", layer=before + 1, layers=6, before=before)
        said = "" if spread is None else english("heads.collapsed", share=f"{100 * spread:.2g}")
        assert note == f"{stacked} {said}".strip()


@pytest.mark.parametrize(
    ("link", "layer", "head"),
    [
        ({"h": 6, "d_model": 18, "n_kv_heads": 2, "head": 5}, 0, 4),  # heads that share keys and values
        ({"mask": "causal", "position": "alibi", "d_k": 5, "layers": 2, "layer": 2, "head": 3}, 1, 2),
        ({"text": "two words", "mask": "padding"}, 0, 0),  # nobody is left to look at
    ],
)
def test_the_browser_gets_the_six_matrices_of_every_head(opened, eye, draws, shows, link, layer, head):
    app = opened(**link)
    recorded = random_trace(**{name: value for name, value in link.items() if name not in ("layer", "head")})
    shows(app, recorded, layer=layer, head=head)
    header, [panel] = eye(app)
    draws(app, recorded)
    assert (header["kv"], header["heads"]) == (recorded.layers[0].n_kv_heads, recorded.layers[0].n_heads)
    for shown, of in zip(panel["layers"], recorded.layers, strict=True):
        assert {"q", "k", "v", "lse"} <= set(shown)
        np.testing.assert_array_equal(shown["v"], of.v)


def test_a_choice_in_the_pictures_holds_on_every_page(opened, move, place, shows, choose, rows, strip):
    app = opened(layers=2)
    sent = app.get_by_key("head_view_blob").proto.bytes
    app = move(app, layer=2, head=3, token="the")
    assert app.get_by_key("head_view_blob").proto.bytes == sent
    assert place(app) == (1, 2, 4)
    shows(app, random_trace(layers=2), layer=1, head=2)
    assert place(move(app, head=1)) == (1, 0, 4)
    app.switch_page("see/token.py").run()
    assert (rows(app), strip(app)["chosen"]) == ({"layer": (2, 2), "head": (1, 4)}, 4)
    choose(app, head=3)
    app.switch_page("see/heads.py").run()
    assert place(app) == (1, 3, 4)


def test_layers_that_did_not_fit_are_loaded_when_chosen(opened, eye, move, monkeypatch):
    monkeypatch.setattr(head_view, "BUDGET", 1000)  # not even a head
    app = opened(layers=2, layer=1, head=2, seed=5)  # of which nothing is cached
    numbers = [(layer["number"], layer["heads"]) for layer in eye(app)[1][0]["layers"]]
    assert numbers == [(0, [1])]
    app = move(app, layer=2, head=4)
    assert [(layer["number"], layer["heads"]) for layer in eye(app)[1][0]["layers"]] == [(1, [3])]


def test_the_view_gets_everything_it_says_about_a_sentence(opened, eye, english):
    app = opened()
    header, _ = eye(app)
    said = [caption.value for caption in app.caption]
    assert english("model.random") in said
    assert any(one.endswith(english("heads.random")) for one in said)  # beside the title
    assert header["groups"] == [None]  # without split words there is no switch for pieces
    assert header["strips"] is header["matrices"] is header["brief"] is header["follows"] is True
    assert header["answers"] == [[]]
    assert header["roles"] == {"0": [["", ""]] * 4}
    assert header["on"] is None


def test_every_matrix_of_a_head_can_be_read_as_a_table(opened):
    app = opened("numbers", mask="causal", head=4, n_kv_heads=2)
    assert [option.split()[0] for option in app.selectbox(key="table").options[:3]] == ["Q₄", "K₂", "V₂"]
    for name in HEAD_MATRICES:
        app.selectbox(key="table").set_value(name).run()
        expected = random_trace(mask="causal", n_kv_heads=2).frame(name, layer=0, head=3)
        shown = app.dataframe[-1].value
        np.testing.assert_allclose(shown.to_numpy(), expected.to_numpy())
        assert [*shown.index] == [*expected.index]
    app.main.download_button[0].click().run()


def test_the_file_of_a_table_holds_the_matrix_of_every_head(opened, monkeypatch):
    offered = {}
    monkeypatch.setattr(
        st, "download_button", lambda _, data, **of: offered.update({of["file_name"]: data()})
    )
    sizes = {"text": "=1+1 @x hello", "h": 2, "d_model": 6}
    opened("numbers", **sizes)
    table = pd.read_csv(BytesIO(offered["headscope-weights-layer-1-1-1-x-hello.csv"]))
    weights = random_trace(**sizes).layers[0].weights()
    np.testing.assert_allclose(table["weights"], weights.ravel(), rtol=1e-6, atol=0)
    assert {word[0] for word in table["query"]} == {"'", "1", "x", "h"}  # no cell starts a formula


@pytest.mark.parametrize(
    "start", ["=", "+", "-", "@", "\t", "\r", "\n=", " =", "\u3000-", "＝", "＋", "－", "＠", "\ufeff\u200b="]
)
def test_a_word_that_looks_like_a_formula_is_escaped(start):
    word = f"{start}cmd|'/c calc'!A1"
    table = pd.DataFrame({"head": [1, -1], "key": [word, "小猫"], word: [-0.5, 0.5]})
    before, file = table.copy(), csv(table)
    assert file.startswith(b"\xef\xbb\xbf")  # by which spreadsheets know UTF-8
    back = pd.read_csv(BytesIO(file), encoding="utf-8-sig", dtype={"key": str}, lineterminator="\n")
    assert [*back] == ["head", "key", f"'{word}"]
    assert [*back["key"]] == [f"'{word}", "小猫"]
    assert back[["head", f"'{word}"]].to_numpy().tolist() == [[1, -0.5], [-1, 0.5]]  # numbers stay numbers
    pd.testing.assert_frame_equal(table, before)


def test_file_names_are_valid_on_every_system():
    parts = [("weights", "layer", 1, "How are you?"), ("a/b\\c:d*e",), ("../../etc",), ("小猫。",)]
    names = ["weights-layer-1-How-are-you", "a-b-c-d-e", "etc", "小猫"]
    assert [file_name(*each) for each in parts] == [f"headscope-{name}" for name in names]


def test_the_view_gets_both_texts_and_their_six_matrices(on_translation, translation, eye, shows):
    app = on_translation("see/heads.py", key_token=4)
    shows(app, translation, layer=1, head=2)
    header, [panel] = eye(app)
    assert panel["tokens"] == [*translation.sides.queries.labels]
    assert panel["keys"] == [*translation.sides.keys.labels]
    assert header["answers"] == [[]]
