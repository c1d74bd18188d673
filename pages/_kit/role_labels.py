"""Labels for what heads are asked and for the roles they were measured to have."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from mha_core import AttentionTrace, MhaError
from mha_core.analysis import roles
from mha_core.atlases.claims import claims
from mha_core.atlases.query import Atlas
from mha_core.traces.source import MiniSource, Source, TrainedSource
from pages._kit import atlases, compute, model_info
from pages._kit.text import t


class ModelRoles(NamedTuple):
    """The roles of a model's heads: the table, and the role of each head, as in `roles.labels`."""

    table: pd.DataFrame
    named: dict[tuple[int, int], tuple[str, float]]


class RoleLabel(NamedTuple):
    """The label of a head: its role, its score there, the role in words, and the same with the score."""

    role: str
    score: float
    name: str
    text: str


NO_LABEL = RoleLabel("", np.nan, "", "")


def labels(trace: AttentionTrace) -> dict[tuple[int, int], RoleLabel]:
    """The label of each (layer, head) that has one: what stands out in the atlas of the model.

    A small model without an atlas has its measured roles with their scores. In the last layer of a small
    model the label is the question that the head is asked, with the share of right answers.
    """
    return compute.once(compute.model_of(trace), _labels, last=len(trace.layers) - 1)


def _labels(model: Source | AttentionTrace, last: int) -> dict[tuple[int, int], RoleLabel]:
    source = model.source if isinstance(model, AttentionTrace) else model
    asked = {(last, head): label for head, label in enumerate(_asked(source))}
    if (atlas := atlases.atlas_of(source)) is not None:
        return _in_atlas(atlas) | asked
    measured = _measured(source)
    return (measured_labels(measured.named) if measured else {}) | asked


def _in_atlas(atlas: Atlas) -> dict[tuple[int, int], RoleLabel]:
    """The labels of the heads in which something stands out."""
    return {
        place: RoleLabel(first.measure, first.mean, atlases.measure(first.measure), atlases.in_words(first))
        for place, (first, *_) in compute.once(atlas, claims).items()
    }


def measured_labels(named: Mapping[tuple[int, int], tuple[str, float]]) -> dict[tuple[int, int], RoleLabel]:
    """The labels of heads by their role and score, as in `roles.labels`."""
    return {
        head: RoleLabel(role, score, name(role), t("roles.label", role=name(role), score=f"{score:.2f}"))
        for head, (role, score) in named.items()
    }


def _asked(source: Source) -> list[RoleLabel]:
    """The question that each head of the last layer is asked; for several questions, their mean score."""
    if not isinstance(source, TrainedSource):
        return []
    scores = (model_info.scores_of(source) or {}).get("questions", {})
    right = {question: score["right"] for question, score in scores.items()}

    def called(question: str) -> str:
        return t(f"head_view.question_{question}")

    def scored(question: str) -> str:
        if question not in right:
            return called(question)
        return t("roles.label", role=called(question), score=f"{right[question]:.2f}")

    return [
        RoleLabel(
            questions,
            float(np.mean([right.get(question, np.nan) for question in questions.split()])),
            " · ".join(map(called, questions.split())),
            " · ".join(map(scored, questions.split())),
        )
        for questions in source.questions
    ]


def name(role: str) -> str:
    """A role in words."""
    return t(f"role.{role}")


def table(trace: AttentionTrace) -> pd.DataFrame | None:
    """The roles of the trace's model, shipped or measured once; None for weights without training."""
    measured = _measured(trace.source)
    return None if measured is None else measured.table


def _measured(source: Source) -> ModelRoles | None:
    if not isinstance(source, TrainedSource):
        return None
    try:
        trained = compute.small_model(source)
    except MhaError:
        return None

    def measure() -> ModelRoles:
        table = roles.shipped(trained.plan) if isinstance(source, MiniSource) else roles.roles(trained)
        return ModelRoles(table, roles.labels(table))

    return compute.kept("roles", str(source), measure)
