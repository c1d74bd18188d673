"""The time until heads can be read: seconds and steps, and the scores of the training then.

    python tests/bench/bench_training.py [--quick]

A head can be read when 95 % of the answers to one of its questions are right, on held-out sentences, and half
of its weight is on the words that answer. One thread, three seeds, the plan of the page Train. The seconds
are processor time of the training alone, without the measurements. The other figure is a ratio in the same
run: the time of a training step over the time of torch's kernels in it.
"""

import json
import statistics
import sys
import time
from pathlib import Path
from typing import NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mha_core.training.evaluation import READABLE, link_weights, material, stages
from mha_core.training.fit import LIVE, Plan, Training
from mha_core.training.model import SmallModel
from mha_core.training.workshop.report import by_question

SETTINGS = [(64, 2), (64, 4), (64, 8)]
SEEDS = (0, 1, 2)
EVERY = 100
SEVERAL = 4  # heads with different roles
TARGET_SECONDS = 15.0
TARGET_RATIO = 1.5
NEVER = float("inf")


class Reached(NamedTuple):
    """Processor seconds until this many heads could be read; `NEVER` if the plan ended before."""

    one: float
    several: float


def readable(model: SmallModel) -> dict[str, int]:
    """The questions whose head can be read, with that head."""
    questions, _, _ = by_question(model, "en", link_weights(model, material("en")))
    right, weight = READABLE
    return {
        question: found["head"]
        for question, found in questions.items()
        if found["right"] >= right and found["weight"] >= weight
    }


def reach(plan: Plan) -> Reached:
    """Train a plan to its end and print its progress."""
    run, spent, one, several = Training(plan), 0.0, NEVER, NEVER
    while not run.finished:
        start = time.process_time()
        run.advance(EVERY)
        spent += time.process_time() - start
        found = readable(run.model)
        n_heads = len({*found.values()})
        one, several = (
            (min(one, spent) if n_heads else one),
            (min(several, spent) if n_heads >= SEVERAL else several),
        )
        far = "  ".join(f"{stage} {share:.2f}" for stage, share in stages(run.model, "en").items())
        print(
            f"  {run.step:5,} steps  {spent:5.1f} s  {far}  readable: {', '.join(found) or 'none'}",
            flush=True,
        )
    return Reached(one, several)


def outside_kernels(d_model: int = 64, h: int = 4, steps: int = 100) -> float:
    """Time of a step over the time spent in torch's kernels during it."""
    run = Training(Plan(h=h, d_model=d_model, **LIVE))
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
        reached = []
        for seed in seeds:
            print(f"d_model {d_model}  h {h}  seed {seed}", flush=True)
            reached.append(reach(Plan(h=h, d_model=d_model, seed=seed, **LIVE)))
        of = f"d_model {d_model}, h {h}"
        one = statistics.median(times.one for times in reached)
        results.append(result(f"median seconds to the first readable head, {of}", one, TARGET_SECONDS))
        if h >= SEVERAL:
            several = statistics.median(times.several for times in reached)
            results.append(result(f"median seconds to {SEVERAL} readable heads, {of}", several))
        failed = sum(times.one == NEVER for times in reached)
        results.append({"name": f"trainings without a readable head, {of}", "value": failed, "target": 0})
    name = "step / time in torch kernels (the latter profiled, d_model 64, h 4)"
    results.append(result(name, outside_kernels(), TARGET_RATIO))
    for line in results:
        print(json.dumps(line))


def result(name: str, value: float, target: float | None = None) -> dict:
    return {"name": name, "value": round(value, 3) if value < NEVER else None, "target": target}


if __name__ == "__main__":
    main()
