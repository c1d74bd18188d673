"""Sources: their captions, saving and loading, and that they never change."""

import copy
import json
import pickle
from dataclasses import replace

import pytest
import torch

import mha_core as mha
from mha_core import edits
from mha_core.traces.source import (
    TYPES,
    ArraySource,
    EditedSource,
    FileSource,
    MiniSource,
    ModelSource,
    RandomSource,
    RecordedSource,
    RunSource,
    TrainedSource,
    array_source,
    caption,
    read,
)

TRAINED = ("glass-box", "en", 4, 64, 0, 500, 800, "cpu", "2.13")
MODEL = (
    *("bert", None, "BertModel", "bert", "attend", 2e-7, "float32", "cpu", "2.13", "5.23"),
    ("pooler: none",),
)
SOURCES = [
    RandomSource(7, "alibi", "causal", "cpu", "2.13"),
    MiniSource(*TRAINED),
    RunSource(*TRAINED, name="mine", questions=("noun", "doer decider")),
    ModelSource(*MODEL),
    ArraySource("mine", {"step": 3, "lr": 0.1, "note": "x", "none": None}),
    RecordedSource("recorded", {"a": 1}, ("one softmax",)),
    EditedSource(MiniSource(*TRAINED), (edits.Hide(rows="it", keys=[1, 2]), edits.Output(heads=3))),
    FileSource("t.safetensors", ModelSource(*MODEL)),
]
each = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.kind)


def test_every_kind_of_source_is_tested():
    assert {source.kind: type(source) for source in SOURCES} == TYPES


@each
def test_a_source_survives_saving_pickling_and_copying(source):
    ways = (json.loads(json.dumps(source.to_json())), source.to_json())
    assert [read(way) for way in ways] == [source, source]
    assert pickle.loads(pickle.dumps(source)) == copy.deepcopy(source) == source
    later = [source.to_json()[0], source.to_json()[1] | {"later": 1}]  # of a later release
    if not isinstance(source, ArraySource | EditedSource | FileSource):
        assert read(later) == source
    whole = ["model", {**SOURCES[3].to_json()[1], "difference": 0}]
    assert read(whole).difference == 0  # a whole number is a number


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (SOURCES[0], "random weights, seed 7, mask: causal, positions: alibi"),
        (SOURCES[1], "small trained model, readable, h 4, d_model 64, seed 0, 500 training steps"),
        (SOURCES[2], "mine, readable, h 4, d_model 64, seed 0, 500 training steps"),
        (SOURCES[3], "bert, BertModel"),
        (SOURCES[4], "mine, step=3, lr=0.1, note=x"),
        (SOURCES[5], "recorded, a=1"),
        (
            SOURCES[6],
            "small trained model, readable, h 4, d_model 64, seed 0, 500 training steps, "
            "changed: (hide: row it, keys 2, 3; off: head 4)",
        ),
        (SOURCES[7], "bert (file), BertModel"),
        (ArraySource("", {"architecture": "A"}), "A"),
        (ArraySource("A", {"architecture": "A", "h": 3}), "A, h 3"),  # an equal name is shown once
    ],
)
def test_a_caption_has_the_distinguishing_facts(source, said):
    assert caption(source.caption_facts()) == said


def test_a_file_and_an_edited_source_have_the_facts_of_the_original():
    file, edited = SOURCES[7], SOURCES[6]
    assert (file.name, file.skipped, file.notes) == ("bert", ("pooler: none",), ())
    assert file.origin == FileSource("u", file).origin == SOURCES[3]
    assert SOURCES[0].origin is SOURCES[0]
    assert (edited.name, edited.origin, edited.notes) == ("small trained model", SOURCES[1], ())
    assert [len(source.edits) for source in (edited, FileSource("t", edited), SOURCES[1])] == [2, 2, 0]
    assert isinstance(SOURCES[2], TrainedSource)
    assert not isinstance(SOURCES[2], MiniSource)


# What a person says


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("mine", ArraySource("mine")),
        ({"name": "mine", "a": 1}, ArraySource("mine", {"a": 1})),
        ({"name": "random", "seed": 3}, ArraySource("random", {"seed": 3})),  # a name makes no kind
        (SOURCES[4], SOURCES[4]),
    ],
)
def test_a_name_or_a_mapping_is_a_source_of_arrays(given, expected):
    assert array_source(given, ArraySource) == expected
    trace = mha.from_weights(torch.ones(1, 1, 1), "a", source=given)
    assert trace.source == replace(trace, source=given).source == expected
    assert replace(trace, source=SOURCES[0]).source is SOURCES[0]


@pytest.mark.parametrize("given", [None, 3, {}, {"a": 1}, {"name": 3}, {"name": "m", "a": []}, SOURCES[0]])
def test_what_does_not_describe_a_source_is_refused(given, refused):
    said = str(refused(array_source, given, ArraySource))
    assert said == (
        "source is a name, or a mapping with a 'name' and simple values: text, None, finite numbers and "
        "whole numbers up to 2^64."
    )


# Files


@pytest.mark.parametrize(
    "spoilt",
    [
        ["nobody", {}],
        ["random", {"seed": 1}],
        ["random", {**SOURCES[0].to_json()[1], "seed": "1"}],
        ["mini", {**SOURCES[1].to_json()[1], "h": None}],
        ["model", {**SOURCES[3].to_json()[1], "skipped": [1]}],
        ["model", {**SOURCES[3].to_json()[1], "difference": "0"}],
        ["arrays", {"name": "a", "facts": 3}],
        ["arrays", {"name": "a", "facts": {"a": []}}],
        ["file", {"file": "a", "saved": ["nobody", {}]}],
        {"name": "random", "seed": 7},
        {},
        [],
        None,
        3,
    ],
    ids=str,
)
def test_an_invalid_source_is_refused(spoilt):
    with pytest.raises((KeyError, TypeError, ValueError)):
        read(spoilt)
