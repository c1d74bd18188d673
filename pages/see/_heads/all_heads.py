"""All heads of one layer at a glance, on one colour scale; of a long text the overview shows them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import streamlit as st

from mha_core import AttentionTrace
from mha_core.analysis.frames import WHOLE, around, longest, origin
from pages._kit import charts, components, matrices, role_labels, state
from pages._kit.text import t

MOST_LINES = 2**20  # of a spreadsheet, the one with names included


def limits(trace: AttentionTrace, *, layer: int, head: int, query: int) -> Sequence[float]:
    """Where the colours of each head's weights end; of a long text those of the part that is drawn."""
    shown = trace.layers[layer]
    if longest(trace) <= WHOLE:
        return matrices.limits(shown)
    part = around(trace, query, layer=layer, head=head)
    # All pairs of tokens are too many to be drawn; the part that is drawn has an end of its own.
    largest = float(shown.weights(head, rows=part.queries, keys=part.keys).max())
    return [largest or 1.0] * shown.n_heads


def show(
    trace: AttentionTrace,
    scene: state.Scene,
    *,
    layer: int,
    head: int,
    limits: Sequence[float],
    numbers: Mapping[str, object] | None,
) -> None:
    """The heads of a layer, their colours ending at `limits`; nothing of a long text.

    `numbers` says where the browser has the weights already (`head_view.of_traces`), for a table of them
    where a spreadsheet has room for it.
    """
    if longest(trace) > WHOLE:
        return
    shown = trace.layers[layer]
    sides = shown.sides
    fits = shown.n_heads * shown.n_query * shown.n_key < MOST_LINES
    title, note = t("heads.all", layer=layer + 1), matrices.scale_note(limits)
    with st.container(horizontal=True, vertical_alignment="bottom", horizontal_alignment="distribute"):
        st.subheader(title, help=t("heads.all_help"))
        matrices.scale_control()
    components.head_grid(
        shown,
        sides.queries.labels,
        keys=sides.keys.labels,
        chosen=head,
        limits=limits,
        roles=role_labels.labels(trace, scene, layer),
        on_pick=lambda picked: state.go(head=picked + 1),
        numbers=numbers if fits else None,
        meta=charts.described("heads", title, replace(origin(trace, layer=layer), note=note)),
    )
    st.caption(note)
