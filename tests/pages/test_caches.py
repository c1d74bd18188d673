"""Every cache that visitors share is bounded by bytes."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import mha_core as mha
from mha_core import MixerTrace
from mha_core.analysis.overview import overview as made
from mha_core.training.checkpoints import untrained
from mha_core.training.fit import Plan
from pages._kit import compute, model_source, overview, role_labels
from pages._server import profile
from pages.models._real import mixer
from pages.see._heads import measurements
from pages.understand._embeddings import words


def a_vocabulary(width: int) -> words.Vocabulary:
    frame = pd.DataFrame(np.zeros((50, width), np.float32))
    return words.Vocabulary(frame, pd.Series("noun", frame.index), "en", random=False)


def a_trace(width: int) -> mha.AttentionTrace:
    return mha.trace("a bird sang", h=1, d_model=width, bias=False)


# Of each cache something as wide as it is told, and the bytes that this has at least, more than its key.
SHARED = {
    "traces": (compute._traces, a_trace, lambda width: compute.MIN_TRACE_BYTES),
    "large traces": (compute._large_traces(), a_trace, lambda width: 16 * width * width),
    "results": (compute._results, lambda width: ["x" * 99 * width], lambda width: 99 * width),
    "matrices of mixers": (mixer._matrices, lambda width: np.zeros((width, 9)), lambda width: 72 * width),
    "trained models": (
        compute.trainings()._read,
        lambda width: untrained(Plan(h=1, d_model=width)),
        lambda width: 4 * width * width,
    ),
    "models' traces": (
        model_source._traces(),
        lambda width: model_source.Parts({}, 99 * width, None),
        lambda width: 99 * width,
    ),
    "vocabularies": (words._vocabularies, a_vocabulary, lambda width: 200 * width),
    "likeness": (measurements._similarities, lambda width: np.zeros((width, 9)), lambda width: 72 * width),
    "overviews": (
        overview._overviews,
        lambda width: made(mha.trace("a b", h=width, d_model=width)),
        lambda width: 24 * width,
    ),
    "roles": (
        role_labels._measured,
        lambda width: role_labels.Measured(pd.DataFrame(np.zeros((width, 3))), {}),
        lambda width: 24 * width,
    ),
}


@pytest.mark.parametrize("name", SHARED)
def test_a_second_large_result_pushes_the_first_out_of_every_cache(name, monkeypatch):
    cache, make, least = SHARED[name]
    one, other = make(8), make(8)
    cache.clear()
    assert cache.get("one", lambda key: one) is cache.get("one", lambda key: other) is one
    assert cache.bytes > least(8) > 100
    assert cache.max_bytes <= (profile.OWN.trace_bytes if name == "large traces" else 1_000_000_000)
    monkeypatch.setattr(cache, "max_bytes", 3 * cache.bytes // 2)
    cache.get("other", lambda key: other)
    assert len(cache) == 1
    assert cache.get("one", lambda key: other) is other
    cache.clear()


def test_a_trace_in_half_precision_counts_with_the_arrays_that_pictures_are_made_of():
    numbers = torch.ones(1, 2, 4)
    full, half = (mha.from_tensors(q=x, k=x, v=x, tokens=["a", "b"]) for x in (numbers, numbers.half()))
    mixer = MixerTrace({"v": numbers, "output": numbers}, "gated delta rule")
    assert model_source._bytes(full) == full.nbytes
    assert model_source._bytes(half) == 3 * half.nbytes
    assert model_source._bytes(replace(full, mixers=(mixer,))) == full.nbytes + 2 * numbers.nbytes


def test_the_words_of_a_model_are_kept_here(opened):
    words._vocabularies.clear()
    for _ in range(2):
        opened(h=2, d_model=32).switch_page("understand/embeddings.py").run()
        assert len(words._vocabularies) == 1
