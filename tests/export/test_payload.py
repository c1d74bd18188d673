"""The payload for the browser: small, and every weight comes out as torch computed it."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core.export.payload import Panel, coded, fitting, pack, size

LABELS = [f"t{n}" for n in range(7)]
HALF = torch.float16, torch.bfloat16
ALL = """
const [panel] = openPayload(file("blob"));
return [...panel.layers.values()].map((layer) => ({
  form: layer.weights ? "weights" : "scores",
  number: layer.number, heads: layer.heads, nHeads: layer.nHeads,
  rows: layer.heads.map((h) => Array.from({ length: layer.nQuery }, (_, q) => layer.row(h, q))),
  cells: layer.heads.map((h) => Array.from({ length: layer.nQuery }, (_, q) =>
    Array.from({ length: layer.nKey }, (_, k) => layer.weight(h, q, k)))),
  sees: layer.heads.map((h) => Array.from({ length: layer.nQuery }, (_, q) =>
    Array.from({ length: layer.nKey }, (_, k) => layer.sees(h, q, k)))),
}));
"""


@pytest.fixture
def browser_layers(javascript):
    """`browser_layers(layers, heads=…)`: the layers as the browser reads them."""

    def look(*layers, heads=None, form="weights"):
        panel = Panel("a", LABELS, dict(enumerate(layers)))
        blob = pack([panel], heads=heads, values=form == "scores")
        return javascript(["numbers/payload.js"], ALL, blob=blob)

    return look


@pytest.fixture(params=["weights", "scores"])
def form(request):
    """Both forms: small layers are sent as weights unless values are needed."""
    return request.param


def agrees(found, layer, heads, form):
    assert found["form"] == form
    assert (found["heads"], found["nHeads"]) == (list(heads), layer.n_heads)
    weights, allowed = layer.weights()[list(heads)], layer.allowed()[list(heads)]
    bound = 5e-3 if layer.tensors["q"].dtype in HALF else 2e-5 if form == "weights" else 5e-6
    assert np.abs(np.array(found["rows"]) - weights).max() < bound
    assert np.abs(np.array(found["cells"]) - weights).max() < bound
    assert np.array_equal(found["sees"], allowed)


def test_every_setting_of_a_trace_gives_the_weights_of_torch(setting, browser_layers, form):
    trace = mha.trace(**setting)
    for found, layer in zip(browser_layers(*trace.layers, form=form), trace.layers, strict=True):
        agrees(found, layer, range(layer.n_heads), form)


@pytest.mark.parametrize("heads", [None, [4], [5, 0]], ids=str)
def test_every_score_rule_and_precision_gives_the_weights_of_torch_for_any_heads(
    rules, make_layer, browser_layers, form, heads
):
    layers = [make_layer(rule) for rule in rules.values()]
    layers += [make_layer(dtype=dtype) for dtype in (torch.float64, *HALF)]
    for found, layer in zip(browser_layers(*layers, heads=heads, form=form), layers, strict=True):
        agrees(found, layer, heads or range(6), form)


@pytest.mark.parametrize(("bits", "bound"), [(16, 2e-5), (8, 1 / 254)])
def test_weights_in_8_bits_keep_small_values_and_hidden_cells(javascript, bits, bound):
    """As 8 bits of itself, and not of its root, a weight below 1/510 would be nothing."""
    weights = np.float32([[[0.999, 0.001, np.nan], [0.99999, np.nan, 0.00001], [np.nan] * 3]])
    blob = pack([Panel("a", "abc", {0: weights})], bits=bits)
    [found] = javascript(["numbers/payload.js"], ALL, blob=blob)
    rows = np.array(found["rows"])
    assert np.array_equal(found["sees"], ~np.isnan(weights))
    assert np.abs(rows - np.nan_to_num(weights)).max() < bound
    assert (rows > 0).tolist() == (~np.isnan(weights)).tolist()


def test_four_digits_are_right_where_scores_are_large(javascript, normal):
    """A sink gets almost all of each row, as in real models; the small rest must be exact, too."""
    tensors = {name: normal(2, 300, 64, seed=seed) * 3 for seed, name in enumerate("qkv")}
    tensors["k"][:, 0] *= 20
    layer = mha.LayerTrace(tensors, mha.ScoreRule())
    code = "return [0, 1].map((h) => Array.from({ length: 300 }, (_, q) => layer.row(h, q)));"
    code = f'const layer = openPayload(file("blob"))[0].layers.get(0); {code}'
    panel = Panel("a", ["t"] * 300, {0: layer})
    found = np.array(javascript(["numbers/payload.js"], code, blob=pack([panel], values=True)))
    np.testing.assert_allclose(found, layer.weights(), rtol=5e-4, atol=1e-12)


def test_rows_are_cached_and_old_ones_recomputed(javascript, normal):
    weights = torch.softmax(normal(1, 700, 3), -1).numpy()
    code = """
    const layer = (openPayload(file("blob")))[0].layers.get(0);
    const first = Array.from(layer.row(0, 0));
    for (let q = 0; q < 700; q++) layer.row(0, q);
    const same = layer.row(0, 0).every((w, k) => w === first[k]);
    return [layer.rows.size, same, layer.row(0, 5) === layer.row(0, 5)];
    """
    blob = pack([Panel("a", ["x"] * 700, {0: weights})])
    assert javascript(["numbers/payload.js"], code, blob=blob) == [512, True, True]


# The bytes


@pytest.mark.parametrize("n_kv", [6, 1])
def test_without_values_the_smaller_form_is_sent(n_kv, normal):
    taken = set()
    for length in (12, 60, 110, 160, 260):
        tensors = {"q": normal(6, length, 32), "k": normal(n_kv, length, 32), "v": normal(n_kv, length, 2)}
        layer, panel = mha.LayerTrace(tensors, mha.ScoreRule()), Panel("", [""] * length, {})
        weights = len(pack([replace(panel, layers={0: layer.weights()})]))
        scores = len(pack([replace(panel, layers={0: layer})], values=True)) - layer.v.nbytes
        chosen = len(pack([replace(panel, layers={0: layer})]))
        assert chosen == pytest.approx(min(weights, scores), abs=400)  # what is said in the header
        assert chosen == pytest.approx(size(layer) + 6 * length, abs=600)
        taken.add("weights" if weights < scores else "scores")
    assert taken == {"weights", "scores"}


def test_with_values_only_q_k_and_v_are_sent(normal):
    layer = mha.LayerTrace({name: normal(4, 90, 16) for name in "qkv"}, mha.ScoreRule())
    numbers = 4 * 4 * 90 * (3 * 16 + 1)
    assert size(layer, values=True) == numbers
    assert size(layer, 1, values=True) == numbers / 4
    blob = pack([Panel("", [""] * 90, {0: layer})], values=True)
    assert blob[:4] == b"mha0"
    assert numbers < len(blob) < numbers + 1200


def test_the_browser_computes_weights_from_every_field_of_a_rule():
    """A new field needs its lines in `payload.py` and numbers/payload.js; sinks are in the log-sum-exp."""
    sent = {"scale", "soft_cap", "bias", "distance_bias", "mask", "temperature"}
    sent |= {"patched_weights", "patched_outputs"}
    assert {field.name for field in fields(mha.ScoreRule)} == sent | {"sinks"}


def test_coded_weights_are_within_the_documented_error():
    weights = np.array([0, 1e-9, 1e-6, 1e-4, 0.003, 0.02, 0.3, 0.99999, 1])
    error = np.abs((coded(weights) / 65535) ** 2 - weights)
    assert (error <= weights**0.5 / 65535 + 1 / (4 * 65535**2)).all()


def test_layers_and_heads_fit_the_budget_with_the_chosen_head(normal):
    small, large = (
        [mha.LayerTrace({"q": normal(12, n, 4), "k": normal(12, n, 4), "v": normal(12, n, 2)})] * 3
        for n in (10, 100)
    )
    assert fitting(small, 1, 5, budget=7200) == ([0, 1, 2], None)
    assert fitting(small, 1, 5, budget=7199) == ([0, 1], None)
    assert fitting(small, 2, 5, budget=7199) == ([1, 2], None)
    assert fitting(small, 1, 5, budget=2400) == ([1], None)
    one = size(large[0], 1)
    for head, heads in ((5, [4, 5, 6]), (0, [0, 1, 2]), (11, [9, 10, 11])):
        assert fitting(large, 2, head, budget=3 * one) == ([2], heads)
    assert fitting(large, 2, 11, budget=1) == ([2], [11])


def test_weights_known_alone_are_sent_as_weights(normal):
    layer = mha.LayerTrace({"weights": torch.softmax(normal(2, 199, 199), -1)})
    assert size(layer) == 2 * 2 * 199 * 199
    assert fitting([layer], 0, 0) == ([0], None)
    assert b'"weights"' in pack([Panel("", ["a"] * 199, {0: layer})])
