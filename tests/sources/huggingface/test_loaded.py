"""Models in memory: loaded once for all who wait, limited in bytes, and their traces with them."""

from dataclasses import replace
from threading import Event

import pytest
import torch

import mha_core as mha
from mha_core import MixerTrace
from mha_core.sources.huggingface import files, loaded
from mha_core.sources.huggingface.loaded import LoadedModels, ModelKey


@pytest.fixture
def key(folder):
    """`key("bert")`: the key of a tiny model of that architecture."""
    return lambda family: ModelKey(str(folder(family)))


def shelf_of(max_bytes: int = 10**9) -> LoadedModels:
    return LoadedModels(max_bytes, max_trace_bytes=10**9, reason=str)


def load(shelf: LoadedModels, key: ModelKey) -> loaded.Loading:
    job = shelf.begin(key)
    assert job.finished.wait(600), key
    return job


def test_loading_continues_until_the_last_waiting_visitor_leaves(monkeypatch):
    begun, stopped = Event(), Event()

    def find(name, *, progress, **_):
        begun.set()
        while True:
            progress("find", 0, 0)
            stopped.wait(0.01)

    monkeypatch.setattr(files, "find", find)
    monkeypatch.setattr(loaded, "PATIENCE", 0)  # so much passes where a machine stands still
    shelf = shelf_of()
    job = shelf.begin(ModelKey("a"))
    assert begun.wait(600)
    assert shelf.begin(ModelKey("a")) is job
    job.leave()
    assert not job.abandoned()
    job.leave()
    assert job.finished.wait(600)
    assert str(job.error) == "Loading was stopped."
    assert shelf.begin(ModelKey("a")) is not job  # who asks again begins again


@pytest.mark.slow
def test_the_least_recently_used_of_three_models_is_freed(key):
    bert, gpt2, llama = map(key, ("bert", "gpt2", "llama"))
    sizes = [files.find(one.name).weight_bytes for one in (bert, gpt2, llama)]
    shelf = shelf_of(sum(sizes) - min(sizes) // 2)
    load(shelf, bert)
    number = shelf.find(bert).number
    load(shelf, gpt2)
    shelf.find(bert)  # used again: gpt2 is the one that goes
    load(shelf, llama)
    assert shelf.find(gpt2) is None
    assert shelf.find(bert).number == number


@pytest.mark.slow
def test_a_model_with_answers_counts_like_any_other(key):
    """It has its matrices again besides the head for answers: room is made, and it is in memory once."""
    gpt2 = key("gpt2")
    shelf = shelf_of(files.find(gpt2.name).weight_bytes)
    load(shelf, gpt2)
    load(shelf, gpt2._replace(answers=True))
    entry = shelf.find(gpt2._replace(answers=True))
    assert (entry.model.writes, len(shelf.entries)) == ("next", 1)
    assert entry.read("A bird sang.", answers=True).whole.answers
    weights = sum(one.nbytes for one in entry.model.module.parameters())
    assert weights < shelf.entries.bytes < 1.01 * weights  # and its key


def test_a_model_that_is_used_is_not_loaded_twice(key):
    shelf, gpt2 = shelf_of(1), key("gpt2")
    load(shelf, gpt2)
    used = shelf.find(gpt2)
    load(shelf, key("bert"))
    assert shelf.find(gpt2) is used
    load(shelf, gpt2)
    assert shelf.find(gpt2) is used
    del used
    assert shelf.find(gpt2) is None


@pytest.mark.slow
def test_a_model_that_cannot_be_loaded_frees_no_other(key):
    shelf = shelf_of(1)
    load(shelf, key("bert"))
    assert isinstance(load(shelf, ModelKey("/no/such")).error, mha.MhaError)
    assert shelf.find(key("bert"))


@pytest.mark.slow
def test_traces_of_a_model_are_kept_by_their_size(key):
    shelf = shelf_of()
    load(shelf, key("bert"))
    entry = shelf.find(key("bert"))
    first = entry.read("A bird sang.")
    assert entry.read("A bird sang.") is first
    shelf.traces.max_bytes = 1
    entry.read("The street.")
    assert (len(shelf.traces), shelf.traces.bytes > 1) == (1, True)
    assert entry.read("A bird sang.") is not first


def test_a_trace_in_half_precision_counts_with_its_arrays_in_float32():
    numbers = torch.ones(1, 2, 4)
    full, half = (mha.from_tensors(q=x, k=x, v=x, tokens=["a", "b"]) for x in (numbers, numbers.half()))
    mixer = MixerTrace({"v": numbers, "output": numbers}, "gated delta rule")
    assert loaded.trace_bytes(full) == full.nbytes
    assert loaded.trace_bytes(half) == 3 * half.nbytes
    assert loaded.trace_bytes(replace(full, mixers=(mixer,))) == full.nbytes + 2 * numbers.nbytes
