"""Where a new text is looked at first: a word with content, and a head with an answer there."""

import pytest

import mha_core as mha
from mha_core.focus.focus import Focus
from mha_core.focus.token_names import position
from mha_core.scene.first_look import first_token, focus_on_answer


@pytest.mark.parametrize(
    ("text", "first"),
    [
        *(("The dog saw it.", 3), ("The dog saw [MASK].", 3), ("The dog saw a cat.", 2)),
        *(("The big dog", 1), ("The keys are on the table.", 2), ("The dog there", 1)),
        *(("1 2 zzz 3", 2), ("1 2", 0), ("老师看书。", 2)),
        # Of several pronouns the first one that has a noun before it
        *(("She likes the cat because it is small.", 5), ("She told him that it rained.", 0)),
    ],
)
def test_the_first_token_is_a_pronoun_a_verb_or_a_word_with_content(text, first):
    assert first_token(mha.words(text)) == first


@pytest.mark.parametrize("h", [4, 16])
@pytest.mark.parametrize(
    ("text", "token", "answer"),
    [
        ("My grandmother baked a cake for Beyoncé.", "baked", "grandmother"),
        ("The dog saw it because it was hungry.", "it~2", "dog"),
        ("The big dog slept.", "big", "dog"),
        ("The cook cut the bread.", "bread", "cut"),
    ],
)
def test_the_focus_moves_to_the_head_with_an_answer(h, text, token, answer):
    trace = mha.trace(text, source="mini", h=h)
    queries = trace.sides.queries
    at = position(queries, token)
    focus = focus_on_answer(Focus(head=h, layer=1), trace, at)
    assert focus.layer == 2
    assert queries.labels[trace.layers[1].weights(focus.head - 1)[at].argmax()] == answer


@pytest.mark.parametrize("h", [4, 16])
def test_for_a_pronoun_the_focus_moves_to_the_head_for_its_noun(h):
    trace = mha.trace("Tom told Anna that she won the race.", source="mini", h=h)
    focus = focus_on_answer(Focus(), trace, position(trace.sides.queries, "she"))
    assert "noun" in trace.source.questions[focus.head - 1].split()


def test_the_head_is_drawn_together_with_the_chosen_ones():
    trace = mha.trace("The dog saw it because it was hungry.", source="mini")
    at = position(trace.sides.queries, "it~2")
    drawn = {
        heads: focus_on_answer(Focus(heads=heads, head=3), trace, at).heads
        for heads in ("", "0", "3,4", "1,4")
    }
    assert drawn == {"": "", "0": "0", "3,4": "3,4,1", "1,4": "1,4"}


def test_without_questions_the_head_stays():
    assert focus_on_answer(Focus(head=3), mha.trace("the cat saw it"), 3) == Focus(head=3)
