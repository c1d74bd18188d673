"""The walk that everybody takes: how many files a run of Heads enters. Ceilings only fall."""

import json
import subprocess
import sys

import pytest

from tests.bench import bench_walk


@pytest.mark.slow
def test_a_run_of_heads_enters_no_more_files_than_its_ceilings():
    # In a process of its own: what earlier tests have left behind would count, too.
    run = subprocess.run([sys.executable, bench_walk.__file__], capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert {line["target"] for line in found} == {*bench_walk.CEILINGS.values()}
    assert [line for line in found if line["value"] > line["target"]] == [], run.stdout
    assert run.stdout.count("  pages/frame.py") == len(found)  # files are counted at all
