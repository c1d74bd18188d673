"""Results computed from a trace are shared by all visitors, and do not keep the trace in memory."""

import gc
import weakref

import pytest

import mha_core as mha
from mha_core.analysis.derivation import steps
from mha_core.analysis.token import against_keys, column_of, mixture, row_of, vectors
from mha_core.scene.scene import Scene
from pages._kit import compute, why
from tests.pages.conftest import OF_TRACE


@pytest.fixture
def compute_result():
    """`compute_result(trace, number=…)`: a result of a trace; `.asked` has the numbers that were computed."""

    def question(trace, number=0):
        question.asked.append(number)
        return [len(trace.tokens), number]

    question.asked = []
    return question


def test_results_are_computed_once_for_a_trace_and_settings(compute_result):
    one, other = (mha.trace(text, h=1, d_model=2) for text in ("a b c", "a b"))
    first = compute.once(one, compute_result, number=1)
    assert first == [3, 1]
    assert compute.once(one, compute_result, number=1) is first
    assert compute.once(one, compute_result, number=2) == [3, 2]
    assert compute.once(other, compute_result, number=1) == [2, 1]
    assert compute.once(other.layers[0], lambda layer: layer.n_query) == 2
    long = mha.trace("a " * (compute.MAX_SMALL_TEXT + 1), h=1, d_model=2)  # of which no result is kept
    assert compute.once(long, compute_result) == compute.once(long, compute_result)
    assert compute_result.asked == [1, 2, 1, 0, 0]


def test_results_are_limited_in_bytes_and_keep_no_trace(compute_result, monkeypatch):
    results = compute.caches["results"]
    results.clear()
    trace = mha.trace("a b", h=1, d_model=2)
    compute.once(trace, compute_result, number=1)
    monkeypatch.setattr(results, "max_bytes", 5 * results.bytes // 2)
    for number in (2, 1, 3, 1, 2):
        compute.once(trace, compute_result, number=number)
    assert compute_result.asked == [1, 2, 3, 2]
    monkeypatch.undo()
    for function in (row_of, column_of):
        compute.once(trace, function, layer=0, token=0)
    for function in (vectors, against_keys, mixture):
        compute.once(trace, function, layer=0, token=0, head=0)
    compute.once(trace, steps, layer=0, head=0)
    gone = weakref.ref(trace)
    del trace
    gc.collect()
    assert gone() is None


def test_a_model_that_was_asked_is_not_kept_in_memory(monkeypatch):
    class Model:
        pass

    models = [Model()]
    monkeypatch.setattr(why, "source_of", lambda *_: models[0])
    trace = mha.trace("a b", h=1, d_model=2)
    assert why.by_model(Scene(), trace, lambda _, source: type(source).__name__) == "Model"
    gone = weakref.ref(models.pop())
    gc.collect()
    assert gone() is None


def uncached_traces() -> set[int]:
    """The traces in memory that are in no cache."""
    compute.caches["traces"].clear()
    gc.collect()
    return {id(one) for one in gc.get_objects() if type(one) is mha.AttentionTrace}


def test_an_open_page_keeps_no_trace_alive(opened_on):
    before, text = uncached_traces(), "The dog chased the cat because it was hungry."
    apps = [opened_on(page, text=text) for page in OF_TRACE]
    assert len(apps) == len(OF_TRACE)
    assert uncached_traces() <= before


@pytest.mark.parametrize("sizes", [{}, {"h": 8, "d_model": 512}, {"layers": 16, "d_model": 1024, "d_k": 64}])
def test_the_cache_of_a_trace_depends_on_its_bytes(sizes):
    scene = Scene(source="random", text="a b c", **sizes)
    large = sizes.get("layers") == 16
    assert compute.is_large(scene, scene.text) == large
    assert (compute.trace(scene).nbytes > compute.HEAVY_BYTES) == large
