"""Questions and heads: every head has a question, and every question has its heads."""

import pytest

from mha_core.training.questions import HIDDEN_WORD, LINKS, QUESTIONS, heads_of, questions_of

HEADS = [*range(1, 17), 32]

DOCUMENTED = {
    1: [QUESTIONS],
    2: [("noun", "after"), ("doer", "object", "before", "decider")],
    3: [("noun",), ("doer", "decider"), ("object", "before")],
    4: [("noun",), ("doer", "decider"), ("object",), ("before",)],
    5: [("noun",), ("doer", "decider"), ("object",), ("before",), ("after",)],
    6: [(question,) for question in QUESTIONS],
    8: [*((question,) for question in QUESTIONS), ("hidden",), ("hidden",)],
    16: [*((question,) for question in QUESTIONS for _ in range(2)), *[("hidden",)] * 4],
    32: [*((question,) for question in QUESTIONS for _ in range(5)), *[("hidden",)] * 2],
}


@pytest.mark.parametrize("h", DOCUMENTED)
def test_the_questions_of_heads_are_as_documented(h):
    assert questions_of(h) == tuple(DOCUMENTED[h])


@pytest.mark.parametrize("h", HEADS)
def test_heads_of_and_questions_of_agree(h):
    heads, asked = heads_of(h), questions_of(h)
    for question in QUESTIONS:
        assert heads.get(question, ()) == tuple(head for head in range(h) if question in asked[head])
    left = [head for head in range(h) if asked[head] == (HIDDEN_WORD,)]
    assert set(left).isdisjoint(head for question in QUESTIONS for head in heads.get(question, ()))


@pytest.mark.parametrize("h", HEADS)
def test_all_heads_help_to_guess_hidden_words(h):
    assert heads_of(h)[HIDDEN_WORD] == tuple(range(h))


@pytest.mark.parametrize("h", [h for h in HEADS if h >= 6])
def test_from_six_heads_on_each_question_has_as_many_of_its_own_and_the_last_ones_are_left(h):
    heads = heads_of(h)
    own = [heads[question] for question in QUESTIONS]
    assert len({len(of) for of in own}) == 1
    used = [head for of in own for head in of]
    assert used == list(range(len(used)))  # neighbours, in the order of the questions, none shared
    assert h - len(used) >= (2 if h >= 8 else 0)


def test_the_noun_has_a_head_that_no_other_question_with_an_answer_at_that_word_reads():
    """With two heads or more, the head of the noun never has the questions for doer and object."""
    for h in HEADS[1:]:
        assert not {"doer", "object", "decider"} & set(questions_of(h)[heads_of(h)["noun"][0]])


def test_every_question_has_a_link_that_answers_it_and_every_link_a_question():
    assert set(LINKS.values()) == set(QUESTIONS)
