"""What of a matrix is in sight, and all of it pooled to a picture: node against numpy."""

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core.export.payload import Panel, pack

MODULES = ["numbers/payload.js", "pictures/weight_grid.js", "pictures/viewport.js"]


@pytest.fixture
def viewport(javascript):
    """`viewport("…")`: the code may use `w`, a viewport of 100 cells of 4 pixels in 400 × 400."""
    start = "const w = new Viewport(100, 400, 400);\n"
    return lambda code: javascript(MODULES, start + code)


def test_zooming_keeps_the_place_under_the_pointer(viewport):
    code = """
    const under = (x, y) => [(x - w.x) / w.cell, (y - w.y) / w.cell];
    const found = [];
    for (const [by, x, y] of [[2, 100, 300], [3, 250, 20], [0.7, 333, 333], [1.5, 10, 390]]) {
      const before = under(x, y);
      w.zoom(by, x, y);
      found.push([before, under(x, y), w.zoomed]);
    }
    return found;
    """
    for before, after, zoomed in viewport(code):
        assert after == pytest.approx(before)
        assert zoomed


def test_the_zoom_has_its_bounds_and_the_matrix_never_leaves_the_view(viewport):
    code = """
    const all = [];
    w.zoom(1000, 0, 0); all.push([w.cell, w.x, w.y]);
    w.pan(50, 50); all.push([w.x, w.y]);
    w.pan(-1e6, -1e6); all.push([w.x, w.y]);
    w.zoom(1e-6, 200, 200); all.push([w.cell, w.x, w.y, w.zoomed]);
    w.zoom(4, 200, 200); w.whole(); all.push([w.cell, w.x, w.y, w.zoomed]);
    return all;
    """
    far = 400 - 7200
    assert viewport(code) == [[72, 0, 0], [0, 0], [far, far], [4, 0, 0, False], [4, 0, 0, False]]


def test_the_cell_at_a_place_is_one_that_is_in_sight(viewport):
    code = """
    const whole = [w.at(0, 0), w.at(5, 399), w.at(-1, 5), w.at(5, 400), w.seen("x")];
    w.zoom(10, 0, 0); w.pan(-85, -1000);
    const places = [[0, 0], [39, 399], [-10, 5], [10, -1], [400, 5]];
    return [whole, [...places.map(([x, y]) => w.at(x, y)), w.seen("x"), w.seen("y")]];
    """

    def cell(row, column):
        return {"row": row, "column": column}

    assert viewport(code) == [
        [cell(0, 0), cell(99, 1), None, None, [0, 100]],
        [cell(25, 2), cell(34, 3), None, None, None, [2, 13], [25, 35]],
    ]


def test_a_few_tokens_fill_the_view(viewport):
    assert viewport("const s = new Viewport(3, 300, 300); s.zoom(5, 1, 1); return [s.minCell, s.cell];") == [
        100,
        100,
    ]


def test_cells_of_another_form_stay_under_the_pointer_and_grow_no_higher_than_they_may(viewport):
    code = """
    const s = new Viewport(64, 640, 360, 12, 3); // cells of 10 × 30 pixels
    const under = () => [(200 - s.x) / s.cell, (90 - s.y) / s.high];
    const sizes = [];
    for (const by of [2, 2, 2]) { s.zoom(by, 200, 90); sizes.push([s.cell, s.high, ...under()]); }
    return [sizes, s.at(200, 90), s.seen("y")];
    """
    sizes, at, rows = viewport(code)
    assert [[*size[:2]] for size in sizes] == [[20, 60], [40, 72], [72, 72]]
    for size in sizes:
        assert size[2:] == pytest.approx([20, 3])
    assert at == {"row": 3, "column": 20}
    assert rows == [1, 7]


def test_a_cell_is_brought_into_sight_and_no_farther(viewport):
    code = """
    w.zoom(10, 0, 0);
    w.reveal({ row: 3, column: 4 }); const same = [w.x, w.y];
    w.reveal({ row: 50, column: 4 }); const down = [w.x, w.y];
    w.reveal({ row: 20, column: 99 }); const back = [w.x, w.y];
    return [same, down, back];
    """
    assert viewport(code) == [[0, 0], [0, 400 - 51 * 40], [400 - 4000, -20 * 40]]


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
