"""What heads are asked and what they were measured to do, as labels."""

from typing import NamedTuple

import pandas as pd

from mha_core import AttentionTrace, MhaError
from mha_core.analysis import roles
from mha_core.cache import Cache
from mha_core.traces.source import TrainedSource
from pages._kit import compute, model_info, state
from pages._kit.text import t

MAX_BYTES = 4_000_000  # of the roles of all models together


class Measured(NamedTuple):
    """The roles of a model's heads: the table, and of each head the one that it has, as `roles.labels`."""

    table: pd.DataFrame
    named: dict[tuple[int, int], tuple[str, float]]


_measured: Cache[Measured] = Cache(MAX_BYTES)


def labels(trace: AttentionTrace, scene: state.Scene) -> dict[int, list[str]]:
    """Of each layer the labels of its heads: the measured role with its score, empty where there is none.

    In the last layer of a small model it is what the head is asked, with the share of right answers.
    """
    roles = named(trace, scene) or {}
    found = {
        number: [label(roles.get((number, head))) for head in range(layer.n_heads)]
        for number, layer in enumerate(trace.layers)
    }
    return found | ({len(found) - 1: asked} if (asked := _asked(trace)) else {})


def _asked(trace: AttentionTrace) -> list[str]:
    source = trace.source
    if not isinstance(source, TrainedSource):
        return []
    scores = (model_info.scores_of(source) or {}).get("questions", {})

    def said(question: str) -> str:
        name = t(f"head_view.question_{question}")
        right = scores.get(question, {}).get("right")
        return name if right is None else t("roles.label", role=name, score=f"{right:.2f}")

    return [" · ".join(map(said, questions.split())) for questions in source.questions]


def named(trace: AttentionTrace, scene: state.Scene) -> dict[tuple[int, int], tuple[str, float]] | None:
    """The role and score of each (layer, head), as in `roles.labels`; None for weights without training."""
    measured = _of(trace, scene)
    return None if measured is None else measured.named


def label(role: tuple[str, float] | None) -> str:
    """A role and its score in words; empty for None, a head without a role."""
    return "" if role is None else t("roles.label", role=name(role[0]), score=f"{role[1]:.2f}")


def name(role: str) -> str:
    """A role in words."""
    return t(f"role.{role}")


def of_scene(trace: AttentionTrace, scene: state.Scene) -> pd.DataFrame | None:
    """The roles of the scene's model, shipped or measured once; None for weights without training."""
    measured = _of(trace, scene)
    return None if measured is None else measured.table


def _of(trace: AttentionTrace, scene: state.Scene) -> Measured | None:
    if not isinstance(trace.source, TrainedSource):
        return None
    try:
        trained = compute.small_model(scene, trace.source.language)
    except MhaError:
        return None

    def measure(_key: str) -> Measured:
        table = roles.shipped(trained.plan) if scene.source == "mini" else roles.roles(trained)
        return Measured(table, roles.labels(table))

    return _measured.get(f"{scene.source} {trace.source}", measure)
