"""Log-sum-exps are torch's, in blocks the same, and give single weights and columns without the matrix."""

import gc

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core import normaliser, rows
from mha_core.normaliser import column, log_sum_exp


@pytest.fixture
def anew(monkeypatch):
    """Nothing is remembered."""
    monkeypatch.setattr(normaliser, "_kept", {})


def test_it_is_torchs(rule, make_layer):
    layer = make_layer(rule)
    masked = torch.from_numpy(layer.masked().astype(np.float64) / rule.temperature)
    if rule.sinks is not None:
        sinks = (rule.sinks.double() / rule.temperature)[:, None, None].expand(-1, layer.n_query, 1)
        masked = torch.cat([masked, sinks], -1)
    expected = torch.logsumexp(masked, -1)
    if rule.softmax == "matrix":
        expected = torch.logsumexp(masked.flatten(1), -1)[:, None].expand(-1, layer.n_query)
    assert np.allclose(log_sum_exp(layer), expected.numpy(), atol=1e-12)


def test_a_sink_is_divided_by_the_temperature_too(make_layer, normal):
    layer = make_layer(mha.ScoreRule(sinks=normal(6), temperature=2.5))
    for head in range(6):
        row = np.append(layer.masked(head)[3], layer.rule.sinks[head]).astype(np.float64) / 2.5
        assert log_sum_exp(layer, [head])[0, 3] == pytest.approx(np.log(np.exp(row).sum()), abs=1e-12)


def test_a_column_is_that_of_the_matrix(setting):
    trace = mha.trace(**setting)
    for layer in trace.layers:
        for key in range(len(trace.tokens)):
            np.testing.assert_allclose(column(layer, key), layer.weights()[:, :, key], atol=2e-6)


def test_a_column_is_that_of_the_matrix_for_every_rule(rule, make_layer):
    layer = make_layer(rule)
    for key in (0, 3, 6):
        np.testing.assert_allclose(column(layer, key), layer.weights()[:, :, key], atol=2e-6)


def test_in_blocks_it_is_the_same(rule, make_layer, monkeypatch, anew):
    layer = make_layer(rule)
    whole = log_sum_exp(layer).copy(), column(layer, 4)
    normaliser._kept.clear()
    monkeypatch.setattr(rows, "CELLS", 2 * layer.n_key)  # two rows of a head
    np.testing.assert_allclose(log_sum_exp(layer), whole[0], atol=1e-12)
    np.testing.assert_allclose(column(layer, 4), whole[1], atol=1e-7)


def test_it_is_computed_once_for_a_layer_and_forgotten_with_it(make_layer, monkeypatch):
    layer, computed = make_layer(), []
    real = normaliser._computed
    monkeypatch.setattr(normaliser, "_computed", lambda *asked: computed.append(asked[1]) or real(*asked))
    some = log_sum_exp(layer, [4, 1])
    assert np.array_equal(log_sum_exp(layer)[[4, 1]], some)
    assert np.array_equal(log_sum_exp(layer), log_sum_exp(layer))
    assert computed == [4, 1, 0, 2, 3, 5]  # each head once, and none that nobody asked for
    assert layer in normaliser._kept
    before = len(normaliser._kept)
    del layer
    gc.collect()
    assert len(normaliser._kept) == before - 1


def test_no_matrix_of_all_rows_is_made_for_a_column(normal, monkeypatch, anew):
    tensors = {"q": normal(3, 1500, 4), "k": normal(3, 1500, 4), "v": normal(3, 1500, 2)}
    layer, shapes = mha.LayerTrace(tensors, mha.ScoreRule()), []
    real = mha.LayerTrace.masked

    def watched(*args, **named):
        found = real(*args, **named)
        shapes.append(found.shape)
        return found

    monkeypatch.setattr(mha.LayerTrace, "masked", watched)
    column(layer, 7)
    assert max(np.prod(shape) for shape in shapes) <= rows.CELLS
    shapes.clear()
    column(layer, 8)
    assert shapes == []
