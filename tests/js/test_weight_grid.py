"""All weights of a head in a grid small enough to draw, in node against numpy."""

import numpy as np
import pytest
import torch

from mha_core.export.payload import Panel, pack

MODULES = ["numbers/payload.js", "pictures/weight_grid.js"]
QUERIES, KEYS, GRID = 7, 17, 8  # in blocks of 3 × 3; the last of each row and column are smaller


@pytest.mark.parametrize("heads", [[0, 1], [0]], ids=["mean", "one head"])
def test_a_cell_of_the_grid_is_the_largest_of_its_block(javascript, normal, heads):
    weights = torch.softmax(normal(2, QUERIES, KEYS), -1).numpy()
    weights[:, :3, 3:6] = np.nan  # a block that is hidden from both heads
    weights[0, 6, 15:] = np.nan  # and one from the first
    weights[1, 6, 15:] = 0  # of no weight to the second
    code = f"""
    const layer = openPayload(file("blob"))[0].layers.get(0);
    return [2, 1000].map((rows) => {{
      const grid = new WeightGrid(layer, {heads}, {GRID});
      let turns = 0;
      for (; !grid.done; turns++) {{
        let left = rows;
        grid.advance(1, () => Number(--left === 0));
      }}
      return [grid.step, grid.rows, grid.columns, turns, grid.maximum, grid.values];
    }});
    """
    blob = pack([Panel("a", ["q"] * QUERIES, {0: weights}, ["k"] * KEYS)])
    in_slices, at_once = javascript(MODULES, code, blob=blob)
    assert (in_slices[:4], at_once[:4]) == ([3, 3, 6, 4], [3, 3, 6, 1])
    assert in_slices[4:] == at_once[4:]
    expected = np.full((9, 18), -1.0)
    seen = (~np.isnan(weights[heads])).any(0)
    expected[:QUERIES, :KEYS] = np.where(seen, np.nan_to_num(weights[heads]).mean(0), -1)
    blocks = expected.reshape(3, 3, 6, 3).max((1, 3))
    found = np.array([float(value) for value in at_once[5]]).reshape(3, 6)
    np.testing.assert_array_equal(np.isnan(found), blocks < 0)
    np.testing.assert_allclose(found[blocks >= 0], blocks[blocks >= 0], atol=5e-5)
    assert at_once[4] == pytest.approx(blocks.max(), abs=5e-5)
