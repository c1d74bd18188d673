"""What visitors share is limited in bytes, and a page whose numbers were dropped is the same again."""

import sys

import pytest

from mha_core.cache import Cache

MOST = 1_000_000_000  # bytes of one cache
PAGES = {"understand/embeddings.py": (), None: ("overview_open", "measurements", "likeness")}


@pytest.fixture
def visited(opened, opened_on):
    """`visited(h)`: what pages with models of h heads show."""

    def visit(h: int) -> list:
        apps = [
            opened_on(page, h=h, d_model=32) if page else opened(*folds, h=h, d_model=32)
            for page, folds in PAGES.items()
        ]
        assert not any(app.exception for app in apps)
        return [[element.proto for element in app.main] for app in apps]

    return visit


def caches() -> list[Cache]:
    """The caches in our modules, without those of a single trace, which are freed with it."""
    ours = [file for name, file in sys.modules.items() if name.startswith(("pages.", "mha_core."))]
    return [one for file in ours for one in vars(file).values() if type(one) is Cache]


def test_every_cache_has_room_for_a_few_visitors_within_the_servers_memory(visited):
    for cache in caches():
        cache.clear()
    visited(2)
    used = [cache for cache in caches() if len(cache)]
    assert len(used) >= 6  # traces, what is computed of them, words, roles, overviews, likeness
    for cache in used:
        assert 100 < cache.bytes < cache.max_bytes <= MOST


def test_a_page_is_the_same_with_caches_of_one_result(visited, monkeypatch):
    first, other = visited(2), visited(4)
    for cache in caches():
        cache.clear()
        monkeypatch.setattr(cache, "max_bytes", 1)
    assert [visited(2), visited(4), visited(2)] == [first, other, first]
    assert max(map(len, caches())) == 1
