"""The page Before / after: the untrained twin of a model, and one side of the page."""

import streamlit as st

from mha_core import AttentionTrace
from pages._kit import compute, sentence, state
from pages._kit.text import t


def offer() -> None:
    """Random weights have no after: offer a trained model."""
    st.info(t("before.random"), icon=":material/casino:")
    kwargs = {"source": "mini", "h": 4, "d_model": 64}
    st.button(t("before.take"), type="primary", key="take_mini", on_click=state.go, kwargs=kwargs)


def untrained(scene: state.Scene) -> AttentionTrace:
    """The scene's sentence through the same model before its first training step."""
    return compute.trace(scene, trained=False)


def when(trace: AttentionTrace, *, key: str) -> str:
    """Which of the two it is: “Before: step 0”, “After: step 8,000”."""
    return t(f"before.{key}", step=f"{trace.source.step:,}")


def title(trace: AttentionTrace, *, key: str) -> str:
    """The same sentence twice needs more than its text to be told apart, in a saved figure too."""
    return f"{when(trace, key=key)} · {trace.tokens.text}"


def side(trace: AttentionTrace, *, key: str, layer: int, head: int, query: int, limit: float) -> None:
    st.subheader(when(trace, key=key))
    sentence.show(trace, layer=layer, head=head, query=query, limit=limit, key=f"{key}_strip")
