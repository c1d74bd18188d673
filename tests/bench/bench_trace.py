"""The cost of tracing a real model: our traced forward pass against its own, with and without weights.

Run it with ``python tests/bench/bench_trace.py``; the lines are one JSON object each. The model has the shape
of BERT-base (12 layers, 12 heads, d_model 768) and random weights.

Seconds: the ways take turns in one process, ours with a prepared model and the others with an untouched one
with the same weights in the same memory; the median of the ratios of the turns. Memory: for each way, the
highest memory of a process of its own above that of the model.

A trace keeps q, k, v and x of every layer: 4 · L · d_model numbers, where eager keeps h · L². Both also need
the memory of a pass. So a trace takes less memory only if L is at least about 4 · d_k = 256. The ratio to
what it keeps shows how much is needed in addition.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import torch
from measuring import in_turns, median_ratio, memory, report

from mha_core.sources.huggingface import model as huggingface
from mha_core.traces.tensors import shared

WAYS = ("ours", "eager", "sdpa")
# Multiples of eager with output_attentions. In a short pass the overhead of tracing weighs more.
MAX_TIME, MAX_MEMORY = {16: 1.10, 64: 1.10, 256: 1.05, 512: 1.05}, 1.0
TURNS = {16: 100, 64: 60, 256: 20, 512: 8}


def plain(way: str):
    """A model as transformers makes it, with the attention of this way."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    model = BertModel(BertConfig(vocab_size=1009)).eval().requires_grad_(False)
    model.set_attn_implementation("eager" if way == "eager" else "sdpa")
    return model


def prepared(way: str):
    return huggingface.adopt(plain(way)) if way == "ours" else plain(way)


def forward(way: str, length: int, model):
    """A call without arguments that does one forward pass in that way."""
    generator = torch.Generator().manual_seed(length)
    ids = {"input_ids": torch.randint(5, 1000, (1, length), generator=generator)}
    if way == "ours":
        return lambda: huggingface.flow(model, ids)

    @torch.no_grad()
    def run():
        return model(**ids, output_attentions=way != "sdpa")

    return run


def child(way: str, length: int) -> dict[str, int]:
    """The bytes that a pass needs at most, and those that ours keeps, in this process."""
    model = prepared(way)
    forward(way, 8, model)()
    run = forward(way, length, model)
    before = memory()
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
    kept = run()
    return {"peak": memory(name="VmHWM") - before, "kept": _bytes(kept[0]) if way == "ours" else 0}


def _bytes(layers) -> int:
    """The bytes of the tensors that belong only to these layers, each counted once."""
    tensors = [
        tensor
        for layer in layers
        for tensor in (*shared(layer.tensors).values(), *layer.rule.tensors().values())
    ]
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


def peak(way: str, length: int) -> dict[str, int]:
    command = [sys.executable, __file__, way, str(length)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    if sys.argv[1:]:
        way, length = sys.argv[1:]
        print(json.dumps(child(way, int(length))))
        return
    models = {way: prepared(way) for way in WAYS}
    for way in WAYS[1:]:
        models[way].load_state_dict(models["ours"].module.state_dict(), assign=True)
    for length, turns in TURNS.items():
        ways = {way: forward(way, length, models[way]) for way in WAYS}
        taken = in_turns(ways, turns, time.perf_counter)
        bytes_ = {way: peak(way, length) for way in WAYS}
        top, kept = bytes_["ours"]["peak"], bytes_["ours"]["kept"]
        targets = {"eager": (MAX_TIME[length], MAX_MEMORY), "sdpa": (None, None)}
        for way, (most, largest) in targets.items():
            report(f"seconds / {way}, L {length}", median_ratio(taken["ours"], taken[way]), most)
            report(f"peak memory / {way}, L {length}", top / bytes_[way]["peak"], largest)
        report(f"peak memory / what the trace keeps, L {length}", top / kept)


if __name__ == "__main__":
    main()
