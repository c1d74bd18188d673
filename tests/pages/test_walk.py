"""The walk that everybody takes: how many files a run of Heads enters. Ceilings only fall."""

from tests.bench.bench_walk import CEILINGS, walks


def test_a_run_of_heads_enters_no_more_files_than_its_ceilings():
    found = walks()
    beyond = {name: files for name, files in found.items() if len(files) > CEILINGS[name]}
    assert not beyond
    assert found["cached"][0] == "pages/frame.py"  # files are counted at all
