"""The files of the workshop: an unfinished training, the roles of models, and a model as it will be read."""

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path

import pandas as pd
import torch

from mha_core.analysis import roles
from mha_core.traces.storage import replacing
from mha_core.training.checkpoints import Trained, read, sized, write
from mha_core.training.fit import Training
from mha_core.training.workshop.next_words import training_of

MOMENTS = ("exp_avg", "exp_avg_sq")


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


def write_roles(file: Path, measured: dict[str, pd.DataFrame]) -> None:
    """Write the roles of models by their names, keeping those of other models in the file."""
    every = dict(sorted({**tables(file), **measured}.items()))
    with replacing(file) as temporary:
        pd.concat(every, names=["model", None]).reset_index(level="model").to_csv(
            temporary, index=False, float_format=f"%.{roles.DIGITS}f"
        )
    roles.tables.cache_clear()


def tables(file: Path) -> Mapping[str, pd.DataFrame]:
    """The roles in the file, by the names of their models."""
    return roles.tables(file) if file.exists() else {}
