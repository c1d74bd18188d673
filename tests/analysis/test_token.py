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
from mha_core.attention import functional, positions
from mha_core.traces.layer import LayerTrace
from tests.conftest import assert_close

TEXT = "the old cat saw the new cat"
LENGTH = 7
DRAWN = torch.rand(LENGTH, LENGTH, generator=torch.Generator().manual_seed(3)) > 0.4
DRAWN[2] = False  # the third token may look at nothing
DRAWN[:, 5] = False  # and nobody at the sixth

ALIBI = {"position": "alibi", "h": 5, "n_kv_heads": 1, "mask": "causal", "layers": 2}
SETTINGS = {
    "drawn, one head": {"mask": DRAWN, "h": 1},
    "rotary, grouped": {"position": "rotary", "d_k": 2, "h": 6, "n_kv_heads": 2},
    "alibi, one key head, two layers": ALIBI,
}


def normal(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


RULES = {
    "scale, temperature": mha.ScoreRule(scale=0.3, temperature=1.7, mask=DRAWN),
    "both biases": mha.ScoreRule(
        bias=normal(6, LENGTH, LENGTH, seed=5), distance_bias=positions.alibi(6, LENGTH, LENGTH)
    ),
    "mask of each head": mha.ScoreRule(mask=normal(6, LENGTH, LENGTH, seed=6) > -0.3),
    "soft cap": mha.ScoreRule(soft_cap=0.5, mask=DRAWN),
    "sinks": mha.ScoreRule(sinks=normal(6, seed=7), mask=DRAWN),
}


def by_hand(rule: mha.ScoreRule, text: str = TEXT, dtype=torch.float32) -> mha.AttentionTrace:
    """6 heads that share 3 key heads, d_k 5, d_v 13, with a rule that `mha.trace` has no word for."""
    n = len(text.split())
    parts = {"q": normal(6, n, 5, seed=1), "k": normal(3, n, 5, seed=2), "v": normal(3, n, 13, seed=3)}
    layer = LayerTrace({name: part.to(dtype) for name, part in parts.items()}, rule)
    return mha.AttentionTrace(mha.words(text), (layer,), {"name": "by hand"})


TRACES = {
    **{
        name: lambda given=given: mha.trace(TEXT, **({"h": 3, "d_model": 11, "d_k": 5, "d_v": 13} | given))
        for name, given in SETTINGS.items()
    },
    **{name: lambda rule=rule: by_hand(rule) for name, rule in RULES.items()},
    "glass-box": lambda: mha.trace("the cat saw the dog .", source="mini", h=4, d_model=32, trained=False),
}


@pytest.fixture(scope="module", params=TRACES.values(), ids=TRACES)
def trace(request):
    return request.param()


def everywhere(trace):
    """Every layer and token of a trace."""
    return [(layer, token) for layer in range(len(trace.layers)) for token in range(len(trace.tokens))]


# For every rule


def test_a_row_and_a_column_are_those_of_the_whole_matrix(trace):
    for at, token in everywhere(trace):
        layer = trace.layers[at]
        row, column = row_of(trace, token, layer=at), column_of(trace, token, layer=at)
        assert_close(row.weights, layer.weights()[:, token])
        assert_close(column.weights, layer.weights()[:, :, token])
        np.testing.assert_array_equal(row.hidden, ~layer.allowed()[:, token])
        np.testing.assert_array_equal(column.hidden, ~layer.allowed()[:, :, token])
        for table, axis in ((row.weights, "key"), (column.weights, "query")):
            assert list(table.index) == list(range(1, layer.n_heads + 1))
            assert tuple(table.columns) == trace.tokens.labels
            assert (table.index.name, table.columns.name) == ("head", axis)


def test_products_sum_to_the_scores_and_lead_to_the_weights(trace):
    for at, token in everywhere(trace):
        layer = trace.layers[at]
        for head in range(layer.n_heads):
            products, numbers = against_keys(trace, token, layer=at, head=head)
            assert_close(products.sum(axis=1), numbers["score"], 1e-5)
            for name, whole in (
                ("score", layer.scores(head)),
                ("scaled", layer.scaled(head)),
                ("masked", layer.masked(head)),
                ("weight", layer.weights(head)),
            ):
                assert_close(numbers[name], whole[token])
            assert_close(numbers["scaled"], numbers["score"] * layer.scale, 1e-5)


def test_a_mixture_sums_to_the_output_of_its_head(trace):
    for at, token in everywhere(trace):
        layer = trace.layers[at]
        for head in range(layer.n_heads):
            made = mixture(trace, token, layer=at, head=head)
            assert_close(made.weights, layer.weights(head)[token])
            assert_close(made.values, layer.v[layer.kv_head(head)])
            assert_close(made.output, layer.output(head)[token])
            assert_close(made.parts.sum(axis=0), made.output)
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
    layer = trace.layers[0]
    head = layer.n_heads - 1
    own, kv = vectors(trace, 2, layer=0, head=head), layer.kv_head(head)
    for name, expected in {"q": layer.q[head, 2], "k": layer.k[kv, 2], "v": layer.v[kv, 2]}.items():
        assert_close(own[name].to_numpy()[0], expected)
        assert own[name].index[0] == trace.tokens.labels[2]


# For some


def test_a_row_of_zeros_makes_an_output_of_zeros_and_has_no_strongest_head():
    trace = by_hand(RULES["soft cap"])
    made = mixture(trace, 2, layer=0, head=1)
    assert not made.parts.to_numpy().any()
    assert not made.output.any()
    assert made.difference == 0
    assert over_layers(trace, 2, of="row").strongest.empty
    assert over_layers(trace, 5, of="column").strongest.empty
    assert len(over_layers(trace, 1, of="row").strongest) == 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_other_precisions_work_too(dtype):
    trace = by_hand(mha.ScoreRule(mask=DRAWN), dtype=dtype)
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


@pytest.mark.parametrize(
    "ask",
    [
        lambda trace, token, layer: row_of(trace, token, layer=layer),
        lambda trace, token, layer: column_of(trace, token, layer=layer),
        lambda trace, token, layer: against_keys(trace, token, layer=layer, head=0),
        lambda trace, token, layer: mixture(trace, token, layer=layer, head=0),
        lambda trace, token, layer: vectors(trace, token, layer=layer, head=0),
    ],
)
def test_a_token_and_a_layer_that_do_not_exist_are_refused(ask, refused):
    trace = mha.trace(TEXT, h=3, d_model=12)
    error = refused(ask, trace, LENGTH, 0)
    assert str(error) == "This text has tokens 0 to 6; token 7 was asked for."
    assert error.fixes == ({"token": 6},)
    assert refused(ask, trace, -8, 0).fixes == ({"token": 0},)
    assert "layers 0 to 0; layer 1 was asked for" in str(refused(ask, trace, 0, 1))
    assert "layer -2" in str(refused(ask, trace, 0, -2))


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


# Two texts: 7 tokens look at 11 others


def test_a_query_looks_at_the_keys_of_the_other_text(cross_trace, refused):
    queries, keys = cross_trace.sides.queries.labels, cross_trace.sides.keys.labels
    row, column = row_of(cross_trace, 6, layer=1).weights, column_of(cross_trace, 10, layer=1).weights
    assert_close(row, cross_trace.layers[1].weights()[:, 6])
    assert_close(column, cross_trace.layers[1].weights()[:, :, 10])
    assert (tuple(row.columns), tuple(column.columns)) == (keys, queries)
    assert "tokens 0 to 10" in str(refused(column_of, cross_trace, 11, layer=0))
    assert "tokens 0 to 6" in str(refused(row_of, cross_trace, 7, layer=0))
    found = against_keys(cross_trace, 5, layer=0, head=4)
    assert tuple(found.numbers.index) == keys
    assert_close(found.products.sum(axis=1), cross_trace.layers[0].scores(4)[5], 1e-5)
    made = mixture(cross_trace, 5, layer=0, head=4)
    assert made.values.shape == (11, 5)
    assert made.difference < 1e-6
    own = vectors(cross_trace, 5, layer=0, head=4)
    assert [*own] == ["q"]
    np.testing.assert_array_equal(own["q"].to_numpy()[0], cross_trace.layers[0].q[4, 5])
    assert over_layers(cross_trace, 9, of="column").mean.shape == (2, 7)
