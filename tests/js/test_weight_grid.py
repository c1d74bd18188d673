"""All weights of a head in a grid small enough to draw, in node against numpy."""

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core.export.payload import Panel, pack

MODULES = ["numbers/payload.js", "pictures/weight_grid.js"]


@pytest.mark.parametrize("slices", [1, 7], ids=["at once", "in slices"])
@pytest.mark.parametrize("mask", ["full", "causal"])
def test_a_pooled_cell_is_the_largest_of_its_block(javascript, slices, mask):
    trace = mha.trace(" ".join(["w"] * 1000), h=2, d_model=8, mask=mask)  # in blocks of 2 × 2
    layer = trace.layers[0]
    blob = pack([Panel("a", trace.tokens.labels, {0: layer})])
    code = f"""
    const layer = (await openPayload(file("blob")))[0].layers.get(0);
    const pooled = new WeightGrid(layer, [0, 1]);
    let clock = 0, turns = 0;
    while (!pooled.done) {{ pooled.advance(clock + 1000, () => (clock += {slices})); turns += 1; }}
    return [pooled.step, pooled.columns, turns, pooled.maximum, pooled.values];
    """
    step, side, turns, most, values = javascript(MODULES, code, blob=blob)
    expected = layer.weights().mean(0)
    expected[~layer.allowed()[0]] = -1
    blocks = expected.reshape(500, 2, 500, 2).max((1, 3))
    found = np.array([[float(v) for v in values]]).reshape(500, 500)
    assert (step, side) == (2, 500)
    assert turns == (1 if slices == 1 else 7)
    assert most == pytest.approx(expected.max(), abs=1e-5)
    np.testing.assert_array_equal(np.isnan(found), blocks < 0)
    np.testing.assert_allclose(found[blocks >= 0], blocks[blocks >= 0], atol=1e-5)


def test_the_last_block_may_be_smaller_and_heads_may_have_masks_of_their_own(javascript, normal):
    mask = torch.ones(2, 801, 801, dtype=torch.bool)
    mask[0, :, 800] = False
    mask[:, :, 10:12] = False
    tensors = {name: normal(2, 801, 4, seed=seed) for seed, name in enumerate("qkv")}
    mask[0, :, 20:22] = False  # hidden from one head, and of no weight to the other
    tensors["q"][1, :, 0], tensors["k"][1, 20:22, 0] = 1, -1e5
    layer = mha.LayerTrace(tensors, mha.ScoreRule(mask=mask))
    blob = pack([Panel("a", [""] * 801, {0: layer})])
    code = """
    const layer = (await openPayload(file("blob")))[0].layers.get(0);
    const pooled = new WeightGrid(layer, [0, 1]);
    pooled.advance(Infinity);
    const alone = new WeightGrid(layer, [0]);
    alone.advance(Infinity);
    const places = [400, 401 * 400 + 400, 5, 10];
    return [pooled, alone].map(({ columns, values }) => [columns, ...places.map((place) => values[place])]);
    """
    both, alone = javascript(MODULES, code, blob=blob)
    weights = layer.weights()
    assert (both[0], alone[0]) == (401, 401)
    assert both[1] == pytest.approx(weights.mean(0)[:2, 800].max(), abs=1e-6)
    assert both[2] == pytest.approx(weights.mean(0)[800, 800], abs=1e-6)
    assert alone[1:] == ["NaN"] * 4
    assert both[4] == 0
    assert both[3] == "NaN"
