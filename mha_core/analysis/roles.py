"""The roles of a small model's heads, measured on sentences in which the right answer is known.

Heads and layers count from 0. Source: Clark et al. 2019, "What Does BERT Look At?" (argmax accuracy of links
against a fixed distance).
"""

from functools import cache
from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd

from mha_core import resources
from mha_core.analysis.patterns import POSITIONS, at_position
from mha_core.errors import MhaError
from mha_core.traces.source import TrainedSource
from mha_core.traces.trace import AttentionTrace
from mha_core.training import checkpoints, evaluation
from mha_core.training.checkpoints import FOLDER, PLANS, Trained, load_model, path, untrained
from mha_core.training.data import LINK_NAMES
from mha_core.training.fit import Plan
from mha_core.training.language import MAX_WORDS
from mha_core.training.lexicon import lexicon
from mha_core.training.model import SmallModel

ROLES = (*POSITIONS, *evaluation.LINKS)
# The smallest score that names a head. For a position it is half of the weight. For a link, a head that
# always picks the same one of the two nouns scores 0.5, so the limit is clearly higher.
MIN_WEIGHT = 0.5
MIN_SHARE = 0.6
# A share of 160 items has a standard error of up to 0.04; with up to 32 heads, five standard errors are no
# accident.
MARGIN = 0.2

FILE = "roles.csv"  # roles of the shipped models, beside their weights: measuring takes time
DIGITS = 4  # decimals in that file

IDENTITY = ("language", "architecture", "h", "d_model", "seed")  # of a model, in its trace and plan
TOLERANCE = 1e-3  # between weights that one model computes on two devices


def roles(measured: AttentionTrace | Trained | str | PathLike) -> pd.DataFrame:
    """The roles of a small model's heads, measured on held-out sentences: one row for each head and role.

    `measured` is a trace of a small model that comes with Headscope (``source="mini"``), the file of a small
    model from the page Train, or that model as `training.checkpoints.load_model` returns it. Columns: layer,
    head, role (one of `ROLES`), and

    - score: for "A to B" the share of items in which B gets the largest weight of A's row; for a position
      the mean weight on it;
    - weight: the mean weight on the right key;
    - baseline: for a link the score of the best fixed distance, for a position the uniform weight ``1/L``;
    - control: the score of the same head before training;
    - n: the number of items.

    The cue is the word that decides the noun of the pronoun. The sentences are the same on every call.

    Raises `MhaError` for any other trace: measuring other sentences needs the model, while `metrics` and
    `similarity` need only the trace. Source: Clark et al. 2019.
    """
    trained = _small_model(measured)
    return of_model(trained.model, trained.plan.language, seed=trained.plan.seed)


def of_model(model: SmallModel, language: str, *, seed: int = 0) -> pd.DataFrame:
    """`roles` of a model of one of the small languages, compared with its weights as drawn from `seed`."""
    material = evaluation.material(language)
    drawn = SmallModel(model.shape, len(lexicon(language).vocabulary), seed=seed)
    trained, control = (_measured(evaluation.link_weights(one, material), material) for one in (model, drawn))
    keys = ["layer", "head", "role"]
    control = control[[*keys, "score"]].rename(columns={"score": "control"})
    table = trained.merge(control, on=keys, validate="one_to_one")
    table = table.sort_values(["layer", "head"], kind="stable", ignore_index=True)
    return table[[*keys, "score", "weight", "baseline", "control", "n"]]


def shipped(plan: Plan) -> pd.DataFrame:
    """`roles` of a model that comes with Headscope, measured when it was trained; rounded to `DIGITS`."""
    return tables(resources.path(*FOLDER, FILE))[checkpoints.name(plan)].copy()


@cache
def tables(file: Path) -> dict[str, pd.DataFrame]:
    """The roles in a file, by the names of their models."""
    groups = pd.read_csv(file).groupby("model")
    return {model: rows.drop(columns="model").reset_index(drop=True) for model, rows in groups}


