"""Swapping two words: the new text, and where each token is in it."""

from hypothesis import given
from hypothesis import strategies as st

import mha_core as mha
from mha_core.scene.swaps import Swap, order, text

words = st.lists(st.sampled_from(["a", "cat", "didn't", "sat", ".", "3.14", "动"]), min_size=2, max_size=9)


@given(words, st.data())
def test_each_token_of_a_text_with_swaps_is_one_of_the_text_before(pieces, data):
    before = mha.words(" ".join(pieces))
    at = st.integers(0, len(before) - 1)
    pairs = data.draw(st.lists(st.tuples(at, at).filter(lambda pair: pair[0] != pair[1]), max_size=4))
    swapped = [Swap(*pair) for pair in pairs]
    after = mha.words(text(before, swapped))
    partners = order(before, after, swapped)
    assert sorted(partners) == [*range(len(before))]
    assert [before.pieces[at] for at in partners] == list(after.pieces)
    if len(pairs) == 1 and after.text != before.text:
        (one, other), moved = pairs[0], [at for at, partner in enumerate(partners) if at != partner]
        assert moved == sorted((one, other))
