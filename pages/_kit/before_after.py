"""The page Before / after: the untrained twin of a model, and one side of the page."""

import streamlit as st

from mha_core import AttentionTrace
from pages._kit import reading, state, work
from pages._kit.text import t


def offer() -> None:
    """Random weights have no after: offer a trained model."""
    st.info(t("before.random"), icon=":material/casino:")
    kwargs = {"source": "mini", "h": 4, "d_model": 64}
    st.button(t("before.take"), type="primary", key="take_mini", on_click=state.go, kwargs=kwargs)


def untrained(scene: state.Scene) -> AttentionTrace:
    """The scene's sentence through the same model before its first training step."""
    return work.trace(scene, trained=False)


def side(trace: AttentionTrace, *, key: str, layer: int, head: int, query: int, limit: float) -> None:
    step = f"{trace.source['step']:,}"
    st.subheader(t(f"before.{key}", step=step))
    reading.sentence(trace, layer=layer, head=head, query=query, limit=limit, key=f"{key}_strip")
