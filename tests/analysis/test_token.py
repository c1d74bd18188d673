"""The row, column, scores and mixture of one token equal those of the whole matrices."""

import numpy as np
import pandas as pd
import pytest
import torch

import mha_core as mha
from mha_core.analysis.token import (
    against_keys,
    column_of,
    densest,
    leading,
    mixture,
    over_layers,
    row_of,
    vectors,
)
from mha_core.attention import functional
from tests.conftest import DRAWN_MASK, assert_close

TEXT = "the old cat saw the new cat"


def by_hand(*layers: mha.LayerTrace) -> mha.AttentionTrace:
    return mha.AttentionTrace(mha.words(TEXT), layers, {"name": "by hand"})


TRACES = ["everything", "mask of each head", "sinks", "glass_box", "cross_trace"]


@pytest.fixture(scope="module", params=TRACES)
def trace(request, settings, rules, make_layer):
    """Positions and shared keys, rules, a small model, and 7 tokens that look at 11 others."""
    name = request.param
    if name in settings:
        return mha.trace(**settings[name])
    return by_hand(make_layer(rules[name])) if name in rules else request.getfixturevalue(name)


def heads(trace):
    """Each head of each layer: the layer's number, the layer, the head."""
    return [(at, layer, head) for at, layer in enumerate(trace.layers) for head in range(layer.n_heads)]


# For every rule


def test_a_row_and_a_column_are_those_of_the_whole_matrix(trace):
    queries, keys = trace.sides.queries.labels, trace.sides.keys.labels
    for at, layer in enumerate(trace.layers):
        weights, hidden = layer.weights(), ~layer.allowed()
        for token in range(layer.n_query):
            row = row_of(trace, token, layer=at)
            assert_close(row.weights, weights[:, token])
            np.testing.assert_array_equal(row.hidden, hidden[:, token])
        for token in range(layer.n_key):
            column = column_of(trace, token, layer=at)
            assert_close(column.weights, weights[:, :, token])
            np.testing.assert_array_equal(column.hidden, hidden[:, :, token])
        for table, axis, labels in ((row.weights, "key", keys), (column.weights, "query", queries)):
            assert list(table.index) == list(range(1, layer.n_heads + 1))
            assert tuple(table.columns) == labels
            assert (table.index.name, table.columns.name) == ("head", axis)


def test_products_sum_to_the_scores_and_lead_to_the_weights(trace):
    for at, layer, head in heads(trace):
        for token in range(layer.n_query):
            products, numbers = against_keys(trace, token, layer=at, head=head)
            assert tuple(numbers.index) == trace.sides.keys.labels
            assert_close(products.sum(axis=1), numbers["score"], 1e-5)
            for name in ("scores", "scaled", "masked", "weights"):
                own = "score" if name == "scores" else name.removesuffix("s")
                assert_close(numbers[own], getattr(layer, name)(head)[token])
            assert_close(numbers["scaled"], numbers["score"] * layer.scale, 1e-5)


def test_a_mixture_sums_to_the_output_of_its_head(trace):
    for at, layer, head in heads(trace):
        for token in range(layer.n_query):
            made = mixture(trace, token, layer=at, head=head)
            assert_close(made.weights, layer.weights(head)[token])
            assert_close(made.values, layer.v[layer.kv_head(head)])
            assert_close(made.output, layer.output(head)[token])
            assert_close(made.parts.sum(axis=0), made.output)
            assert made.parts.index.is_unique  # also where words repeat
            assert made.difference <= 1e-6


def test_the_mean_over_heads_and_the_strongest_head_are_those_of_the_layer(trace):
    for of, axis in (("row", "key"), ("column", "query")):
        found = over_layers(trace, 1, of=of)
        assert found.mean.columns.name == axis
        for at, layer in enumerate(trace.layers):
            weights = layer.weights()[:, 1] if of == "row" else layer.weights()[:, :, 1]
            assert_close(found.mean.loc[at + 1], weights.mean(axis=0))
            allowed = layer.allowed()[:, 1] if of == "row" else layer.allowed()[:, :, 1]
            np.testing.assert_array_equal(found.hidden[at], ~allowed.any(axis=0))
            if weights.any():
                best = found.strongest.loc[at + 1]
                assert best["weight"] == pytest.approx(weights.max(), abs=1e-6)
                assert weights[int(best["head"]) - 1, int(best["token"])] == pytest.approx(weights.max())


