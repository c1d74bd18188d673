"""The cache: bounded in bytes, and nothing is computed twice at the same time."""

import sys
import threading
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from mha_core.cache import Cache, size

KEY = size("a")  # bytes


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [
        ("a" * 1000, 1000, 1100),
        (b"a" * 1000, 1000, 1100),
        (np.zeros(1000), 8000, 8000),
        (np.array(["it"] * 100, object), 6400, 6400),
        (torch.zeros(1000), 4000, 4000),
        (pd.DataFrame(np.zeros((10, 100))), 12_000, 16_000),
        (pd.DataFrame({"word": ["it"] * 100, "weight": [0.5] * 100}), 6400, 20_000),
        ({"a": np.zeros(1000), np.float32(1): [np.zeros(500), (np.zeros(500),)]}, 16_000, 17_000),
        (SimpleNamespace(one=np.zeros(1000), other={"a" * 1000}), 9000, 10_000),
        (pd.DataFrame, 1, 10_000),
        (None, 1, 100),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_bytes_of_a_value_include_everything_in_it(value, least, most):
    assert least <= size(value) <= most


def test_a_shared_value_is_counted_once():
    numbers = np.zeros(1000)
    ring = [numbers, numbers]
    ring.append(ring)
    assert size(ring) == numbers.nbytes + sys.getsizeof(ring)


def test_the_least_recently_used_results_are_dropped_first():
    cache, computed = Cache(2 * (KEY + 4) + 1, len), []

    def compute(key: str) -> str:
        computed.append(key)
        return key * 4

    for key in "abac":
        assert cache.get(key, compute) == key * 4
        assert cache.bytes == (KEY + 4) * len(cache) <= cache.max_bytes
    assert [cache.get(key, compute) for key in "ac"] == ["aaaa", "cccc"]
    assert computed == ["a", "b", "c"]
    assert cache.get("b", compute) == "bbbb"
    assert computed == ["a", "b", "c", "b"]
    cache.clear()
    assert len(cache) == cache.bytes == 0


def test_a_result_over_the_limit_is_kept_until_the_next_one():
    cache = Cache(3, len)
    first = cache.get("a", lambda key: "four")
    assert cache.get("a", lambda key: "other") is first
    cache.get("b", lambda key: "b")
    assert (len(cache), cache.bytes) == (1, KEY + 1)


def test_the_bytes_of_keys_count():
    cache = Cache(100_000, len)
    for number in range(100):  # each a link with a text
        cache.get(f"{number} {'x' * 10_000}", lambda key: "y")
    assert len(cache) < 10
    assert cache.bytes <= 100_000


def test_the_number_of_results_is_limited_and_the_latest_used_ones_stay():
    cache = Cache(1000, len, max_count=2)
    for key in "ab":
        cache.get(key, str.upper)
    assert (cache.find("a"), cache.find("c")) == ("A", None)
    cache.get("c", str.upper)
    assert [key for key in "abc" if key in cache] == ["a", "c"]


def test_room_can_be_made_in_advance_and_a_result_dropped():
    cache = Cache(3 * (KEY + 1), len)
    for key in "abc":
        cache.get(key, str.upper)
    cache.make_room(KEY + 1)
    assert [key for key in "abc" if key in cache] == ["b", "c"]
    cache.drop("b")
    cache.drop("a")  # which is not there
    assert (len(cache), cache.bytes) == (1, KEY + 1)
    cache.make_room(10 * KEY)
    assert len(cache) == cache.bytes == 0


def test_simultaneous_requests_share_one_computation():
    cache, computed, begun = Cache(1000, len), [], threading.Event()
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


def test_an_error_is_raised_for_every_request_and_not_kept():
    cache, number = Cache(1000, len), iter(range(3))

    def compute(key: str) -> str:
        raise ValueError(str(next(number)))

    for expected in "01":
        with pytest.raises(ValueError, match=expected):
            cache.get("a", compute)
    assert cache.get("a", lambda key: "fine") == "fine"
