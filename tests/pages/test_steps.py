"""The page Steps: the text as tokens and nine steps of the chosen head, with this sentence's numbers."""

import numpy as np
import pytest

from mha_core.analysis.derivation import STEPS, steps
from mha_core.analysis.explanation import MAX_SYMBOLS
from mha_core.analysis.frames import MAX_ALL_PAIRS, Crop
from pages._kit.text import literal, number
from pages.understand._steps import own
from tests.pages.conftest import RANDOM, codes, random_trace

PAGE = "pages/understand/steps.py"
NAMES = ["tokens", *(step.__name__ for step in STEPS)]


@pytest.fixture
def open_steps(opened_on):
    """`open_steps(h=8, …)`: the Steps page in its frame, on random weights, opened by a link."""
    return lambda **link: opened_on("understand/steps.py", **RANDOM | link)


def test_there_are_ten_steps_each_with_its_title_and_the_row_of_the_token_framed(
    open_steps, heatmaps, english
):
    app = open_steps(token=3)
    titles = [f"{i}. {english(f'steps.{name}.title')}" for i, name in enumerate(NAMES, start=1)]
    assert [heading.value for heading in app.header] == titles
    assert len(app.latex) == len(NAMES)
    [badge] = [text.value for text in app.markdown if "badge" in text.value]
    assert badge.startswith(":green-badge[:material/check: ")  # compared with torch
    shown = {matrix["symbol"]: matrix for matrix in heatmaps(app, "steps").values()}
    rows = {symbol: shown[symbol]["row"] for symbol in ("Q₁", "S₁", "A₁", "head₁", "X", "Q", "K₁", "V₁")}
    assert rows == dict.fromkeys(("Q₁", "S₁", "A₁", "head₁"), 2) | dict.fromkeys(("X", "Q", "K₁", "V₁"))
    # A cell of two tokens chooses both, for its path; elsewhere a column is no token.
    assert shown["S₁"]["start"] == shown["A₁"]["start"] == [0, 0]
    assert shown["Q₁"]["start"] == [0, None]


@pytest.mark.parametrize(
    ("link", "layer", "head"),
    [
        ({"text": "two words", "mask": "padding"}, 0, 0),
        ({"h": 8, "head": 6, "mask": "causal", "position": "alibi"}, 0, 5),
        ({"h": 4, "n_kv_heads": 2, "head": 4, "layers": 2, "layer": 2, "d_v": 100}, 1, 3),
    ],
)
def test_every_step_shows_formula_and_matrices(open_steps, heatmaps, component, english, link, layer, head):
    app = open_steps(**link)
    settings = {name: value for name, value in link.items() if name not in ("head", "layer")}
    trace = random_trace(**settings)
    cut, *expected = own.whole(trace, layer=layer, head=head, part=Crop(), query=0)
    assert [step.name for step in expected] == [step.name for step in steps(trace, layer=layer, head=head)]
    expected.insert(0, cut)
    assert english("steps.intro", head=head + 1, layer=layer + 1) in [words.value for words in app.caption]
    shown, groups = heatmaps(app, "steps"), component(app, "steps")["steps"]
    assert {name for group in groups.values() for name in group["matrices"]} == set(shown)  # each sent once
    symbols = [formula for formula in app.latex if "smallmatrix" in formula.value]
    formulas = [formula for formula in app.latex if formula not in symbols]
    [scores] = (step.after[0].frame for step in expected if step.name == "scores")
    of_pairs = [formula.value.count(r"\cdot k_") for formula in symbols]
    assert of_pairs == ([scores.size] if len(scores) <= MAX_SYMBOLS else [])  # Q·K of each pair, by its words
    assert codes(app) == [step.code for step in expected]
    for step, formula in zip(expected, formulas, strict=True):
        assert step.formula.strip() in formula.value
        group = groups[step.name]
        for name, picture in zip(group["matrices"], step.before + step.after + step.wrong, strict=True):
            values = picture.frame.to_numpy()
            blank = np.zeros(values.shape, bool) if picture.hidden is None else picture.hidden
            np.testing.assert_array_equal(shown[name]["values"], np.where(blank, np.nan, values))
            assert shown[name]["symbol"] == picture.symbol
            assert shown[name]["rows"] == [*map(str, picture.frame.index)]
            assert shown[name]["columns"] == [*map(str, picture.frame.columns)]
        made = len(step.before)
        assert group["results"] == (group["matrices"][made:][: len(step.after)] if made else [])


