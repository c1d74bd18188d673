"""Questions: their keys follow from the trace, ambiguous ones are refused, and answers run in the model."""

from dataclasses import replace

import numpy as np
import pytest

import mha_core as mha
from mha_core.lessons.item import Item, like
from mha_core.lessons.question import (
    Cell,
    Choose,
    Draw,
    Estimate,
    Find,
    Flip,
    Order,
    Point,
    Why,
    distance,
    read_row,
    written_row,
)
from mha_core.training.questions import written
from tests.lessons.items import MODELS, QUESTIONS, agrees, count, tracer

TIRED = "The animal didn't cross the street because it was too tired."
WIDE = TIRED.replace("tired", "wide")
IT = f"text={TIRED}&layer=2&head=1&token=it&key_token=animal"  # word 9; animal is 3, street 7


def item(question, link: str = IT) -> Item:
    opened = mha.Scene.of_link(link)
    assert not opened.refused
    return Item(question, opened.scene, tracer)


@pytest.mark.parametrize("language", MODELS)
@pytest.mark.parametrize("kind", QUESTIONS)
def test_no_item_has_another_key_than_its_trace_and_none_is_ambiguous(kind, language):
    counts = count(kind, language, kept=3, seed=1)
    assert (counts.kept, counts.wrong, counts.ambiguous) == (3, [], [])


# A model that is small enough to compute with by hand.
TINY = "text=Fish swim in the river.&source=random&d_model=8&h=2&seed=2&bias=false&layer=1"
TINY += "&token=swim&key_token=Fish"
# Heads whose order is clear, of a model with eight.
EIGHT = f"text={TIRED}&h=8&layer=2&token=it&heads=1,2,7"
# Of each question an answer that is right, one of somebody who has misread it, and one that is wrong.
ANSWERS = [
    (Point(), IT.replace("head=1", "head=2"), "12", "10", "3"),  # at "was" alone head 2 looks at "it"
    (Point(), IT, "3", None, "9"),  # no word looks at "it" much
    (Cell(), IT, "9,3", "3,9", "3,7"),
    (Draw(), IT, "3:80,7:20", None, "3:40,7:60"),
    (Order("entropy"), EIGHT, "7,2,1", "1,2,7", "2,7,1"),
    (Order("weight"), f"{IT}&heads=1,4", "1,4", None, "4,1"),  # the one wrong answer of two heads
    (Estimate("weight"), IT, "0.95", None, "0.1"),
    (Estimate("row_sum"), IT, "0.05", None, "1"),
    (Estimate("d_k"), IT, "16", None, "64"),
    (Estimate("cache"), IT, "128", None, "64"),
    (Flip(), IT, "cut,from=9,to=3", None, "cut,from=9,to=7"),
    (Flip(("off",)), IT, "off,layer=2,head=1", None, "off,layer=2,head=4"),
    (Find(), IT, WIDE, None, TIRED),
    (Find(), IT, WIDE, None, f"{WIDE} The"),  # a word is changed and another one added
    (Find(), IT, WIDE, None, TIRED.replace("animal", "dog")),  # a new name in the answer's place
    (Find(), IT, WIDE, None, TIRED.replace("too tired", "wide")),
    (Estimate("score", given=True), TINY, "1.2", None, "2.36"),  # not divided by √d_k
    (Estimate("weight", given=True), TINY, "0.25", None, "0.29"),
    (Estimate("output"), TINY, None, None, "0.5"),
    (Estimate("result"), TINY.replace("d_model=8", "d_model=4"), None, None, "0"),
    (Estimate("concat"), TINY.replace("d_model=8", "d_model=8&d_v=10"), "20", None, "19"),
    (Estimate("cache"), f"{IT}&architecture=latent", "32", None, "128"),
    (Choose(f"text={WIDE}&layer=2&head=1&token=it"), IT, None, None, None),
]


@pytest.mark.parametrize(
    ("question", "link", "right", "misread", "other"), ANSWERS, ids=lambda one: str(one)[:40]
)
def test_an_answer_is_right_misread_or_wrong_by_what_the_model_does(question, link, right, misread, other):
    asked = item(question, link)
    if right is None:
        right = asked.key.answers[0]
        other = other or {"1": "2", "2": "1"}[right]
    assert agrees(asked)
    assert (asked.is_right(right), asked.misreads(right)) == (True, False)
    assert (asked.is_right(other), asked.misreads(other)) == (False, False)
    assert misread is None or (not asked.is_right(misread) and asked.misreads(misread))