def test_the_own_vectors_are_those_of_the_head_and_its_key_head(trace):
    for at, layer, head in heads(trace):
        own, kv = vectors(trace, 2, layer=at, head=head), layer.kv_head(head)
        expected = {"q": layer.q[head, 2], "k": layer.k[kv, 2], "v": layer.v[kv, 2]}
        assert [*own] == (["q", "k", "v"] if trace.sides.same else ["q"])
        for name, frame in own.items():
            assert_close(frame.to_numpy()[0], expected[name])
            assert frame.index[0] == trace.sides.queries.labels[2]


# For some


def test_a_row_of_zeros_makes_an_output_of_zeros_and_has_no_strongest_head(make_layer):
    mask = DRAWN_MASK.clone()
    mask[:, 5] = False
    trace = by_hand(make_layer(mha.ScoreRule(soft_cap=0.5, mask=mask)))
    made = mixture(trace, 2, layer=0, head=1)
    assert not made.parts.to_numpy().any()
    assert not made.output.any()
    assert made.difference == 0
    assert over_layers(trace, 2, of="row").strongest.empty
    assert over_layers(trace, 5, of="column").strongest.empty
    assert len(over_layers(trace, 1, of="row").strongest) == 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_other_precisions_work_too(dtype, make_layer):
    trace = by_hand(make_layer(dtype=dtype))
    made = mixture(trace, 3, layer=0, head=2)
    assert np.isfinite(made.output).all()
    assert made.difference < {torch.float64: 1e-14, torch.float16: 1e-2, torch.bfloat16: 0.1}[dtype]
    assert_close(row_of(trace, 3, layer=0).weights.sum(axis=1), np.ones(6), 1e-2)


@pytest.mark.parametrize(
    ("heads", "ask"),
    [
        (2, lambda trace: row_of(trace, 1, layer=0)),
        (2, lambda trace: column_of(trace, 1, layer=0)),
        (1, lambda trace: against_keys(trace, 1, layer=0, head=0)),
        (1, lambda trace: mixture(trace, 1, layer=0, head=0)),
    ],
)
def test_no_whole_matrix_is_made(heads, ask, allocated, monkeypatch):
    n = 400
    trace = mha.trace("a " * n, h=2, d_model=4)
    monkeypatch.setattr(functional, "CELLS", 2 * 10 * n)  # ten rows of both heads
    assert max(allocated(lambda: ask(trace))) < 4 * heads * n * n / 3


# What is named and what is told together


@pytest.mark.parametrize(
    ("values", "most", "least", "positions", "n_others", "others"),
    [
        ([0.1, 0.6, 0.3], 3, 0, [1, 2, 0], 0, 0),
        ([0.1, 0.6, 0.3], 2, 0, [1], 2, 0.4),
        ([0.5, 0, 0.5], 2, 0, [0, 2], 0, 0),
        ([0, 0, 0], 2, 0, [], 0, 0),
        ([0.5, 0.25, 0.125, 0.125], 3, 0, [0, 1], 2, 0.25),
        ([0.9, 0.05, 0.03, 0.02], 9, 0.04, [0, 1], 2, 0.05),
        ([0.9, 0.08, 0.02], 9, 0.04, [0, 1, 2], 0, 0),  # one that is small takes the room of "1 other"
        ([0.9, 0.08, 0.02], 2, 0.04, [0], 2, 0.1),
        ([0.25] * 4, 2, 0, [0], 3, 0.75),
    ],
)
def test_the_largest_weights_are_listed_and_two_or_more_others_summed(
    values, most, least, positions, n_others, others
):
    found = leading(pd.Series(values, dtype=np.float32), most, minimum=least)
    assert (list(found.positions), found.n_others) == (positions, n_others)
    assert found.others == pytest.approx(others)


def test_the_densest_columns_keep_their_order():
    table = pd.DataFrame([[0.1, 0.9, 0.0, 0.3], [0.4, 0.0, 0.2, 0.0]])
    assert list(densest(table, 2)) == [0, 1]
    assert list(densest(table, 3)) == [0, 1, 3]
    assert list(densest(table, 9)) == [0, 1, 2, 3]
