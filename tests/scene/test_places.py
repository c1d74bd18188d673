"""Where a scene looks in a trace: words in place of numbers, and what stays in another text or model."""

import pytest

import mha_core as mha
from mha_core.scene.focus import Focus
from mha_core.scene.places import at_answer, first_token, indices, named, within
from mha_core.scene.scene import Scene
from mha_core.scene.token_names import position
from mha_core.traces.tokens import Sides, spaced

TOKENS = spaced(["the", "cat", "saw", "the", "dog"])
OTHERS = spaced(["die", "Katze", "sah", "sie"])
SAME, TWO = Sides(TOKENS, TOKENS), Sides(TOKENS, OTHERS)


@pytest.mark.parametrize(
    ("given", "after"),
    [
        ({"token": "4"}, {"token": "the~2"}),
        ({"token": "99"}, {"token": "dog"}),
        ({"token": "cat"}, {"token": "cat"}),
        ({"token": "the"}, {"token": "the"}),  # a word that is there stays as it is said
        ({"token": "bird"}, {"token": "saw"}),  # the first verb
        ({"token": ""}, {"token": ""}),
        ({"pins": "5 the~1 bird"}, {"pins": "dog the~1"}),
        ({"token": "bird", "sentence": 2}, {"token": "bird"}),
    ],
)
def test_a_focus_names_words_that_are_there(given, after):
    focus = Focus(**{"token": "cat"} | given)
    expected = Focus(**{"token": "cat"} | given | after)
    assert named(focus, SAME, anew=False) == expected


def test_of_two_texts_each_has_its_own_names():
    focus = Focus(token="2", key_token="2", pins="3 4", side="key")
    assert named(focus, TWO, anew=False) == Focus(token="cat", key_token="Katze", pins="sah sie", side="key")
    assert named(Focus(token="cat", key_token="dog"), TWO, anew=False).key_token == ""


def test_a_new_text_is_looked_at_from_its_first_token_alone():
    focus = Focus(token="dog", key_token="sah", pins="saw", sentence=2, head=3)
    assert named(focus, TWO, anew=True) == Focus(token="saw", head=3)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        *(("The dog saw it.", 3), ("The dog saw [MASK].", 3), ("The dog saw a cat.", 2)),
        *(("The big dog", 1), ("The keys are on the table.", 2), ("The dog there", 1)),
        *(("1 2 zzz 3", 2), ("1 2", 0), ("老师看书。", 2)),
    ],
)
def test_what_is_looked_at_first_is_a_pronoun_a_verb_or_a_word_with_content(text, first):
    assert first_token(mha.words(text)) == first


def test_a_layer_or_a_head_beyond_the_last_is_the_last():
    focus = Focus(layer=9, head=9, heads="1,7,x", hop1="8", hop2="2")
    assert within(focus, [[4, 4]]) == Focus(layer=2, head=4, heads="1,x", hop1="4", hop2="2")
    trace = mha.trace("the cat saw it", h=2, d_model=4)
    assert indices(trace, Scene(focus=focus)) == (0, 1, 3)


@pytest.mark.parametrize("h", [4, 8, 16])
@pytest.mark.parametrize(
    ("text", "token", "answer"),
    [
        ("My grandmother baked a cake for Beyoncé.", "baked", "grandmother"),
        ("The dog saw it because it was hungry.", "it~2", "dog"),
        ("The big dog slept.", "big", "dog"),
        ("The cook cut the bread.", "bread", "cut"),
    ],
)
def test_a_word_is_looked_at_by_the_head_whose_question_has_an_answer_there(h, text, token, answer):
    trace = mha.trace(text, source="mini", h=h)
    queries = trace.sides.queries
    at = position(queries, token)
    focus = at_answer(Focus(head=h, layer=1), trace, at)
    assert focus.layer == 2
    assert queries.labels[trace.layers[1].weights(focus.head - 1)[at].argmax()] == answer


@pytest.mark.parametrize("h", [4, 8, 16])
def test_a_pronoun_is_looked_at_by_a_head_that_is_asked_for_its_noun(h):
    trace = mha.trace("Tom told Anna that she won the race.", source="mini", h=h)
    focus = at_answer(Focus(), trace, position(trace.sides.queries, "she"))
    assert "noun" in trace.source.questions[focus.head - 1].split()


def test_the_head_is_drawn_beside_those_that_were_chosen():
    trace = mha.trace("The dog saw it because it was hungry.", source="mini")
    at = position(trace.sides.queries, "it~2")
    drawn = {
        heads: at_answer(Focus(heads=heads, head=3), trace, at).heads for heads in ("", "0", "3,4", "1,4")
    }
    assert drawn == {"": "", "0": "0", "3,4": "3,4,1", "1,4": "1,4"}


def test_a_source_that_asks_nothing_leaves_the_head_as_it_is():
    assert at_answer(Focus(head=3), mha.trace("the cat saw it"), 3) == Focus(head=3)


def test_a_bare_link_of_a_text_without_its_word_looks_where_there_is_an_answer():
    scene = Scene(text="The cook cut the bread.")
    trace = scene.trace()
    layer, head, token = indices(trace, scene)
    assert trace.tokens.labels[token] == "cut"
    assert trace.tokens.labels[trace.layers[layer].weights(head)[token].argmax()] == "cook"