# What an answer is in the model: the edits by which `mha.trace` gives the same.
ROW = np.zeros(13)
ROW[[2, 6]] = 0.4, 0.6
STREET, MORE = np.eye(13)[6], None
RUNS = [
    (Point(), "7", [mha.edits.Weights(values=STREET, heads=0, rows=8, layer=1)], "street"),
    (Cell(), "12,7", [mha.edits.Weights(values=STREET, heads=0, rows=11, layer=1)], "animal"),
    (Draw(), "3:40,7:60", [mha.edits.Weights(values=ROW, heads=0, rows=8, layer=1)], "street"),
    (Flip(), "cut,from=9,to=3", [mha.edits.Hide(rows=8, keys=2)], "street"),
    (Flip(), "off,layer=2,head=1", [mha.edits.Output(heads=0, layer=1)], "[CLS]"),
]


@pytest.mark.parametrize(("question", "answer", "edits", "word"), RUNS, ids=lambda one: str(one)[:30])
def test_an_answer_runs_in_the_model(question, answer, edits, word):
    ran = item(question).run(answer)
    same = mha.trace(TIRED, source="mini", h=4, d_model=64, edits=edits)
    assert ran.executed.answers == same.answers
    assert ran.own.answers[8][0][0] == "animal"
    assert ran.executed.answers[8][0][0] == word
    for layer, other in zip(ran.executed.layers, same.layers, strict=True):
        np.testing.assert_array_equal(layer.weights(), other.weights())


def test_what_changes_is_the_answer_to_the_question_that_the_head_is_asked():
    asked = item(Point(), f"text={TIRED}&layer=2&head=2&token=cross")  # who crosses?
    ran = asked.run("7")
    assert (asked.answer[0][0], asked.answer_in(ran.executed)[0][0]) == ("animal", "street")
    assert ran.own.answers == ran.executed.answers  # nobody asks this head what a word stands for
    # A head with two questions is asked the one about the word: who does it, or what decides.
    link = f"text={TIRED}&architecture=multi-query&layer=2&head=2&token="
    assert [item(Point(), link + token).asked for token in ("it", "cross")] == ["decider", "doer"]
    assert item(Point(), link + "it").answer[0][0] == "tired"


def test_an_estimated_weight_becomes_the_weight_and_the_row_still_sums_to_one():
    ran = item(Estimate("weight")).run("0.25")
    row = ran.executed.layers[1].weights(0, rows=[8])[0]
    assert (row[2], row.sum()) == (pytest.approx(0.25), pytest.approx(1))
    own = ran.own.layers[1].weights(0, rows=[8])[0]
    others = np.arange(13) != 2
    np.testing.assert_allclose(row[others] / row[others].sum(), own[others] / own[others].sum(), rtol=1e-5)


def test_what_cannot_run_is_kept_and_says_so():
    reason = item(Why())
    assert reason.is_right("It looks at the animal.") is None
    assert reason.run("It looks at the animal.").executed is None
    shorter = item(Find())  # which has no answer where the question looks
    assert shorter.answer_in(shorter.run("It was tired.").executed) is None
    asked = item(Point(), f"{IT}&edits=mask,mask=causal")
    ran = asked.run("12")
    assert ran.executed is None
    assert "hidden from its query" in str(ran.refusal)


AMBIGUOUS = [
    (Point(), f"text={TIRED}&layer=2&head=3&token=it", "too close"),
    (Draw(), "text=How are you?&layer=1&head=1&token=How&edits=even", "nearly even"),
    (Order("weight"), f"{IT}&heads=2,3", "too close"),
    (Order("weight"), f"{IT}&heads=1", "2 to 8 heads"),
    (Choose(IT), IT, "nearly the same"),
    (Estimate("weight"), f"text={TIRED}&layer=2&head=1&token=cross&key_token=the", "middle of the line"),
    (Estimate("weight"), f"text={TIRED}&layer=2&head=1&token=it", "key_token"),
    (Flip(("cut",)), f"text={TIRED}&architecture=standard&layer=2&token=it", "0 of 13"),
    (Flip(), "text=How are you?&source=random&layer=1&token=are", "answers nothing"),
    (Find("unsure"), IT, "nothing to find"),
    (Point(), f"text={TIRED}&layer=2&token=dog", "'dog'"),
    (Point(), f"text={TIRED}&layer=3&token=it", "layer 3"),
    (Point(), f"text={TIRED}&layer=2&head=5&token=it", "head 5"),
]


