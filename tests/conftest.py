"""Fixtures of all tests: one thread, fixed examples, refusals, scripts in node, seeded numbers, and rules.

The tensors are small, and two threads on busy cores would wait for each other.
"""

import gc
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import mha_core as mha
from mha_core import resources
from mha_core.attention.positions import alibi
from mha_core.export import scripts
from mha_core.training import data

torch.set_num_threads(1)


def assert_close(ours, theirs, tolerance: float = 1e-6) -> None:
    """Assert that two arrays differ by at most the tolerance."""
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance)


@pytest.fixture(autouse=True)
def _own_main():
    """Streamlit's tester leaves the page behind as ``__main__``, which a new process would import."""
    main = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = main


@pytest.fixture(scope="session", autouse=True)
def _runs(tmp_path_factory):
    """Trained models of the tests lie in a folder of the tests, also those of the servers that they start."""
    os.environ[resources.RUNS] = str(tmp_path_factory.mktemp("runs"))


# The same examples on every machine, and no time limit on a busy one.
hypothesis.settings.register_profile(
    "all", deadline=None, derandomize=True, database=None, max_examples=40, print_blob=False
)
hypothesis.settings.load_profile("all")

MAX_WORKERS = 8  # each has a torch, a server and a browser of its own: about 1.5 GB


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config) -> int:
    """As many as processors, and two more where tests wait for browsers; named files run in this process."""
    if any(Path(str(asked).split("::")[0]).suffix == ".py" for asked in config.args):
        return 0
    waiting = 0 if config.option.markexpr == "not slow" else 2
    return min((os.cpu_count() or 1) + waiting, MAX_WORKERS)


gc.disable()  # a third of the time that collecting the tests takes


def pytest_collection_finish() -> None:
    """Exclude everything loaded now from garbage collection: it stays until the end."""
    gc.freeze()
    gc.enable()


TESTS = Path(__file__).parent
# folders in which only the first case of a test is quick
FIRST_CASE = ("pages", "parity", "sources", "capture", "differences", "static")


