"""Random weights: numbers depend only on seed, words and sizes, and the fixes of refusals work."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import mha_core as mha
from mha_core import device
from mha_core.analysis.cost import cost
from mha_core.attention import initialization, positions
from mha_core.attention.masks import MASKS
from mha_core.attention.positions import POSITIONS
from mha_core.errors import listed
from mha_core.sources import random_weights
from mha_core.traces.source import RandomSource
from tests.conftest import assert_close


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The", "the"),
        ("CAFÉ", "café"),
        ("caf\u00e9", "cafe\u0301"),  # NFC, NFD
        ("\u212b", "\u00e5"),  # the Ångström sign and the letter
        ("Straße", "STRASSE"),
        ("ΟΔΟΣ", "οδος"),
        ("тот", "ТОТ"),
        ("ταΐζω", "ταΐζω".upper()),
        ("ταΐζω", "τα\u03b9\u0308\u0301ζω"),
    ],
)
def test_capitals_and_two_ways_of_writing_do_not_make_another_word(one, other):
    first, second = random_weights.word_vectors((one, other), 11, seed=0)
    assert torch.equal(first, second)


def test_positions_are_added_where_their_encoding_says(setting, trace):
    position, seed = setting.get("position", "sinusoidal"), setting.get("seed", 0)
    first = trace.layers[0]
    added = first.x - random_weights.word_vectors(trace.tokens.pieces, setting["d_model"], seed=seed).numpy()
    if position == "sinusoidal":
        assert_close(added, positions.sinusoidal(7, setting["d_model"]))
    elif position == "learned":
        assert_close(added, initialization.normal((7, setting["d_model"]), seed=seed, name="positions"))
    else:
        assert_close(added, np.zeros_like(added), 0)
    place = np.arange(7)
    distance = np.abs(place[:, None] - place)
    slopes = positions.alibi(first.n_heads, 1, 2)[:, 1].numpy()[:, None, None] if position == "alibi" else 0
    for layer in trace.layers:
        seen = layer.allowed()
        assert_close((layer.scaled() + slopes * distance)[seen], layer.masked()[seen], 1e-5)


def bits(trace):
    """Every tensor and matrix of a trace, as bytes."""
    return [
        tensor.numpy().tobytes()
        for layer in trace.layers
        for tensor in (*layer.tensors.values(), *layer.projections)
        if tensor is not None
    ]


def test_the_same_call_gives_the_same_bits(setting, trace):
    torch.manual_seed(7)
    again = mha.trace(**setting)
    assert bits(again) == bits(trace)
    assert again.tokens == trace.tokens
    assert again.source == trace.source
    other = mha.trace(**{**setting, "seed": 5})
    assert bits(other) != bits(trace)


def test_the_source_describes_the_numbers(setting, trace):
    mask = setting.get("mask", "full")
    assert trace.source == RandomSource(
        seed=setting.get("seed", 0),
        position=setting.get("position", "sinusoidal"),
        mask=mask if isinstance(mask, str) else "drawn",
        device="cpu" if not torch.cuda.is_available() else trace.source.device,
        torch=str(torch.__version__),
    )
    with pytest.raises(FrozenInstanceError):
        trace.source.seed = 3


def test_a_word_has_the_same_vector_in_every_sentence_and_each_layer_its_own_matrices():
    one = mha.trace("the cat", h=3, d_model=15, position="none").layers[0]
    other = mha.trace("a dog and THE dog", h=5, d_model=15, position="none").layers[0]
    assert_close(one.x[0], other.x[3], 0)
    assert_close(one.projections.w_q, other.projections.w_q, 0)  # the same W^Q, cut into 3 heads or into 5

    first, second, third = mha.trace("How are you?", h=3, d_model=15, layers=3).layers
    for one, other in ((first, second), (second, third)):
        assert not np.isclose(one.projections.w_q, other.projections.w_q).any()


# The public call


def test_the_base_setting():
    trace = mha.trace("The animal didn't cross the street because it was too tired.")
    layer = trace.layers[0]
    assert len(trace.tokens) == 12
    assert (layer.n_heads, layer.d_k, layer.d_v, layer.x.shape) == (8, 64, 64, (12, 512))
    assert layer.projections.w_o.shape == (512, 512)
    assert trace.source.position == "sinusoidal"


# Memory


@pytest.mark.parametrize("sizes", [{}, {"d_k": 3, "d_v": 7, "n_kv_heads": 1}, {"layers": 3, "bias": False}])
def test_a_trace_holds_the_bytes_that_the_formula_has(sizes):
    trace = mha.trace("How are you?", h=3, d_model=15, **sizes)
    [layer, *_], n = trace.layers, len(trace.tokens)
    qkv = 3 * layer.d_k + layer.n_kv_heads * (layer.d_k + layer.d_v)
    biases = (qkv + 15) * sizes.get("bias", True)
    held = 4 * len(trace.layers) * (15 * (qkv + 3 * layer.d_v) + biases + n * (qkv + 15))
    assert trace.nbytes == held
    spec = mha.AttentionSpec(15, 3, layer.n_kv_heads, layer.d_k, layer.d_v)
    one, more = (random_weights.nbytes(spec, n, layers) for layers in (1, 1 + len(trace.layers)))
    assert more - one == held - 4 * len(trace.layers) * biases
    assert random_weights.nbytes(spec, n, masked=True) == one + 17 * n**2


def test_a_mask_that_layers_share_counts_once_and_what_is_computed_does_not():
    traces = [mha.trace("a " * 99, h=1, d_model=2, layers=n, mask="causal") for n in (1, 2, 3)]
    sizes = [trace.nbytes for trace in traces]
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0] < 99**2 < sizes[0]
    traces[0].layers[0].log_sum_exp()
    assert traces[0].nbytes == sizes[0]


@pytest.mark.parametrize(
    ("text", "sizes", "figure"),
    [
        ("a", {"h": 64, "d_model": 4096, "d_k": 1024, "d_v": 1}, "4.30 GB"),
        ("a", {"h": 64, "d_model": 1024, "d_k": 1024, "d_v": 1024, "layers": 16}, "18.27 GB"),
        ("a " * 4096, {"h": 128, "d_model": 4096, "layers": 12}, "7.52 GB"),
        ("a " * 4096, {"h": 64, "d_model": 64, "d_k": 1024, "n_kv_heads": 4}, "4.84 GB"),
    ],
)
def test_a_trace_with_too_much_memory_is_refused_before_drawing_weights(
    text, sizes, figure, refused, monkeypatch
):
    monkeypatch.delattr(random_weights, "follow")
    sizes = sizes | {"max_flops": 10**16}
    error = refused(mha.trace, text, **sizes)
    assert f"about {figure} while they are computed (layers" in str(error)
    assert "the limit is 2.00 GB (max_bytes). With all else as it is, " in str(error)
    assert error.fixes
    monkeypatch.setattr(random_weights, "follow", lambda *_, **__: "it fits", raising=False)
    for fix in error.fixes:
        assert mha.trace(**{"text": text, **sizes, **fix}) == "it fits"
    assert mha.trace(text, **sizes, max_bytes=10**11) == "it fits"


def test_every_fix_within_fewer_bytes_is_traced_and_takes_no_more(refused):
    asked = {"text": "How are you today?", "h": 4, "d_model": 64, "layers": 3, "max_bytes": 150_000}
    fixes = refused(mha.trace, **asked).fixes
    assert [*map(list, fixes)] == [["layers"], ["d_model"]]
    for fix in fixes:
        assert mha.trace(**asked | fix).nbytes <= 150_000
    assert "max_bytes is a number of bytes" in str(refused(mha.trace, "a", max_bytes="2 GB"))


def test_a_trace_with_too_many_operations_is_refused_before_drawing_weights(refused, monkeypatch):
    sizes = {"h": 32, "d_model": 128, "n_kv_heads": 1, "d_k": 16, "d_v": 1024, "layers": 16}
    spec = mha.AttentionSpec(128, 32, 1, 16, 1024)
    total = random_weights.flops(spec, 4096, 16)
    assert total == 16 * cost(spec, 4096).flops
    monkeypatch.delattr(random_weights, "follow")
    monkeypatch.setattr(device, "seconds_per_operation", lambda: 42 / total)
    error = refused(mha.trace, "a " * 4096, **sizes)
    assert str(error).startswith(
        f"The products of q, k, v and W take {total / 1e9:,.1f} billion operations, at least 42 s on this "
        f"processor (layers 16, tokens 4,096); the limit is 4,000.0 billion (max_flops). With all else "
        f"as it is, layers 3, "
    )
    monkeypatch.setattr(random_weights, "follow", lambda *_, **__: "it fits", raising=False)
    for fix in error.fixes:
        assert mha.trace(**{"text": "a " * 4096, **sizes, **fix}) == "it fits"
    assert mha.trace("a " * 4096, **sizes, max_flops=total) == "it fits"
    assert "max_flops is a number of operations" in str(refused(mha.trace, "a", max_flops=0))


# Refusals


@given(d_model=st.integers(1, 67), h=st.integers(2, 23))
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
            f"There is no position called 'spiral'; {listed(POSITIONS, 'or')} can be used.",
        ),
        ({"mask": "diagonal"}, f"There is no mask called 'diagonal'; {listed(MASKS, 'or')} can be used."),
        ({"limit": 3}, "The text has 4 tokens and the limit is 3; remove 1 or keep the first 3."),
    ],
)
def test_every_other_fix_works_too(settings, message, refused):
    given = {"text": "How are you?", "h": 8, "d_model": 512, **settings}
    error = refused(mha.trace, **given)
    assert str(error) == message
    assert error.fixes
    for fix in error.fixes:
        mha.trace(**{**given, **fix})


@pytest.mark.parametrize("position", ["none", "sinusoidal", "learned", "rotary", "alibi"])
def test_another_default_of_torch_changes_nothing(position):
    expected = mha.trace("a b c", h=2, d_model=8, position=position).layers[0]
    try:
        torch.set_default_dtype(torch.float64)
        layer = mha.trace("a b c", h=2, d_model=8, position=position).layers[0]
    finally:
        torch.set_default_dtype(torch.float32)
    np.testing.assert_allclose(layer.weights(), expected.weights(), atol=1e-6)
