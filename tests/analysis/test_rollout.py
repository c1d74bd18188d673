"""Two hops: the product of two layers' weights, and the pair of heads that reaches furthest."""

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core.analysis.rollout import best_hops, two_hops

TEXT = "the old cat saw the new cat"


@pytest.fixture(scope="module")
def trace():
    return mha.trace(TEXT, h=3, d_model=15, layers=3, seed=2)


@pytest.mark.parametrize("layer", [1, 2])
@pytest.mark.parametrize(("first", "second"), [(0, 0), (2, 1)])
def test_each_cell_sums_over_the_tokens_between(trace, layer, first, second):
    one, two = trace.layers[layer - 1].weights(first), trace.layers[layer].weights(second)
    product = two_hops(trace, first=first, second=second, layer=layer).to_numpy()
    for query in range(7):
        for key in range(7):
            expected = sum(float(two[query, t]) * float(one[t, key]) for t in range(7))
            assert product[query, key] == pytest.approx(expected, abs=1e-6)


def test_rows_sum_to_one_and_carry_the_words(trace):
    product = two_hops(trace, first=1, second=2)
    np.testing.assert_allclose(product.sum(axis=1), 1, atol=1e-6)
    assert tuple(product.index) == tuple(product.columns) == trace.tokens.labels
    assert (product.index.name, product.columns.name) == ("query", "key")


def test_a_causal_mask_holds_over_two_hops():
    trace = mha.trace(TEXT, h=3, d_model=15, layers=2, mask="causal")
    product = two_hops(trace, first=0, second=1).to_numpy()
    assert np.triu(product, 1).max() == 0


def test_the_best_pair_of_heads_reaches_more_than_every_other(trace):
    best = best_hops(trace, 6, 2)
    reached = {
        (first, second): two_hops(trace, first=first, second=second).to_numpy()[6, 2]
        for first in range(3)
        for second in range(3)
    }
    assert max(reached, key=reached.get) == best


@pytest.mark.parametrize("layer", [0, 3, -1])
def test_a_layer_without_one_before_it_is_refused(trace, layer):
    with pytest.raises(mha.MhaError, match="Two hops end in a layer that has one before it"):
        two_hops(trace, first=0, second=0, layer=layer)


def test_a_head_that_is_not_there_is_refused(trace):
    with pytest.raises(mha.MhaError, match="heads 0 to 2"):
        two_hops(trace, first=3, second=0)


def test_two_one_hot_heads_lead_where_they_point():
    """it → tired in layer 2, tired → animal in layer 1: together it → animal."""
    trace = mha.trace("animal it tired", h=1, d_model=4, layers=2)
    big = 1000.0
    layers = []
    for to in ([0, 1, 0], [0, 2, 2]):  # whom each token looks at: in layer 1, then in layer 2
        q = torch.eye(3)[to][None] * big
        parts = {"q": q, "k": torch.eye(3)[None], "v": torch.zeros(1, 3, 4)}
        layers.append(mha.LayerTrace(parts, mha.ScoreRule()))
    pointed = mha.AttentionTrace(trace.tokens, tuple(layers), {})
    assert two_hops(pointed, first=0, second=0).loc["it"].to_dict() == {"animal": 1, "it": 0, "tired": 0}
