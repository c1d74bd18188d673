"""The path of one cell in the browser: each number and each partial sum on it; node against numpy."""

import json
import random

import numpy as np

from mha_core.attention.functional import attend
from mha_core.export.payload import Panel, pack
from tests.conftest import LENGTH, RULES

LABELS = [f"t{at}" for at in range(LENGTH)]
MODULES = ["numbers/payload.js", "numbers/explanation.js", "numbers/cell_path.js"]
SHOWN = 4  # lines of a row that is cut

CODE = """
const numberOf = (layer, [head, row, column], limit) => {
  const place = { head, row, column };
  const path = cellPathOf(stepsTo(layer, "weights", place, labels), { layer, place }, limit);
  const { terms } = path.products;
  return {
    ...path,
    sums: Array.from(terms, (_, at) => partialSum(terms, at + 1)),
    outputs: path.lines.map((_, at) => Array.from(partialOutput(path, at + 1))),
  };
};
return [...openPayload(file("blob"))[0].layers.values()].map((layer) =>
  places.map((place) => [Infinity, shown].map((limit) => numberOf(layer, place, limit))));
"""


def test_each_number_on_the_path_of_a_cell_is_that_of_attend(javascript, make_layer, normal):
    """Under every score rule: masks, biases, a soft cap, a temperature, sinks, replaced numbers."""
    layers = {at: make_layer(rule(normal)) for at, rule in enumerate(RULES.values())}
    draw = random.Random(0)
    places = [tuple(map(draw.randrange, (6, LENGTH, LENGTH))) for _ in range(15)] + [(4, 2, 0)]
    constants = f"const [labels, places, shown] = {json.dumps([LABELS, places, SHOWN])};"
    blob = pack([Panel("a", LABELS, layers)], values=True)
    paths = javascript(MODULES, constants + CODE, blob=blob)
    ended = 0
    for layer, of_layer in zip(layers.values(), paths, strict=True):
        outputs = attend(*(layer.tensors[name] for name in "qkv"), layer.rule).numpy()
        for (head, row, column), (path, cut) in zip(places, of_layer, strict=True):
            kv = layer.kv_head(head)
            products = layer.q[head, row] * layer.k[kv, column]
            np.testing.assert_allclose(path["sums"], products.cumsum(), atol=1e-5)
            np.testing.assert_allclose(path["products"]["value"], layer.scores(head)[row, column], atol=1e-5)

            seen = layer.allowed(head)[row, column]
            assert path["hidden"] == (not seen)
            ended += not seen
            last = path["stages"][path["length"] - 1]
            assert last == ("mixture" if seen else "mask")
            masked = layer.masked(head)[row] / layer.rule.temperature
            np.testing.assert_allclose(float(path["changes"][-1]["value"]), masked[column], atol=1e-5)
            if not seen:
                continue

            sinks = [] if layer.rule.sinks is None else [float(layer.rule.sinks[head])]
            scores = np.append(masked, sinks)
            powers = np.exp(scores - scores.max())
            lines = path["lines"]
            kinds = ["key"] * LENGTH + ["sink"] * len(sinks)
            assert [line["kind"] for line in lines] == kinds
            assert lines[path["chosen"]]["keys"] == [column]
            np.testing.assert_allclose([float(line["score"]) for line in lines], scores, atol=1e-4)
            np.testing.assert_allclose([line["power"] for line in lines], powers, atol=1e-5)
            np.testing.assert_allclose([line["share"] for line in lines], powers / powers.sum(), atol=1e-5)
            weights = layer.weights(head)[row]
            np.testing.assert_allclose([line["weight"] for line in lines[:LENGTH]], weights, atol=1e-5)
            replaced = not np.allclose(weights, (powers / powers.sum())[:LENGTH], atol=1e-4)
            assert not replaced or "patch" in path["stages"]

            parts = weights[:, None] * layer.v[kv]
            before = parts.cumsum(0)[: len(lines) - 1]  # a sink has no value
            np.testing.assert_allclose(path["outputs"][:-1], before, atol=1e-5)
            np.testing.assert_allclose(path["outputs"][-1], outputs[head, row], atol=1e-5)
            assert path["patchedOutput"] or np.allclose(outputs[head, row], parts.sum(0), atol=1e-5)

            # In a long row the largest and the cell itself have lines of their own; the others are added up.
            others = [line for line in cut["lines"] if line["kind"] == "others"]
            assert [len(line["keys"]) for line in others] == [LENGTH - SHOWN + 1]
            assert cut["lines"][cut["chosen"]]["keys"] == [column]
            for name in ("power", "share", "weight"):
                total = sum(line[name] for line in lines)
                np.testing.assert_allclose(sum(line[name] for line in cut["lines"]), total, atol=1e-5)
            np.testing.assert_allclose(
                sum(np.array(line["part"]) for line in cut["lines"]), parts.sum(0), atol=1e-5
            )
    assert 0 < ended < len(places) * len(layers)


def test_a_position_says_the_stage_and_how_much_of_it_is_done(javascript):
    """Forwards and backwards alike; no position is beyond the mask that hides the cell."""
    code = """
    const path = { length: 4 };
    const moments = [0, 0.25, 1, 1.5, 4, 9, -1].map((at) => Object.values(momentOf(path, at)));
    return [moments, [0, 0.24, 0.25, 0.99, 1].map((part) => countDone(part, 4))];
    """
    moments, counts = javascript(MODULES, code)
    assert moments == [[0, 0], [0, 0.25], [0, 1], [1, 0.5], [3, 1], [3, 1], [0, 0]]
    assert counts == [0, 0, 1, 3, 4]
