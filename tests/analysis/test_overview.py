"""The overview and the measures of heads, in blocks, against sums over all weights at once."""

import numpy as np
import pandas as pd
import pytest
import torch

import mha_core as mha
from mha_core.analysis.overview import Thumbnail, overview
from mha_core.analysis.patterns import DISTANCE, MEASURES, blocks, metrics
from mha_core.attention import functional, masks

L = 37
EMPTY = torch.rand(L, L, generator=torch.Generator().manual_seed(1)) > 0.5
EMPTY[5] = False  # nobody is left to look at
EMPTY[11] = False
EMPTY[11, 3] = True  # one key is no choice


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


RULES = {
    "causal": lambda: {"mask": masks.build("causal", L, L)},
    "empty row": lambda: {"mask": EMPTY, "temperature": 1.7},
    "mask of each head": lambda: {"mask": normal(6, L, L, seed=4) > 0.3},
    "all hidden": lambda: {"mask": torch.zeros(L, L, dtype=torch.bool)},
    "hidden by bias": lambda: {"bias": normal(6, L, L, seed=5).masked_fill(~EMPTY, float("-inf"))},
    "sinks": lambda: {"sinks": normal(6, seed=7), "mask": EMPTY},
}


def make_layer_of(rule: dict, n_kv_heads: int = 6, seed: int = 0, dtype=torch.float32) -> mha.LayerTrace:
    """6 heads over 37 tokens, d_k 5; queries three times as long as usual, so that rows are uneven."""
    q, k = 3 * normal(6, L, 5, seed=seed), normal(n_kv_heads, L, 5, seed=seed + 100)
    tensors = {"q": q.to(dtype), "k": k.to(dtype), "v": normal(n_kv_heads, L, 3).to(dtype)}
    return mha.LayerTrace(tensors, mha.ScoreRule(**rule))


def trace_of(*layers: mha.LayerTrace) -> mha.AttentionTrace:
    tokens = mha.words(" ".join(f"w{i}" for i in range(layers[0].n_query)))
    return mha.AttentionTrace(tokens, layers, {"name": "made"})


@pytest.fixture(params=[1, 500], ids=["a row", "some rows"])
def _blocks_of(request, monkeypatch):
    monkeypatch.setattr(functional, "CELLS", request.param)


def measured(layer: mha.LayerTrace, head: int) -> dict[str, float]:
    """The definitions in the docstring of `metrics` once more, row by row."""
    weights, allowed = layer.weights(head).astype(float), layer.allowed(head)
    found = {name: [] for name in MEASURES}
    for m in range(layer.n_query):
        if allowed[m].sum() < 2:
            continue
        keys = {name: m + step for name, step in DISTANCE.items()} | ({"first token": 0} if m else {})
        for name, n in keys.items():
            if 0 <= n < layer.n_key and allowed[m, n]:
                found[name].append(weights[m, n])
        if (total := weights[m].sum()) > 0:
            p = weights[m][weights[m] > 0] / total
            found["entropy"].append(-(p * np.log(p)).sum() / np.log(allowed[m].sum()))
            apart = abs(np.arange(layer.n_key) - m)
            found["distance"].append((weights[m] / total * apart).sum())
    return {name: np.mean(values) if values else np.nan for name, values in found.items()}


@pytest.mark.usefixtures("_blocks_of")
@pytest.mark.parametrize(
    ("rule", "more"),
    [
        *((rule, {}) for rule in RULES),
        *(("causal", {"n_kv_heads": 2, "dtype": dtype}) for dtype in (torch.float64, torch.bfloat16)),
    ],
)
def test_the_measures_are_those_of_all_weights_at_once(rule, more):
    layer = make_layer_of(RULES[rule](), **more)
    expected = pd.DataFrame([measured(layer, head) for head in range(6)])
    np.testing.assert_allclose(metrics(layer)[[*MEASURES]], expected, rtol=2e-5, atol=1e-7)


