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
    13: [*((question,) for question in QUESTIONS), *[("hidden",)] * 7],
    16: [*((question,) for question in QUESTIONS for _ in range(2)), *[("hidden",)] * 4],
    32: [*((question,) for question in QUESTIONS for _ in range(5)), *[("hidden",)] * 2],
}


@pytest.mark.parametrize("h", DOCUMENTED)
def test_the_questions_of_heads_and_the_heads_of_questions_are_as_documented(h):
    heads, asked = heads_of(h), questions_of(h)
    assert asked == tuple(DOCUMENTED[h])
    assert heads[HIDDEN_WORD] == tuple(range(h))
    for question in QUESTIONS:
        assert heads.get(question, ()) == tuple(head for head in range(h) if question in asked[head])