def test_a_click_on_a_cell_chooses_its_tokens(open_steps, click, strip):
    app = open_steps(layers=2)
    for row, column, chosen in (
        (6, 9, ("because", "too")),
        (2, None, ("didn't", "too")),
        *((odd, odd, ("didn't", "too")) for odd in (-1, "2", 1.5)),  # what no picture can have sent
    ):
        app = click(app, "steps", {"row": row, "column": column})
        assert (app.session_state.focus.token, app.session_state.focus.key_token) == chosen
    app = click(app, "steps", {"row": 10**9, "column": 10**9})
    assert strip(app)["chosen"] == 11


def test_the_linked_step_is_shown(open_steps):
    for link, name in (({"operation": "mask"}, "mask"), ({}, "tokens")):
        [style] = [h.body for h in open_steps(**link).get("html") if "st-key-step-" in h.body]
        assert [other for other in NAMES if f"st-key-step-{other} " in style] == [name]


@pytest.fixture
def sentences(open_steps):
    """`sentences(h=8)`: the sentences of the page that a link opens."""

    def read(**link) -> list[str]:
        texts = open_steps(**link).main.markdown
        return [sentence for markdown in texts for sentence in markdown.value.split("\n\n")]

    return read


def test_the_sentences_carry_the_numbers_of_the_sentence(sentences, english):
    said = sentences(mask="causal", head=2)
    facts = {step.name: step.facts for step in steps(random_trace(mask="causal"), layer=0, head=1)}
    scores, scale = facts["scores"], facts["scale"]
    expected = {
        "mask": {"hidden": 66, "cells": 144},
        "scores": {"score": number(scores["score"]), "query": scores["query"], "key": scores["key"]},
        "scale": {"d_k": 16, "scale": "0.25"}
        | {key: number(scale[key]) for key in ("spread_before", "spread_after")},
        "split": {"d_k": 16, "h": 4, "i": 2, "difference": "0"},
        "softmax": {"deviation": number(facts["softmax"]["deviation"])},
        "concat": {"h": 4, "d_v": 16, "i": 2},
    }
    for name, values in expected.items():
        values = {key: literal(value) for key, value in values.items()}
        assert english(f"steps.{name}.why", **values) in said


@pytest.mark.parametrize(
    ("link", "note", "values"),
    [
        ({"n_kv_heads": 2, "head": 4}, "split.shared", {"h": 4, "n_kv": 2, "i": 4, "kv": 2}),
        ({"mask": "full"}, "mask.none", {}),
        ({"text": "two words", "mask": "padding"}, "softmax.empty", {"empty": 2}),
    ],
)
def test_notes_are_shown_only_where_they_hold(sentences, english, link, note, values):
    sentence = english(f"steps.{note}", **values)
    assert sentence in sentences(**link)
    assert sentence not in sentences(**({"mask": "causal"} if note == "mask.none" else {}))


def test_steps_of_two_texts_explain_y_and_a_cell_chooses_tokens_of_both(on_translation, main_text, heatmaps):
    app = on_translation("understand/steps.py")
    assert "K and V from Y" in main_text(app)
    assert [0, 0] in [matrix["start"] for matrix in heatmaps(app, "steps").values()]


@pytest.mark.slow
def test_a_long_text_shows_the_part_around_the_token(open_steps, heatmaps, main_text):
    text = " ".join(f"word{at}" for at in range(300))
    app = open_steps(text=text, token=290, mask="causal")
    part, layer = slice(300 - MAX_ALL_PAIRS, 300), random_trace(text=text, mask="causal").layers[0]
    shown = {one["symbol"]: one for one in heatmaps(app, "steps").values()}
    for name, values in (("A₁", layer.weights(0)[part, part]), ("V₁", layer.v[0][part])):
        drawn = shown[name]
        np.testing.assert_allclose(np.nan_to_num(drawn["values"]), values, atol=1e-6)
        assert drawn["rows"] == [f"word{at}" for at in range(44, 300)]
        assert "tokens 45–300 of 300" in drawn["saved"]["caption"]
        assert "45-300" in drawn["saved"]["file"]
    assert (shown["A₁"]["start"][0], shown["A₁"]["row"]) == (44, 289 - 44)
    assert "tokens 45–300 of 300" in main_text(app)
    assert "of 300" not in main_text(open_steps(text=text.rpartition(" word256")[0], mask="causal"))
