"""Long texts: blocks of weights and the strongest keys, computed without the whole matrix."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core.analysis.cone import cone
from mha_core.attention import functional
from mha_core.attention.masks import LONG
from mha_core.attention.score_rule import ScoreRule

N, H, KV = 50, 4, 2
CAUSAL = torch.ones(N, N, dtype=torch.bool).tril()
WINDOW = torch.where(torch.arange(1 - N, N).abs() <= 3, 0.0, -torch.inf).repeat(H, 1)
RULES = {
    "full": ScoreRule(),
    "capped, with a row that sees nothing": ScoreRule(
        soft_cap=3.0, temperature=0.5, mask=CAUSAL & (torch.arange(N) != 3)[:, None]
    ),
    "sinks, one beside which nothing counts": ScoreRule(sinks=torch.tensor([0.0, 5, -3, 200]), mask=CAUSAL),
    "window by distance": ScoreRule(distance_bias=WINDOW),
    "padding": ScoreRule(mask=(torch.arange(N) < N - 9)[None]),
    "patched": ScoreRule(patched_weights=torch.where(CAUSAL, torch.inf, 0.25)[None], mask=CAUSAL),
}


def layer_of(rule, n=N, h=H, kv=KV, **given):
    draw = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(heads, n, 8, generator=draw) for heads in (h, kv, kv))
    given = given or {"rule": rule}
    return mha.from_tensors(q=q, k=k, v=v, tokens=["a"] * n, **given).layers[0]


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("size", [1, 7, 64])
def test_blocks_and_strongest_keys_are_those_of_the_whole_matrix(rule, size, monkeypatch):
    monkeypatch.setattr(functional, "CELLS", 4 * N)  # blocks of rows that end inside blocks of cells
    layer = layer_of(rule)
    for head in range(H):
        whole, allowed = layer.weights(head), layer.allowed(head)
        found = layer.blocks(head, size)
        for (row, column), largest in np.ndenumerate(found.largest):
            cells = np.s_[row * size : (row + 1) * size, column * size : (column + 1) * size]
            assert found.sums[row, column] == pytest.approx(whole[cells].sum(dtype=float), abs=1e-5)
            if allowed[cells].any():
                assert largest == pytest.approx(whole[cells].max(), abs=1e-6)
            else:
                assert np.isnan(largest)
        keys, weights = layer.strongest(head, 3)
        np.testing.assert_allclose(weights, np.take_along_axis(whole, keys, 1), atol=1e-6)
        np.testing.assert_allclose(weights, -np.sort(-whole, 1)[:, :3], atol=1e-6)
    fresh = layer_of(rule)
    np.testing.assert_allclose(layer.log_sum_exp(), fresh.log_sum_exp(), atol=1e-12)  # of the same pass


def test_of_a_long_text_a_mask_by_name_takes_no_matrix_and_a_needle_is_found_in_its_blocks():
    n, (row, key) = LONG + 60, np.random.default_rng(3).integers(0, LONG, 2)
    row, key = max(row, key), min(row, key)
    layer = layer_of(None, n, 1, 1, mask="causal")
    q, k = layer.tensors["q"], layer.tensors["k"]
    q[0, row], k[0, key] = 10.0, 10.0
    layer = replace(layer, tensors={**layer.tensors, "q": q, "k": k})
    assert max(table.numel() for table in layer.rule.tensors().values()) < 2 * n
    assert layer.allowed(0, rows=[5, n - 1]).sum(-1).tolist() == [6, n]
    for size in (9, 128, 2048):
        largest, sums = layer.blocks(0, size)
        assert largest[row // size, key // size] > 0.999
        rows = np.diff(np.append(np.arange(0, n, size), n))
        np.testing.assert_allclose(sums.sum(1) / rows, 1, atol=1e-5)
        assert np.isnan(largest[0, -1])
    assert layer.strongest(0, 1).keys[row, 0] == key


@pytest.mark.parametrize("edits", [[], [mha.edits.Weights(rows=[2])]], ids=["as it is", "a uniform row"])
@pytest.mark.parametrize("position", ["alibi", "none"])
@pytest.mark.parametrize("mask", ["causal", "window:3", "padding:2", "full"])
def test_a_long_mask_by_name_hides_what_the_matrix_hides(mask, position, edits, monkeypatch):
    settings = {"h": 2, "d_model": 8, "layers": 2, "mask": mask, "position": position, "edits": edits}
    place = {"layer": 1, "head": 1, "query": 5, "key": 4}
    small = mha.trace("a b c d e f g h", **settings)
    expected = mha.attribution(small, **place).value
    monkeypatch.setattr("mha_core.attention.masks.LONG", 4)
    large = mha.trace("a b c d e f g h", **settings)
    np.testing.assert_allclose(large.layers[0].weights(), small.layers[0].weights(), atol=1e-7)
    np.testing.assert_array_equal(large.layers[0].allowed(), small.layers[0].allowed())
    change = [mha.edits.Output(values=0.0, rows=[6])]
    np.testing.assert_array_equal(cone(large, change, changed=[3]), cone(small, change, changed=[3]))
    assert mha.attribution(large, **place).value == pytest.approx(expected, abs=1e-6)  # it draws them again


def test_all_weights_of_a_long_layer_are_refused_with_what_works(refused):
    q = torch.zeros(1, 32_768, 1)
    [layer] = mha.from_tensors(q=q, k=q, v=q, tokens=["a"] * 32_768, mask="causal").layers
    assert "take 4.3 GB; name rows, as in" in str(refused(layer.weights, 0))
    assert layer.weights(0, rows=[32_767]).sum() == pytest.approx(1, abs=1e-5)
