"""Every layer has the properties of attention, never changes, and computes any part of its matrices."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core.analysis import overview, patterns, token
from mha_core.attention import functional, masks, positions
from mha_core.attention.module import Projections
from mha_core.export.payload import Panel, pack
from mha_core.traces.tensors import shared
from tests.conftest import assert_close
from tests.traces.conftest import TEXT

CELLS = ("scores", "scaled", "masked", "weights", "allowed")
PER_HEAD = (*CELLS, "output", "contribution")


# Invariants, for every setting


def per_key_head(layer, values):
    """Repeat the tensors that key heads share, so that each query head has its own."""
    return np.repeat(values, layer.n_heads // layer.n_kv_heads, axis=0)


def test_a_tensor_that_was_read_is_a_copy(make_layer):
    layer = make_layer()
    q, output = layer.q.copy(), layer.output()
    for tensor in layer.tensors.values():
        tensor.zero_()
    np.testing.assert_array_equal(layer.q, q)
    np.testing.assert_array_equal(layer.output(), output)


def permitted(setting):
    """(query, key), True where the setting allows a query to look, computed from the setting."""
    n = len(mha.words(setting["text"]))
    mask = masks.build(setting.get("mask", "full"), n, n)
    return np.ones((n, n), bool) if mask is None else mask.numpy()


def test_each_row_sums_to_one_or_to_zero_when_nothing_is_left(setting, trace):
    allowed = permitted(setting)
    for layer in trace.layers:
        weights = layer.weights()
        assert_close(weights.sum(-1), np.broadcast_to(allowed.any(-1), weights.shape[:2]))
        assert (weights >= 0).all()
        assert (weights[:, ~allowed] == 0).all()
        assert (weights[:, allowed] > 0).all()
        assert (layer.allowed() == allowed).all()
        assert np.isneginf(layer.masked()[:, ~allowed]).all()
        assert np.isfinite(layer.masked()[:, allowed]).all()
        assert np.isfinite(layer.scores()).all()


def test_each_matrix_follows_from_the_one_before(setting, trace):
    assert len(trace.layers) == setting.get("layers", 1)
    for layer in trace.layers:
        heads, shared = setting["h"], setting.get("n_kv_heads", setting["h"])
        assert (layer.n_heads, layer.n_kv_heads, layer.d_model) == (heads, shared, setting["d_model"])
        assert (layer.q.shape[1:], layer.k.shape[1:], layer.v.shape[1:]) == (
            *[(layer.n_query, layer.d_k)] * 2,
            (layer.n_key, layer.d_v),
        )
        scores = layer.q @ per_key_head(layer, layer.k).swapaxes(1, 2)
        assert_close(layer.scores(), scores, 1e-5)
        assert_close(layer.scaled(), scores / layer.d_k**0.5, 1e-5)
        assert_close(layer.weights() @ per_key_head(layer, layer.v), layer.output())
        assert_close(layer.concat(), np.concatenate(list(layer.output()), axis=1), 0)
        assert (layer.projections.b_o is not None) == setting.get("bias", True)
        bias = layer.projections.b_o.numpy() if setting.get("bias", True) else 0
        assert_close(layer.contribution().sum(0) + bias, layer.result(), 1e-5)
        assert_close(layer.concat() @ layer.projections.w_o.numpy() + bias, layer.result(), 1e-5)
    for layer, following in zip(trace.layers, trace.layers[1:], strict=False):
        assert_close(layer.result(), following.x, 1e-5)


def test_queries_keys_and_values_are_projections_of_x(setting, trace):
    for layer in trace.layers:
        for name in "qkv":
            weight, bias = (getattr(layer.projections, f"{part}_{name}") for part in "wb")
            packed = layer.x @ weight.numpy() + (0 if bias is None else bias.numpy())
            heads = np.stack(np.split(packed, getattr(layer, name).shape[0], axis=1))
            if name in "qk" and setting.get("position") == "rotary":
                heads = positions.rotate(torch.from_numpy(heads))
            assert_close(getattr(layer, name), heads, 1e-5)


def test_all_heads_are_the_single_heads_stacked(trace):
    for layer in trace.layers:
        for name in PER_HEAD:
            read = getattr(layer, name)
            assert_close(read(), np.stack([read(head) for head in range(layer.n_heads)]))


def test_a_layer_made_by_hand_shows_what_flowed(rule, make_layer):
    layer = make_layer(rule)
    mixed = layer.weights() @ per_key_head(layer, layer.v)
    patches = rule.patched_outputs
    if patches is not None:
        mixed = np.where(patches.isinf().numpy(), mixed, patches.numpy())
        assert (layer.output()[2, 1] == patches.expand(6, -1, 13)[2, 1].numpy()).all()
    assert_close(mixed, layer.output())
    attended = mha.attend(*(layer.tensors[name] for name in "qkv"), layer.rule)
    assert_close(layer.output(), attended)
    assert np.isfinite(layer.weights()).all()


def test_arrays_cannot_be_written(trace):
    layer = trace.layers[0]
    arrays = [layer.q, layer.k, layer.v, layer.x, layer.concat(), layer.result()]
    arrays += [getattr(layer, name)(head) for name in PER_HEAD for head in (None, 0)]
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


# Parts


@pytest.mark.parametrize("rows", [slice(0, 7, 3), [6, 0, 3]], ids=str)
def test_a_crop_is_a_crop_for_rules_made_by_hand_too(rows, rule, make_layer):
    layer = make_layer(rule)
    for name in CELLS:
        read = getattr(layer, name)
        assert_close(read(rows=rows, keys=[5, 1]), read()[:, rows][..., [5, 1]])
        assert_close(read(4, rows=rows), read(4)[rows])
    assert_close(layer.output(rows=rows), layer.output()[:, rows])


def test_in_blocks_of_rows_an_output_is_the_same(setting, monkeypatch):
    layers = mha.trace(**setting).layers
    whole = [(layer.output(), layer.output(0), layer.output(0, rows=[4, 1])) for layer in layers]
    for layer, (every, first, some) in zip(layers, whole, strict=True):
        monkeypatch.setattr(functional, "CELLS", 2 * layer.n_heads * layer.n_key)
        np.testing.assert_allclose(layer.output(), every, atol=2e-6)
        np.testing.assert_allclose(layer.output(0), first, atol=2e-6)
        np.testing.assert_allclose(layer.output(0, rows=[4, 1]), some, atol=2e-6)


def test_for_an_output_and_a_column_of_a_long_text_no_matrix_is_whole(normal, allocated):
    n = 1500
    tensors = {"q": normal(3, n, 4), "k": normal(3, n, 4), "v": normal(3, n, 2)}
    layer = mha.LayerTrace(tensors, mha.ScoreRule(distance_bias=positions.alibi(3, n, n)))
    whole = 4 * 3 * n * n  # bytes
    assert max(allocated(layer.weights)) >= whole
    for ask in (layer.output, lambda: layer.column(7)):
        assert max(allocated(ask)) < whole / 3


# What is kept of a pass


def test_the_item_of_a_batch_that_was_asked_for_is_kept_without_the_others_and_their_gradients(normal):
    module = mha.MultiHeadAttention(mha.AttentionSpec(15, 3))
    x, mask = normal(13, 7, 15), normal(13, 1, 7, 7) > -1
    layer = mha.LayerTrace.of(module(x, mask=mask), x=x, projections=module.projections(), item=3)
    alone = module(x[3:4], mask=mask[3:4])
    assert_close(layer.x, x[3], 0)
    assert_close(layer.q, alone.q[0].detach())
    assert_close(layer.result(), alone.output[0].detach())
    assert (layer.allowed() == mask[3].numpy()).all()
    assert sum(t.untyped_storage().nbytes() for t in shared(layer.tensors).values()) <= 1.5 * 4 * 7 * 15 * 4
    assert not any(t.requires_grad for t in layer.tensors.values())
    assert not any(getattr(layer.projections, name).requires_grad for name in layer.projections.known)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_a_layer_of_another_precision_can_be_read(dtype, make_layer):
    layer, full = make_layer(dtype=dtype), make_layer(dtype=torch.float64)
    expected = np.float64 if dtype == torch.float64 else np.float32
    tolerance = {torch.float16: 1e-2, torch.bfloat16: 6e-2, torch.float64: 0}[dtype]
    for name in PER_HEAD:
        array = getattr(layer, name)()
        assert array.dtype == (bool if name == "allowed" else expected)
        assert_close(array, getattr(full, name)(), tolerance)
    assert layer.q.dtype == expected
    assert_close(layer.result(), full.result(), tolerance)


# What V is made of, where that is not X


def test_values_of_their_own_are_what_v_is_made_of_and_nothing_else(normal):
    module = mha.MultiHeadAttention(mha.AttentionSpec(11, 3, n_kv_heads=1, d_k=5, d_v=13))
    module.requires_grad_(False)
    x, context, values = normal(2, 3, 11), normal(2, 7, 11, seed=1), normal(2, 7, 11, seed=2)
    made, usual = module(x, context, values), module(x, context)
    assert torch.equal(made.q, usual.q)
    assert torch.equal(made.k, usual.k)
    assert_close(made.v, module.project(values)[2])
    assert_close(made.output, module.join(mha.attend(usual.q, usual.k, module.project(values)[2])))
    layer = mha.LayerTrace.of(made, x=x, x_v=values, projections=module.projections(), item=1)
    assert_close(layer.x_v, values[1], 0)
    assert not layer.x_v.flags.writeable
    assert_close(layer.result(), made.output[1])


# Log-sum-exps and columns


def test_a_log_sum_exp_is_torchs(rule, make_layer):
    layer = make_layer(replace(rule, temperature=2.5))
    masked = torch.from_numpy(layer.masked().astype(np.float64) / 2.5)
    if rule.sinks is not None:
        sinks = (rule.sinks.double() / 2.5)[:, None, None].expand(-1, layer.n_query, 1)
        masked = torch.cat([masked, sinks], -1)
    assert np.allclose(layer.log_sum_exp(), torch.logsumexp(masked, -1).numpy(), atol=1e-12)


def test_a_column_is_that_of_the_matrix_for_every_rule_also_in_blocks(rule, make_layer, monkeypatch):
    whole = make_layer(rule)
    expected = whole.log_sum_exp()
    for cells in (functional.CELLS, 2 * whole.n_key):  # all rows, two rows of a head
        layer = make_layer(rule)
        monkeypatch.setattr(functional, "CELLS", cells)
        np.testing.assert_allclose(layer.log_sum_exp(), expected, atol=1e-12)
        for key in (0, 3, 6):
            np.testing.assert_allclose(layer.column(key), whole.weights()[:, :, key], atol=2e-6)


# Refusals


@pytest.mark.parametrize("known", [True, False], ids=["q and k", "weights alone"])
def test_rows_and_keys_are_picked_as_by_numpy(known):
    layer = mha.trace("one two three four five", h=3, d_model=15, mask="causal").layers[0]
    if not known:
        layer = mha.from_weights(layer.weights().copy(), "one two three four five").layers[0]
    for name in CELLS if known else ("weights", "allowed"):
        see = getattr(layer, name)
        whole = see()
        for rows, keys in (([4, -5], slice(-2, None)), (-1, [0]), (np.arange(5) > 2, np.array([-1, 1]))):
            picked = [[one] if isinstance(one, int) else one for one in (rows, keys)]
            expected = whole[:, picked[0]][:, :, picked[1]]
            np.testing.assert_allclose(see(rows=rows, keys=keys), expected, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(see(-2, rows=rows, keys=keys), expected[1], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(layer.column(-1), layer.column(4))
    if known:
        np.testing.assert_array_equal(layer.log_sum_exp(-1), layer.log_sum_exp(2))
        np.testing.assert_allclose(layer.output(-1, rows=-2), layer.output()[2, [3]], rtol=1e-5)
        assert layer.kv_head(-1) == 2


def test_rows_keys_and_heads_that_do_not_exist_are_refused_by_every_method(refused):
    layer = mha.trace("How are you?", h=3, d_model=15).layers[0]
    for name in (*PER_HEAD, "kv_head", "head_index"):
        error = refused(getattr(layer, name), 3)
        assert str(error) == "This layer has heads 0 to 2; head 3 was asked for."
        assert error.fixes == ({"head": 2},)
    for name in PER_HEAD:
        error = refused(getattr(layer, name), 0, rows=[9])
        assert str(error) == "This layer has rows 0 to 3; row 9 was asked for."
    for name in CELLS:
        assert "keys 0 to 3; key -5" in str(refused(getattr(layer, name), keys=-5))
    assert "key 4 was asked for" in str(refused(layer.column, 4))
    assert str(refused(layer.weights, [0, 1])) == "head is a whole number; got [0, 1]."


def test_unknown_facts_of_a_layer_are_named(normal, refused):
    module = mha.MultiHeadAttention(mha.AttentionSpec(15, 3)).requires_grad_(False)
    layer = mha.LayerTrace.of(module(normal(1, 2, 15)))
    trace = mha.AttentionTrace(mha.words("a b"), (layer,), "by hand")
    assert layer.x is None
    assert layer.sides.queries.labels == ("1", "2")  # without a text
    assert layer.projections == Projections()
    assert str(refused(trace.frame, "x")) == "The input X of this layer is not known."
    message = "The output matrix W^O of this layer is not known; look at `output` instead."
    assert str(refused(layer.result)) == str(refused(layer.contribution, 0)) == message


# Layers of which only the weights are known


def test_a_layer_known_by_its_weights_has_sizes_and_weights(known_by_weights, weights):
    [layer] = known_by_weights.layers
    assert (layer.n_heads, layer.n_kv_heads, layer.n_query, layer.n_key) == (3, 3, 7, 7)
    assert layer.d_model is None
    assert repr(layer) == "<LayerTrace self: weights (3, 7, 7)>"
    np.testing.assert_array_equal(layer.weights(), weights)
    np.testing.assert_array_equal(layer.weights(2, rows=[1, 4], keys=[6]), weights[2, [1, 4]][:, [6]])
    assert layer.allowed().all()
    assert known_by_weights.frame("weights", head=1).shape == (7, 7)


def test_unknown_matrices_are_refused_with_the_known_ones(known_by_weights, refused):
    [layer] = known_by_weights.layers
    for name in ("scores", "scaled", "masked", "output", "concat", "contribution", "result"):
        assert "not known" in str(refused(getattr(layer, name))), name
    for name in ("q", "k", "v", "d_k", "d_v", "scale"):
        assert "ask for its weights" in str(refused(getattr, layer, name)), name
    for name in ("q", "k", "v", "scores", "output"):
        assert "not known" in str(refused(known_by_weights.frame, name, head=0)), name
    assert "not known" in str(refused(layer.log_sum_exp))
    assert "not known" in str(refused(token.against_keys, known_by_weights, 0, layer=0, head=0))
    assert "not known" in str(refused(token.mixture, known_by_weights, 0, layer=0, head=0))


def test_measures_of_a_layer_of_weights_alone_are_those_of_the_whole_layer(by_kind):
    full = mha.AttentionTrace(TEXT, (by_kind("encoder"),), {"name": "by hand"}).part("encoder")
    [layer] = full.layers
    own = mha.LayerTrace({"weights": torch.from_numpy(layer.weights().copy())})
    bare = mha.AttentionTrace(TEXT, (own,), {"name": "by hand"})
    for at in range(7):
        assert_close(own.column(at), layer.column(at))
        for see in (token.row_of, token.column_of):
            assert_close(see(bare, at, layer=0).weights, see(full, at, layer=0).weights)
    assert_close(patterns.metrics(own), patterns.metrics(layer))
    assert_close(patterns.similarity(own), patterns.similarity(layer), 1e-3)
    assert_close(overview.overview(bare).thumbs[0], overview.overview(full).thumbs[0])
    # Short texts travel as their weights, whatever else is known.
    assert pack([Panel("", TEXT.labels, {0: own})]) == pack([Panel("", TEXT.labels, {0: layer})])
