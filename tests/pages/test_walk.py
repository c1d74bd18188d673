"""The walk that everybody takes: how many files a run of Heads enters. Ceilings only fall."""

from pages._kit import compute
from tests.bench.bench_walk import CEILINGS, walks


def test_a_run_of_heads_enters_no_more_files_than_its_ceilings():
    for cache in compute.caches.values():
        cache.clear()  # otherwise the first run reads no model, and the new sentence does
    found = walks()
    beyond = {name: files for name, files in found.items() if len(files) > CEILINGS[name]}
    assert not beyond
    assert "pages/frame.py" in found["cached"]  # files are counted at all
