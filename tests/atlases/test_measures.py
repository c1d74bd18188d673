"""The measures of heads in one text: by hand, beside `mha.metrics`, and against equal weights."""

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core.analysis.patterns import MEASURES as PATTERNS
from mha_core.atlases import measures
from mha_core.atlases.measures import MEASURES, columns, of_layer, of_trace

TEXT = "the cat saw , the cat ."


def trace_of_weights(weights, text: str = TEXT) -> mha.AttentionTrace:
    weights = torch.tensor(np.array(weights), dtype=torch.float32)
    zeros = torch.zeros(*weights.shape[:2], 1)
    bias = weights.log().clamp(min=-1e4)  # all scores are 0: the bias alone makes the weights
    return mha.from_tensors(q=zeros, k=zeros, v=zeros, bias=bias, tokens=text.split())


def column(found, measure: str, of: str = "value") -> np.ndarray:
    return getattr(found, of)[:, MEASURES.index(measure)]


# By hand: "the cat saw , the cat ." has the positions 0 to 6


def random_weights(heads: int = 3, size: int = 7) -> np.ndarray:
    return np.random.default_rng(5).dirichlet(np.full(size, 0.4), (heads, size))


@pytest.mark.parametrize(
    ("measure", "cells"),
    [
        ("punctuation", dict.fromkeys(range(7), (3, 6))),
        ("duplicate token", {4: (0,), 5: (1,)}),
        ("induction", {4: (1,), 5: (2,)}),
    ],
)
def test_a_measure_is_the_weight_on_its_tokens(measure, cells):
    weights = random_weights()
    found = of_trace(trace_of_weights(weights))[0]
    by_row = {row: weights[:, row, list(keys)].sum(1) for row, keys in cells.items()}
    np.testing.assert_allclose(column(found, measure), np.mean(list(by_row.values()), 0), atol=1e-6)
    np.testing.assert_allclose(
        column(found, measure, "chance"), np.mean([len(keys) / 7 for keys in cells.values()]), atol=1e-6
    )
    for head in range(3):
        row = max(by_row, key=lambda one: by_row[one][head])
        assert column(found, measure, "query")[head] == row
        assert column(found, measure, "key")[head] == max(cells[row], key=lambda key: weights[head, row, key])


def test_special_tokens_are_neither_punctuation_nor_repeated():
    text = "[CLS] a [SEP] a [SEP]"
    weights = random_weights(2, 5)
    found = of_trace(trace_of_weights(weights, text))[0]
    np.testing.assert_allclose(
        column(found, "special tokens"), weights[:, :, [0, 2, 4]].sum(2).mean(1), atol=1e-6
    )
    assert np.isnan(column(found, "punctuation")).all()
    np.testing.assert_allclose(column(found, "duplicate token"), weights[:, 3, 1], atol=1e-6)


def test_a_token_after_an_equal_neighbour_is_not_its_own_induction():
    weights = random_weights(2, 3)
    found = of_trace(trace_of_weights(weights, "a a a"))[0]
    # The row 2 repeats 0 and 1, which 1 and 2 itself followed; the row 1 repeats 0, which 1 itself followed.
    np.testing.assert_allclose(column(found, "induction"), weights[:, 2, 1], atol=1e-6)


def test_the_tokenizers_mark_does_not_hide_a_repetition():
    found = of_trace(trace_of_weights(random_weights(1, 3), "cat Ġdog Ġcat"))[0]
    assert column(found, "duplicate token", "query").tolist() == [2]


def test_a_link_counts_where_its_word_gets_the_largest_weight():
    weights = np.array([[[0.1, 0.9], [0.6, 0.4]], [[0.8, 0.2], [0.3, 0.7]]])
    links = [(0, 1, "pronoun to noun"), (1, 0, "pronoun to noun"), (1, 0, "verb to subject")]
    found = of_trace(trace_of_weights(weights, "it sleeps"), links)[0]
    at = [columns(linked=True).index(name) for name in ("pronoun to noun", "verb to subject", "cue to noun")]
    np.testing.assert_allclose(found.value[:, at], [[1, 1, np.nan], [0, 0, np.nan]])
    np.testing.assert_allclose(found.chance[:, at[:2]], 0.5)
    assert found.query[0, at].tolist() == [0, 1, -1]
    assert found.key[0, at].tolist() == [1, 0, -1]


# Properties


@pytest.fixture(params=["full", "causal", "window:2"])
def trace(request):
    return mha.trace("The cat saw, the cat; it saw the cat.", h=5, d_model=35, layers=2, mask=request.param)


def test_the_measures_of_metrics_are_the_same(trace):
    expected = mha.metrics(trace)
    for layer, found in enumerate(of_trace(trace)):
        at = [MEASURES.index(name) for name in PATTERNS]
        np.testing.assert_allclose(found.value[:, at], expected.loc[layer].to_numpy(), atol=1e-6)


def test_chance_is_what_equal_weights_give(trace):
    zeros = torch.zeros(2, len(trace.tokens), 3)
    mask = trace.layers[0].allowed()[0]
    equal = mha.from_tensors(q=zeros, k=zeros, v=zeros, mask=mask, tokens=list(trace.tokens.pieces))
    found, expected = of_trace(trace)[0], of_trace(equal)[0]
    np.testing.assert_allclose(found.chance, np.repeat(expected.value[:1], 5, 0), atol=1e-5)
    np.testing.assert_allclose(expected.chance, expected.value, atol=1e-5)


def test_the_strongest_cell_of_a_position_is_its_largest_weight(trace):
    for layer, found in zip(trace.layers, of_trace(trace), strict=True):
        weights = layer.weights()
        diagonal = np.diagonal(weights, -1, 1, 2)[:, 1:]  # row 1 of a causal mask has two keys, row 0 one
        for head in range(layer.n_heads):
            query, key = (column(found, "previous token", of)[head] for of in ("query", "key"))
            assert key == query - 1
            assert weights[head, query, key] >= diagonal[head].max() - 1e-7


def test_a_text_of_any_length_is_read_in_blocks(monkeypatch):
    trace = mha.trace("a b , a b c a . " * 9, h=3, d_model=21)
    whole = of_trace(trace)[0]
    monkeypatch.setattr("mha_core.attention.functional.CELLS", 300)
    for one, other in zip(of_trace(trace)[0], whole, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_weights_that_are_no_numbers_are_refused(refused):
    trace = mha.trace("a b c", h=2, d_model=14)
    broken = trace.layers[0].tensors["q"].clone()
    broken[1, 2] = torch.nan
    layer = mha.LayerTrace({**trace.layers[0].tensors, "q": broken}, trace.layers[0].rule)
    assert "not numbers" in str(refused(of_layer, layer))


def test_two_texts_have_no_positions(cross_trace):
    for found in (measures.of_layer(layer) for layer in cross_trace.layers):
        assert np.isnan(column(found, "previous token")).all()
