"""Log-sum-exps are torch's, in blocks the same, and give single weights and columns without the matrix."""

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core.attention import functional


def test_it_is_torchs(rule, make_layer):
    layer = make_layer(rule)
    masked = torch.from_numpy(layer.masked().astype(np.float64) / rule.temperature)
    if rule.sinks is not None:
        sinks = (rule.sinks.double() / rule.temperature)[:, None, None].expand(-1, layer.n_query, 1)
        masked = torch.cat([masked, sinks], -1)
    expected = torch.logsumexp(masked, -1)
    if rule.softmax == "matrix":
        expected = torch.logsumexp(masked.flatten(1), -1)[:, None].expand(-1, layer.n_query)
    assert np.allclose(layer.log_sum_exp(), expected.numpy(), atol=1e-12)


def test_a_sink_is_divided_by_the_temperature_too(make_layer, normal):
    layer = make_layer(mha.ScoreRule(sinks=normal(6), temperature=2.5))
    for head in range(6):
        row = np.append(layer.masked(head)[3], layer.rule.sinks[head]).astype(np.float64) / 2.5
        assert layer.log_sum_exp(head)[3] == pytest.approx(np.log(np.exp(row).sum()), abs=1e-12)


def test_a_column_is_that_of_the_matrix(setting):
    trace = mha.trace(**setting)
    for layer in trace.layers:
        for key in range(len(trace.tokens)):
            np.testing.assert_allclose(layer.column(key), layer.weights()[:, :, key], atol=2e-6)


def test_a_column_is_that_of_the_matrix_for_every_rule(rule, make_layer):
    layer = make_layer(rule)
    for key in (0, 3, 6):
        np.testing.assert_allclose(layer.column(key), layer.weights()[:, :, key], atol=2e-6)


def test_in_blocks_it_is_the_same(rule, make_layer, monkeypatch):
    whole = make_layer(rule)
    expected = whole.log_sum_exp(), whole.column(4)
    layer = make_layer(rule)
    monkeypatch.setattr(functional, "CELLS", 2 * layer.n_key)  # two rows of a head
    np.testing.assert_allclose(layer.log_sum_exp(), expected[0], atol=1e-12)
    np.testing.assert_allclose(layer.column(4), expected[1], atol=1e-7)


def test_it_is_computed_once_for_each_head_that_is_asked_for(make_layer, monkeypatch):
    layer, computed = make_layer(), []
    real = mha.LayerTrace.masked
    monkeypatch.setattr(
        mha.LayerTrace,
        "masked",
        lambda layer, head, **rows: computed.append(head) or real(layer, head, **rows),
    )
    some = [layer.log_sum_exp(head) for head in (4, 1)]
    assert np.array_equal(layer.log_sum_exp()[[4, 1]], some)
    assert np.array_equal(layer.log_sum_exp(), layer.log_sum_exp())
    assert computed == [4, 1, 0, 2, 3, 5]


def test_no_matrix_of_all_rows_is_made_for_a_column(normal, monkeypatch):
    tensors = {"q": normal(3, 1500, 4), "k": normal(3, 1500, 4), "v": normal(3, 1500, 2)}
    layer, shapes = mha.LayerTrace(tensors, mha.ScoreRule()), []
    real = mha.LayerTrace.masked

    def watched(*args, **named):
        found = real(*args, **named)
        shapes.append(found.shape)
        return found

    monkeypatch.setattr(mha.LayerTrace, "masked", watched)
    layer.column(7)
    assert max(np.prod(shape) for shape in shapes) <= functional.CELLS
    shapes.clear()
    layer.column(8)
    assert shapes == []
