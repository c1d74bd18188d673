"""A model that calls attention through the interface of transformers loads nothing of own_code/."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# Traces a tiny random model of each family, and prints the files of own_code/ that are loaded by then.
TRACES = """
import sys, warnings
warnings.simplefilter("ignore")
import mha_core as mha
from tests.parity import tiny
for family in ("gpt2", "bloom"):
    mha.trace(list(range(5, 12)), source=tiny.model(family))
    print("loaded", any(name.startswith("mha_core.capture.own_code.") for name in sys.modules))
"""


@pytest.mark.slow  # a fresh process that traces two models
def test_only_a_model_whose_own_code_is_followed_loads_the_files_for_that():
    done = subprocess.run(
        [sys.executable, "-c", TRACES], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if "loaded" in line] == ["loaded False", "loaded True"]
