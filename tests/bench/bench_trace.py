"""What does tracing a real model cost? Our traced forward against its own, with and without its weights.

Run it with ``python tests/bench/bench_trace.py`` (``--quick``: the two shorter texts); the last lines are one
JSON object each. The model has the shape of BERT-base (12 layers, 12 heads, d_model 768) and random weights.

Seconds: the three ways take turns in one process, each with its least of some runs. Memory: the highest that
a process of its own reaches above what the model takes, for each way.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from mha_core.sources import huggingface  # noqa: E402 (from this checkout, also where another is installed)

LENGTHS = (16, 64, 256, 512)
WAYS = ("ours", "eager", "sdpa")
MOST_TIME, MOST_MEMORY = 1.05, 1.0  # times eager with output_attentions
SECONDS = 6.0  # for each way and length
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def made() -> huggingface.Model:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    return huggingface.adopt(BertModel(BertConfig(vocab_size=1009)))


def forward(model: huggingface.Model, way: str, length: int):
    """A call without arguments that does one forward pass in that way."""
    generator = torch.Generator().manual_seed(length)
    ids = {"input_ids": torch.randint(5, 1000, (1, length), generator=generator)}
    if way == "ours":
        return lambda: huggingface.flow(model, ids)

    def run():
        with torch.no_grad():
            return model.module(**ids, output_attentions=way == "eager")

    return run


def use(model: huggingface.Model, way: str) -> None:
    model.module.set_attn_implementation(huggingface.NAME if way == "ours" else way)


def seconds(model: huggingface.Model, length: int) -> dict[str, float]:
    least = dict.fromkeys(WAYS, float("inf"))
    until = time.perf_counter() + SECONDS * len(WAYS)
    rounds = 0
    while rounds < 4 or time.perf_counter() < until:
        for way in WAYS:
            use(model, way)
            run = forward(model, way, length)
            start = time.perf_counter()
            run()
            if rounds:  # the first one warms up
                least[way] = min(least[way], time.perf_counter() - start)
        rounds += 1
    return least


def held(name: str) -> int:
    """Bytes that this process holds (VmRSS) or has held at most (VmHWM)."""
    [line] = [line for line in STATUS.read_text().splitlines() if line.startswith(name)]
    return int(line.split()[1]) * 1024


def child(way: str, length: int) -> int:
    model = made()
    use(model, way)
    forward(model, way, 8)()
    run = forward(model, way, length)
    before = held("VmRSS")
    CLEAR.write_text("5")  # the highest mark starts anew
    kept = run()
    peak = held("VmHWM") - before
    del kept
    return peak


def peak(way: str, length: int) -> int:
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
    model, found = made(), []
    for length in LENGTHS[:2] if asked.quick else LENGTHS:
        took = seconds(model, length)
        bytes_ = {way: peak(way, length) for way in WAYS}
        print(
            f"L {length:4}: "
            + ", ".join(f"{way} {took[way] * 1e3:.1f} ms {bytes_[way] / 1e6:.1f} MB" for way in WAYS)
        )
        for other, most in (("eager", MOST_TIME), ("sdpa", None)):
            found.append((f"seconds / {other}, L {length}", took["ours"] / took[other], most))
        found.append((f"peak memory / eager, L {length}", bytes_["ours"] / bytes_["eager"], MOST_MEMORY))
        found.append((f"peak memory / sdpa, L {length}", bytes_["ours"] / bytes_["sdpa"], None))
    for name, value, target in found:
        print(json.dumps({"name": name, "value": round(value, 3), "target": target}))


if __name__ == "__main__":
    main()
