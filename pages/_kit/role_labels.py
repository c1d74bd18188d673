"""What heads were measured to do: a label under each."""

import pandas as pd
import streamlit as st

from mha_core import AttentionTrace, MhaError
from mha_core.analysis import roles
from mha_core.traces.source import TrainedSource
from pages._kit import compute, state
from pages._kit.text import t


def labels(trace: AttentionTrace, scene: state.Scene, layer: int) -> list[str]:
    """For each head its measured role with the score, or nothing; only trained models have roles."""
    found = named(trace, scene) or {}
    return [label(found.get((layer, head))) for head in range(trace.layers[layer].n_heads)]


def named(trace: AttentionTrace, scene: state.Scene) -> dict[tuple[int, int], tuple[str, float]] | None:
    """What each head was measured to do, as `roles.labels` has it; None for weights without training."""
    measured = of_scene(trace, scene)
    return None if measured is None else roles.labels(measured)


def label(found: tuple[str, float] | None) -> str:
    """A role and its score in words; nothing for a head without one."""
    return "" if found is None else t("roles.label", role=name(found[0]), score=f"{found[1]:.2f}")


def name(role: str) -> str:
    """A role in words."""
    return t(f"role.{role}")


def of_scene(trace: AttentionTrace, scene: state.Scene) -> pd.DataFrame | None:
    """The roles of the scene's model, measured once on this server; None for weights without training."""
    if not isinstance(trace.source, TrainedSource):
        return None
    try:
        trained = compute.small_model(scene, trace.source.language)
    except MhaError:
        return None
    return _measured(str(trace.source), trained)


@st.cache_resource(max_entries=32, show_spinner=False)
def _measured(name: str, _trained) -> pd.DataFrame:
    return roles.roles(_trained)