def _small_model(measured: AttentionTrace | Trained | str | PathLike) -> Trained:
    """The model to measure; that of a trace is found by its settings and verified by its weights."""
    if isinstance(measured, Trained):
        return measured
    if isinstance(measured, str | PathLike):
        return load_model(measured)
    if not isinstance(measured, AttentionTrace):
        raise MhaError(
            "Roles are measured for a trace or a small model; got a {type}.", type=type(measured).__name__
        )
    source = measured.source
    if not isinstance(source, TrainedSource):
        raise MhaError(
            "Roles are measured on sentences in which the right answer is known; that takes a small model, "
            "as in mha.trace(text, source='mini'). This trace comes from {source!r}. "
            "mha.metrics(trace) and mha.similarity(trace) work for every trace.",
            source=source.name,
            fixes=({"source": "mini"},),
        )
    identity = [getattr(source, name) for name in IDENTITY]
    for plan in PLANS:
        if [getattr(plan, name) for name in IDENTITY] == identity:
            for trained in (load_model(path(plan)), untrained(plan)):
                if _comes_from(measured, trained):
                    return trained
    raise MhaError(
        "This trace comes from a small model that does not come with Headscope; give the file of that model, "
        "as in mha.roles('model.safetensors')."
    )


def _comes_from(trace: AttentionTrace, trained: Trained) -> bool:
    """Whether this model computes the weights of the trace from the same text."""
    _, numbers = lexicon(trained.plan.language).cut(trace.tokens.text, limit=MAX_WORDS)
    weights = evaluation.sentence_weights(trained.model, numbers)
    recorded = [layer.weights() for layer in trace.layers]
    return [array.shape for array in weights] == [array.shape for array in recorded] and all(
        np.allclose(*pair, atol=TOLERANCE) for pair in zip(weights, recorded, strict=True)
    )


def labels(roles: pd.DataFrame) -> dict[tuple[int, int], tuple[str, float]]:
    """The role that names each head, and its score: (layer, head) → (role, score).

    It is the role with the highest score among those whose score is at least `MIN_SHARE` (for a position
    `MIN_WEIGHT`), and at least `MARGIN` above the baseline and above the control of *every* head. A head
    without such a role has no label.
    """
    # A head is the best of many, so it is compared with the best of the untrained heads.
    reference = np.maximum(roles["baseline"], roles.groupby("role")["control"].transform("max"))
    minimum = np.where(roles["role"].isin(POSITIONS), MIN_WEIGHT, MIN_SHARE)
    candidates = roles[(roles["score"] >= minimum) & (roles["score"] >= reference + MARGIN)]
    best = candidates.sort_values("score", ascending=False, kind="stable").drop_duplicates(["layer", "head"])
    best = best.sort_values(["layer", "head"])
    heads = zip(best["layer"].tolist(), best["head"].tolist(), strict=True)
    return dict(zip(heads, zip(best["role"], best["score"].tolist(), strict=True), strict=True))


def _measured(links: evaluation.LinkWeights, material: evaluation.Material) -> pd.DataFrame:
    """Score, weight, baseline and n of every head and role."""
    n_layers, n_heads = links.weight.shape[1:]
    parts = []
    for name in POSITIONS:
        cells = []  # of each sentence, those at the position: (layer, head, row)
        for weights in links.weights:
            n_key = weights.shape[3]
            cells.append(weights[..., *at_position(name, np.arange(n_key), n_key)])
        n = sum(rows.shape[2] for rows in cells)
        score = sum(rows.sum(2, dtype=float) for rows in cells) / n
        uniform = sum(
            rows.shape[2] / weights.shape[3] for rows, weights in zip(cells, links.weights, strict=True)
        )
        parts.append((name, score, score, uniform / n, n))
    for name in evaluation.LINKS:
        items = material.kind == LINK_NAMES.index(name)
        if n := int(items.sum()):
            _, frequent = np.unique((material.key - material.query)[items], return_counts=True)
            score, weight = links.right[items].mean(0), links.weight[items].mean(0, dtype=float)
            parts.append((name, score, weight, frequent.max() / n, n))
    layer, head = (axis.ravel() for axis in np.indices((n_layers, n_heads)))
    return pd.concat(
        [
            pd.DataFrame(
                {
                    "layer": layer,
                    "head": head,
                    "role": name,
                    "score": score.ravel(),
                    "weight": weight.ravel(),
                    "baseline": baseline,
                    "n": n,
                }
            )
            for name, score, weight, baseline, n in parts
        ],
        ignore_index=True,
    )
