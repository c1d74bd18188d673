"""Each model loads the files of its own family, and no others."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="Hugging Face models come with an extra")

from mha_core.capture import families
from mha_core.capture.families import kernels

ROOT = Path(__file__).parents[3]
# In this order, so that each loads the files that are named here and were not loaded before.
NEW = {
    "gpt2": "",
    "bloom": "own_code.caller own_code.following own_code.scores",
    "deepseek_v32": "families.learned_index",
    "longformer": "families.bands",
    "reformer": "families.chunks",
    "mamba": "families.kernels families.mixing",
    "minimax": "families.lightning",
    "fnet": "families.fourier",
    "yoso": "families.yoso",
}
# Traces a tiny random model of each family twice, and prints the files of both wings that are there by then.
TRACES = """
import sys, warnings
warnings.simplefilter("ignore")
import mha_core as mha
from tests.parity import tiny
for family in sys.argv[1:]:
    model = tiny.model(family)
    for n in (7, 23):
        mha.trace(list(range(5, 5 + n)), source=model)
    loaded = [name.removeprefix("mha_core.capture.") for name in sys.modules]
    print(family, *(name for name in loaded if name.startswith(("families.", "own_code."))))
"""


def loaded_files() -> dict[str, set[str]]:
    """The files that each family loads in a fresh process, without those that earlier ones have loaded."""
    command = [sys.executable, "-c", TRACES, *NEW]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.split()[0] in NEW]
    before, loaded = set(), {}
    for family, *files in lines:
        loaded[family], before = {*files} - before, {*files}
    return loaded


@pytest.mark.slow  # a fresh process that traces nine models
def test_a_model_loads_the_files_of_its_family_and_no_others():
    assert loaded_files() == {family: {*files.split()} for family, files in NEW.items()}


def test_the_table_has_each_file_and_each_kernel():
    folder = Path(inspect.getfile(families)).parent
    assert {*families.FILES.values()} | {"__init__", "mixing"} == {file.stem for file in folder.glob("*.py")}
    known = {*kernels.FUNCTIONS, *kernels.METHODS, *kernels.MODULES}
    assert known == {name for (_, name), file in families.FILES.items() if file == "kernels"}
