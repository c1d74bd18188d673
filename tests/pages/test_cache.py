"""A cache that all visitors share: bounded by bytes, and nothing is computed twice, whoever asks."""

import threading

import numpy as np
import pandas as pd
import pytest

import mha_core as mha
from mha_core.analysis.overview import overview as made
from pages._kit import compute, model_source, overview, role_labels
from pages._kit.cache import Cache
from pages.see._heads import measurements
from pages.understand._embeddings import words


def test_those_that_nobody_asks_for_go_when_all_are_too_large_together():
    cache, computed = Cache(10, len), []

    def compute(key: str) -> str:
        computed.append(key)
        return key * 4

    for key in "abac":
        assert cache.get(key, compute) == key * 4
        assert cache.bytes == 4 * len(cache) <= 10
    assert [cache.get(key, compute) for key in "ac"] == ["aaaa", "cccc"]
    assert computed == ["a", "b", "c"]
    assert cache.get("b", compute) == "bbbb"
    assert computed == ["a", "b", "c", "b"]
    cache.clear()
    assert len(cache) == cache.bytes == 0


def test_one_that_is_too_large_alone_is_there_until_the_next():
    cache = Cache(3, len)
    first = cache.get("a", lambda key: "four")
    assert cache.get("a", lambda key: "other") is first
    cache.get("b", lambda key: "b")
    assert (len(cache), cache.bytes) == (1, 1)


def test_all_who_ask_at_once_get_the_one_result():
    cache, computed, begun = Cache(10, len), [], threading.Event()
    go_on = threading.Event()

    def compute(key: str) -> str:
        computed.append(key)
        begun.set()
        go_on.wait(60)
        return "result"

    results = []
    threads = [threading.Thread(target=lambda: results.append(cache.get("a", compute))) for _ in range(4)]
    threads[0].start()
    begun.wait(60)
    for thread in threads[1:]:
        thread.start()
    assert cache.get("b", lambda key: "nobody waits for another key") != ""
    go_on.set()
    for thread in threads:
        thread.join()
    assert results == ["result"] * 4
    assert computed == ["a"]


def test_an_error_is_raised_to_each_who_asks_and_not_kept():
    cache, number = Cache(10, len), iter(range(3))

    def compute(key: str) -> str:
        raise ValueError(str(next(number)))

    for expected in "01":
        with pytest.raises(ValueError, match=expected):
            cache.get("a", compute)
    assert cache.get("a", lambda key: "fine") == "fine"
    assert cache._computing == {}


def a_vocabulary(width: int) -> words.Vocabulary:
    frame = pd.DataFrame(np.zeros((50, width), np.float32))
    return words.Vocabulary(frame, pd.Series("noun", frame.index), "en", random=False)


def a_trace(width: int) -> mha.AttentionTrace:
    return mha.trace("a bird sang", h=1, d_model=width, bias=False)


# Of each cache something as wide as it is told, and the bytes that this has at least.
SHARED = {
    "traces": (compute._traces, a_trace, lambda width: compute.RESULT_BYTES),
    "models' traces": (model_source._traces, lambda width: model_source.Parts({}, 4 * width, None), None),
    "vocabularies": (words._vocabularies, a_vocabulary, lambda width: 200 * width),
    "likeness": (measurements._similarities, lambda width: np.zeros((width, 9)), lambda width: 72 * width),
    "overviews": (overview._overviews, lambda width: made(mha.trace("a b", h=width, d_model=width)), None),
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
    assert cache.weigh(one) >= (least or (lambda width: width))(8)
    assert cache.max_bytes < 1 << 30
    cache.clear()
    monkeypatch.setattr(cache, "max_bytes", 3 * cache.weigh(one) // 2)
    assert cache.get("one", lambda key: one) is cache.get("one", lambda key: other) is one
    cache.get("other", lambda key: other)
    assert len(cache) == 1
    assert cache.get("one", lambda key: other) is other
    cache.clear()


def test_the_words_of_a_model_are_kept_here(opened):
    words._vocabularies.clear()
    for _ in range(2):
        opened(h=2, d_model=32).switch_page("understand/embeddings.py").run()
        assert len(words._vocabularies) == 1
