"""Train the shipped models: ``python -m mha_core.training`` trains every model that is missing.

The roles of its heads are measured with each model, and for models without them.

    python -m mha_core.training glass-box-en-h1-d32    # this one, even if it exists
    python -m mha_core.training --out somewhere        # into another folder

A training can be stopped at any time and resumes from its last checkpoint.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from mha_core import resources
from mha_core.analysis import roles
from mha_core.errors import MhaError
from mha_core.traces.storage import replacing
from mha_core.training import checkpoints
from mha_core.training.evaluation import question_scores, scores, two_hops
from mha_core.training.fit import Plan, Training
from mha_core.training.lexicon import lexicon

EVERY = 500  # steps between checkpoints
MAX_THREADS = 1024


def main(arguments: list[str] | None = None) -> None:
    plans = {checkpoints.name(plan): plan for plan in checkpoints.PLANS}
    parser = argparse.ArgumentParser(prog="python -m mha_core.training", description="Train small models.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"one of {', '.join(plans)}")
    parser.add_argument(
        "--out", type=Path, default=resources.path(*checkpoints.FOLDER), help="folder to write to"
    )
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(plans):
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    if not 1 <= options.threads <= MAX_THREADS:
        parser.error(f"--threads {options.threads} is out of range; 1 to {MAX_THREADS} work")
    torch.set_num_threads(options.threads)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        for name in options.names or plans:
            _make(name, plans[name], options.out, named=bool(options.names))
    except (MhaError, OSError) as error:  # a damaged file, another vocabulary, a full disk
        parser.exit(1, f"{parser.prog}: {error}\n")
    except KeyboardInterrupt:
        parser.exit(130, f"{parser.prog}: stopped; the same command goes on from the last checkpoint.\n")


def _make(name: str, plan: Plan, folder: Path, *, named: bool) -> None:
    """Train one model if it is named, unfinished or missing, and measure its roles if they are."""
    weights, checkpoint = (folder / f"{name}.{kind}" for kind in ("safetensors", "checkpoint"))
    if named or checkpoint.exists() or not weights.exists():
        train(name, plan, folder)
    elif name not in roles.names_in(folder / roles.FILE):
        measure_roles(name, checkpoints.load_model(weights), folder)


def train(name: str, plan: Plan, folder: Path) -> None:
    """Train one model, from its checkpoint if there is one, and write its weights and its manifest entry."""
    checkpoint = folder / f"{name}.checkpoint"
    run = checkpoints.load_run(checkpoint) if checkpoint.exists() else Training(plan)
    if run.plan != plan:
        run = Training(plan)  # the checkpoint has an older plan
    started, first = time.process_time(), run.step
    while not run.finished:
        loss = run.advance(EVERY)
        checkpoints.save_run(checkpoint, run)
        print(f"{name}  step {run.step:,} of {plan.steps:,}  loss {loss:.3f}", file=sys.stderr, flush=True)
    seconds = time.process_time() - started
    measured = asdict(scores(run.model, plan.language)) | asdict(question_scores(run.model, plan.language))
    if plan.architecture == "standard":
        measured["two_hops"] = two_hops(run.model, plan.language)
    report = {
        "plan": asdict(plan),
        "vocabulary": lexicon(plan.language).digest,
        "parameters": sum(p.numel() for p in run.model.parameters()),
        "objective": "six questions about every word, and hidden words",
        "questions": run.model.questions,
        "scores": rounded(measured),
        "cpu_seconds": round(seconds) if first == 0 else None,
        "made_by": "python -m mha_core.training " + name,
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
    }
    weights = folder / f"{name}.safetensors"
    if not checkpoints.has_weights(weights, run.model):
        checkpoints.count_edition(folder)
    checkpoints.save_model(weights, checkpoints.Trained(run.model, plan, run.step, report))
    measure_roles(name, checkpoints.load_model(weights), folder)
    file = folder / checkpoints.MANIFEST
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    text = json.dumps(dict(sorted((known | {name: report}).items())), indent=1)
    with replacing(file) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
    checkpoint.unlink(missing_ok=True)
    print(f"{name}  {json.dumps(report['scores'])}", flush=True)


def measure_roles(name: str, trained: checkpoints.Trained, folder: Path) -> None:
    """Measure the roles of a model as saved in its file, and write them beside it."""
    roles.write(folder / roles.FILE, {name: roles.roles(trained)})


def rounded(measured: dict) -> dict:
    """The numbers of a report with four decimals."""

    def short(value: object) -> object:
        if isinstance(value, tuple):
            return [short(item) for item in value]
        if isinstance(value, dict):
            return rounded(value)
        return round(value, 4) if isinstance(value, float) else value

    return {key: short(value) for key, value in measured.items()}


if __name__ == "__main__":
    main()
