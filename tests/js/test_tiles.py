"""Long texts in the browser: blocks as they are sent, and tiles of exact cells, in node against torch."""

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core.attention.score_rule import ScoreRule
from mha_core.export import payload
from mha_core.export.payload import Panel, pack

MODULES = ["numbers/payload.js", "pictures/weight_grid.js", "pictures/tiles.js"]
N, H, KV = 301, 4, 2
CAUSAL = torch.ones(N, N, dtype=torch.bool).tril()
DISTANCE = torch.arange(1 - N, N)
RULES = {
    "full": ScoreRule(),
    "causal, with sinks": ScoreRule(mask=CAUSAL, sinks=torch.tensor([0.0, 5, -3, 1])),
    "window by distance": ScoreRule(
        distance_bias=torch.where(DISTANCE.abs() <= 40, 0.0, -torch.inf).repeat(H, 1)
    ),
    "capped": ScoreRule(soft_cap=2.0, temperature=0.7, distance_bias=-0.01 * DISTANCE.abs().repeat(H, 1)),
    "padding": ScoreRule(mask=(torch.arange(N) < N - 150)[None]),
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_blocks_sums_and_every_tile_are_those_of_torch(rule, javascript, normal, monkeypatch):
    monkeypatch.setattr(payload, "LONG", 100)
    monkeypatch.setattr(payload, "SIDE", 50)
    q, k, v = (normal(heads, N, 8) for heads in (H, KV, KV))
    [layer] = mha.from_tensors(q=q, k=k, v=v, tokens=["a"] * N, rule=rule).layers
    code = """
    globalThis.requestAnimationFrame = () => {};
    const layer = openPayload(file("blob"))[0].layers.get(0);
    const exact = (row, column) => (layer.sees(3, row, column) ? layer.weight(3, row, column) : NaN);
    const tiles = new Tiles(exact, () => {});
    const n = layer.nKey;
    const seen = { rows: [0, n], columns: [0, n], height: n, width: n };
    const grid = sentGrid(layer, [3]);
    const found = [1, 2, 4].map((pool) => {
      const before = tiles.inSight(seen, pool).length;
      tiles.advance(Infinity);
      const all = tiles.inSight(seen, pool);
      return [pool, before, all.map(({ row, column, across, values }) => [row, column, across, [...values]])];
    });
    return [grid.step, [...grid.finished], grid.maximum, grid.sum(200, 17), sentGrid(layer, [0, 1]), found];
    """
    blob = pack([Panel("a", ["q"] * N, {0: layer})], values=True)
    step, largest, maximum, total, several, found = javascript(MODULES, code, blob=blob)
    expected, allowed = layer.weights(3), layer.allowed(3)
    blocks = layer.blocks(3, step)
    assert (step, several) == (7, None)
    np.testing.assert_allclose(numbers(largest), blocks.largest.ravel(), atol=1e-6)
    assert maximum == pytest.approx(np.nanmax(blocks.largest), abs=1e-6)
    assert total == pytest.approx(expected[196:203, 14:21].sum(), abs=1e-5)
    for pool, before, tiles in found:
        assert before == 0
        covered = np.zeros((N, N), int)
        for row, column, across, values in tiles:
            picture = numbers(values).reshape(-1, across)
            for (i, j), value in np.ndenumerate(picture):
                cells = np.s_[
                    row + i * pool : row + i * pool + pool, column + j * pool : column + j * pool + pool
                ]
                covered[cells] += 1
                if not allowed[cells].any():
                    assert np.isnan(value)
                elif (i * 7 + j) % 13 == 0:  # a sample: each cell is a call of numpy
                    assert value == pytest.approx(expected[cells][allowed[cells]].max(), abs=1e-6)
        assert (covered == 1).all()


def numbers(values) -> np.ndarray:
    return np.array([np.nan if value is None else float(value) for value in values])
