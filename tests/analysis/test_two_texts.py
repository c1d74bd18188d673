"""Tables of layers in which one text looks at another: 7 tokens that look, 11 that are looked at."""

from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core.analysis import patterns, token
from mha_core.analysis.derivation import STEPS, steps
from mha_core.analysis.frames import Part, around, long_table, longest, origin, picture
from mha_core.analysis.overview import overview
from mha_core.analysis.rollout import best_hops, two_hops
from mha_core.attention.module import Projections
from mha_core.traces import verify
from mha_core.traces.verify import split_difference

TARGET = mha.words("the old cat saw a dog .")
SOURCE = mha.words("die alte graue Katze sah gestern im Garten einen Hund .")
N_QUERY, N_KEY, HEADS, KV_HEADS, D_K, D_V, D_MODEL = 7, 11, 6, 2, 3, 5, 13


@pytest.fixture(scope="module")
def normal():
    """`normal(*shape, seed=…)`: the same standard normal numbers on every call."""
    return lambda *shape, seed=0: torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def cross(normal, seed: int = 0, **tensors) -> mha.LayerTrace:
    made = {
        "q": normal(HEADS, N_QUERY, D_K, seed=seed),
        "k": normal(KV_HEADS, N_KEY, D_K, seed=seed + 1),
        "v": normal(KV_HEADS, N_KEY, D_V, seed=seed + 2),
    }
    return mha.LayerTrace(MappingProxyType(made | tensors), kind="cross", sides=mha.Sides(TARGET, SOURCE))


@pytest.fixture(scope="module")
def trace(normal):
    return mha.AttentionTrace(TARGET, (cross(normal), cross(normal, 10)), {"name": "by hand"})


@pytest.fixture(scope="module")
def projected(normal):
    """A layer of which both inputs and all matrices are known."""
    x, y = normal(N_QUERY, D_MODEL, seed=1), normal(N_KEY, D_MODEL, seed=2)
    w_q, w_k = normal(D_MODEL, HEADS * D_K, seed=3), normal(D_MODEL, KV_HEADS * D_K, seed=4)
    w_v, w_o = normal(D_MODEL, KV_HEADS * D_V, seed=5), normal(HEADS * D_V, D_MODEL, seed=6)

    def heads(values, n):
        return values.unflatten(1, (n, -1)).transpose(0, 1).contiguous()

    layer = cross(
        normal,
        q=heads(x @ w_q, HEADS),
        k=heads(y @ w_k, KV_HEADS),
        v=heads(y @ w_v, KV_HEADS),
        x=x,
        x_v=y,
    )
    layer = replace(layer, projections=Projections(w_q, w_k, w_v, w_o))
    return mha.AttentionTrace(TARGET, (layer,), {"name": "by hand"})


# Pictures


@pytest.mark.parametrize("name", ["q", "k", "v", "scores", "scaled", "masked", "weights", "output"])
def test_a_part_is_cut_out_of_both_texts(trace, name):
    part = Part(slice(2, 5), slice(6, 11))
    whole, cut = (picture(trace, name, layer=0, head=4, part=shown) for shown in (None, part))
    axes = cut.frame.index.name, cut.frame.columns.name
    rows, columns = (part.of(axis) if axis in ("query", "key") else slice(None) for axis in axes)
    np.testing.assert_allclose(cut.frame, whole.frame.iloc[rows, columns], rtol=1e-5, atol=1e-6)
    assert [*cut.frame.index] == [*whole.frame.index[rows]]
    assert [*cut.frame.columns] == [*whole.frame.columns[columns]]
    assert cut.start == (rows.start, columns.start if axes[1] == "key" else 0)


def test_each_text_may_be_whole_while_the_other_is_cut(trace):
    weights = trace.layers[0].weights(1)
    shown = picture(trace, "weights", layer=0, head=1, part=Part(None, slice(3, 9))).frame
    np.testing.assert_allclose(shown, weights[:, 3:9])
    assert [*shown.columns] == [*SOURCE.labels[3:9]]
    assert picture(trace, "weights", layer=0, head=1, part=Part(slice(0, 2), None)).frame.shape == (2, 11)


