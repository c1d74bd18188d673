"""The cost of tracing a real model: our traced forward pass against its own, with and without weights.

Run it with ``python tests/bench/bench_trace.py`` (``--quick``: the two shorter texts); the last lines are one
JSON object each. The model has the shape of BERT-base (12 layers, 12 heads, d_model 768) and random weights.

Seconds: the ways take turns in one process, ours with a prepared model and the others with an untouched one
with the same weights in the same memory; the median of the ratios of the turns. Memory: for each way, the
highest memory of a process of its own above that of the model.

A trace keeps q, k, v and x of every layer: 4 · L · d_model numbers, where eager keeps h · L². Both also need
the memory of a pass. So a trace takes less memory only if L is at least about 4 · d_k = 256. The ratio to
what it keeps shows how much is needed in addition. For the same reason eager has a second form, *hooked*,
with the hooks that anybody would write to keep copies of those four.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from mha_core.sources.huggingface import model as huggingface  # noqa: E402 (from this checkout, also where another is installed)

LENGTHS = (16, 64, 256, 512)
WAYS = ("ours", "eager", "hooked", "sdpa")
# Multiples of eager with output_attentions. In a short pass the overhead of tracing weighs more.
MAX_TIME, MAX_MEMORY = {16: 1.10, 64: 1.10, 256: 1.05, 512: 1.05}, 1.0
SECONDS = 6.0  # for each way and length
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def plain():
    """A model as transformers makes it."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    return BertModel(BertConfig(vocab_size=1009)).eval().requires_grad_(False)


def forward(way: str, length: int, ours: huggingface.Model | None = None, other=None):
    """A call without arguments that does one forward pass in that way."""
    generator = torch.Generator().manual_seed(length)
    ids = {"input_ids": torch.randint(5, 1000, (1, length), generator=generator)}
    if way == "ours":
        return lambda: huggingface.flow(ours, ids)
    other.set_attn_implementation("sdpa" if way == "sdpa" else "eager")

    def run():
        with torch.no_grad():
            return other(**ids, output_attentions=way != "sdpa")

    return hooked(other, run) if way == "hooked" else run


def hooked(model, run):
    """`run` while keeping copies of x, q, k and v of each layer, which it also returns."""

    def call():
        kept, hooks = [], []
        for layer in model.encoder.layer:
            own = layer.attention.self
            hooks.append(own.query.register_forward_pre_hook(lambda _, args: kept.append(args[0].clone())))
            for matrix in (own.query, own.key, own.value):
                hooks.append(matrix.register_forward_hook(lambda _, __, given: kept.append(given.clone())))
        try:
            return kept, run()
        finally:
            for hook in hooks:
                hook.remove()

    return call


def seconds(ours: huggingface.Model, other, length: int) -> dict[str, list[float]]:
    """The seconds of each way in each turn, without the first one, a warm-up."""
    took = {way: [] for way in WAYS}
    until = time.perf_counter() + SECONDS * len(WAYS)
    while len(took["ours"]) < 5 or time.perf_counter() < until:
        for way in WAYS:
            run = forward(way, length, ours, other)
            start = time.perf_counter()
            run()
            took[way].append(time.perf_counter() - start)
    return {way: each[1:] for way, each in took.items()}


def memory(name: str) -> int:
    """Bytes of resident memory of this process, now (VmRSS) or at most so far (VmHWM)."""
    [line] = [line for line in STATUS.read_text().splitlines() if line.startswith(name)]
    return int(line.split()[1]) * 1024


def child(way: str, length: int) -> dict[str, int]:
    model = plain()
    made = {"ours": huggingface.adopt(model)} if way == "ours" else {"other": model}
    forward(way, 8, **made)()
    run = forward(way, length, **made)
    before = memory("VmRSS")
    CLEAR.write_text("5")  # resets VmHWM
    kept = run()
    peak = memory("VmHWM") - before
    return {"peak": peak, "kept": _bytes(kept[0]) if way == "ours" else 0}


def _bytes(layers) -> int:
    """The bytes of the tensors that belong only to these layers, each counted once."""
    tensors = [
        tensor for layer in layers for tensor in (*layer.tensors.values(), *layer.rule.tensors().values())
    ]
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


def peak(way: str, length: int) -> dict[str, int]:
    command = [sys.executable, __file__, "--child", way, str(length)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        print(json.dumps(child(asked.child[0], int(asked.child[1]))))
        return
    ours, other, found = huggingface.adopt(plain()), plain(), []
    other.load_state_dict(ours.module.state_dict(), assign=True)
    for length in LENGTHS[:2] if asked.quick else LENGTHS:
        took = seconds(ours, other, length)
        memory = {way: peak(way, length) for way in WAYS}
        bytes_, kept = {way: told["peak"] for way, told in memory.items()}, memory["ours"]["kept"]
        each = (f"{w} {statistics.median(took[w]) * 1e3:.1f} ms {bytes_[w] / 1e6:.1f} MB" for w in WAYS)
        print(f"L {length:4}: {', '.join(each)}; kept {kept / 1e6:.1f} MB; {len(took['ours'])} turns")
        for other_way, most in (("eager", MAX_TIME[length]), ("hooked", None), ("sdpa", None)):
            ratio = statistics.median(a / b for a, b in zip(took["ours"], took[other_way], strict=True))
            found.append((f"seconds / {other_way}, L {length}", ratio, most))
        for other_way, most in (("eager", MAX_MEMORY), ("hooked", None), ("sdpa", None)):
            ratio = bytes_["ours"] / bytes_[other_way]
            found.append((f"peak memory / {other_way}, L {length}", ratio, most))
        found.append((f"peak memory / what the trace keeps, L {length}", bytes_["ours"] / kept, None))
        found.append((f"what the trace keeps / peak of eager, L {length}", kept / bytes_["eager"], None))
    for name, value, target in found:
        print(json.dumps({"name": name, "value": round(value, 3), "target": target}))


if __name__ == "__main__":
    main()