def pytest_collection_modifyitems(items) -> None:
    """Mark browser tests and further cases of tests that start a page or a model as slow.

    Slow tests start first, in two of the parts that workers begin with: they wait for browsers while others
    compute, and no worker is left alone with them at the end.
    """
    started, browser, slow, quick = set(), [], [], []
    for item in items:
        test = item.path, item.originalname
        folder = item.path.relative_to(TESTS).parts[0] if item.path.is_relative_to(TESTS) else ""
        in_browser = folder == "browser" or "browser" in item.fixturenames
        if in_browser or (folder in FIRST_CASE and test in started):
            item.add_marker("slow")
        started.add(test)
        is_slow = item.get_closest_marker("slow") is not None
        (browser if in_browser else slow if is_slow else quick).append(item)
    kinds = browser, slow, quick
    halves = [(part[: len(part) // 2], part[len(part) // 2 :]) for part in kinds]
    items[:] = [item for half in zip(*halves, strict=True) for part in half for item in part]


@pytest.fixture(scope="session")
def refused():
    """Call a function, expect an `MhaError`, and return it."""

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


@pytest.fixture(scope="session")
def allocated():
    """`allocated(function)`: the bytes of each tensor that torch makes; together no less than the peak."""

    def measure(function) -> list[int]:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
            function()
        return [max(0, event.self_cpu_memory_usage) for event in profiled.events()]

    return measure


@pytest.fixture(scope="session")
def node() -> str:
    program = shutil.which("node")
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("node is missing; .ci/run installs it.")
        pytest.skip("node is not installed")
    return program


# Runs code that asks for modules, one request a line; what a test puts on globalThis goes with it.
NODE = """
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
const AsyncFunction = (async () => {}).constructor;
const plain = (_, v) =>
  typeof v === "number" && !Number.isFinite(v) ? String(v)
  : v instanceof Map ? [...v] : v instanceof Set ? [...v] : ArrayBuffer.isView(v) ? Array.from(v) : v;
async function run({ modules, code, folder }) {
  const imported = await Promise.all(modules.map((address) => import(address)));
  const { default: _, ...exported } = Object.assign({}, ...imported);
  const names = { ...exported, file: (name) => new Uint8Array(readFileSync(`${folder}/${name}`)) };
  const body = `"use strict"; return (async () => { ${code} })();`;
  return new AsyncFunction(...Object.keys(names), body)(...Object.values(names));
}
for await (const line of createInterface({ input: process.stdin })) {
  const before = Object.getOwnPropertyDescriptors(globalThis);
  const [returned, failed] = [(value) => ({ value: value ?? null }), ({ stack }) => ({ stack })];
  const answer = await run(JSON.parse(line)).then(returned, failed);
  for (const name of Object.keys(globalThis)) if (!(name in before)) delete globalThis[name];
  Object.defineProperties(globalThis, before);
  process.stdout.write(`${JSON.stringify(answer, plain)}\\n`);
}
"""


@pytest.fixture(scope="session")
def node_process(node):
    """One node for all tests: each `javascript` is a line that it reads and a line that it writes."""
    command = [node, "--input-type=module", "-e", NODE]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8", bufsize=1
    ) as process:
        yield process
        process.stdin.close()


@pytest.fixture
def javascript(node_process, tmp_path):
    """`javascript(["numbers/payload.js"], "return …", file=bytes)`: the result of the code, as Python values.

    The code can use all exports of the modules by name. `files` has the bytes of each named file.
    """

    def run(modules: list[str], code: str, **files: bytes):
        for name, content in files.items():
            (tmp_path / name).write_bytes(content)
        addresses = [(scripts.FOLDER / name).as_uri() for name in modules]
        print(
            json.dumps({"modules": addresses, "code": code, "folder": str(tmp_path)}), file=node_process.stdin
        )
        answer = json.loads(node_process.stdout.readline())
        assert "stack" not in answer, answer["stack"]
        return answer["value"]

    return run


# Traces and layers

TEXT = "the old cat saw the new cat"  # 7 tokens, two of them twice
LENGTH = 7
PRIMES = {"d_model": 11, "h": 3, "d_k": 5, "d_v": 13}

DRAWN_MASK = torch.rand(LENGTH, LENGTH, generator=torch.Generator().manual_seed(3)) > 0.4
DRAWN_MASK[2] = False  # nobody is left for the third token to look at

# Each mask, position and way to share heads, several in one setting: what holds for all holds for each.
SETTINGS = {
    "full": {},
    "causal, rotary, no bias": {"mask": "causal", "position": "rotary", "d_k": 2, "bias": False},
    "window, learned, grouped": {"mask": "window:1", "position": "learned", "h": 6, "n_kv_heads": 2},
    "prefix, one key head": {"mask": "prefix:2", "position": "none", "h": 5, "n_kv_heads": 1, "d_k": 3},
    "padding, split evenly": {"mask": "padding:2", "d_model": 15, "d_k": None, "d_v": None},
    "empty row, one head": {"mask": DRAWN_MASK, "h": 1},
    "everything": {"h": 6, "n_kv_heads": 3, "layers": 3, "position": "alibi", "mask": DRAWN_MASK, "seed": 17},
}


@pytest.fixture(scope="session")
def settings():
    """The arguments of `mha.trace` by the names of the settings."""
    return {name: {"text": TEXT, **PRIMES, **setting} for name, setting in SETTINGS.items()}


@pytest.fixture(scope="session", params=SETTINGS)
def setting(request, settings):
    """Each of the `settings`."""
    return settings[request.param]


@pytest.fixture(scope="session")
def trace(setting):
    return mha.trace(**setting)


@pytest.fixture(scope="session")
def glass_box():
    """7 tokens through an untrained glass-box of 4 heads: a block, then attention that nothing bypasses."""
    return mha.trace("the cat saw the dog [MASK]", source="mini", h=4, d_model=32, trained=False)


@pytest.fixture(scope="session")
def own_values(normal):
    """5 tokens through two layers of 4 heads; the second one makes V of an input of its own, not of X."""
    modules = [mha.MultiHeadAttention(mha.AttentionSpec(12, 4)).requires_grad_(False) for _ in range(2)]
    x, y = normal(1, 5, 12), normal(1, 5, 12, seed=1)
    first = modules[0](x)
    second = modules[1](first.output, first.output, y)
    layers = (
        mha.LayerTrace.of(first, x=x, projections=modules[0].projections()),
        mha.LayerTrace.of(second, x=first.output, x_v=y, projections=modules[1].projections()),
    )
    return mha.AttentionTrace(mha.words("the cat saw the dog"), layers, {"name": "by hand"})


@pytest.fixture(scope="session")
def normal():
    """`normal(*shape, seed=…, dtype=…)`: the same standard normal numbers on every call."""

    def draw(*shape, seed=0, dtype=torch.float32):
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    return draw


@pytest.fixture(scope="session")
def make_layer(normal):
    """`make_layer(rule=…, dtype=…)`: a layer through `MultiHeadAttention`, with rules that `mha.trace` lacks.

    h 6, n_kv 3, d_model 11, d_k 5, d_v 13, 7 tokens.
    """

    def make(rule=mha.ScoreRule(), *, dtype=torch.float32, mask=None, seed=0):
        module = mha.MultiHeadAttention(mha.AttentionSpec(11, 6, n_kv_heads=3, d_k=5, d_v=13))
        matrices = module.projections()
        for index, name in enumerate("qkvo"):
            for part in (getattr(matrices, f"w_{name}").mT, getattr(matrices, f"b_{name}")):
                part.copy_(normal(*part.shape, seed=seed + 100 + 2 * index + (part.dim() == 1)) / 11**0.5)
        module = module.requires_grad_(False).to(dtype)
        x = normal(1, LENGTH, 11, seed=seed, dtype=dtype)
        attended = module(x, mask=mask, rule=rule)
        return mha.LayerTrace.of(attended, x=x, projections=module.projections())

    return make


RULES = {
    "scale, temperature, bias shared by heads": lambda normal: mha.ScoreRule(
        scale=0.3, temperature=1.7, bias=normal(1, LENGTH, LENGTH, seed=5), mask=DRAWN_MASK
    ),
    "hidden by bias": lambda normal: mha.ScoreRule(
        bias=normal(6, LENGTH, LENGTH, seed=5).masked_fill(~DRAWN_MASK, float("-inf"))
    ),
    "mask of each head": lambda normal: mha.ScoreRule(mask=normal(6, LENGTH, LENGTH, seed=6) > -0.3),
    "both biases": lambda normal: mha.ScoreRule(
        bias=normal(6, LENGTH, LENGTH, seed=5), distance_bias=alibi(6, LENGTH, LENGTH), temperature=0.7
    ),
    "soft cap": lambda normal: mha.ScoreRule(soft_cap=0.5, mask=DRAWN_MASK),
    "sinks": lambda normal: mha.ScoreRule(sinks=normal(6, seed=7), mask=DRAWN_MASK),
    "patches": lambda normal: mha.ScoreRule(
        mask=DRAWN_MASK,
        patched_weights=patched(normal(6, LENGTH, LENGTH, seed=8).masked_fill(~DRAWN_MASK, -1e9).softmax(-1)),
        patched_outputs=patched(normal(6, LENGTH, 13, seed=9)),
    ),
    "patches for all heads": lambda normal: mha.ScoreRule(
        patched_weights=patched(torch.full((1, LENGTH, LENGTH), 1 / LENGTH)),
        patched_outputs=patched(torch.zeros(1, LENGTH, 1)),
    ),
}


def patched(numbers: torch.Tensor) -> torch.Tensor:
    """The numbers in two rows, of heads that have their own in two of them, and +∞ elsewhere."""
    patches = torch.full_like(numbers, float("inf"))
    patches[:3:2, 1:5:3] = numbers[:3:2, 1:5:3]
    return patches


@pytest.fixture(scope="session")
def rules(normal):
    """Score rules that only a layer made by hand can have."""
    return {name: make(normal) for name, make in RULES.items()}


@pytest.fixture(scope="session", params=RULES)
def rule(request, rules):
    """Each of the `rules`."""
    return rules[request.param]


# Training

BATCHES = 7  # a reading of the little there is


@pytest.fixture
def little(monkeypatch):
    """7 batches of 16 to a reading, instead of hundreds of batches of 64."""
    monkeypatch.setattr(data, "BATCH", 16)
    monkeypatch.setattr(data, "SENTENCES", BATCHES * 16)
    data.training_sentences.cache_clear()
    yield BATCHES
    data.training_sentences.cache_clear()


# One text that looks at another

SIDES = mha.Sides(
    mha.words("the old cat saw a dog ."), mha.words("die alte graue Katze sah gestern im Garten einen Hund .")
)
CROSS = {"h": 6, "n_kv_heads": 2, "d_k": 3, "d_v": 5, "d_model": 13}


def cross_layer(normal, seed: int = 0, **tensors) -> mha.LayerTrace:
    queries, keys = len(SIDES.queries), len(SIDES.keys)
    drawn = {
        "q": normal(CROSS["h"], queries, CROSS["d_k"], seed=seed),
        "k": normal(CROSS["n_kv_heads"], keys, CROSS["d_k"], seed=seed + 1),
        "v": normal(CROSS["n_kv_heads"], keys, CROSS["d_v"], seed=seed + 2),
    }
    return mha.LayerTrace(drawn | tensors, kind="cross", sides=SIDES)


@pytest.fixture(scope="session")
def cross_trace(normal):
    """Two layers in which 7 tokens look at 11 others: 6 heads on 2 of keys and values."""
    layers = (cross_layer(normal), cross_layer(normal, 10))
    return mha.AttentionTrace(SIDES.queries, layers, {"name": "by hand"})


@pytest.fixture(scope="session")
def projected_cross(normal):
    """A layer of the same sizes of which both inputs and all matrices are known."""
    h, kv, d_k, d_v, d_model = CROSS.values()
    x, y = normal(len(SIDES.queries), d_model, seed=1), normal(len(SIDES.keys), d_model, seed=2)
    w_q, w_k = normal(d_model, h * d_k, seed=3), normal(d_model, kv * d_k, seed=4)
    w_v, w_o = normal(d_model, kv * d_v, seed=5), normal(h * d_v, d_model, seed=6)
    q, k, v = (
        (inputs @ matrix).unflatten(1, (heads, -1)).transpose(0, 1).contiguous()
        for inputs, matrix, heads in ((x, w_q, h), (y, w_k, kv), (y, w_v, kv))
    )
    layer = cross_layer(normal, q=q, k=k, v=v, x=x, x_v=y)
    layer = replace(layer, projections=mha.Projections(w_q, w_k, w_v, w_o))
    return mha.AttentionTrace(SIDES.queries, (layer,), {"name": "by hand"})


def six_matrices(layer: mha.LayerTrace, head: int) -> dict[str, np.ndarray]:
    """The matrices of a head on the page Heads: Q, K, V, scores, weights and output; NaN where hidden."""
    shared = layer.kv_head(head)
    return {
        "q": layer.q[head],
        "k": layer.k[shared],
        "v": layer.v[shared],
        "scores": layer.scores(head),
        "weights": np.where(layer.allowed(head), layer.weights(head), np.nan),
        "output": layer.output(head),
    }
