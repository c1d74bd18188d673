"""Hostile arguments and files: whatever they contain, the only error is `MhaError`."""

import copy
import json
from string import printable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save

import mha_core as mha
from mha_core.sources import random_weights, recorder
from mha_core.sources.huggingface import batches
from mha_core.traces import limits, storage
from mha_core.training import checkpoints
from mha_core.training.fit import Plan
from tests.sources import tiny

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 9),
    st.sampled_from([2**31, 2**64, 10**400, -(10**400)]),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["causal", "window:3", "prefix:", "window:9999999999999999999", "rotary", "alibi"]),
    st.lists(st.integers(0, 3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
NAMES = ["h", "d_model", "seed", "layers", "d_k", "d_v", "n_kv_heads", "position", "mask", "limit"]
ARRAYS = ["q", "k", "v", "scale", "mask", "bias", "w_o", "source"]


def numbers(trace):
    """Every row of weights sums to 1, or to 0 where all is hidden, and the result has no NaN."""
    for layer in trace.layers:
        sums = layer.weights().sum(-1)
        assert (np.isclose(sums, 1, atol=1e-3) | (sums == 0)).all()
        assert np.isfinite(layer.result()).all()


@given(
    text=st.one_of(st.text(max_size=30), st.text(printable, max_size=30)),
    settings=st.dictionaries(st.sampled_from(NAMES), ODD, max_size=3),
)
def test_a_trace_is_right_or_refused(text, settings):
    try:
        trace = mha.trace(text, **{"d_model": 8, "h": 2, "max_bytes": 10**6} | settings)
    except mha.MhaError:
        return
    numbers(trace)


ARRAY = st.one_of(
    ODD,
    st.builds(
        lambda shape, kind, value: np.full(shape, value, np.float64).astype(kind),
        st.sampled_from([(2, 3, 4), (1, 3, 4), (3, 4), (2, 2, 3, 4), (2, 3, 0), (1, 2, 3, 4)]),
        st.sampled_from(["float32", "float64", "float16", "bool", "int32"]),
        st.sampled_from([0, 1, -1, 6e4]),
    ),
    st.sampled_from([np.nan, np.inf, 1e20, 3e38]).map(lambda v: np.full((2, 3, 4), v, np.float32)),
)


@given(arrays=st.dictionaries(st.sampled_from(ARRAYS), ARRAY))
def test_arrays_are_right_or_refused(arrays):
    whole = dict.fromkeys("qkv", np.ones((2, 3, 4), np.float32))
    try:
        trace = mha.from_tensors(**whole | {"tokens": "a b c"} | arrays)
    except mha.MhaError:
        return
    for layer in trace.layers:
        sums = layer.weights().sum(-1)
        assert (np.isclose(sums, 1, atol=2e-3) | (sums == 0)).all()


def places(value, path=()):
    """All places inside JSON values, as paths."""
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, entry in entries:
        yield (*path, key)
        yield from places(entry, (*path, key))


def changed(header, place, value):
    """The header with another value at a place; without the place where the value is ``...``."""
    header = copy.deepcopy(header)
    *path, last = place
    at = header
    for key in path:
        at = at[key]
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return header


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Headers and tensors of a trace and of a model, with their readers, and a file to write to."""
    path, kinds = tmp_path_factory.mktemp("hostile") / "f", []
    trace = mha.trace("it saw [MASK]", source="mini", h=4, d_model=32, trained=False)
    model = checkpoints.untrained(Plan(h=2, d_model=8))
    for key, save_as, load in (
        (storage.HEADER, trace.save, mha.load),
        (checkpoints.HEADER, lambda path: checkpoints.save_model(path, model), checkpoints.load_model),
    ):
        save_as(path)
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            kinds.append((key, json.loads(file.metadata()[key]), tensors, load))
    return lambda: (path, kinds)  # a function: hypothesis would print all of it


@settings(max_examples=60)
@given(
    of_model=st.booleans(),
    in_header=st.booleans(),
    at=st.integers(0, 2**16),
    odd=st.one_of(ODD, st.just(...)),
    shape=st.lists(st.integers(0, 5), max_size=4),
    number=st.sampled_from([0.0, 1.0, -1.0, torch.nan, torch.inf, 1e20]),
    kind=st.sampled_from([torch.float32, torch.float64, torch.bool, torch.int64]),
)
def test_a_file_is_read_or_refused(files, of_model, in_header, at, odd, shape, number, kind):
    path, kinds = files()
    key, header, tensors, load = kinds[of_model]
    if in_header:
        header = changed(header, [*places(header)][at % len([*places(header)])], odd)
    else:
        name = sorted(tensors)[at % len(tensors)]
        tensors = {**tensors, name: torch.full(shape or tensors[name].shape, number).nan_to_num(0).to(kind)}
        if kind is torch.float32:
            tensors[name] = torch.full(shape or tensors[name].shape, number)
    path.write_bytes(save(tensors, {key: json.dumps(header)}))
    try:
        loaded = load(path)
    except mha.MhaError:
        return
    if load is mha.load:
        numbers(loaded)
        repr(loaded)


# Memory

FAILURES = [MemoryError(), RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 9 bytes")]


Q = torch.ones(1, 2, 3)
WHOLE = "This trace needs more memory than this machine has free"


def record() -> mha.AttentionTrace:
    """The model runs; that there was no memory for its recording shows afterwards."""
    with mha.record(tokens=["a", "b"]) as rec:
        output = torch.nn.functional.scaled_dot_product_attention(Q[None], Q[None], Q[None])
    assert output.shape == (1, 1, 2, 3)
    return rec.trace


def read_texts(batch: int) -> list[mha.AttentionTrace]:
    model, tokenizer = tiny.module("bert"), tiny.fast("word_piece")
    return list(mha.trace_many(["a b", "b"], source=model, tokenizer=tokenizer, batch=batch))


# The function that finds no memory, what a user has called, and what is said.
DOORS = [
    (limits, "check_finite", lambda: mha.from_tensors(q=Q, k=Q, v=Q, tokens=["a", "b"]), WHOLE),
    (limits, "check_weights", lambda: mha.from_weights(torch.eye(2)[None], ["a", "b"]), WHOLE),
    (random_weights, "normal", lambda: mha.trace("a"), "needs more memory than this machine has free"),
    (random_weights, "normal", lambda: list(mha.trace_many(["a"])), "Text 1: This trace needs more memory"),
    (recorder.Caller, "packed_heads", record, "Its recording needs more memory"),
    (recorder.RecordedCall, "layer", record, "This trace needs more memory"),
    (batches, "trace_of", lambda: read_texts(2), "Text 1: Its trace needs more memory"),
    (batches, "follow", lambda: read_texts(1), "Text 1: Its trace needs more memory"),
]


def test_what_there_is_no_memory_for_is_refused_in_words(monkeypatch, refused):
    for failure in FAILURES:
        for owner, name, door, said in DOORS:

            def fail(*_, failure=failure, **__):
                raise failure

            with monkeypatch.context() as patch:
                patch.setattr(owner, name, fail)
                assert said in str(refused(door)), name
