"""The page Before / after: both sides of it, and what it offers for random weights."""

import streamlit as st

from mha_core import AttentionTrace
from pages._kit import head_view, state
from pages._kit.text import t


def offer() -> None:
    """Random weights are never trained: a button that chooses a trained model instead."""
    st.info(t("before.random"), icon=":material/casino:")
    kwargs = {"source": "mini", "h": 4, "d_model": 64}
    st.button(t("before.take"), type="primary", key="take_mini", on_click=state.go, kwargs=kwargs)


def only_before(trace: AttentionTrace, *, layer: int, head: int, query: int) -> None:
    """Random weights for a sentence that the small model cannot read: there is no after."""
    st.caption(t("before.stand_in"))
    titles = [t("instead.title", text=f"\u2068{trace.title}\u2069")]
    head_view.of_traces([trace], layer=layer, head=head, token=query, titles=titles, key="before_view")


def heading(trace: AttentionTrace, *, key: str) -> str:
    """The heading of a side, such as “Before: step 0” or “After: step 8,000”."""
    return t(f"before.{key}", step=f"{trace.source.step:,}")
