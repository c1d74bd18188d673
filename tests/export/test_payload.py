"""What travels to the browser: small, and every weight comes out as torch computed it."""

import zlib

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core.attention import masks
from mha_core.export import payload
from mha_core.export.payload import Panel, coded, fitting, pack, size

LABELS = [f"t{n}" for n in range(7)]
ALL = """
const [panel] = await openBlob(file("blob"));
return [...panel.layers.values()].map((layer) => ({
  form: layer.weights ? "weights" : "scores",
  number: layer.number, heads: layer.heads, nHeads: layer.nHeads,
  rows: layer.heads.map((h) => Array.from({ length: layer.nQuery }, (_, q) => layer.row(h, q))),
  columns: layer.heads.map((h) => Array.from({ length: layer.nKey }, (_, k) => layer.column(h, k))),
  sees: layer.heads.map((h) => Array.from({ length: layer.nQuery }, (_, q) =>
    Array.from({ length: layer.nKey }, (_, k) => layer.sees(h, q, k)))),
}));
"""


@pytest.fixture
def seen(javascript):
    """`seen(layers, heads=…)`: what the browser makes of the layers."""

    def look(*layers, heads=None, labels=LABELS):
        blob = pack([Panel("a", labels, dict(enumerate(layers)))], heads=heads)
        return javascript(["attention.js"], ALL, blob=blob)

    return look


@pytest.fixture(params=["weights", "scores"])
def form(request, monkeypatch):
    """Both forms for small layers too, which would otherwise always travel as weights."""
    if request.param == "scores":
        monkeypatch.setattr(payload, "_weights_size", lambda layer, n_heads: 1 << 60)
    return request.param


def agrees(found, layer, heads, form):
    assert found["form"] == form
    assert (found["heads"], found["nHeads"]) == (list(heads), layer.n_heads)
    weights, allowed = layer.weights()[list(heads)], layer.allowed()[list(heads)]
    bound = 2e-5 if form == "weights" else 5e-5
    assert np.abs(np.array(found["rows"]) - weights).max() < bound
    assert np.abs(np.array(found["columns"]) - weights.swapaxes(1, 2)).max() < bound
    assert np.array_equal(found["sees"], allowed)


def test_every_setting_of_a_trace_comes_out_as_torch_computed_it(setting, seen, form):
    trace = mha.trace(**setting)
    for found, layer in zip(seen(*trace.layers), trace.layers, strict=True):
        agrees(found, layer, range(layer.n_heads), form)


def test_every_score_rule_comes_out_as_torch_computed_it(rule, make_layer, seen, form):
    layer = make_layer(rule)
    agrees(seen(layer)[0], layer, range(6), form)


@pytest.mark.parametrize("heads", [[4], [1, 2, 5], [5, 0]])
def test_some_heads_can_travel_alone(rule, make_layer, seen, form, heads):
    layer = make_layer(rule)
    agrees(seen(layer, heads=heads)[0], layer, heads, form)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_precisions_come_out_as_well(make_layer, seen, form, dtype):
    layer = make_layer(dtype=dtype)
    found = seen(layer)[0]
    bound = 5e-3 if dtype in (torch.float16, torch.bfloat16) else 6e-5  # torch rounds those weights
    assert np.abs(np.array(found["rows"]) - layer.weights()).max() < bound


def test_weights_without_a_trace_travel_too(seen, normal):
    weights = torch.softmax(normal(2, 7, 7), -1).numpy()
    found = seen(weights, heads=None)[0]
    assert np.abs(np.array(found["rows"]) - weights).max() < 2e-5
    assert found["heads"] == [0, 1]


def test_scores_are_there_where_q_and_k_are(make_layer, javascript, monkeypatch):
    monkeypatch.setattr(payload, "_weights_size", lambda layer, n_heads: 1 << 60)
    layer = make_layer()
    code = """
    const layer = (await openBlob(file("blob")))[0].layers.get(0);
    return [0, 3, 5].map((head) => layer.score(head, 2, 6));
    """
    found = javascript(["attention.js"], code, blob=pack([Panel("a", LABELS, {0: layer})]))
    assert found == pytest.approx([float(layer.scores(h)[2, 6]) for h in (0, 3, 5)], abs=1e-4)


def test_many_rows_are_remembered_and_old_ones_computed_anew(javascript, normal):
    weights = torch.softmax(normal(1, 700, 3), -1).numpy()
    code = """
    const layer = (await openBlob(file("blob")))[0].layers.get(0);
    const first = Array.from(layer.row(0, 0));
    for (let q = 0; q < 700; q++) layer.row(0, q);
    const same = layer.row(0, 0).every((w, k) => w === first[k]);
    return [layer.rows.size, same, layer.row(0, 5) === layer.row(0, 5)];
    """
    blob = pack([Panel("a", ["x"] * 700, {0: weights})])
    assert javascript(["attention.js"], code, blob=blob) == [512, True, True]


# Pieces joined to words


def test_words_give_the_sum_of_their_pieces_and_take_the_mean(javascript, make_layer):
    layer, groups = make_layer(), [0, 0, 1, 2, 2, 2, 3]
    code = """
    const joined = new Grouped((await openBlob(file("blob")))[0].layers.get(0), [0, 0, 1, 2, 2, 2, 3]);
    return [0, 1, 2, 3].map((q) => [joined.row(4, q), [0, 1, 2, 3].map((k) => joined.weight(4, q, k))]);
    """
    found = np.array(
        javascript(["attention.js", "sides.js"], code, blob=pack([Panel("a", LABELS, {0: layer})]))
    )
    member = np.eye(4)[groups]  # (piece, word)
    expected = (member / member.sum(0)).T @ layer.weights(4) @ member
    assert np.abs(found - expected[:, None]).max() < 5e-5
    assert found[:, 0].sum(1) == pytest.approx(np.ones(4), abs=1e-4)


