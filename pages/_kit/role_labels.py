"""The measured roles of heads, as labels."""

import pandas as pd
import streamlit as st

from mha_core import AttentionTrace, MhaError
from mha_core.analysis import roles
from mha_core.traces.source import TrainedSource
from mha_core.training.checkpoints import Trained
from pages._kit import compute, state
from pages._kit.text import t


def labels(trace: AttentionTrace, scene: state.Scene, layer: int) -> list[str]:
    """The label of each head: its measured role with the score; empty without a role or without training."""
    named_roles = named(trace, scene) or {}
    return [label(named_roles.get((layer, head))) for head in range(trace.layers[layer].n_heads)]


def named(trace: AttentionTrace, scene: state.Scene) -> dict[tuple[int, int], tuple[str, float]] | None:
    """The role and score of each (layer, head), as in `roles.labels`; None for weights without training."""
    trained = _trained(trace, scene)
    return None if trained is None else _named(str(trace.source), scene.source, trained)


def label(role: tuple[str, float] | None) -> str:
    """A role and its score in words; empty for None, a head without a role."""
    return "" if role is None else t("roles.label", role=name(role[0]), score=f"{role[1]:.2f}")


def name(role: str) -> str:
    """A role in words."""
    return t(f"role.{role}")


def of_scene(trace: AttentionTrace, scene: state.Scene) -> pd.DataFrame | None:
    """The roles of the scene's model, shipped or measured once; None for weights without training."""
    trained = _trained(trace, scene)
    return None if trained is None else _table(str(trace.source), scene.source, trained)


def _trained(trace: AttentionTrace, scene: state.Scene) -> Trained | None:
    if not isinstance(trace.source, TrainedSource):
        return None
    try:
        return compute.small_model(scene, trace.source.language)
    except MhaError:
        return None


@st.cache_resource(max_entries=32, show_spinner=False)
def _named(name: str, source: str, _trained: Trained) -> dict[tuple[int, int], tuple[str, float]]:
    return roles.labels(_table(name, source, _trained))


def _table(name: str, source: str, trained: Trained) -> pd.DataFrame:
    return roles.shipped(trained.plan) if source == "mini" else _measured(name, trained)


@st.cache_resource(max_entries=32, show_spinner=False)
def _measured(name: str, _trained: Trained) -> pd.DataFrame:
    return roles.roles(_trained)