@pytest.mark.parametrize(("question", "link", "reason"), AMBIGUOUS, ids=lambda one: str(one)[:30])
def test_a_question_that_has_no_clear_answer_is_refused(question, link, reason):
    with pytest.raises(mha.MhaError, match=reason):
        _ = item(question, link).key


def test_the_answer_of_a_decoder_is_the_next_word():
    of_decoder = item(Point(), f"text={TIRED}&architecture=decoder&layer=2&token=it")
    assert of_decoder.asked is None
    assert of_decoder.answer[0][0] == "was"


NO_ANSWERS = [
    (Point(), ["", "0", "14", "it", "³", "1.0", "-1", "9" * 400]),
    (Cell(), ["9", "9,", "9,14", "14,3", "9,3,1", "a,b"]),
    (
        Draw(),
        ["", "3:60", "3:60,7:41", "3:60,3:40", "14:100", "3:-5,7:105", "3:1e2", "3", "3:100" + "," * 700],
    ),
    (Order("weight"), ["", "1,2", "1,2,3,3", "1,2,3,4,5", "a"]),
    (Choose(f"text={WIDE}&layer=2&token=it"), ["", "0", "3"]),
    (Estimate("weight"), ["", "nan", "inf", "1.01", "-0.1", "x", "0" * 30]),
    (Flip(), ["", "cut", "swap,from=1,to=2", "temperature,by=2", "cut,from=9,to=3;off,layer=1,head=1"]),
    (Find(), ["", "  ", "x" * 601]),
    (Why(), ["", "x" * 601]),
]


@pytest.mark.parametrize(("question", "answers"), NO_ANSWERS, ids=lambda one: str(one)[:20])
def test_what_is_no_answer_is_refused(question, answers):
    asked = item(question, f"{IT}&heads=1,2,3,4")
    for answer in answers:
        with pytest.raises(mha.MhaError):
            asked.check(answer)
        with pytest.raises(mha.MhaError):
            asked.run(answer)


def test_a_row_is_written_in_whole_per_cents_that_sum_to_100():
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 7, 100, 150):
        row = rng.dirichlet(np.full(n, 0.3))
        again = read_row(written_row(row), n)
        assert again.sum() == pytest.approx(1)
        assert np.abs(again - row).max() <= 0.01
        assert distance(row, again) <= 0.005 * n


PRONOUNS = ["it", "he", "she", "they", "它", "他", "她", "它们", "他们", "她们"]


@pytest.mark.parametrize("language", MODELS)
def test_a_like_case_asks_the_same_of_a_like_word_in_another_sentence(language):
    link = IT if language == "en" else "text=动物没有过马路，因为它太累了。&layer=2&head=1&token=它"
    asked = item(Point(), link)
    found = [like(asked, number) for number in range(1, 4)]
    assert len({one.scene.text for one in found}) == 3
    every = [one for half in written(language).values() for one in half if one.question == asked.asked]
    known = {(one.text, one.word): one.answer for one in every}
    for one in found:
        assert one.key.margin > 0
        assert one.scene.focus.token.lower() in PRONOUNS
        assert one.words[int(one.row.argmax())] == known[one.scene.text, one.scene.focus.token]


def test_a_question_is_about_any_source_that_has_a_trace():
    causal = "text=How are you?&source=random&h=2&d_model=16&mask=causal&layer=1&token=How&key_token=How"
    assert item(Estimate("weight"), causal).key.answers == ("1",)
    shared = item(Estimate("cache"), f"text={TIRED}&architecture=multi-query&layer=2&token=it")
    assert shared.key.answers == ("32",)
    with pytest.raises(mha.MhaError, match="at most 8 numbers in a row; here there are 13"):
        _ = item(Estimate("output"), IT).key
    with pytest.raises(mha.MhaError, match="computed by hand"):
        Estimate("cache", given=True)
    other = replace(item(Point(), causal), question=Draw())
    with pytest.raises(mha.MhaError):
        _ = other.key  # with one visible word an even row is the row


def test_a_head_that_looks_at_its_answer_agrees_also_where_the_word_is_there_twice():
    asked = item(
        Find("disagrees"), "text=一只蜗牛躲开了一只动物。这是因为它太凶了。&layer=2&head=4&token=蜗牛"
    )
    assert asked.answer[0][0] == asked.trace.tokens.pieces[int(asked.row.argmax())] == "只"
    assert not asked.is_right(asked.scene.text)
