"""The six matrices of a head, and explanations, in node against numpy."""

import json
import random

import numpy as np
import pytest

import mha_core as mha
from mha_core.export.payload import Panel, pack
from mha_core.traces.source import ArraySource
from tests.conftest import LENGTH, RULES

MODULES = ["numbers/payload.js", "view/matrices.js", "pictures/heatmap.js", "pictures/matrix_gallery.js"]
LABELS = [f"t_{at}" for at in range(LENGTH)]
PART, KEYS = (2, 7), (1, 6)  # some rows and some columns
VECTORS, PAIRS = ("q", "k", "v"), ("scores", "weights")


def test_each_matrix_of_every_head_under_every_score_rule_is_the_one_of_the_layer(
    javascript, make_layer, normal
):
    """Masks, biases, a soft cap, a temperature, sinks; six heads share three of keys and values."""
    layers = {at: make_layer(rule(normal)) for at, rule in enumerate(RULES.values())}
    code = f"""
    const names = ["q", "k", "v", "scores", "weights", "output"];
    const columns = (layer, name) =>
      name === "q" || name === "k" ? [0, layer.q.shape[2]]
      : name === "v" || name === "output" ? [0, layer.v.shape[2]] : {json.dumps(KEYS)};
    return [...openPayload(file("blob"))[0].layers.values()].map((layer) => names.map((name) =>
      layer.heads.map((head) => valuesOf(layer, name, head, {json.dumps(PART)}, columns(layer, name)))));
    """
    blob = pack([Panel("a", LABELS, layers)], values=True)
    rows, keys = slice(*PART), slice(*KEYS)
    for layer, of_layer in zip(layers.values(), javascript(MODULES, code, blob=blob), strict=True):
        seen = {
            name: np.array(values, float)
            for name, values in zip((*VECTORS, *PAIRS, "output"), of_layer, strict=True)
        }
        shared = [layer.kv_head(head) for head in range(6)]
        assert shared == [0, 0, 1, 1, 2, 2]
        assert np.array_equal(np.float32(seen["q"]), layer.q[:, rows].reshape(6, -1))
        for name, vectors in (("k", layer.k), ("v", layer.v)):
            assert np.array_equal(np.float32(seen[name]), vectors[shared][:, rows].reshape(6, -1)), name
        allowed = layer.allowed()[:, rows, keys].reshape(6, -1)
        assert np.array_equal(~np.isnan(seen["weights"]), allowed)
        weights = layer.weights()[:, rows, keys].reshape(6, -1)
        np.testing.assert_allclose(np.nan_to_num(seen["weights"]), weights, atol=5e-6)
        scores, output = layer.scores()[:, rows, keys], layer.output()[:, rows]
        np.testing.assert_allclose(seen["scores"], scores.reshape(6, -1), atol=1e-5)
        np.testing.assert_allclose(seen["output"], output.reshape(6, -1), atol=1e-5)


def test_explanations_are_those_of_python(javascript, make_layer, normal):
    """Under every score rule, with the same steps."""
    layers = {at: make_layer(rule(normal)) for at, rule in enumerate(RULES.values())}
    trace = mha.AttentionTrace(mha.words(" ".join(LABELS)), tuple(layers.values()), ArraySource("numbers"))
    draw = random.Random(0)
    widths = {"scores": LENGTH, "weights": LENGTH, "output": layers[0].d_v}
    places = [("weights", 4, 2, 0), ("output", 4, 4, 2)]  # the latter an edit's
    for name in draw.choices(list(widths), k=20):
        places.append((name, draw.randrange(6), draw.randrange(LENGTH), draw.randrange(widths[name])))
    code = f"""
    const number = (layer) => ([name, head, row, column]) =>
      stepsTo(layer, name, {{ head, row, column }}, {json.dumps(LABELS)});
    return [...openPayload(file("blob"))[0].layers.values()].map((layer) =>
      {json.dumps(places)}.map(number(layer)));
    """
    blob = pack([Panel("a", LABELS, layers)], values=True)
    for number, of_layer in enumerate(javascript([*MODULES, "numbers/explanation.js"], code, blob=blob)):
        for (name, head, row, column), ours in zip(places, of_layer, strict=True):
            place = {"dimension": column} if name == "output" else {"key": column}
            theirs = mha.explain(trace, name, layer=number, head=head, query=row, **place)
            assert [step["name"] for step in ours] == [step.name for step in theirs.steps]
            for one, other in zip(ours, theirs.steps, strict=True):
                assert float(one["value"]) == pytest.approx(other.value, abs=5e-6)
                if one["name"] in ("scale", "cap", "bias", "temperature"):
                    inputs = [
                        [float(factor[0]) for factor in step] for step in (one["factors"], other.factors)
                    ]
                    np.testing.assert_allclose(*inputs, atol=5e-6)
                if other.labels:
                    assert tuple(one["labels"]) == other.labels
                    np.testing.assert_allclose(one["terms"], other.terms, atol=5e-6)


def test_described_matrices_get_their_numbers_and_hidden_cells_have_none(javascript, normal):
    first, second = normal(3, 2).numpy(), normal(2, 5).numpy()
    hidden = np.arange(10).reshape(2, 5) % 3 == 0
    blob = first.tobytes() + second.tobytes() + np.uint8(hidden).tobytes()
    described = [
        {"rows": ["a", "b", "c"], "columns": 2, "masked": None, "framed": [0, 1]},
        {"rows": ["a", "b"], "columns": [*"vwxyz"], "masked": "hidden"},
    ]
    code = f"""
    return withNumbers({json.dumps(described)}, new Uint8Array(file("blob")))
      .map(({{ numbers: {{ columns, values, framed }} }}) => [columns, [...values], framed]);
    """
    one, two = javascript(["pictures/page_matrices.js"], code, blob=blob)
    assert one == [["1", "2"], first.ravel().tolist(), [0, 1]]
    assert two[0] == [*"vwxyz"]
    np.testing.assert_array_equal(np.float32(two[1]), np.where(hidden, np.float32(np.nan), second).ravel())
