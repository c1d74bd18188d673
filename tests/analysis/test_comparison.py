"""Two heads compared word by word: the pairing of words, their weights, and the divergence of rows."""

import numpy as np
import pandas as pd
import pytest

import mha_core as mha
from mha_core.analysis.comparison import aligned, compare, divergence, is_same_text
from mha_core.traces.tokens import Tokens, words


def pieces(text: str, cuts: dict[str, list[str]], special: bool = True) -> Tokens:
    """A text whose words are split into pieces, between [CLS] and [SEP]."""
    found, spans, numbers = [], [], []
    whole = words(text)
    for number, (word, (start, _)) in enumerate(zip(whole.pieces, whole.spans, strict=True)):
        for piece in cuts.get(word, [word]):
            found.append(piece)
            spans.append((start, start := start + len(piece)))
            numbers.append(number)
    if special:
        found, spans, numbers = (
            ["[CLS]", *found, "[SEP]"],
            [(0, 0), *spans, (0, 0)],
            [0, *(number + 1 for number in numbers), len(whole) + 1],
        )
    marked = (0, len(found) - 1) if special else ()
    return Tokens(text, tuple(found), tuple(spans), tuple(numbers), marked)


def layer_of(tokens: Tokens, seed: int):
    rng = np.random.default_rng(seed)
    q, k, v = rng.normal(size=(3, 2, len(tokens), 5)).astype(np.float32)
    return mha.from_tensors(q=q, k=k, v=v, tokens=tokens).layers[0]


def test_rows_are_averaged_and_columns_summed_over_the_pieces_of_a_word():
    whole, cut = words("unhappy dogs bark"), pieces("Unhappy dogs bark", {"Unhappy": ["Un", "hap", "py"]})
    first, second = layer_of(whole, 1), layer_of(cut, 2)
    assert not is_same_text(first, second)
    compared = compare(first, second, heads=(0, 1))
    assert list(compared.first.index) == ["unhappy", "dogs", "bark"] == list(compared.second.columns)
    np.testing.assert_array_equal(compared.first, first.weights(0))
    weights = second.weights(1)
    np.testing.assert_allclose(compared.second.iloc[0, 0], weights[1:4, 1:4].sum(1).mean(), rtol=1e-6)
    np.testing.assert_allclose(compared.second.iloc[0, 2], weights[1:4, 5].mean(), rtol=1e-6)
    np.testing.assert_allclose(compared.second.iloc[2, 0], weights[5, 1:4].sum(), rtol=1e-6)
    left = weights[:, [0, 6]].sum(1)
    rows = np.array([left[1:4].mean(), left[4], left[5]])
    np.testing.assert_allclose(compared.others, (0.0, rows.mean()), atol=1e-6)


@pytest.mark.parametrize(
    ("one", "other", "pairs"),
    [
        (words("the cat was very tired ."), words("The cat was wide ."), "the the, cat cat, was was, . ."),
        (words("the cat was tired"), words("the cat was wide"), "the the, cat cat, was was, tired wide"),
        (pieces("cat sat", {}), words("the cat sat"), "cat cat, sat sat"),  # no special token with a word
    ],
)
def test_words_are_paired_in_order_and_replaced_words_with_each_other(one, other, pairs):
    assert ", ".join(f"{first.form} {second.form}" for first, second in aligned(one, other)) == pairs


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [("a " * 300, "a " * 300, "256 tokens"), ("one two", "three four five", "no word in common")],
)
def test_texts_that_are_too_long_or_have_nothing_in_common_are_refused(one, other, said, refused):
    assert said in str(refused(compare, layer_of(words(one), 1), layer_of(words(other), 2), heads=(0, 0)))


def test_divergence_is_0_for_equal_rows_1_for_disjoint_rows_and_nan_for_zeros():
    names = pd.Index(["a", "b", "c", "d"], name="query")
    first = pd.DataFrame([[0.5, 0.5], [1.0, 0.0], [0.2, 0.0], [0.0, 0.0]], names)
    second = pd.DataFrame([[0.25, 0.25], [0.0, 1.0], [0.3, 0.3], [1.0, 0.0]], names)
    bits = divergence(first, second)
    third = 1 - 0.5 * np.log2(1) - 0.5  # H of each: 0 and 1
    middle = -(0.75 * np.log2(0.75) + 0.25 * np.log2(0.25))
    np.testing.assert_allclose(bits[:3], [0, 1, middle - third], atol=1e-12)
    assert np.isnan(bits["d"])
