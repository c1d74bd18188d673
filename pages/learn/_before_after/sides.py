"""The page Before / after: one side of it, and what it offers for random weights."""

import streamlit as st

from mha_core import AttentionTrace
from pages._kit import head_view, sentence, state
from pages._kit.text import t


def offer() -> None:
    """Random weights are never trained: a button that chooses a trained model instead."""
    st.info(t("before.random"), icon=":material/casino:")
    kwargs = {"source": "mini", "h": 4, "d_model": 64}
    st.button(t("before.take"), type="primary", key="take_mini", on_click=state.go, kwargs=kwargs)


def only_before(trace: AttentionTrace, *, layer: int, head: int, query: int) -> None:
    """Random weights for a sentence that the small model cannot read: there is no after."""
    st.info(t("before.stand_in"), icon=":material/casino:")
    titles = [t("instead.title", text=f"\u2068{trace.title}\u2069")]
    head_view.of_traces([trace], layer=layer, head=head, token=query, titles=titles, key="before_view")


def heading(trace: AttentionTrace, *, key: str) -> str:
    """The heading of a side, such as “Before: step 0” or “After: step 8,000”."""
    return t(f"before.{key}", step=f"{trace.source.step:,}")


def title(trace: AttentionTrace, *, key: str) -> str:
    """The title of a side: its heading and the sentence, since both sides have the same sentence."""
    return f"{heading(trace, key=key)} · {trace.tokens.text}"


def side(trace: AttentionTrace, *, key: str, layer: int, head: int, query: int, limit: float) -> None:
    """One side of the page: its heading, and the sentence coloured by the weights of the chosen token."""
    st.subheader(heading(trace, key=key))
    sentence.show(trace, layer=layer, head=head, query=query, limit=limit, key=f"{key}_strip", columns=2)
