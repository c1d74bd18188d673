"""How long until a head can be read: seconds and steps to 0.95 right and weight 0.5 on held-out pairs.

    python tests/bench/bench_training.py [--quick]

One thread, three seeds, the plan of the page Train. The seconds are processor time of the training
alone; measuring how far it is does not count. The other figure is a ratio: what a training step takes
over what torch's own kernels take in it, in the same run.
"""

import json
import statistics
import sys
import time
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mha_core.training.evaluation import READABLE, scores
from mha_core.training.fit import LIVE, Plan, Run

SETTINGS = [(64, 2), (64, 4), (64, 8), (32, 2), (32, 4), (32, 8)]
SEEDS = (0, 1, 2)
EVERY = 50
TARGET_SECONDS = 12.0
TARGET_RATIO = 1.5


def reach(d_model: int, h: int, seed: int) -> tuple[float | None, int]:
    """Processor seconds and steps until a head can be read; None where the plan ends before."""
    run, spent = Run(Plan(h=h, d_model=d_model, seed=seed, **LIVE)), 0.0
    while not run.finished:
        start = time.process_time()
        run.advance(EVERY)
        spent += time.process_time() - start
        measured = scores(run.model, count=20)
        if measured.accuracy >= READABLE[0] and measured.right >= READABLE[1]:
            return spent, run.step
    return None, run.step


def outside_kernels(d_model: int = 64, h: int = 4, steps: int = 100) -> float:
    """Time of a step over the time spent in torch's kernels during it."""
    run = Run(Plan(h=h, d_model=d_model, **LIVE))
    run.advance(20)
    start = time.process_time()
    run.advance(steps)
    seconds = time.process_time() - start
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        run.advance(steps)
    kernels = sum(e.self_cpu_time_total for e in profiled.key_averages() if e.key.startswith("aten::")) / 1e6
    return seconds / kernels


def main() -> None:
    torch.set_num_threads(1)
    quick = "--quick" in sys.argv
    settings, seeds = (SETTINGS[1:2], SEEDS[:1]) if quick else (SETTINGS, SEEDS)
    results = []
    for d_model, h in settings:
        times, failed = [], 0
        for seed in seeds:
            seconds, steps = reach(d_model, h, seed)
            failed += seconds is None
            times.append(float("inf") if seconds is None else seconds)
            outcome = "not reached" if seconds is None else f"{seconds:5.1f} s"
            print(f"d_model {d_model:3}  h {h}  seed {seed}  {outcome}  {steps:,} steps", flush=True)
        median = statistics.median(times)
        target = TARGET_SECONDS if d_model == 64 else None
        name = f"median seconds to a readable head, d_model {d_model}, h {h}"
        results.append({"name": name, "value": round(median, 2), "target": target})
        results.append({"name": f"not reached, d_model {d_model}, h {h}", "value": failed, "target": 0})
    ratio = outside_kernels()
    name = "step / time in torch kernels (the latter profiled, d_model 64, h 4)"
    results.append({"name": name, "value": round(ratio, 3), "target": TARGET_RATIO})
    for result in results:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
