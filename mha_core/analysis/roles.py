"""What the heads of a small model do, measured on sentences in which the right answer is known.

Heads and layers count from 0. Source: Clark et al. 2019, "What Does BERT Look At?" (argmax accuracy of links
against a fixed distance).
"""

from os import PathLike

import numpy as np
import pandas as pd

from mha_core.analysis.patterns import DISTANCE, POSITIONS
from mha_core.errors import MhaError
from mha_core.traces.source import TrainedSource
from mha_core.traces.trace import AttentionTrace
from mha_core.training import evaluation
from mha_core.training.checkpoints import PLANS, Trained, load_model, path, untrained
from mha_core.training.language import MAX_WORDS
from mha_core.training.lexicon import lexicon
from mha_core.training.model import SmallModel

ROLES = (*POSITIONS, *evaluation.LINKS)
# A head is named after what it mostly does. For a position that is half of its weight. For a link, 0.5 is
# what a head gets that always takes the same one of the two nouns, so it has to be clearly more.
LEAST_WEIGHT = 0.5
LEAST_SHARE = 0.6
# A share of 160 items has a standard error of up to 0.04, and a role is looked for in up to 32 heads: five
# standard errors are no accident.
MARGIN = 0.2

NAMED_BY = ("language", "architecture", "h", "d_model", "seed")  # what a trace says of its small model
SAME = 1e-3  # how far weights may be apart that one model computed, on whatever device


def roles(measured: AttentionTrace | Trained | str | PathLike) -> pd.DataFrame:
    """What each head of a small model does, measured on held-out sentences: a row for each head and role.

    `measured` is a trace of a small model that comes with Headscope (``source="mini"``), or a small model
    that was trained on the page Train: its file, or what `training.checkpoints.load_model` reads from it.
    Columns: layer, head, role (one of `ROLES`), and

    - score: for "A to B" the share of items in which B gets the largest weight of A's row; for a position
      the mean weight on it;
    - weight: the mean weight on the right key;
    - baseline: for a link the share that the best fixed distance finds, for a position uniform ``1/L``;
    - control: the score of the same head before training;
    - n: the number of items.

    In "hidden A to B" the word A is [MASK], as it mostly was when the model was asked for it. The cue is the
    word that decides what the pronoun stands for. The sentences are the same on every call.

    Raises `MhaError` for the trace of anything else: other sentences are measured, which takes the model.
    `metrics` and `similarity` read the trace alone.
    Source: Clark et al. 2019.
    """
    trained = _small_model(measured)
    return of_model(trained.model, trained.plan.language, seed=trained.plan.seed)


def of_model(model: SmallModel, language: str, *, seed: int = 0) -> pd.DataFrame:
    """`roles` of a model of one of the small languages, compared with its weights as drawn from `seed`.

    Raises `MhaError` for an unknown language and for a model with another vocabulary.
    """
    n_words = len(lexicon(language).vocabulary)
    if len(model.embedding) != n_words:
        raise MhaError(
            f"The model has {len(model.embedding):,} words, the small language {language!r} has {n_words:,}: "
            f"this model belongs to another language."
        )
    made = evaluation.material(language)
    trained = _measured(evaluation.link_weights(model, made), made)
    control = _measured(evaluation.link_weights(SmallModel(model.shape, n_words, seed=seed), made), made)
    keys = ["layer", "head", "role"]
    control = control[[*keys, "score"]].rename(columns={"score": "control"})
    table = trained.merge(control, on=keys, validate="one_to_one")
    table = table.sort_values(["layer", "head"], kind="stable", ignore_index=True)
    return table[[*keys, "score", "weight", "baseline", "control", "n"]]


