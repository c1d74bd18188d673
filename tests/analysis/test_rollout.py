"""Rollout and two hops: products of layers' weights, by hand and by properties of any weights."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import mha_core as mha
from mha_core.analysis.rollout import best_hops, rollout, two_hops
from mha_core.attention import functional
from mha_core.traces.mixer import MixerTrace

TEXT = "the old cat saw the new cat"


@pytest.fixture(scope="module")
def trace():
    return mha.trace(TEXT, h=3, d_model=15, layers=3, seed=2)


@pytest.mark.parametrize("layer", [1, 2])
@pytest.mark.parametrize(("first", "second"), [(0, 0), (2, 1)])
def test_each_cell_sums_over_the_tokens_between(trace, layer, first, second):
    one, two = trace.layers[layer - 1].weights(first), trace.layers[layer].weights(second)
    product = two_hops(trace, first=first, second=second, layer=layer)
    for query in range(7):
        for key in range(7):
            expected = sum(float(two[query, t]) * float(one[t, key]) for t in range(7))
            assert product.iloc[query, key] == pytest.approx(expected, abs=1e-6)
    assert tuple(product.index) == tuple(product.columns) == trace.tokens.labels
    assert (product.index.name, product.columns.name) == ("query", "key")


def test_the_best_pair_of_heads_reaches_more_than_every_other(trace):
    best = best_hops(trace, 6, 2)
    reached = {
        (first, second): two_hops(trace, first=first, second=second).to_numpy()[6, 2]
        for first in range(3)
        for second in range(3)
    }
    assert max(reached, key=reached.get) == best


# Rollout


@pytest.mark.parametrize("heads", ["mean", "max", "min"])
@pytest.mark.parametrize("residual", [0, 0.5, 1])
def test_a_rollout_is_the_product_of_the_joined_layers_and_the_residual(heads, residual):
    trace = mha.trace(TEXT, h=3, d_model=15, layers=3, mask="causal")
    expected = np.eye(7)
    for at, layer in enumerate(trace.layers):
        joined = getattr(layer.weights().astype(float), heads)(0)
        step = residual * np.eye(7) + (1 - residual) * joined
        expected = step / step.sum(1, keepdims=True) @ expected
        for number in (at, at - 3):
            found = rollout(trace, layer=number, residual=residual, heads=heads)
            np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_array_equal(np.triu(found, 1), 0)
    assert tuple(found.index) == tuple(found.columns) == trace.tokens.labels
    assert (found.index.name, found.columns.name) == ("query", "key")
    assert residual != 0.5 or heads != "mean" or found.equals(rollout(trace))  # the defaults


def test_a_rollout_without_special_tokens_is_that_of_the_others():
    trace = mha.trace("[CLS] the cat [SEP]", h=2, d_model=8, layers=2)
    found = rollout(trace, without="special")
    assert tuple(found.index) == ("the", "cat")
    steps = []
    for layer in trace.layers:
        inner = layer.weights().astype(float)[:, 1:3, 1:3]
        steps.append(0.5 * (inner / inner.sum(-1, keepdims=True)).mean(0) + 0.5 * np.eye(2))
    np.testing.assert_allclose(found, steps[1] @ steps[0], atol=1e-6)


def test_weight_on_sinks_and_hidden_rows_is_not_redistributed():
    q = torch.zeros(1, 3, 2)
    mask = torch.tensor([[True, False, False], [False, False, False], [True, True, True]])
    rule = mha.ScoreRule(mask=mask, sinks=torch.zeros(1))
    found = rollout(mha.from_tensors(q=q, k=q, v=q, tokens="a b c", rule=rule))
    # Row 0: weight 1/2 on itself beside the sink; row 1: nothing; row 2: 1/4 on each.
    np.testing.assert_allclose(found, [[1, 0, 0], [0, 1, 0], [1 / 7, 1 / 7, 5 / 7]], rtol=1e-6)


MIXER = MixerTrace(dict.fromkeys(("v", "output"), torch.ones(2, 7, 3)), "gated delta rule")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layer": 3}, "layers 0 to 2; layer 3"),
        ({"layer": -4}, "layer -4"),
        ({"residual": 1.5}, "residual 1.5 is out of range; 0 to 1 work"),
        ({"heads": "sum"}, "'sum'; mean, max or min can be used"),
        ({"without": range(7)}, "All 7 tokens would be left out"),
        ({"trace": [1, 2]}, "got a list"),
        ({"trace": "cross"}, "A rollout stays in one text"),
        ({"mixers": (MIXER,)}, "1 layers of this model have no weights (gated delta rule)"),
    ],
)
def test_paths_that_do_not_exist_are_refused(trace, cross_trace, settings, message, refused):
    settings = dict(settings)
    given = settings.pop("trace", replace(trace, mixers=settings.pop("mixers", ())))
    assert message in str(refused(rollout, cross_trace if given == "cross" else given, **settings))


def test_two_hops_of_a_long_text_sum_over_all_tokens_for_a_part(monkeypatch):
    trace = mha.trace(" ".join(f"w{at}" for at in range(19)), h=3, d_model=12, layers=2)
    whole = two_hops(trace, first=1, second=2)
    monkeypatch.setattr(functional, "CELLS", 5 * 19)  # five rows of the first layer at a time
    part = two_hops(trace, first=1, second=2, rows=slice(4, 11), keys=[18, 0, 6])
    pd.testing.assert_frame_equal(part, whole.iloc[4:11, [18, 0, 6]], rtol=1e-5)
    with pytest.raises(mha.MhaError, match="19"):
        two_hops(trace, first=1, second=2, rows=[19])
