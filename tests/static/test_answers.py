"""Answers in words and the first look of a page that computes, against those of the app."""

import json

import numpy as np
import pytest

from mha_core import AttentionTrace
from mha_core.attention.edits import Output
from mha_core.export import head_view
from mha_core.focus.focus import Focus
from mha_core.scene.first_look import first_token, focus_on_answer
from mha_core.sources import mini
from mha_core.static import parts
from mha_core.training import checkpoints
from pages._kit import answers, text
from tests.static import referee

CODE = """
const decoded = (name) => JSON.parse(new TextDecoder().decode(file(name)));
const model = new SmallModel(file("model"));
const lexicon = new Lexicon(decoded("words"));
const texts = decoded("said").texts[language].page;
return decoded("texts").map((text) => {
  const read = new ReadSentence(model, lexicon, lexicon.cut(text));
  const first = firstToken(read);
  return [answersInWords(read, texts), first, headWithAnswer(read, first)];
});
"""
MODULES = ["engine/model.js", "engine/lexicon.js", "engine/sentence.js", "engine/answers.js"]
# How heads share keys and values changes no words: tests/static/test_engine.py compares their answers.
KINDS = ("glass-box", "standard", "one-layer", "decoder")
PLANS = [plan for plan in checkpoints.PLANS if plan.architecture in KINDS]
PLANS = [plan for plan in PLANS if plan.d_model == 64 and plan.h in (1, 4, 8)]


def is_on_edge(trace: AttentionTrace) -> bool:
    """Whether rounding decides if an answer is sure, if a word is named, or which per cent is written."""
    every = [at for of_question in (trace.answers, *trace.questions.values()) for at in of_question if at]
    shares = np.array([share for answer in every for _, share in answer])
    limits = np.abs(shares[:, None] - [0.01, 0.1, 0.3, 0.9]).min()
    # Between two tenths the order of questions turns, and between two per cents the number.
    turns = [np.abs(at * shares - np.floor(at * shares) - 0.5).min() / at for at in (10, 100)]
    return min(limits, *turns) < 1e-5


@pytest.fixture
def own_language():
    """The language that a test sets is its own: later tests of this process begin without one."""
    yield
    text._run_language.set(None)


@pytest.mark.usefixtures("own_language")
@pytest.mark.parametrize("plan", PLANS, ids=checkpoints.name)
def test_answers_and_the_first_look_are_those_of_the_app(javascript, plan):
    given = [case.text for case in referee.cases(plan, generated=5, by_hand=8, odd=4)]
    files = {"model": parts.model(plan), "words": parts.words(plan.language), "said": parts.texts()}
    code = f"const language = {json.dumps(plan.language)};\n{CODE}"
    found = javascript(MODULES, code, **files, texts=json.dumps(given).encode())
    text.set_language(plan.language)
    compared = 0
    for typed, (said, first, head) in zip(given, found, strict=True):
        trace = mini.follow(mini.model(plan), typed)
        if is_on_edge(trace):
            continue
        compared += 1
        expected = [[[*answer] for answer in at] for at in answers.in_words(trace)]
        assert said == json.loads(json.dumps(expected)), typed
        if mini.language(typed) != plan.language:
            continue  # the app would ask the other model
        assert first == first_token(trace.tokens), typed
        focus = focus_on_answer(Focus(), trace, first)
        assert (0 if head is None else head) == focus.head - 1, typed
    assert compared > len(given) / 3


@pytest.mark.usefixtures("own_language")
def test_weights_of_a_head_that_is_off_are_no_reason_for_an_answer(javascript):
    plan, typed = PLANS[1], "The animal didn't cross the street because it was too tired."
    files = {"model": parts.model(plan), "words": parts.words(plan.language), "said": parts.texts()}
    code = CODE.replace("lexicon.cut(text))", 'lexicon.cut(text), readEdits("off,layer=2,head=1").edits)')
    [[said, *_]] = javascript(
        [*MODULES, "engine/edits.js"],
        f'const language = "en";\n{code}',
        **files,
        texts=json.dumps([typed]).encode(),
    )
    trace = mini.follow(mini.model(plan), typed, edits=(Output(layer=1, heads=0),))
    for of_app in answers.in_words(trace), said:
        asked, words, note, *_ = of_app[trace.tokens.index("it")][0]
        assert (asked, words) == ("What does “it” stand for?", "no word here 100%")
        assert note == ""


def test_the_page_has_every_text_that_its_scripts_name():
    said = json.loads(parts.texts())["texts"]
    for language, words in said.items():
        assert words["view"] == head_view.texts(language)
        assert words["page"].keys() == said["en"]["page"].keys()
