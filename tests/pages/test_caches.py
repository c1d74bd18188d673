"""What visitors share is limited in bytes, and a page whose numbers were dropped is the same again."""

import pytest

from pages._kit import compute

MOST = 1_000_000_000  # bytes of one cache
PAGES = {"understand/embeddings.py": (), None: ("overview_open", "measurements", "likeness")}


@pytest.mark.slow
def test_a_page_is_the_same_with_caches_of_one_result_and_each_cache_has_room_for_a_few(
    opened, opened_on, monkeypatch
):
    def visited(h: int) -> list:
        """What pages with models of h heads show."""
        apps = [
            opened_on(page, h=h, d_model=32) if page else opened(*folds, h=h, d_model=32)
            for page, folds in PAGES.items()
        ]
        return [[element.proto for element in app.main] for app in apps]

    for cache in compute.caches.values():
        cache.clear()
    first, other = visited(2), visited(4)
    used = {name: cache for name, cache in compute.caches.items() if len(cache)}
    assert set(used) == set(compute.caches) - {"large traces", "mixers"}
    for cache in used.values():  # within the server's memory
        assert 100 < cache.bytes < cache.max_bytes <= MOST
    for cache in compute.caches.values():
        cache.clear()
        monkeypatch.setattr(cache, "max_bytes", 1)
    assert [visited(2), visited(4), visited(2)] == [first, other, first]
    assert max(map(len, compute.caches.values())) == 1
