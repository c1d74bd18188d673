"""Train the shipped models: ``python -m mha_core.training.workshop`` trains every model that is missing.

The roles of its heads are measured with each model, and for models without them.

    python -m mha_core.training.workshop glass-box-en-h1-d32   # this one, even if it exists
    python -m mha_core.training.workshop --out somewhere       # into another folder
    python -m mha_core.training.workshop --calibrate           # fit the temperatures of all models again
    python -m mha_core.training.workshop --workers 4           # four at once, each in a process
    python -m mha_core.training.workshop --ray auto            # on a Ray cluster that shares the folder

A training can be stopped at any time and resumes from its last checkpoint.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from mha_core import executor, resources
from mha_core.analysis import roles
from mha_core.errors import MhaError
from mha_core.traces.storage import replacing
from mha_core.training import checkpoints
from mha_core.training.checkpoints import Trained, read, sized, write
from mha_core.training.evaluation import scores
from mha_core.training.fit import Plan, Training
from mha_core.training.lexicon import lexicon
from mha_core.training.model import SmallModel
from mha_core.training.workshop.next_words import perplexities, training_of
from mha_core.training.workshop.report import question_scores, reliability, temperatures, two_hops

OBJECTIVE = "six questions about every word, and hidden words"
EVERY = 500  # steps between checkpoints
MAX_THREADS = 1024
MOMENTS = ("exp_avg", "exp_avg_sq")  # of the optimizer


class Task(NamedTuple):
    """A model to train, or to measure if it has been trained."""

    name: str
    plan: Plan
    is_trained: bool


def main(arguments: list[str] | None = None) -> None:
    plans = {checkpoints.name(plan): plan for plan in checkpoints.PLANS}
    parser = argparse.ArgumentParser(
        prog="python -m mha_core.training.workshop", description="Train small models."
    )
    parser.add_argument("names", nargs="*", metavar="name", help=f"one of {', '.join(plans)}")
    parser.add_argument(
        "--out", type=Path, default=resources.path(*checkpoints.FOLDER), help="folder to write to"
    )
    parser.add_argument("--threads", type=int, default=1, help="of each training")
    parser.add_argument("--workers", type=int, help="trainings at once; one, or with --ray one a processor")
    parser.add_argument("--ray", metavar="ADDRESS", help="auto, local or the address of a Ray cluster")
    parser.add_argument(
        "--calibrate", action="store_true", help="fit the temperatures of trained models, too"
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(plans):
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    if not 1 <= options.threads <= MAX_THREADS:
        parser.error(f"--threads {options.threads} is out of range; 1 to {MAX_THREADS} work")
    try:
        asked = {name: plans[name] for name in options.names or plans}
        tasks = _tasks(asked, options.out, named=bool(options.names), calibrate=options.calibrate)
        _make(tasks, options)
    except (MhaError, OSError) as error:  # a damaged file, another vocabulary, a full disk
        parser.exit(1, f"{parser.prog}: {error}\n")
    except KeyboardInterrupt:
        parser.exit(130, f"{parser.prog}: stopped; the same command goes on from the last checkpoint.\n")


def _tasks(plans: dict[str, Plan], folder: Path, *, named: bool, calibrate: bool) -> list[Task]:
    """Models that are named, unfinished or missing, or of which the roles are; all of them, to calibrate."""
    tasks = []
    for name, plan in plans.items():
        weights, checkpoint = (folder / f"{name}.{kind}" for kind in ("safetensors", "checkpoint"))
        is_trained = weights.exists() and not checkpoint.exists() and (calibrate or not named)
        if not is_trained or calibrate or name not in tables(folder / roles.FILE):
            tasks.append(Task(name, plan, is_trained))
    return tasks


def _make(tasks: list[Task], options: argparse.Namespace) -> None:
    """Train and measure in workers, and write here: the manifest, the roles and the edition are of all."""
    folder: Path = options.out

    def lost(number: int) -> None:
        print(f"{tasks[number].name}  its process died; another one goes on", file=sys.stderr, flush=True)

    prepare = partial(worker, folder, options.threads)
    work = executor.run(prepare, tasks, workers=options.workers, ray=options.ray, lost=lost)
    folder.mkdir(parents=True, exist_ok=True)
    with closing(work):
        for number, (trained, measured) in work:
            name, _, is_trained = tasks[number]
            write_roles(folder / roles.FILE, name, measured)
            if options.calibrate or not is_trained:
                _keep(name, trained, folder)


def worker(folder: Path, threads: int) -> Callable[[Task], tuple[Trained, pd.DataFrame]]:
    """A function that trains a model, or reads a trained one, and measures the roles of its heads."""
    torch.set_num_threads(threads)

    def made(task: Task) -> tuple[Trained, pd.DataFrame]:
        if task.is_trained:
            trained = checkpoints.load_model(folder / f"{task.name}.safetensors")
        else:
            trained = train(task.name, task.plan, folder)
        return calibrated(trained), roles.roles(trained)

    return made


def train(name: str, plan: Plan, folder: Path) -> Trained:
    """Train one model, from its checkpoint if there is one."""
    checkpoint = folder / f"{name}.checkpoint"
    run = load_run(checkpoint) if checkpoint.exists() else training_of(plan)
    if run.plan != plan:
        run = training_of(plan)  # the checkpoint has an older plan
    started, first = time.process_time(), run.step
    while not run.finished:
        loss = run.advance(EVERY)
        save_run(checkpoint, run)
        print(f"{name}  step {run.step:,} of {plan.steps:,}  loss {loss:.3f}", file=sys.stderr, flush=True)
    seconds = time.process_time() - started
    measured: dict[str, object]
    if plan.is_decoder:
        found = perplexities(run.model, plan.language, seed=plan.seed, steps=plan.steps)
        measured = {"perplexity": found}
    else:
        measured = asdict(scores(run.model, plan.language)) | question_scores(run.model, plan.language)
    if plan.architecture == "standard":
        measured["two_hops"] = two_hops(run.model, plan.language)
    report = {
        "plan": asdict(plan),
        "vocabulary": lexicon(plan.language).digest,
        "parameters": sum(p.numel() for p in run.model.parameters()),
        "objective": "the next word" if plan.is_decoder else OBJECTIVE,
        "questions": run.model.questions,
        "scores": rounded(measured),
        "cpu_seconds": round(seconds) if first == 0 else None,
        "made_by": "python -m mha_core.training.workshop " + name,
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
    }
    return as_saved(Trained(run.model, plan, run.step, report))


def calibrated(trained: Trained) -> Trained:
    """The model with fitted temperatures, and with its scores on the held-out sentences written by hand.

    A decoder is unchanged: there is no right next word.
    """
    if trained.plan.is_decoder:
        return trained
    language = trained.plan.language
    trained.model.temperatures = temperatures(trained.model, language)
    scores = trained.report["scores"] | {"written": rounded(reliability(trained.model, language))}
    return replace(trained, report=trained.report | {"scores": scores})


def _keep(name: str, trained: Trained, folder: Path) -> None:
    """Write a model and its manifest entry."""
    weights = folder / f"{name}.safetensors"
    changes = weights.exists() and not has_weights(weights, trained.model)
    edition = folder / checkpoints.EDITION
    if changes or not edition.exists():  # a model more changes no other
        there = int(edition.read_text(encoding="ascii")) if edition.exists() else 0
        with replacing(edition) as temporary:  # increased once for all weights that this program changes
            temporary.write_text(f"{max(there, checkpoints.edition() + 1)}\n", encoding="ascii")
    checkpoints.save_model(weights, trained)
    file = folder / checkpoints.MANIFEST
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    text = json.dumps(dict(sorted((known | {name: trained.report}).items())), indent=1)
    with replacing(file) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
    (folder / f"{name}.checkpoint").unlink(missing_ok=True)
    print(f"{name}  {json.dumps(trained.report['scores'])}", flush=True)


def has_weights(path: Path, model: SmallModel) -> bool:
    """Whether a file has exactly the weights of the model."""
    try:
        there = checkpoints.load_model(path).model.state_dict()
    except MhaError:
        return False
    weights = model.state_dict()
    return there.keys() == weights.keys() and all(
        torch.equal(there[name], tensor.half().float()) for name, tensor in weights.items()
    )


def rounded(measured: Any) -> Any:
    """A report whose numbers have four decimals; its tuples become lists, as in the file."""
    if isinstance(measured, dict):
        return {key: rounded(value) for key, value in measured.items()}
    if isinstance(measured, tuple):
        return [rounded(value) for value in measured]
    return round(measured, 4) if isinstance(measured, float) else measured


# Files


def save_run(path: str | PathLike, run: Training) -> None:
    """Write an unfinished training so that it can be resumed exactly."""
    tensors = dict(run.model.state_dict())
    for name, parameter in run.model.named_parameters():
        for moment in MOMENTS:
            if parameter in run.optimizer.state:
                tensors[f"{moment}.{name}"] = run.optimizer.state[parameter][moment]
    write(path, tensors, run.plan, run.step, {}, {})


def load_run(path: str | PathLike) -> Training:
    """Resume a training; its next steps are those it would have taken without the pause.

    Raises `MhaError` as `load_model` does.
    """
    tensors, header, plan = read(path, moments=MOMENTS)
    run = training_of(plan)
    run.step = header["step"]
    if run.step:  # before the first step there are no moments
        for name, parameter in run.model.named_parameters():
            state = {moment: tensors.pop(f"{moment}.{name}") for moment in MOMENTS}
            run.optimizer.state[parameter] = {"step": torch.tensor(float(run.step)), **state}
    run.model.load_state_dict(tensors)
    return run


def as_saved(trained: Trained) -> Trained:
    """A model as `load_model` reads it from its file: in half precision, then in single precision."""
    model = sized(trained.plan)
    tensors = {name: tensor.half().float() for name, tensor in trained.model.state_dict().items()}
    model.load_state_dict(tensors, assign=True)
    model.temperatures = trained.model.temperatures
    return replace(trained, model=model.requires_grad_(False).eval())


def write_roles(file: Path, name: str, measured: pd.DataFrame) -> None:
    """Write the roles of a model, keeping those of other models in the file."""
    every = dict(sorted({**tables(file), name: measured}.items()))
    with replacing(file) as temporary:
        pd.concat(every, names=["model", None]).reset_index(level="model").to_csv(
            temporary, index=False, float_format=f"%.{roles.DIGITS}f"
        )
    roles.tables.cache_clear()


def tables(file: Path) -> Mapping[str, pd.DataFrame]:
    """The roles in the file, by the names of their models."""
    return roles.tables(file) if file.exists() else {}


if __name__ == "__main__":  # what `python -m` runs has a name that other processes cannot import
    from mha_core.training.workshop import __main__ as imported

    imported.main()