def _small_model(measured: AttentionTrace | Trained | str | PathLike) -> Trained:
    """The model to measure; a trace says which one it was, and is compared with what that one does."""
    if isinstance(measured, Trained):
        return measured
    if isinstance(measured, str | PathLike):
        return load_model(measured)
    if not isinstance(measured, AttentionTrace):
        raise MhaError(f"Roles are measured for a trace or a small model; got a {type(measured).__name__}.")
    source = measured.source
    if not isinstance(source, TrainedSource):
        raise MhaError(
            f"Roles are measured on sentences in which the right answer is known; that takes a small model, "
            f"as in mha.trace(text, source='mini'). This trace comes from {source.name!r}. "
            f"mha.metrics(trace) and mha.similarity(trace) work for every trace.",
            fixes=({"source": "mini"},),
        )
    asked = [getattr(source, name) for name in NAMED_BY]
    for plan in PLANS:
        if [getattr(plan, name) for name in NAMED_BY] == asked:
            for trained in (load_model(path(plan)), untrained(plan)):
                if _comes_from(measured, trained):
                    return trained
    raise MhaError(
        "This trace comes from a small model that does not come with Headscope; give the file of that model, "
        "as in mha.roles('model.safetensors')."
    )


def _comes_from(trace: AttentionTrace, trained: Trained) -> bool:
    """Does the text of the trace go through this model as the trace says?"""
    _, numbers = lexicon(trained.plan.language).cut(trace.tokens.text, limit=MAX_WORDS)
    weights = evaluation.sentence_weights(trained.model, numbers)
    recorded = [layer.weights() for layer in trace.layers]
    return [one.shape for one in weights] == [one.shape for one in recorded] and all(
        np.allclose(*pair, atol=SAME) for pair in zip(weights, recorded, strict=True)
    )


def labels(roles: pd.DataFrame) -> dict[tuple[int, int], tuple[str, float]]:
    """The one role that a head can be called after, and its score: (layer, head) → (role, score).

    The role with the highest score among those in which the score is at least `LEAST_SHARE` (for a
    position `LEAST_WEIGHT`), and at least `MARGIN` above the baseline and above the control of *every*
    head. A head without such a role has no label.
    """
    # The best of many heads is compared, so the best of the untrained ones is what it has to beat.
    beaten = np.maximum(roles["baseline"], roles.groupby("role")["control"].transform("max"))
    least = np.where(roles["role"].isin(POSITIONS), LEAST_WEIGHT, LEAST_SHARE)
    fit = roles[(roles["score"] >= least) & (roles["score"] >= beaten + MARGIN)]
    best = fit.sort_values("score", ascending=False, kind="stable").drop_duplicates(["layer", "head"])
    best = best.sort_values(["layer", "head"])
    heads = zip(best["layer"].tolist(), best["head"].tolist(), strict=True)
    return dict(zip(heads, zip(best["role"], best["score"].tolist(), strict=True), strict=True))


def _measured(links: evaluation.LinkWeights, made: evaluation.Material) -> pd.DataFrame:
    """Score, weight, baseline and n of every head and role."""
    n_layers, n_heads = links.weight.shape[1:]
    parts = []
    for name in POSITIONS:
        found = [_along(weights, name) for weights in links.weights]  # (layer, head, row) each
        n = sum(rows.shape[2] for rows in found)
        score = sum(rows.sum(2, dtype=float) for rows in found) / n
        uniform = sum(
            rows.shape[2] / weights.shape[3] for rows, weights in zip(found, links.weights, strict=True)
        )
        parts.append((name, score, score, uniform / n, n))
    for kind, name in enumerate(evaluation.LINKS):
        chosen = made.kind == kind
        if n := int(chosen.sum()):
            _, frequent = np.unique((made.key - made.query)[chosen], return_counts=True)
            score, weight = links.right[chosen].mean(0), links.weight[chosen].mean(0, dtype=float)
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


def _along(matrices: np.ndarray, name: str) -> np.ndarray:
    """The cells that a pattern is about, of the rows that have one. (…, query, key) → (…, row)"""
    if name == "first token":
        return matrices[..., 1:, 0]
    return np.diagonal(matrices, DISTANCE[name], -2, -1)
