"""Questions and heads: every head has a question, and every question has its heads."""

import pytest

from mha_core.training.questions import HIDDEN_WORD, QUESTIONS, heads_of, questions_of

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


@pytest.mark.parametrize("h", [*range(1, 17), 32])
def test_questions_have_heads_of_their_own_as_soon_as_there_are_six(h):
    heads, asked = heads_of(h), questions_of(h)
    assert heads[HIDDEN_WORD] == tuple(range(h))
    for question in QUESTIONS:
        assert heads.get(question, ()) == tuple(head for head in range(h) if question in asked[head])
    # The noun never shares a head with a question that often has an answer at the same word.
    assert h == 1 or {"doer", "object", "decider"}.isdisjoint(asked[heads["noun"][0]])
    if h >= 6:
        own = [heads[question] for question in QUESTIONS]
        assert len({*map(len, own)}) == 1
        used = [head for some in own for head in some]
        assert used == list(range(len(used)))  # neighbours, in the order of the questions, none shared
        assert h - len(used) >= (2 if h >= 8 else 0)
