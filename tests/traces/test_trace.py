"""Every trace obeys the laws of attention, never changes, and holds little more than Q, K and V."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import mha_core as mha
from mha_core.attention import initialization, masks, positions
from mha_core.attention.module import Projections
from mha_core.sources import random_weights
from mha_core.traces.trace import MATRICES
from mha_core.traces.verify import split_difference

ROOT = Path(__file__).resolve().parents[2]
PER_HEAD = ("scores", "scaled", "masked", "weights", "allowed", "output", "contribution")
CELLS = ("scores", "scaled", "masked", "weights", "allowed")


@pytest.fixture(scope="module")
def glass_box():
    """7 tokens through an untrained glass-box of 4 heads: a block, then a lookup with values of its own."""
    return mha.trace("the cat saw the dog [MASK]", source="mini", h=4, d_model=32, trained=False)


def close(ours, theirs, tolerance=1e-6):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance)


def per_key_head(layer, values):
    """Repeat what key heads share, so that each query head has its own."""
    return np.repeat(values, layer.n_heads // layer.n_kv_heads, axis=0)


def permitted(setting):
    """(query, key), True where the setting lets a query look, from the setting alone."""
    n = len(mha.words(setting["text"]))
    mask = masks.build(setting.get("mask", "full"), n, n)
    return np.ones((n, n), bool) if mask is None else mask.numpy()


# Invariants, for every setting


def test_the_sizes_are_those_of_the_setting(setting, trace):
    spec = mha.AttentionSpec(
        setting["d_model"], setting["h"], setting.get("n_kv_heads"), setting["d_k"], setting["d_v"]
    )
    assert len(trace.layers) == setting.get("layers", 1)
    for layer in trace.layers:
        assert layer.x.shape == (7, spec.d_model)
        assert layer.q.shape == (spec.n_heads, 7, spec.d_k)
        assert layer.k.shape == (spec.n_kv_heads, 7, spec.d_k)
        assert layer.v.shape == (spec.n_kv_heads, 7, spec.d_v)
        assert layer.weights().shape == (spec.n_heads, 7, 7)
        assert layer.output().shape == (spec.n_heads, 7, spec.d_v)
        assert layer.concat().shape == (7, spec.n_heads * spec.d_v)
        assert layer.contribution().shape == (spec.n_heads, 7, spec.d_model)
        assert layer.result().shape == (7, spec.d_model)
        assert (layer.n_heads, layer.n_kv_heads, layer.n_query, layer.n_key, layer.d_k, layer.d_v) == (
            spec.n_heads, spec.n_kv_heads, 7, 7, spec.d_k, spec.d_v,
        )  # fmt: skip


def test_each_row_sums_to_one_or_to_zero_when_nothing_is_left(setting, trace):
    allowed = permitted(setting)
    for layer in trace.layers:
        weights = layer.weights()
        close(weights.sum(-1), np.broadcast_to(allowed.any(-1), weights.shape[:2]))
        assert (weights >= 0).all()
        assert (weights[:, ~allowed] == 0).all()
        assert (weights[:, allowed] > 0).all()
        assert (layer.allowed() == allowed).all()
        assert np.isneginf(layer.masked()[:, ~allowed]).all()
        assert np.isfinite(layer.masked()[:, allowed]).all()
        assert np.isfinite(layer.scores()).all()


def test_scores_are_the_products_of_queries_and_keys(trace):
    for layer in trace.layers:
        scores = layer.q @ per_key_head(layer, layer.k).swapaxes(1, 2)
        close(layer.scores(), scores, 1e-5)
        close(layer.scaled(), scores / layer.d_k**0.5, 1e-5)


def test_weights_times_values_are_the_output(trace):
    for layer in trace.layers:
        close(layer.weights() @ per_key_head(layer, layer.v), layer.output())


def test_the_heads_side_by_side_are_the_concat(trace):
    for layer in trace.layers:
        close(layer.concat(), np.concatenate(list(layer.output()), axis=1), 0)


def test_the_contributions_of_the_heads_and_the_bias_sum_to_the_result(setting, trace):
    for layer in trace.layers:
        bias = layer.projections.b_o
        assert (bias is not None) == setting.get("bias", True)
        total = layer.contribution().sum(0) + (0 if bias is None else bias.numpy())
        close(total, layer.result(), 1e-5)
        close(
            layer.concat() @ layer.projections.w_o.numpy(),
            total - (0 if bias is None else bias.numpy()),
            1e-5,
        )


def test_queries_keys_and_values_are_projections_of_x(setting, trace):
    for layer in trace.layers:
        for name in "qkv":
            weight, bias = (getattr(layer.projections, f"{part}_{name}") for part in "wb")
            packed = layer.x @ weight.numpy() + (0 if bias is None else bias.numpy())
            heads = np.stack(np.split(packed, getattr(layer, name).shape[0], axis=1))
            if name in "qk" and setting.get("position") == "rotary":
                heads = positions.rotate(torch.from_numpy(heads))
            close(getattr(layer, name), heads, 1e-5)


def test_places_enter_where_their_code_says(setting, trace):
    position, seed = setting.get("position", "sinusoidal"), setting.get("seed", 0)
    first = trace.layers[0]
    added = first.x - random_weights.word_vectors(trace.tokens.pieces, setting["d_model"], seed=seed).numpy()
    if position == "sinusoidal":
        close(added, positions.sinusoidal(7, setting["d_model"]))
    elif position == "learned":
        close(added, initialization.normal((7, setting["d_model"]), seed=seed, name="positions"))
    else:
        close(added, np.zeros_like(added), 0)
    place = np.arange(7)
    distance = np.abs(place[:, None] - place)
    slopes = positions.alibi(first.n_heads, 1, 2)[:, 1].numpy()[:, None, None] if position == "alibi" else 0
    for layer in trace.layers:
        seen = layer.allowed()
        close((layer.scaled() + slopes * distance)[seen], layer.masked()[seen], 1e-5)


def test_the_result_of_a_layer_is_the_input_of_the_next(trace):
    for layer, following in zip(trace.layers, trace.layers[1:], strict=False):
        close(layer.result(), following.x, 1e-5)


def test_all_heads_are_the_single_heads_stacked(trace):
    for layer in trace.layers:
        for name in PER_HEAD:
            read = getattr(layer, name)
            close(read(), np.stack([read(head) for head in range(layer.n_heads)]))


CROPS = [slice(None), slice(2, 5), slice(-3, None), slice(0, 7, 3), [6, 0, 3], [2]]


@pytest.mark.parametrize("rows", CROPS, ids=str)
def test_some_rows_and_keys_are_a_crop_of_the_whole(rows, trace):
    layer = trace.layers[-1]
    keys = [5, 1]
    for name in PER_HEAD:
        read = getattr(layer, name)
        close(read(rows=rows), read()[:, rows])
        close(read(0, rows=rows), read(0)[rows])
        if name in CELLS:
            close(read(rows=rows, keys=keys), read()[:, rows][..., keys])
            close(read(0, keys=slice(1, 3)), read(0)[:, 1:3])


@pytest.mark.parametrize("rows", CROPS, ids=str)
def test_a_crop_is_a_crop_for_rules_made_by_hand_too(rows, rule, make_layer):
    layer = make_layer(rule)
    for name in CELLS:
        read = getattr(layer, name)
        close(read(rows=rows, keys=[5, 1]), read()[:, rows][..., [5, 1]])
        close(read(4, rows=rows), read(4)[rows])
    close(layer.output(rows=rows), layer.output()[:, rows])


def test_a_layer_made_by_hand_shows_what_flowed(rule, make_layer, normal):
    layer = make_layer(rule)
    close(layer.weights() @ per_key_head(layer, layer.v), layer.output())
    attended = mha.attend(*(layer.tensors[name] for name in "qkv"), layer.rule)
    close(layer.output(), attended)
    assert np.isfinite(layer.weights()).all()


def test_arrays_cannot_be_written(trace):
    layer = trace.layers[0]
    arrays = [layer.q, layer.k, layer.v, layer.x, layer.concat(), layer.result()]
    arrays += [getattr(layer, name)(head) for name in PER_HEAD for head in (None, 0)]
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def readings(trace):
    return [
        array.tobytes()
        for layer in trace.layers
        for array in (
            layer.q, layer.k, layer.v, layer.x, layer.concat(), layer.result(),
            *(getattr(layer, name)(head) for name in PER_HEAD for head in (None, 0)),
        )
    ]  # fmt: skip


def test_reading_changes_nothing(trace):
    assert readings(trace) == readings(trace)


def test_the_same_call_gives_the_same_bits(setting, trace):
    torch.manual_seed(7)
    again = mha.trace(**setting)
    assert readings(again) == readings(trace)
    assert again.tokens == trace.tokens
    assert again.source == trace.source
    other = mha.trace(**{**setting, "seed": 5})
    assert readings(other) != readings(trace)


def test_eight_threads_read_the_same_numbers(setting):
    shared = mha.trace(**setting)
    with ThreadPoolExecutor(8) as pool:
        read = list(pool.map(lambda _: readings(shared), range(24)))
    assert all(one == readings(mha.trace(**setting)) for one in read)


def test_the_same_word_is_the_same_query_only_where_places_are_not_told_apart(setting, trace):
    q = trace.layers[0].q
    position = setting.get("position", "sinusoidal")
    the, cat = (0, 4), (2, 6)
    for one, other in (the, cat):
        apart = np.abs(q[:, one] - q[:, other]).max()
        if position in ("none", "alibi"):  # ALiBi enters at the scores
            assert apart < 1e-6
        else:
            assert apart > 1e-2
    assert np.abs(q[:, 0] - q[:, 1]).max() > 1e-2


def test_the_source_tells_where_the_numbers_come_from(setting, trace):
    mask = setting.get("mask", "full")
    assert dict(trace.source) == {
        "name": "random",
        "seed": setting.get("seed", 0),
        "position": setting.get("position", "sinusoidal"),
        "mask": mask if isinstance(mask, str) else "drawn",
        "device": "cpu" if not torch.cuda.is_available() else trace.source["device"],
        "torch": torch.__version__,
    }
    with pytest.raises(TypeError):
        trace.source["seed"] = 3


def test_no_mask_is_told_as_full():
    assert mha.trace("How are you?", h=3, d_model=15, mask=None).source["mask"] == "full"


def test_a_word_has_the_same_vector_in_every_sentence():
    one = mha.trace("the cat", h=3, d_model=15, position="none").layers[0]
    other = mha.trace("a dog and THE dog", h=5, d_model=15, position="none").layers[0]
    close(one.x[0], other.x[3], 0)
    close(one.projections.w_q, other.projections.w_q, 0)  # the same W^Q, cut into 3 heads or into 5


def test_layers_differ_from_each_other():
    first, second, third = mha.trace("How are you?", h=3, d_model=15, layers=3).layers
    for one, other in ((first, second), (second, third)):
        assert not np.isclose(one.projections.w_q, other.projections.w_q).any()


# What a trace holds


def held(trace):
    """Bytes of the storages behind a trace: of queries, keys and values; of everything but the weights."""
    bytes_of = {}
    counted = {}
    for layer in trace.layers:
        for name, tensor in [*layer.tensors.items(), *layer.rule.tensors().items()]:
            storage = tensor.untyped_storage()
            bytes_of[storage.data_ptr()] = storage.nbytes()
            if name in ("q", "k", "v"):
                counted[storage.data_ptr()] = storage.nbytes()
    return sum(counted.values()), sum(bytes_of.values())


@pytest.mark.parametrize("position", ["sinusoidal", "rotary", "alibi"])
@pytest.mark.parametrize("n_tokens", [127, 509])
def test_a_trace_holds_at_most_half_again_of_queries_keys_and_values(n_tokens, position):
    trace = mha.trace("a " * n_tokens, position=position)
    qkv, everything = held(trace)
    assert qkv == 3 * n_tokens * 512 * 4
    assert everything <= 1.5 * qkv


def test_layers_share_the_mask_that_they_share():
    one = held(mha.trace("a " * 127, h=3, d_model=15, mask="causal", layers=1))
    three = held(mha.trace("a " * 127, h=3, d_model=15, mask="causal", layers=3))
    assert three[1] - three[0] - 3 * (127 * 15 * 4) == one[1] - one[0] - 127 * 15 * 4 == 127 * 127


def test_looking_leaves_nothing_behind():
    trace = mha.trace("a " * 127, h=3, d_model=15)
    before = held(trace)
    readings(trace)
    assert held(trace) == before
    shown = sum(array.nbytes for array in vars(trace.layers[0]).values() if isinstance(array, np.ndarray))
    assert shown <= before[1]  # only views of q, k, v and x may stay


def test_an_item_of_a_batch_does_not_hold_the_batch(normal):
    module = mha.MultiHeadAttention(mha.AttentionSpec(15, 3)).requires_grad_(False)
    x = normal(13, 7, 15)
    layer = mha.LayerTrace.of(module(x), x=x, item=11)
    assert sum(t.untyped_storage().nbytes() for t in layer.tensors.values()) <= 1.5 * 3 * 7 * 15 * 4


def test_the_item_that_was_asked_for_is_kept(normal):
    module = mha.MultiHeadAttention(mha.AttentionSpec(15, 3)).requires_grad_(False)
    x, mask = normal(5, 7, 15), normal(5, 1, 7, 7) > -1
    layer = mha.LayerTrace.of(module(x, mask=mask), x=x, projections=module.projections(), item=3)
    alone = module(x[3:4], mask=mask[3:4])
    close(layer.x, x[3], 0)
    close(layer.q, alone.q[0])
    close(layer.result(), alone.output[0])
    assert (layer.allowed() == mask[3].numpy()).all()


def test_gradients_end_at_the_trace(normal):
    module = mha.MultiHeadAttention(mha.AttentionSpec(15, 3))
    x = normal(1, 7, 15)
    layer = mha.LayerTrace.of(module(x), x=x, projections=module.projections())
    assert not any(t.requires_grad for t in layer.tensors.values())
    assert not any(t.requires_grad for t in layer.projections)
    close(layer.result(), module(x).output[0].detach())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_a_layer_of_another_precision_can_be_read(dtype, make_layer):
    layer, full = make_layer(dtype=dtype), make_layer(dtype=torch.float64)
    expected = np.float64 if dtype == torch.float64 else np.float32
    tolerance = {torch.float16: 1e-2, torch.bfloat16: 6e-2, torch.float64: 0}[dtype]
    for name in PER_HEAD:
        array = getattr(layer, name)()
        assert array.dtype == (bool if name == "allowed" else expected)
        close(array, getattr(full, name)(), tolerance)
    assert layer.q.dtype == expected
    close(layer.result(), full.result(), tolerance)


# Tables


def test_a_frame_names_its_axes_and_labels_its_tokens():
    trace = mha.trace("the cat saw the dog", h=3, d_model=11, d_k=5, d_v=13)
    labels, layer = ["the\u2009₁", "cat", "saw", "the\u2009₂", "dog"], trace.layers[0]
    expected = {
        "x": (("token", "d_model"), layer.x),
        "q": (("query", "d_k"), layer.q[2]),
        "k": (("key", "d_k"), layer.k[2]),
        "v": (("key", "d_v"), layer.v[2]),
        "scores": (("query", "key"), layer.scores(2)),
        "scaled": (("query", "key"), layer.scaled(2)),
        "masked": (("query", "key"), layer.masked(2)),
        "weights": (("query", "key"), layer.weights(2)),
        "output": (("query", "d_v"), layer.output(2)),
        "concat": (("token", "h·d_v"), layer.concat()),
        "contribution": (("query", "d_model"), layer.contribution(2)),
        "result": (("token", "d_model"), layer.result()),
    }
    for name, ((rows, columns), values) in expected.items():
        frame = trace.frame(name, head=2)
        assert isinstance(frame, pd.DataFrame)
        assert (frame.index.name, frame.columns.name) == (rows, columns)
        assert list(frame.index) == labels
        dimensions = list(range(1, values.shape[1] + 1))
        assert list(frame.columns) == (labels if columns == "key" else dimensions)
        close(frame.to_numpy(), values, 0)


def test_a_frame_shows_the_key_head_that_the_query_head_uses():
    trace = mha.trace("How are you?", h=6, d_model=11, d_k=5, d_v=13, n_kv_heads=2)
    for head, kv_head in enumerate([0, 0, 0, 1, 1, 1]):
        assert trace.layers[0].kv_head(head) == kv_head
        close(trace.frame("k", head=head).to_numpy(), trace.layers[0].k[kv_head], 0)
        close(trace.frame("v", head=head).to_numpy(), trace.layers[0].v[kv_head], 0)


def test_a_frame_is_of_the_layer_that_was_asked_for():
    trace = mha.trace("How are you?", h=3, d_model=15, layers=2)
    for index in (0, 1):
        close(trace.frame("weights", layer=index, head=1).to_numpy(), trace.layers[index].weights(1), 0)
    assert not trace.frame("result").equals(trace.frame("result", layer=1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"name": "queries", "head": 0},
            "There is no matrix called 'queries'; x, x_v, q, k, v, scores, scaled, masked, weights, output, "
            "concat, contribution or result can be used.",
        ),
        ({"name": "x_v"}, "This layer has no inputs of its own for V: they are X."),
        ({"name": "q"}, "q is a matrix of one head; say which, as in head=0."),
        ({"name": "q", "head": 3}, "This layer has heads 0 to 2; head 3 was asked for."),
        ({"name": "weights", "head": -1}, "This layer has heads 0 to 2; head -1 was asked for."),
        ({"name": "x", "layer": 2}, "This trace has layers 0 to 1; layer 2 was asked for."),
        ({"name": "x", "layer": -1}, "This trace has layers 0 to 1; layer -1 was asked for."),
    ],
)
def test_a_frame_that_is_not_there_is_refused(arguments, message, refused):
    trace = mha.trace("How are you?", h=3, d_model=15, layers=2)
    error = refused(trace.frame, **arguments)
    assert str(error) == message
    for fix in error.fixes:
        if fix == {"name": "x_v"}:
            continue  # the random source makes V of X; the glass-box has it, below
        trace.frame(**{**arguments, **fix})


def test_every_matrix_that_a_refusal_offers_is_there_in_the_glass_box(glass_box, refused):
    arguments = {"name": "queries", "layer": 1, "head": 2}
    fixes = refused(glass_box.frame, **arguments).fixes
    assert [fix["name"] for fix in fixes] == list(MATRICES)
    for fix in fixes:
        glass_box.frame(**{**arguments, **fix})


# What V is made of, where that is not X


def test_only_the_lookup_of_the_glass_box_makes_v_of_something_else_than_x(glass_box):
    block, lookup = glass_box.layers
    assert block.x_v is None
    for name, source in (("q", lookup.x), ("k", lookup.x), ("v", lookup.x_v)):
        weight, bias = (getattr(lookup.projections, f"{part}_{name}").numpy() for part in "wb")
        close(np.hstack(list(getattr(lookup, name))), source @ weight + bias, 1e-5)
    assert np.abs(lookup.x_v - lookup.x).max() > 0.1
    with pytest.raises(ValueError, match="read-only"):
        lookup.x_v[...] = 0


def test_the_random_source_makes_v_of_x_always(trace):
    assert [layer.x_v for layer in trace.layers] == [None] * len(trace.layers)


def test_what_v_is_made_of_is_a_frame_with_words_and_dimensions(glass_box):
    frame = glass_box.frame("x_v", layer=1)
    assert (frame.index.name, frame.columns.name) == ("key", "d_model")
    assert list(frame.index) == list(glass_box.tokens.labels)
    assert list(frame.columns) == list(range(1, 33))
    close(frame.to_numpy(), glass_box.layers[1].x_v, 0)
    # The same word has the same embedding wherever it stands; X knows places, x_v does not.
    the = [i for i, piece in enumerate(glass_box.tokens.pieces) if piece == "the"]
    close(glass_box.layers[1].x_v[the[0]], glass_box.layers[1].x_v[the[1]], 0)
    assert np.abs(np.diff(glass_box.layers[1].x[the], axis=0)).max() > 1e-3


def test_both_views_of_the_split_agree_where_v_is_made_of_embeddings(glass_box, normal):
    for layer in glass_box.layers:
        assert split_difference(layer) == 0.0
    lookup = glass_box.layers[1]
    # Values of a width that X does not have: only x_v can have been multiplied.
    tensors, matrices = (
        {**lookup.tensors, "x_v": normal(7, 13)},
        lookup.projections._replace(w_v=normal(13, 32)),
    )
    assert split_difference(mha.LayerTrace(tensors, lookup.rule, matrices)) == 0.0


@pytest.mark.parametrize("n_kv_heads", [1, 3])
def test_values_of_their_own_are_what_v_is_made_of_and_nothing_else(n_kv_heads, normal):
    spec = mha.AttentionSpec(11, 3, n_kv_heads=n_kv_heads, d_k=5, d_v=13)
    module = mha.MultiHeadAttention(spec).requires_grad_(False)
    x, context, values = normal(2, 3, 11), normal(2, 7, 11, seed=1), normal(2, 7, 11, seed=2)
    made, usual = module(x, context, values), module(x, context)
    assert torch.equal(made.q, usual.q)
    assert torch.equal(made.k, usual.k)
    close(made.v, module.project(values)[2])
    close(usual.v, module.project(context)[2])
    close(made.output, module.join(mha.attend(usual.q, usual.k, module.project(values)[2])))
    assert torch.equal(module(x, context, context).output, usual.output)
    layer = mha.LayerTrace.of(made, x=x, x_v=values, projections=module.projections(), item=1)
    close(layer.x_v, values[1], 0)
    close(layer.result(), made.output[1])


def test_values_of_a_wrong_shape_are_refused(normal, refused):
    module = mha.MultiHeadAttention(mha.AttentionSpec(15, 3))
    x = normal(2, 7, 15)
    assert "(2, 7, 13)" in str(refused(module, x, None, normal(2, 7, 13)))
    assert "(5, 7, 15)" in str(refused(module, x, None, normal(5, 7, 15)))
    refused(module, x, None, normal(2, 3, 15))  # three values cannot go with seven keys


# Answers


def test_answers_stand_at_the_tokens_they_belong_to(glass_box):
    assert [answer is not None for answer in glass_box.answers] == [False] * 6 + [True]
    layers, source = glass_box.layers, glass_box.source
    assert mha.AttentionTrace(glass_box.tokens, layers, source).answers == ()


@pytest.mark.parametrize("count", [1, 6, 8])
def test_answers_for_another_number_of_tokens_are_refused(glass_box, count, refused):
    answers = (None,) * count
    error = refused(mha.AttentionTrace, glass_box.tokens, glass_box.layers, {}, answers)
    assert str(error) == f"7 tokens cannot go with {count} answers."


def test_the_random_source_has_no_answers(trace):
    assert trace.answers == ()


def test_a_head_that_is_not_there_is_refused_by_every_method(refused):
    layer = mha.trace("How are you?", h=3, d_model=15).layers[0]
    for name in (*PER_HEAD, "kv_head", "checked"):
        error = refused(getattr(layer, name), 3)
        assert str(error) == "This layer has heads 0 to 2; head 3 was asked for."
        assert error.fixes == ({"head": 2},)


def test_what_a_layer_does_not_know_is_said(normal, refused):
    module = mha.MultiHeadAttention(mha.AttentionSpec(15, 3)).requires_grad_(False)
    layer = mha.LayerTrace.of(module(normal(1, 2, 15)))
    trace = mha.AttentionTrace(mha.words("a b"), (layer,), {})
    assert layer.x is None
    assert layer.projections == Projections()
    assert str(refused(trace.frame, "x")) == "The input X of this layer is not known."
    message = "The output matrix W^O of this layer is not known; look at `output` instead."
    assert str(refused(layer.result)) == str(refused(layer.contribution, 0)) == message


# The public call


def test_the_base_setting():
    trace = mha.trace("The animal didn't cross the street because it was too tired.")
    layer = trace.layers[0]
    assert len(trace.tokens) == 12
    assert (layer.n_heads, layer.d_k, layer.d_v, layer.x.shape) == (8, 64, 64, (12, 512))
    assert layer.projections.w_o.shape == (512, 512)
    assert trace.source["position"] == "sinusoidal"


def test_mission_case_2_through_the_public_call():
    layer = mha.trace("humpty dumpty", h=8, d_model=512, d_k=64, d_v=100).layers[0]
    shapes = [layer.x, layer.q[0], layer.k[0], layer.scores(0), layer.v[0], layer.output(0), layer.concat()]
    assert [m.shape for m in shapes] == [(2, 512), (2, 64), (2, 64), (2, 2), (2, 100), (2, 100), (2, 800)]
    assert layer.projections.w_o.shape == (800, 512)
    assert layer.result().shape == (2, 512)


def test_chinese_flows_through():
    trace = mha.trace("动物没有过马路", h=3, d_model=15)
    assert trace.tokens.labels == tuple("动物没有过马路")
    close(trace.layers[0].weights().sum(-1), np.ones((3, 7)))


def test_half_of_a_surrogate_pair_is_a_word_like_another():
    mha.trace("half of a pair: \ud83d", h=3, d_model=15)


def test_heads_that_do_not_divide_d_model_are_refused_with_what_works(refused):
    error = refused(mha.trace, "How are you?", h=4, d_model=30)
    assert str(error) == (
        "d_model 30 cannot be split into 4 heads; 28 or 32 can. With d_model 30, 3 or 5 heads work."
    )
    assert error.fixes == ({"d_model": 28}, {"d_model": 32}, {"h": 3}, {"h": 5})


@given(d_model=st.integers(1, 601), h=st.integers(2, 128))
def test_every_fix_of_a_split_works(d_model, h, refused):
    given = {"text": "a", "d_model": d_model, "h": h}
    if d_model % h == 0:
        assert mha.trace(**given).layers[0].d_k == d_model // h
        return
    fixes = refused(mha.trace, **given).fixes
    assert {name for fix in fixes for name in fix} == {"d_model", "h"}
    for fix in fixes:
        mha.trace(**{**given, **fix})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"h": 6, "d_model": 30, "n_kv_heads": 4},
            "6 query heads cannot share 4 key/value heads evenly; 1, 2, 3 or 6 can.",
        ),
        ({"h": 129}, "h 129 is out of range; 1 to 128 work."),
        ({"seed": -1}, "seed -1 is out of range; 0 to 2147483647 work."),
        ({"layers": 0}, "layers 0 is out of range; 1 to 128 work."),
        (
            {"position": "spiral"},
            "There is no position called 'spiral'; none, sinusoidal, learned, rotary or alibi can be used.",
        ),
        (
            {"mask": "diagonal"},
            "There is no mask called 'diagonal'; full, causal, window, prefix or padding can be used.",
        ),
        ({"source": "dice"}, "There is no source called 'dice'; random or mini can be used."),
        ({"limit": 3}, "The text has 4 tokens and the limit is 3; remove 1 or keep the first 3."),
        ({"device": "abacus"}, None),
    ],
)
def test_every_other_fix_works_too(settings, message, refused):
    given = {"text": "How are you?", "h": 8, "d_model": 512, **settings}
    error = refused(mha.trace, **given)
    assert message is None or str(error) == message
    assert error.fixes
    for fix in error.fixes:
        if fix != {"source": "mini"}:  # its weights are files; tests/training has its own tests
            mha.trace(**{**given, **fix})


def test_a_fix_for_too_many_heads_also_divides_d_model(refused):
    given = {"text": "How are you?", "h": 200, "d_model": 30}
    for fix in refused(mha.trace, **given).fixes:
        mha.trace(**{**given, **fix})


def test_an_empty_text_is_refused_before_anything_is_computed(refused):
    assert str(refused(mha.trace, "  ")) == "There is no text to look at; type at least one word."


# Importing

HEAVY = ("streamlit", "plotly", "transformers", "pandas")


def heavy_after(statement):
    """Which of the heavy libraries a fresh interpreter has loaded after the statement."""
    program = f"import sys; {statement}; print(*[n for n in {HEAVY} if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout.split()


def test_importing_the_library_loads_nothing_heavy():
    assert heavy_after("import mha_core") == []


def test_a_trace_without_tables_loads_nothing_heavy():
    assert heavy_after("import mha_core; mha_core.trace('a b', h=3, d_model=15)") == []


def test_something_heavy_would_be_noticed():
    assert heavy_after("import mha_core, plotly") == ["plotly"]
    assert "pandas" in heavy_after("import mha_core; mha_core.trace('a', h=1, d_model=2).frame('x')")


def test_in_blocks_of_rows_an_output_is_the_same_and_no_weights_are_whole(setting, monkeypatch):
    layers, sizes = mha.trace(**setting).layers, []
    whole = [(layer.output(), layer.output(0), layer.output(0, rows=[4, 1])) for layer in layers]
    real = mha.LayerTrace._weights
    monkeypatch.setattr(
        mha.LayerTrace, "_weights", lambda *asked: sizes.append((found := real(*asked)).numel()) or found
    )
    for layer, (every, first, some) in zip(layers, whole, strict=True):
        sizes.clear()
        cells = 2 * layer.n_heads * layer.n_key
        monkeypatch.setattr("mha_core.attention.functional.CELLS", cells)
        np.testing.assert_allclose(layer.output(), every, atol=2e-6)
        np.testing.assert_allclose(layer.output(0), first, atol=2e-6)
        np.testing.assert_allclose(layer.output(0, rows=[4, 1]), some, atol=2e-6)
        assert max(sizes) <= cells
