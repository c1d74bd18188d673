"""The types of the library and of the pages, by mypy as pyproject.toml configures it."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow  # a quarter of a minute without a cache
def test_types_fit():
    if find_spec("mypy") is None:
        assert not os.environ.get("CI"), "mypy is missing; the extra [test] installs it."
        pytest.skip("mypy is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
