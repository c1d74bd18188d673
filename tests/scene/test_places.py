"""Where a scene looks in a trace: words instead of numbers, and what is kept for another text or model."""

import pytest

import mha_core as mha
from mha_core.focus.focus import Focus
from mha_core.scene.places import clamped, indices, with_names
from mha_core.scene.scene import Scene
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
def test_numbers_in_a_focus_become_names_of_words(given, after):
    focus = Focus(**{"token": "cat"} | given)
    expected = Focus(**{"token": "cat"} | given | after)
    assert with_names(focus, SAME, new_text=False) == expected


def test_with_two_texts_queries_and_keys_are_named_in_their_own():
    focus = Focus(token="2", key_token="2", pins="3 4", side="key")
    assert with_names(focus, TWO, new_text=False) == Focus(
        token="cat", key_token="Katze", pins="sah sie", side="key"
    )
    assert with_names(Focus(token="cat", key_token="dog"), TWO, new_text=False).key_token == ""
    focus = Focus(token="dog", key_token="sah", pins="saw", sentence=2, head=3)  # of another text
    assert with_names(focus, TWO, new_text=True) == Focus(token="saw", head=3)


def test_a_layer_or_a_head_beyond_the_last_is_the_last():
    focus = Focus(layer=9, head=9, heads="1,7,x", hop1="8", hop2="2")
    assert clamped(focus, [[4, 4]]) == Focus(layer=2, head=4, heads="1,x", hop1="4", hop2="2")
    trace = mha.trace("the cat saw it", h=2, d_model=4)
    assert indices(trace, focus) == (0, 1, 3)


def test_an_unset_focus_moves_to_an_answer():
    scene = Scene(text="The cook cut the bread.")
    trace = scene.trace()
    layer, head, token = indices(trace, scene.focus)
    assert trace.tokens.labels[token] == "cut"
    assert trace.tokens.labels[trace.layers[layer].weights(head)[token].argmax()] == "cook"