def test_the_part_around_a_token_holds_what_it_mostly_looks_at(trace):
    for query in range(N_QUERY):
        strongest = trace.layers[1].weights(3)[query].argmax()
        rows, keys = around(trace, query, layer=1, head=3, size=3)
        assert query in range(rows.start, rows.stop)
        assert strongest in range(keys.start, keys.stop)
        assert (rows.stop - rows.start, keys.stop - keys.start) == (3, 3)
    assert around(trace, 0, layer=0, head=0) == (None, None)
    assert around(trace, 0, layer=0, head=0, size=7)[0] is None
    assert around(trace, 0, layer=0, head=0, size=8) == (None, around(trace, 0, layer=0, head=0, size=8).keys)
    assert longest(trace) == 11


def test_a_table_and_an_origin_name_both_texts(trace):
    table = long_table(trace, "weights", layer=1, heads=[2])
    assert len(table) == 77
    assert set(table["query"]) == set(TARGET.labels)
    assert set(table["key"]) == set(SOURCE.labels)
    assert origin(trace).text == trace.title
    assert TARGET.text in trace.title
    assert SOURCE.text in trace.title


# One token


def test_a_token_that_looks_has_a_row_over_the_other_text(trace):
    row = token.row_of(trace, 6, layer=1)
    np.testing.assert_allclose(row.weights, trace.layers[1].weights()[:, 6], atol=1e-6)
    assert [*row.weights.columns] == [*SOURCE.labels]


def test_a_token_that_is_looked_at_has_a_column_over_those_that_look(trace, refused):
    column = token.column_of(trace, 10, layer=1)
    np.testing.assert_allclose(column.weights, trace.layers[1].weights()[:, :, 10], atol=1e-6)
    assert [*column.weights.columns] == [*TARGET.labels]
    assert "tokens 0 to 10" in str(refused(token.column_of, trace, 11, layer=0))
    assert "tokens 0 to 6" in str(refused(token.row_of, trace, 7, layer=0))


def test_the_query_meets_the_keys_of_the_other_text(trace):
    found = token.against_keys(trace, 5, layer=0, head=4)
    assert [*found.numbers.index] == [*SOURCE.labels]
    np.testing.assert_allclose(found.products.sum(axis=1), trace.layers[0].scores(4)[5], atol=1e-5)
    made = token.mixture(trace, 5, layer=0, head=4)
    assert made.values.shape == (N_KEY, D_V)
    assert made.difference < 1e-6
    own = token.vectors(trace, 5, layer=0, head=4)
    assert [*own] == ["q"]
    np.testing.assert_array_equal(own["q"].to_numpy()[0], trace.layers[0].q[4, 5])
    over = token.over_layers(trace, 9, of="column")
    assert over.mean.shape == (2, N_QUERY)


# Measures


def test_positions_of_two_texts_are_not_compared(trace):
    layer = trace.layers[0]
    found = patterns.metrics(layer)
    assert found.drop(columns="entropy").isna().all(axis=None)
    weights = layer.weights().astype(np.float64)
    entropy = -(weights * np.log(weights)).sum(-1).mean(-1) / np.log(N_KEY)
    np.testing.assert_allclose(found["entropy"], entropy, rtol=1e-5)
    alike = patterns.similarity(layer)
    assert alike.shape == (HEADS, HEADS)
    assert np.isfinite(alike).all(axis=None)
    assert patterns.collapse(layer) is None


def test_texts_of_the_same_length_are_still_two(normal):
    layer = mha.LayerTrace(MappingProxyType({"weights": torch.softmax(normal(2, 7, 7), -1)}), kind="cross")
    assert not layer.sides.same
    assert patterns.metrics(layer)["previous token"].isna().all()
    assert patterns.metrics(replace(layer, kind="self", sides=None))["previous token"].notna().all()


