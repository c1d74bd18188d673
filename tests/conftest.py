"""For all tests: one thread, the same examples everywhere, refusals that can be read, scripts run by node.

The tensors are small, and two threads on busy cores wait for each other.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import hypothesis
import pytest
import torch

import mha_core as mha
from mha_core import bundled

torch.set_num_threads(1)

# The same examples on every machine, and no time limit on a busy one.
hypothesis.settings.register_profile(
    "all", deadline=None, derandomize=True, database=None, max_examples=40, print_blob=False
)
hypothesis.settings.load_profile("all")

MOST_WORKERS = 8  # each has a torch, a server and a browser of its own: about 1.5 GB


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config) -> int:
    """A process for each processor; files that are named run at once, in this process."""
    named = [Path(str(asked).split("::")[0]).suffix for asked in config.args]
    return 0 if ".py" in named else min(os.cpu_count() or 1, MOST_WORKERS)


def pytest_collection_modifyitems(items) -> None:
    """What takes minutes by itself begins first, or one worker would be left alone with it at the end."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(scope="session")
def refused():
    """Call, expect a refusal, and hand the `MhaError` back to be read."""

    def call(function, *args, **kwargs) -> mha.MhaError:
        with pytest.raises(mha.MhaError) as caught:
            function(*args, **kwargs)
        return caught.value

    return call


@pytest.fixture
def kernel(monkeypatch):
    """`kernel(off=0.0)`: torch's fused kernel is off by so much then; an entry for each time that it ran."""
    asked, real = [], torch.nn.functional.scaled_dot_product_attention

    def use(off: float = 0.0) -> list[int]:
        def run(*tensors, **named):
            asked.append(1)
            return real(*tensors, **named) + off if off else real(*tensors, **named)

        monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", run)
        return asked

    return use


COMPONENTS = bundled.path("assets", "components")


@pytest.fixture(scope="session")
def node() -> str:
    found = shutil.which("node")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("node is missing; .ci/run installs it.")
        pytest.skip("node is not installed")
    return found


@pytest.fixture
def javascript(node, tmp_path):
    """`javascript(["attention.js"], "return …", file=bytes)`: what the code returns, as Python values.

    The scripts are joined as a component joins them. `files` has the bytes of each named file.
    """

    def run(scripts: list[str], code: str, **files: bytes):
        for name, content in files.items():
            (tmp_path / name).write_bytes(content)
        joined = "\n".join((COMPONENTS / script).read_text(encoding="utf-8") for script in scripts)
        module = tmp_path / "module.mjs"
        module.write_text(
            f"""{joined}
import {{ readFileSync }} from "node:fs";
const file = (name) => new Uint8Array(readFileSync({json.dumps(str(tmp_path))} + "/" + name));
const found = await (async () => {{ {code} }})();
const plain = (_, v) =>
  typeof v === "number" && !Number.isFinite(v) ? String(v)
  : v instanceof Map ? [...v] : v instanceof Set ? [...v] : ArrayBuffer.isView(v) ? Array.from(v) : v;
process.stdout.write(JSON.stringify(found ?? null, plain));
""",
            encoding="utf-8",
        )
        done = subprocess.run(
            [node, str(module)], capture_output=True, text=True, timeout=120, encoding="utf-8"
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="session")
def normal():
    """`normal(*shape, seed=…, dtype=…)`: the same standard normal numbers on every call."""

    def draw(*shape, seed=0, dtype=torch.float32):
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    return draw