def pooled(layer: mha.LayerTrace, head: int, side: int) -> np.ndarray:
    """The largest weight of each pixel's cells, NaN if all of them are hidden."""
    weights, allowed = layer.weights(head), layer.allowed(head)
    edges = [i * L // side for i in range(side + 1)]
    picture = np.full((side, side), np.nan)
    for i in range(side):
        for j in range(side):
            cells = slice(edges[i], edges[i + 1]), slice(edges[j], edges[j + 1])
            if allowed[cells].any():
                picture[i, j] = weights[cells].max()
    return picture


# Measures


def test_the_table_has_a_row_and_a_picture_for_each_head_of_each_layer_which_may_differ_in_heads():
    layers = [make_layer_of(rule, seed=seed) for seed, rule in enumerate(({}, RULES["sinks"]()))]
    narrow = {name: tensor[:2] for name, tensor in layers[0].tensors.items()}
    layers.append(mha.LayerTrace(narrow, mha.ScoreRule()))
    seen = overview(trace_of(*layers))
    assert "array" not in repr(seen)
    assert seen.table.index.names == ["layer", "head"]
    places = [(at, head) for at, layer in enumerate(layers) for head in range(layer.n_heads)]
    assert [*seen.table.index] == places
    for index, layer in enumerate(layers):
        pd.testing.assert_frame_equal(seen.table.loc[index], metrics(layer))
        assert len(seen.thumbs[index]) == layer.n_heads
    np.testing.assert_array_equal(seen.thumbs[2], seen.thumbs[0][:2])


# Pictures


@pytest.mark.usefixtures("_blocks_of")
@pytest.mark.parametrize(
    ("name", "side"), [("empty row", 1), ("empty row", 5), ("mask of each head", 32), ("all hidden", 32)]
)
def test_a_pixel_is_the_largest_weight_of_its_cells(name, side):
    layer = make_layer_of(RULES[name]())
    for head in range(6):
        picture = Thumbnail(layer, side)
        for block in blocks(layer, head=head):
            picture.add(block)
        weights = picture.weights()
        assert (weights.shape, weights.dtype) == ((side, side), np.float32)
        np.testing.assert_allclose(weights, pooled(layer, head, side), atol=1e-6)


@pytest.mark.slow
def test_pictures_are_as_large_as_the_text_and_at_most_32_pixels():
    for n_tokens, side in ((1, 1), (13, 13), (32, 32), (61, 32)):
        seen = overview(mha.trace("a " * n_tokens, h=2, d_model=4, layers=2))
        assert seen.side == side
        assert seen.nbytes >= 4 * 4 * side**2  # four heads
        assert [picture.shape for picture in seen.thumbs] == [(2, side, side)] * 2
    many = mha.LayerTrace(dict.fromkeys("qkv", normal(64, 17, 2)), mha.ScoreRule())
    seen = overview(trace_of(*[many] * 33))  # thousands of heads have smaller pictures
    assert (seen.side, sum(picture.size for picture in seen.thumbs)) == (16, 2112 * 16**2)


# Names


def looking(by: int | None) -> torch.Tensor:
    """A bias with which a head looks so far to the right, or at the first token (None)."""
    bias = torch.zeros(L, L)
    keys = torch.zeros(L, dtype=int) if by is None else (torch.arange(L) + by).clamp(0, L - 1)
    bias[torch.arange(L), keys] = 9
    return bias


def test_heads_that_mostly_look_at_one_position_are_named_after_it():
    bias = torch.stack([looking(-1), looking(1), looking(0), looking(None), torch.zeros(L, L), looking(4)])
    tensors = dict.fromkeys("qkv", torch.zeros(6, L, 1))
    seen = overview(trace_of(mha.LayerTrace(tensors, mha.ScoreRule(bias=bias))))
    names = {head: name for (_, head), (name, _) in seen.positions().items()}
    assert names == {0: "previous token", 1: "next token", 2: "same token", 3: "first token"}
    assert seen.positions()[0, 0][1] == pytest.approx(seen.table.loc[(0, 0), "previous token"])
    # In a text of two tokens each gets half of the weight with uniform attention, too.
    tensors = dict.fromkeys("qkv", torch.zeros(1, 2, 1))
    assert overview(trace_of(mha.LayerTrace(tensors, mha.ScoreRule()))).positions() == {}
    named = overview(mha.trace("a b", h=4, d_model=8)).positions()
    assert all(score >= 0.7 for _, score in named.values())


# Memory


def test_the_matrix_of_a_head_never_exists(monkeypatch):
    """1,499 tokens, 8 heads: each request to a layer is a small part of one head's matrix."""
    n_tokens, sizes = 1499, []
    layer = mha.LayerTrace(dict.fromkeys("qkv", normal(8, n_tokens, 2)), mha.ScoreRule())
    weights = functional.attention_weights

    def recording(*given):
        sizes.append(weights(*given).numel())
        return weights(*given)

    monkeypatch.setattr("mha_core.traces.layer.attention_weights", recording)
    monkeypatch.setattr(functional, "CELLS", 1 << 18)
    overview(trace_of(layer))
    assert max(sizes) <= 1 << 18 < n_tokens**2 / 8
    assert sum(sizes) >= 8 * n_tokens**2  # it did look at every weight


# Two texts: 7 tokens look at 11 others


@pytest.mark.parametrize(("n_query", "n_key"), [(7, 11), (3, 11), (11, 3), (2, 79)])
def test_a_small_picture_of_two_texts_is_a_square_with_both_in_it(n_query, n_key):
    weights = torch.softmax(normal(2, n_query, n_key), -1)
    sides = mha.Sides(*(mha.words(" ".join(f"w{i}" for i in range(n))) for n in (n_query, n_key)))
    layer = mha.LayerTrace({"weights": weights}, kind="cross", sides=sides)
    found = overview(mha.AttentionTrace(sides.queries, (layer,), "by hand"))
    side = min(32, max(n_query, n_key))
    assert (found.side, found.n_tokens, found.thumbs[0].shape) == (side, n_key, (2, side, side))
    if side < 32:
        rows, columns = (np.arange(side) * n // side for n in (n_query, n_key))
        np.testing.assert_array_equal(found.thumbs[0], weights.numpy()[:, rows][:, :, columns])
    assert found.thumbs[0].max() == weights.max()
    assert found.positions() == {}