@pytest.mark.parametrize(("n_query", "n_key"), [(7, 11), (3, 11), (11, 3), (2, 79)])
def test_a_small_picture_of_two_texts_is_a_square_with_both_in_it(normal, n_query, n_key):
    weights = torch.softmax(normal(2, n_query, n_key), -1)
    sides = mha.Sides(*(mha.words(" ".join(f"w{i}" for i in range(n))) for n in (n_query, n_key)))
    layer = mha.LayerTrace(MappingProxyType({"weights": weights}), kind="cross", sides=sides)
    found = overview(mha.AttentionTrace(sides.queries, (layer,), "by hand"))
    side = min(32, max(n_query, n_key))
    assert (found.side, found.n_tokens, found.thumbs[0].shape) == (side, n_key, (2, side, side))
    codes = np.rint(np.sqrt(weights.numpy()) * 254)
    if side < 32:
        rows, columns = (np.arange(side) * n // side for n in (n_query, n_key))
        np.testing.assert_array_equal(found.thumbs[0], codes[:, rows][:, :, columns])
    assert found.thumbs[0].max() == codes.max()
    assert found.positions() == {}


def test_torch_agrees(trace, projected):
    for shown in (*trace.layers, *projected.layers):
        assert mha.against_torch(shown).passed
    assert mha.against_torch(trace.layers[0], rows=slice(2, 5)).passed
    assert split_difference(projected.layers[0]) < 1e-5
    bare = replace(
        projected.layers[0], tensors={n: v for n, v in projected.layers[0].tensors.items() if n != "x_v"}
    )
    assert split_difference(bare) is None


def test_the_keys_are_split_from_the_other_texts_input(projected, monkeypatch):
    split, inputs = verify.project_packed, []
    monkeypatch.setattr(
        verify, "project_packed", lambda x, *more: inputs.append(x.shape[1]) or split(x, *more)
    )
    split_difference(projected.layers[0])
    assert inputs == [N_QUERY, N_KEY, N_KEY]  # Q, K, V


# Steps and hops


def test_the_steps_take_keys_and_values_from_the_other_text(projected):
    found = {step.name: step for step in steps(projected, layer=0, head=5)}
    assert len(found) == 9
    project = found["project"]
    assert [(drawn.symbol, drawn.name, drawn.frame.shape) for drawn in project.before] == [
        ("X", "x", (7, 13)),
        ("Y", "other", (11, 13)),
    ]
    assert [[*drawn.frame.index] for drawn in project.after] == [
        [*TARGET.labels],
        [*SOURCE.labels],
        [*SOURCE.labels],
    ]
    assert project.formula.count("{X}") == 1
    assert project.formula.count("{Y}") == 2
    assert r"\underset{11 \times 13}{Y}" in project.formula
    assert r"\underset{7 \times 13}{X}" in project.formula
    assert project.notes == ("why", "cross")
    assert r"\underset{7 \times 11}{A_{6}}" in found["softmax"].formula
    assert "s_{mM}" in found["softmax"].formula
    assert r"\underset{11 \times 5}{V_{2}}" in found["mix"].formula
    assert found["split"].facts["difference"] < 1e-5
    assert found["output"].facts["difference"] < 1e-5


def test_steps_of_which_little_is_known_leave_out_what_is_not(trace):
    found = steps(trace, layer=1, head=0)
    assert [step.name for step in found] == [make.__name__ for make in STEPS[1:-1]]
    assert [drawn.frame.shape for drawn in found[0].after] == [(7, 3), (11, 3), (11, 5)]
    assert not any("None" in step.formula for step in found)


def test_a_second_hop_cannot_start_in_another_text(trace, refused):
    for ask in (lambda: two_hops(trace, first=0, second=0), lambda: best_hops(trace, 0, 0)):
        assert "look from one text at another" in str(refused(ask))
