"""A cache that all visitors share: bounded by bytes, and nothing is computed twice, whoever asks."""

import threading

import pytest

from pages._kit.cache import Cache


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