# The bytes


def in_form(layer: mha.LayerTrace, length: int, monkeypatch, name: str | None = None) -> bytes:
    """A blob of that form, or of the one that is chosen."""
    with monkeypatch.context() as patch:
        if name:
            patch.setattr(payload, "_weights_are_smaller", lambda layer, heads: name == "weights")
        return pack([Panel("", [""] * length, {0: layer})])


@pytest.mark.parametrize("kind", ["drawn", "gentle", "causal", "shared keys"])
def test_the_form_that_is_smaller_once_deflated_is_taken(kind, normal, monkeypatch):
    taken = set()
    for length in (12, 60, 110, 160, 260):
        n_kv = 1 if kind == "shared keys" else 6
        strength = 0.4 if kind == "gentle" else 1.5
        tensors = {"q": normal(6, length, 32) * strength, "k": normal(n_kv, length, 32, seed=1) * strength}
        rule = mha.ScoreRule(mask=masks.build("causal", length, length) if kind == "causal" else None)
        layer = mha.LayerTrace(tensors | {"v": normal(n_kv, length, 2)}, rule)
        chosen = in_form(layer, length, monkeypatch)
        sizes = {name: len(in_form(layer, length, monkeypatch, name)) for name in ("weights", "scores")}
        assert len(chosen) <= 1.05 * min(sizes.values())
        assert len(chosen) <= size(layer) + 500  # and the header
        taken.add(min(sizes, key=sizes.get))
    assert taken == {"weights", "scores"}


def test_large_blobs_are_deflated_and_small_ones_are_not(normal):
    weights = torch.softmax(9 * normal(4, 90, 90), -1).numpy()
    large, plain = (pack([Panel("", [""] * 90, {0: weights})], deflate=d) for d in (True, False))
    assert (large[:4], plain[:4]) == (b"mha1", b"mha0")
    assert len(large) < 0.8 * len(plain)
    assert zlib.decompress(large[4:]) == plain[4:]
    assert pack([Panel("", ["a"], {0: np.ones((1, 1, 1))})])[:4] == b"mha0"


def test_both_forms_are_deflated_in_the_way_that_suits_them(normal):
    """Codes of weights repeat themselves where a mask hides cells; the digits of q and k do not."""
    causal = torch.softmax(normal(4, 90, 90).masked_fill(~masks.build("causal", 90, 90), -np.inf), -1).numpy()
    tensors = {"q": normal(4, 600, 16), "k": normal(4, 600, 16, seed=1), "v": normal(4, 600, 2)}
    sizes = {}
    for form, layer in (("weights", causal), ("scores", mha.LayerTrace(tensors, mha.ScoreRule()))):
        plain = pack([Panel("", ["a"] * 600, {0: layer})], deflate=False)[4:]
        sizes[form] = [len(payload._deflated(plain, how)) for how in payload.DEFLATING]
        assert len(pack([Panel("", ["a"] * 600, {0: layer})])) == 4 + min(sizes[form])
    assert np.argmin(sizes["weights"]) != np.argmin(sizes["scores"])


@pytest.mark.parametrize("weight", [0, 1e-9, 1e-6, 1e-4, 0.003, 0.02, 0.3, 0.99999, 1])
def test_a_code_is_as_near_as_is_said(weight):
    decoded = (int(coded(np.array(weight))) / 65535) ** 2
    assert abs(decoded - weight) <= weight**0.5 / 65535 + 1 / (4 * 65535**2)


def test_small_weights_survive(normal):
    """With one byte a weight most of a long row became zero; with the root in two bytes hardly any."""
    weights = torch.softmax(3 * normal(1, 1, 4000), -1).numpy()
    assert (coded(weights) > 0).mean() > 0.999
    assert (np.rint(weights * 255) > 0).mean() < 0.5


def test_what_fits_is_loaded_and_the_chosen_head_always(normal):
    def layer(length):
        tensors = {"q": normal(12, length, 4), "k": normal(12, length, 4), "v": normal(12, length, 2)}
        return mha.LayerTrace(tensors, mha.ScoreRule())

    small, large = [layer(10)] * 3, [layer(100)] * 3
    assert fitting(small, 1, 5, budget=7200) == ([0, 1, 2], None)
    assert fitting(small, 1, 5, budget=7199) == ([1], None)
    one = size(large[0], 1)
    assert fitting(large, 2, 5, budget=3 * one) == ([2], [4, 5, 6])
    assert fitting(large, 2, 0, budget=3 * one) == ([2], [0, 1, 2])
    assert fitting(large, 2, 11, budget=3 * one) == ([2], [9, 10, 11])
    assert fitting(large, 2, 11, budget=1) == ([2], [11])


def test_a_head_that_is_not_there_is_refused(make_layer, refused, normal):
    assert "head 6" in str(refused(pack, [Panel("a", LABELS, {0: make_layer()})], heads=[6]))
    weights = torch.softmax(normal(2, 7, 7), -1).numpy()
    assert "head -1" in str(refused(pack, [Panel("a", LABELS, {0: weights})], heads=[-1]))


def test_bytes_that_are_no_blob_are_refused_in_the_browser(javascript):
    code = 'try { await openBlob(file("blob")); } catch (error) { return error.message; }'
    assert javascript(["attention.js"], code, blob=b"PNG?") == "not attention: PNG?"
