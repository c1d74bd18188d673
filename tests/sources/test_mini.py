"""The source "mini": a valid trace for any words, and everything that is offered works."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import mha_core as mha
from mha_core.sources import mini
from mha_core.traces.answers import ANSWERS, NOTHING
from mha_core.training import checkpoints
from mha_core.training.fit import Plan
from mha_core.training.language import MAX_WORDS
from mha_core.training.lexicon import lexicon
from mha_core.training.questions import QUESTIONS, heads_of

TEXT = "The animal didn’t cross the street because it was too [MASK]."
CHINESE = "小猫没有过马路，因为它太[MASK]了。"


def traced(text=TEXT, **settings) -> mha.AttentionTrace:
    return mha.trace(text, source="mini", trained=False, **settings)


@pytest.fixture(
    scope="module",
    params=[
        *({}, {"h": 1, "d_model": 32}, {"h": 16}, {"architecture": "one-layer"}, {"architecture": "latent"}),
        *({"text": CHINESE}, {"text": "it"}),
    ],
    ids=str,
)
def trace(request) -> mha.AttentionTrace:
    return traced(**request.param)


# The laws of a trace


def test_the_tokens_are_the_words_as_typed_behind_cls():
    trace = traced()
    assert trace.tokens.text == TEXT
    expected = ["[CLS]", *TEXT.removesuffix(".").split(), "."]
    assert list(trace.tokens.pieces) == expected
    assert list(trace.tokens.labels) == expected  # "The" and "the" look different
    assert traced("the cat saw the dog").tokens.labels[1:5:3] == ("the\u2009₁", "the\u2009₂")
    assert traced(CHINESE).tokens.pieces[1:5] == ("小猫", "没有", "过", "马路")


def test_torch_computes_the_same_in_every_layer(trace):
    for layer in trace.layers:
        assert mha.against_torch(layer).passed


def test_a_sentence_is_traced_as_the_model_reads_it():
    """The last result and the answers are those of the model itself."""
    import torch

    model = checkpoints.untrained(mini.find("en", "glass-box", 4, 64)).model
    trace = traced()
    words = lexicon("en")
    ids = torch.tensor([words.cut(TEXT, limit=MAX_WORDS)[1]])
    passed = model(ids)
    number = dict(zip(trace.tokens.pieces, ids[0].tolist(), strict=True))
    asked = sorted(set(number.values()))
    assert set(trace.questions) == set(heads_of(4)) - {"hidden"}
    for question, answers in trace.questions.items():
        scores = model.logits(model.read(passed, question)[0])[:, asked]
        probabilities = dict(zip(asked, scores.softmax(-1).T, strict=True))
        for row, answer in enumerate(answers):
            for word, p in answer or ():
                assert p == pytest.approx(float(probabilities[number[word]][row]), abs=1e-6)
    at = trace.tokens.index("[MASK]")
    known = [words.number[word] for word in words.known]
    scores = model.logits(model.read(passed, "hidden")[0, at])[known].softmax(-1)
    for word, p in trace.answers[at]:
        assert p == pytest.approx(float(scores[known.index(words.number[word])]), abs=1e-6)


def test_a_question_reads_the_heads_that_answer_it_and_no_others():
    """In the glass-box there is no other path: with the other heads off its answers stay the same."""
    noun = traced().questions["noun"]
    alone = traced(edits=[mha.edits.Output(layer=1, heads=[1, 2, 3])])
    assert alone.questions["noun"] == noun
    without = traced(edits=[mha.edits.Output(layer=1, heads=0)])
    assert without.questions["noun"] != noun
    assert without.questions["object"] == traced().questions["object"]


# Answers


def test_every_word_is_asked_every_question_and_answered_with_a_word_of_the_text(trace):
    words = {NOTHING, *trace.tokens.pieces}
    asked = set(heads_of(trace.source.h)) - {"hidden"}
    assert set(trace.questions) == asked <= set(QUESTIONS)
    assert asked == {question for questions in trace.source.questions for question in questions.split()} - {
        "hidden"
    }
    for answers in trace.questions.values():
        assert answers[0] is None  # [CLS] is asked nothing
        for answer in answers[1:]:
            assert {word for word, _ in answer} <= words


def test_an_answer_is_spelled_as_it_was_typed():
    trace = mha.trace("Anna and the dog slept. The dog dreamed because it was 2.", source="mini")
    assert (traced().source.step, trace.source.step) == (0, trace.source.steps)  # before and after training
    answered = {word for answer in trace.questions["before"] if answer for word, _ in answer}
    assert {"Anna", "the", "2"} & answered == {"Anna", "the", "2"}
    assert not {"anna", "The", "two"} & answered


def test_answers_are_those_about_the_noun_and_guesses_at_hidden_words():
    trace = traced("He saw it and [MASK] saw her cat")
    at = trace.tokens.index("[MASK]")
    for place, answer in enumerate(trace.answers):
        assert (answer == trace.questions["noun"][place]) == (place != at)
    guessed = {word for word, _ in trace.answers[at]}
    assert guessed <= set(lexicon("en").known)
    assert len(guessed) == ANSWERS


def test_answers_are_the_most_probable_words_in_order(trace):
    answers = [answer for of in (trace.answers, *trace.questions.values()) for answer in of if answer]
    assert answers
    for answer in answers:
        probabilities = [p for _, p in answer]
        assert len(answer) == len({word for word, _ in answer}) == min(ANSWERS, len(answer))
        assert probabilities == sorted(probabilities, reverse=True)
        assert all(0 <= p <= 1 for p in probabilities)
        assert sum(probabilities) <= 1 + 1e-6


def test_words_that_are_alike_are_one_answer():
    answer = traced("the cat saw the cat").questions["noun"][2]
    assert sorted(word for word, _ in answer) == ["[CLS]", "cat", "saw", "the"]
    assert sum(p for _, p in answer) == pytest.approx(1, abs=1e-6)


def test_a_hidden_word_is_not_read():
    one, other = (traced(f"the {word} saw it") for word in ("[MASK]", "cat"))
    assert one.answers[2] != one.questions["noun"][2]
    assert other.answers[2] == other.questions["noun"][2]
    assert not np.array_equal(one.layers[0].x[2], other.layers[0].x[2])


# The language follows from the text


@pytest.mark.parametrize(
    ("text", "language"),
    [
        *[("the cat", "en"), (CHINESE, "zh"), ("[MASK] saw it", "en"), ("[MASK]马路", "zh"), ("它！", "zh")],
        *[("Ann told 小明 that she was tired.", "en"), ("小猫喜欢 pizza，因为它很好吃。", "zh")],
    ],
)
def test_text_that_is_mostly_chinese_goes_to_the_chinese_model(text, language):
    assert traced(text).source.language == language


# Words that are not known


def test_a_word_outside_the_vocabulary_is_read_and_named_by_its_place():
    trace = traced("The aardvark didn't cross the Strasse, did it?")
    assert [trace.tokens.pieces[at] for at in trace.tokens.unknown] == ["aardvark", "Strasse"]
    assert traced().tokens.unknown == ()
    shown = {
        word for answers in trace.questions.values() for answer in answers if answer for word, _ in answer
    }
    assert not any(word in lexicon("en").spares for word in shown)
    assert shown & {"aardvark", "Strasse"}  # as typed


def test_a_callers_own_limit_holds(refused):
    assert len(traced("the cat sat", limit=4).tokens) == 4
    [fix] = refused(traced, "the cat sat", limit=3).fixes
    assert fix == {"text": "the cat"}
    assert len(traced("cat " * (MAX_WORDS - 1), limit=1000).tokens) == MAX_WORDS
    refused(traced, "cat " * MAX_WORDS, limit=1000)


# Which models there are


def test_every_shipped_plan_is_found():
    for plan in checkpoints.PLANS:
        assert mini.find(plan.language, plan.architecture, plan.h, plan.d_model) == plan


# Settings for which no model is shipped, and the nearest that is.
NEAREST = [
    ({"h": 3}, {"h": 4, "d_model": 64}),
    ({"h": 3, "d_model": 66}, {"h": 4, "d_model": 64}),
    ({"h": 10, "d_model": 500}, {"h": 8, "d_model": 512}),
    ({"h": 5, "d_model": 30}, {"h": 4, "d_model": 32}),
    ({"h": 64, "d_model": 64}, {"h": 16, "d_model": 64}),
    ({"h": 128, "d_model": 4096}, None),
    ({"architecture": "standard", "h": 8}, None),
    ({"architecture": "one-layer", "d_model": 32}, None),
    *(({"text": CHINESE, **other}, None) for other in ({"d_model": 256}, {"h": 3})),
    ({"text": CHINESE, "architecture": "one-layer"}, None),
    *((settings, None) for settings in ({"h": 0}, {"h": -4}, {"architecture": "rnn"})),
]


def test_a_model_that_is_not_shipped_is_refused_with_the_nearest_that_are(refused):
    for settings, nearest in NEAREST:
        error = refused(traced, **settings)
        assert error.fixes
        assert nearest in (None, error.fixes[0])
        assert "there are ." not in str(error)
        assert "architecture" not in settings or "text" not in settings or "Chinese" in str(error)
        for fix in error.fixes:
            trace = traced(**{**settings, **fix})
            assert fix.get("h", trace.source.h) == trace.source.h
            assert str(fix.get("d_model" if "architecture" not in fix else "", "")) in str(error)
    for settings in ({"h": "4"}, {"h": 4.0}, {"d_model": None}, {"h": True}):
        assert "must be a whole number" in str(refused(traced, **settings))


# Trained weights, without the shipped files


def test_missing_weights_are_reported(monkeypatch, tmp_path, refused):
    monkeypatch.setattr(checkpoints, "PLANS", (Plan(h=2, d_model=8, steps=6),))  # which nobody has read
    monkeypatch.setattr(checkpoints, "path", lambda plan: tmp_path / checkpoints.name(plan))
    assert "There is no file" in str(refused(mha.trace, TEXT, source="mini", h=2, d_model=8))


def test_two_threads_that_trace_at_once_get_what_one_gets():
    texts = [TEXT, "it saw the cat", CHINESE, "The king met the queen."] * 3

    def read(text):
        trace = traced(text)
        return [layer.result().tobytes() for layer in trace.layers], trace.answers

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(read, texts)) == [read(text) for text in texts]
