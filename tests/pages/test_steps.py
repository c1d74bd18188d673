"""The Steps page tells nine steps with this sentence's numbers, for the head and layer that were chosen."""

import re

import numpy as np
import pytest

import mha_core as mha
from mha_core.analysis.derivation import STEPS, steps
from pages._kit.state import Scene
from pages._kit.text import literal, number

PAGE = "pages/understand/steps.py"
NAMES = [step.__name__ for step in STEPS]


@pytest.fixture
def told(opened_on_random):
    """`told(h=8, …)`: the Steps page in its frame, on random weights, opened by a link."""

    def open_(**link):
        app = opened_on_random(**link)
        app.switch_page("understand/steps.py").run()
        return app

    return open_


def trace(**settings) -> mha.AttentionTrace:
    return mha.trace(**(Scene(source="random").settings() | settings))


@pytest.mark.parametrize("where", ["alone", "in the frame"])
def test_there_are_nine_steps_each_with_its_title(alone, told, english, where):
    app = alone(PAGE) if where == "alone" else told()
    assert not app.exception
    assert not app.error
    titles = [f"{i}. {english(f'steps.{name}.title')}" for i, name in enumerate(NAMES, start=1)]
    assert [heading.value for heading in app.header] == titles
    assert len(app.latex) == 9


def test_the_page_is_checked_against_torch(told):
    [badge] = [m.value for m in told().markdown if "badge" in m.value]
    assert badge.startswith(":green-badge[:material/check: ")


def test_the_page_says_which_head_of_which_layer_it_follows(told, english):
    app = told(layers=2, layer=2, head=3)
    assert english("steps.intro", head=3, layer=2) in [caption.value for caption in app.caption]


@pytest.mark.parametrize(
    ("link", "layer", "head"),
    [
        ({}, 0, 0),
        ({"h": 8, "head": 6, "mask": "causal", "position": "alibi"}, 0, 5),
        ({"text": "How are", "h": 8, "d_model": 512, "d_v": 100}, 0, 0),
        ({"h": 4, "n_kv_heads": 2, "head": 4, "layers": 2, "layer": 2}, 1, 3),
        ({"text": "one"}, 0, 0),
        ({"text": "two words", "mask": "padding"}, 0, 0),
    ],
    ids=["defaults", "causal, alibi", "wide values", "shared keys, second layer", "one token", "hidden"],
)
def test_every_step_shows_its_formula_and_its_matrices(told, drawn, link, layer, head):
    app = told(**link)
    assert not app.exception
    settings = {name: value for name, value in link.items() if name not in ("head", "layer")}
    expected = steps(trace(**settings), layer=layer, head=head)
    for step, formula in zip(expected, app.latex, strict=True):
        assert step.formula.strip() in formula.value
        for place, picture in enumerate(step.before + step.after):
            values = picture.frame.to_numpy()
            blank = ~np.isfinite(values) if picture.hidden is None else picture.hidden
            shown = drawn(app, f"{step.name}-{place}-{picture.name}")
            np.testing.assert_array_equal(shown, np.where(blank, np.nan, values))


def test_what_a_step_makes_is_told_from_what_it_takes(told, english):
    captions = [caption.value for caption in told().main.caption]
    assert f"→ **A₁** {english('matrix.weights')}" in captions  # made by the softmax
    assert f"**A₁** {english('matrix.weights')}" in captions  # taken by the mixture


def sentences(app) -> list[str]:
    return [markdown.value for markdown in app.main.markdown]


def test_the_sentences_carry_the_numbers_of_the_sentence(told, english):
    app = told(mask="causal", head=2)
    said = sentences(app)
    facts = {step.name: step.facts for step in steps(trace(mask="causal"), layer=0, head=1)}

    def sentence(name: str, **values: object) -> str:
        return english(f"steps.{name}.why", **{key: literal(value) for key, value in values.items()})

    scores = facts["scores"]
    assert sentence("mask", hidden=66, cells=144) in said
    assert sentence("scores", score=number(scores["score"]), query=scores["query"], key=scores["key"]) in said
    scale = facts["scale"]
    spreads = {key: number(scale[key]) for key in ("spread_before", "spread_after")}
    assert sentence("scale", d_k=16, scale="0.25", **spreads) in said
    assert sentence("split", d_k=16, h=4, i=2, difference="0") in said
    assert sentence("softmax", deviation=number(facts["softmax"]["deviation"])) in said
    assert sentence("concat", h=4, d_v=16, i=2) in said


@pytest.mark.parametrize(
    ("link", "note", "values"),
    [
        ({"n_kv_heads": 2, "head": 4}, "split.shared", {"h": 4, "n_kv": 2, "i": 4, "kv": 2}),
        ({"position": "rotary"}, "split.rotary", {}),
        ({"position": "alibi"}, "mask.biased", {}),
        ({"mask": "full"}, "mask.none", {}),
        ({"text": "two words", "mask": "padding"}, "softmax.empty", {"empty": 2}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_note_stands_where_it_holds_and_only_there(told, english, link, note, values):
    sentence = english(f"steps.{note}", **values)
    assert sentence in sentences(told(**link))
    other = {"mask": "causal"} if note == "mask.none" else {}
    assert sentence not in sentences(told(**other))


def test_words_in_the_sentences_are_shown_as_typed(told):
    app = told(text="*a* *a* *a*")
    assert not app.exception
    [scores] = [said for said in sentences(app) if "dot product is large" in said]
    word = rf"“(a|{re.escape(literal('*'))})\u2009[₁-₆]”"
    assert re.search(f"{word} to {word}", scores)


def test_the_steps_of_two_texts_say_what_y_is(on_translation, main_text):
    assert "made of Y" in main_text(on_translation("understand/steps.py"))
