"""The page Before / after: both sides of it, and what it offers for random weights."""

from collections.abc import Mapping
from dataclasses import replace

import streamlit as st

from mha_core import AttentionTrace, LayerTrace
from mha_core.analysis.frames import picture
from pages._kit import compute, head_view, heatmaps, matrices, sentence, state
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


def view(both: Mapping[str, AttentionTrace], *, layer: int, head: int, query: int) -> None:
    """Both sides in one head view, in which layer, head and token are chosen."""
    head_view.of_traces(
        list(both.values()),
        layer=layer,
        head=head,
        token=query,
        # Both sides have the same sentence.
        titles=[f"{heading(side, key=key)} · {side.tokens.text}" for key, side in both.items()],
        key="before_view",
        more={
            "strips": True,
            "compared": True,
            "answers": [sentence.answers(side) for side in both.values()],
        },
    )


def show_matrices(both: Mapping[str, AttentionTrace], *, layer: int, head: int, query: int) -> None:
    """Weights, queries and keys of the head on both sides, the weights on one colour scale."""
    limit = max(compute.of(side.layers[layer], _largest, head=head) for side in both.values())
    place = {"layer": layer, "head": head, "query": query, "limit": limit}
    for name in ("weights", "q", "k"):
        drawn = [compute.of(side, _matrix, name=name, key=key, **place) for key, side in both.items()]
        heatmaps.draw(drawn, key=f"before-{name}", stacked=True)


def _largest(layer: LayerTrace, *, head: int) -> float:
    return float(layer.weights(head).max())


def _matrix(
    side: AttentionTrace, *, name: str, key: str, layer: int, head: int, query: int, limit: float
) -> heatmaps.Heatmap:
    matrix = picture(side, name, layer=layer, head=head)
    matrix = replace(matrix, symbol=f"{heading(side, key=key)} · {matrix.symbol}")
    return matrices.of_picture(matrix, key, limit=limit, query=query)
