"""Of q and k only so many bits travel as every weight needs, in every cell."""

import json
import struct

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mha_core as mha
from mha_core.export import rounding
from mha_core.export.payload import Panel, pack
from mha_core.export.rounding import TOLERANCE, few_bits, rounded


@pytest.fixture
def layer_of(normal):
    """`layer_of(factor)`: two heads, 200 tokens, d_k 16; the larger the factor, the sharper the weights."""

    def make(factor=1.0, rule=mha.ScoreRule(), dtype=torch.float32):
        tensors = {"q": factor * normal(2, 200, 16), "k": normal(2, 200, 16, seed=1), "v": normal(2, 200, 2)}
        return mha.LayerTrace({name: tensor.to(dtype) for name, tensor in tensors.items()}, rule)

    return make


def chosen(layer: mha.LayerTrace) -> int:
    heads = range(layer.n_heads)
    return few_bits(layer, heads, layer.log_sum_exp())


def moved(layer: mha.LayerTrace, bits: int) -> float:
    """The definition, in float64: how far a weight is from that of the rounded q and k, with the same lse."""
    exact, other = (
        np.einsum("hqd,hkd->hqk", change(layer.q).astype(float), change(layer.k).astype(float)) * layer.scale
        for change in (lambda values: values, lambda values: rounded(values, bits))
    )
    base = np.log(np.exp(exact).sum(-1, keepdims=True))
    return np.abs(np.exp(other - base) - np.exp(exact - base)).max()


@settings(max_examples=200)
@given(st.floats(-(2.0**100), 2.0**100, width=32), st.integers(7, 23))
def test_a_rounded_number_is_the_nearest_with_so_many_bits(value, bits):
    [found] = rounded(np.array([value]), bits)
    assert abs(float(found) - value) <= abs(value) * 2.0 ** -(bits + 1) + 1e-40
    assert found.view(np.uint32) & ((1 << (23 - bits)) - 1) == 0


@pytest.mark.parametrize("factor", [0.02, 0.3, 1, 3, 8, 20])
def test_the_bits_are_as_few_as_every_weight_allows(factor, layer_of):
    layer = layer_of(factor)
    bits = chosen(layer)
    assert moved(layer, bits) <= 1.05 * TOLERANCE  # the definition has no rounding of scores
    if bits > rounding.LEAST:
        assert moved(layer, bits - 2) > TOLERANCE  # one bit less is seldom enough, two are never


def test_sharper_weights_need_more_bits(layer_of):
    found = [chosen(layer_of(factor)) for factor in (0.02, 1, 3, 8, 10_000)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (rounding.LEAST, rounding.ALL)
    assert len(set(found)) == 5


def test_one_query_that_would_suffer_is_enough(layer_of):
    layer = layer_of()
    before = chosen(layer)
    layer.tensors["q"][0, 137] *= 40
    assert 137 % (200 // rounding.SAMPLE) != 0  # the sample does not know it
    suffering = mha.LayerTrace(dict(layer.tensors), layer.rule)
    assert chosen(suffering) >= before + 4
    assert moved(suffering, chosen(suffering)) <= 1.05 * TOLERANCE
    assert few_bits(suffering, [1], suffering.log_sum_exp(1)[None]) <= before  # the other head does not


def test_blocks_of_rows_are_all_tried(layer_of, monkeypatch):
    layer = layer_of()
    layer.tensors["q"][1, 197] *= 40
    whole = chosen(mha.LayerTrace(dict(layer.tensors), layer.rule))
    monkeypatch.setattr("mha_core.attention.functional.CELLS", 1600)
    assert chosen(mha.LayerTrace(dict(layer.tensors), layer.rule)) == whole


def test_few_passes_are_needed(layer_of, monkeypatch):
    rows, real = [], rounding._moved
    monkeypatch.setattr(rounding, "_moved", lambda *asked: rows.append(asked[-1]) or real(*asked))
    monkeypatch.setattr("mha_core.attention.functional.CELLS", 1600)
    for factor in (0.02, 1, 3, 8):
        rows.clear()
        chosen(layer_of(factor))
        full = sum(part.stop - part.start for part in rows if isinstance(part, slice)) / 2 / 200
        assert 1 <= full < 2.5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions(dtype, layer_of):
    bits = chosen(layer_of(dtype=dtype))
    assert bits == rounding.LEAST if dtype in (torch.float16, torch.bfloat16) else 10 < bits < 20


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_stays_as_it_is(value, layer_of):
    layer = layer_of()
    layer.tensors["k"][0, 3, 3] = value
    assert few_bits(layer, [0, 1], np.zeros((2, 200))) == rounding.ALL


def test_weights_that_explode_ask_for_all_bits(layer_of):
    layer = layer_of(3e4)
    assert few_bits(layer, [0, 1], np.full((2, 200), -1e3)) == rounding.ALL


@pytest.mark.parametrize(("factor", "n_bytes"), [(0.3, 3), (20, 4)])
def test_bytes_that_are_zero_everywhere_do_not_travel(factor, n_bytes, layer_of, javascript, monkeypatch):
    monkeypatch.setattr("mha_core.export.payload._weights_are_smaller", lambda layer, heads: False)
    layer = layer_of(factor)
    blob = pack([Panel("", [""] * 200, {0: layer})], deflate=False)
    size = struct.unpack("<I", blob[4:8])[0]
    [described] = json.loads(blob[8 : 8 + size])["panels"][0]["layers"]
    assert described["q"]["type"] == described["k"]["type"] == f"p{n_bytes}"
    code = """
    const layer = (await openBlob(file("blob")))[0].layers.get(0);
    return [0, 1].map((head) => Array.from({ length: 200 }, (_, query) => layer.row(head, query)));
    """
    found = np.array(javascript(["attention.js"], code, blob=blob))
    assert np.abs(found - layer.weights()).max() <= 1.05 * TOLERANCE
