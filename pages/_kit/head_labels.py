"""Labels of heads: what they are asked, the roles they have, and what the atlas of their model says."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
import streamlit as st

from mha_core import AttentionTrace, MhaError
from mha_core.analysis import patterns, roles
from mha_core.atlases import library
from mha_core.atlases.claims import Claim, claims
from mha_core.atlases.measures import ROLES
from mha_core.atlases.query import Atlas
from mha_core.traces.source import MiniSource, Source, TrainedSource
from pages._kit import compute, model_info
from pages._kit.text import PAGES, t


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
    return compute.once(_model_of(trace), _labels, last=len(trace.layers) - 1)


def _model_of(trace: AttentionTrace) -> Source | AttentionTrace:
    """The key to results on a model: its source, or the trace where that does not identify the model."""
    return trace.source if isinstance(trace.source, TrainedSource) else trace


def _labels(model: Source | AttentionTrace, last: int) -> dict[tuple[int, int], RoleLabel]:
    source = model.source if isinstance(model, AttentionTrace) else model
    asked = {(last, head): label for head, label in enumerate(_asked(source))}
    if (atlas := atlas_of(source)) is not None:
        standing_out = compute.once(atlas, claims)
        return {
            head: RoleLabel(first.measure, first.mean, measure_name(first.measure), in_words(first))
            for head, (first, *_) in standing_out.items()
        } | asked
    measured = table(source)
    by_role = {} if measured is None else position_labels(roles.labels(measured))
    return {
        head: label._replace(text=t("roles.label", role=label.name, score=f"{label.score:.2f}"))
        for head, label in by_role.items()
    } | asked


def position_labels(named: Mapping[tuple[int, int], tuple[str, float]]) -> dict[tuple[int, int], RoleLabel]:
    """The labels of heads by the position that they mostly look at in a text, without its mean weight."""
    return {head: RoleLabel(role, mean, *[t(f"role.{role}")] * 2) for head, (role, mean) in named.items()}


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


def table(source: Source) -> pd.DataFrame | None:
    """The roles of a source's heads, shipped or measured once; None for weights without training."""
    if not isinstance(source, TrainedSource):
        return None
    try:
        trained = compute.small_model(source)
    except MhaError:
        return None

    def measure() -> pd.DataFrame:
        return roles.shipped(trained.plan) if isinstance(source, MiniSource) else roles.roles(trained)

    return compute.kept("roles", str(source), measure)


def atlas_of(source: Source) -> Atlas | None:
    """The atlas of a source's model; None without one, and where the page Atlas says what is wrong."""
    try:
        return library.of(source)
    except MhaError:
        return None


def atlas_link(trace: AttentionTrace) -> None:
    """The way to what the chosen head does over many texts; nothing for a model without an atlas."""
    if (found := compute.once(_model_of(trace), _label_and_folder)) is None:
        return
    label, folder = found
    with st.container(key="atlas_link", width="content"):
        st.page_link(
            PAGES / "models/atlas.py",
            label=label,
            icon=":material/arrow_forward:",
            query_params={"atlas": folder},
        )


def _label_and_folder(model: Source | AttentionTrace) -> tuple[str, str] | None:
    """The label of the link to a model's atlas, and the name of its folder."""
    atlas = atlas_of(model.source if isinstance(model, AttentionTrace) else model)
    return None if atlas is None else (t("atlas.link", count=f"{atlas.n_texts:,}"), atlas.folder.name)


def measure_name(name: str) -> str:
    """A measure of an atlas in words."""
    if name in ROLES:
        return t(f"role.{name}")
    return t(f"roles.pattern.{name}") if name in patterns.MEASURES else t(f"atlas.measure.{name}")


def in_words(claim: Claim) -> str:
    """A claim in words: what a head does, in how many texts, with the interval; without markup."""
    said = t(
        f"atlas.claim_{'role' if claim.is_role else 'weight'}",
        measure=measure_name(claim.measure),
        share=f"{claim.mean:.0%}",
        count=f"{claim.n:,}",
    )
    if claim.low == claim.high:  # all texts are alike
        return said
    low, high = (100 * end for end in (claim.low, claim.high))
    digits = 0 if round(low) != round(high) else 1
    return t("atlas.claim_interval", claim=said, low=f"{low:.{digits}f}", high=f"{high:.{digits}f}")
