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


@pytest.mark.parametrize("layer", [0, 7, -8])
def test_a_layer_without_one_before_it_is_refused(trace, layer):
    with pytest.raises(
        mha.MhaError, match="has one before it" if not layer else f"layer {layer} was asked for"
    ):
        two_hops(trace, first=0, second=0, layer=layer)


def test_two_one_hot_heads_lead_where_they_point():
    """it → tired in layer 2, tired → animal in layer 1: together it → animal."""
    trace = mha.trace("animal it tired", h=1, d_model=4, layers=2)
    big = 1000.0
    layers = []
    for to in ([0, 1, 0], [0, 2, 2]):  # whom each token looks at: in layer 1, then in layer 2
        q = torch.eye(3)[to][None] * big
        parts = {"q": q, "k": torch.eye(3)[None], "v": torch.zeros(1, 3, 4)}
        layers.append(mha.LayerTrace(parts, mha.ScoreRule()))
    pointed = mha.AttentionTrace(trace.tokens, tuple(layers), "by hand")
    assert two_hops(pointed, first=0, second=0).loc["it"].to_dict() == {"animal": 1, "it": 0, "tired": 0}


# Rollout


def test_a_rollout_by_hand():
    """Two layers of one head over two tokens: (0.5 A² + 0.5 I) (0.5 A¹ + 0.5 I)."""
    weights = np.array([[[1.0, 0.0], [0.5, 0.5]], [[0.2, 0.8], [0.0, 1.0]]])[:, None]
    trace = mha.from_weights(weights, "a b")
    found = rollout(trace)
    first, second = [[1.0, 0.0], [0.25, 0.75]], [[0.6, 0.4], [0.0, 1.0]]
    assert first == rollout(trace, layer=0).to_numpy().round(6).tolist()
    np.testing.assert_allclose(found, [[0.6 + 0.4 * 0.25, 0.4 * 0.75], [0.25, 0.75]], rtol=1e-6)
    np.testing.assert_allclose(found, np.array(second) @ first, rtol=1e-6)
    assert tuple(found.index) == tuple(found.columns) == ("a", "b")
    assert (found.index.name, found.columns.name) == ("query", "key")


@pytest.mark.parametrize("heads", ["mean", "max", "min"])
@pytest.mark.parametrize("settings", [{}, {"mask": "causal"}])
def test_rows_of_a_rollout_sum_to_one_and_a_mask_holds(heads, settings):
    trace = mha.trace(TEXT, h=3, d_model=15, layers=3, **settings)
    found = rollout(trace, heads=heads)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-12)
    if settings:
        np.testing.assert_array_equal(np.triu(found, 1), 0)


def test_residual_0_is_attention_and_residual_1_the_identity():
    trace = mha.trace(TEXT, h=1, d_model=15, layers=2)
    np.testing.assert_allclose(rollout(trace, residual=0), two_hops(trace, first=0, second=0), atol=1e-6)
    np.testing.assert_array_equal(rollout(trace, residual=1), np.eye(7))


def test_heads_are_combined_by_mean_max_or_min(trace):
    weights = trace.layers[0].weights().astype(float)
    for heads, joined in {"mean": weights.mean(0), "max": weights.max(0), "min": weights.min(0)}.items():
        expected = joined / joined.sum(1, keepdims=True)
        np.testing.assert_allclose(rollout(trace, layer=0, residual=0, heads=heads), expected, atol=1e-6)


def test_layers_count_from_the_end_too(trace):
    for layer in range(3):
        np.testing.assert_array_equal(rollout(trace, layer=layer), rollout(trace, layer=layer - 3))


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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layer": 3}, "layers 0 to 2; layer 3"),
        ({"layer": -4}, "layer -4"),
        ({"residual": 1.5}, "residual 1.5 is out of range; 0 to 1 work"),
        ({"heads": "sum"}, "'sum'; mean, max or min can be used"),
        ({"without": range(7)}, "All 7 tokens would be left out"),
    ],
)
def test_a_rollout_refuses_missing_layers_and_invalid_residuals(trace, settings, message):
    with pytest.raises(mha.MhaError, match=message):
        rollout(trace, **settings)


def test_between_two_texts_there_is_no_rollout():
    weights = np.full((1, 2, 3), 1 / 3)
    with pytest.raises(mha.MhaError, match="A rollout stays in one text"):
        rollout(mha.from_weights(weights, "a b", keys="c d e"))
    with pytest.raises(mha.MhaError, match="got a list"):
        rollout([1, 2])


def test_a_rollout_through_a_layer_without_weights_is_refused(trace):
    ones = torch.ones(2, 7, 3)
    mixer = MixerTrace({"v": ones, "output": ones}, "gated delta rule")
    with pytest.raises(mha.MhaError, match="1 layers of this model have no weights \\(gated delta rule\\)"):
        rollout(replace(trace, mixers=(mixer,)))


def test_a_second_hop_cannot_start_in_another_text(cross_trace, refused):
    for ask in (lambda: two_hops(cross_trace, first=0, second=0), lambda: best_hops(cross_trace, 0, 0)):
        assert "look from one text at another" in str(refused(ask))


def test_two_hops_of_a_long_text_sum_over_all_tokens_for_a_part(monkeypatch):
    trace = mha.trace(" ".join(f"w{at}" for at in range(19)), h=3, d_model=12, layers=2)
    whole = two_hops(trace, first=1, second=2)
    monkeypatch.setattr(functional, "CELLS", 5 * 19)  # five rows of the first layer at a time
    part = two_hops(trace, first=1, second=2, rows=slice(4, 11), keys=[18, 0, 6])
    pd.testing.assert_frame_equal(part, whole.iloc[4:11, [18, 0, 6]], rtol=1e-5)
    with pytest.raises(mha.MhaError, match="19"):
        two_hops(trace, first=1, second=2, rows=[19])
