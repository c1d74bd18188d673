"""All heads of one layer side by side; for a long text the overview shows them instead."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import streamlit as st

from mha_core import AttentionTrace
from mha_core.analysis.frames import WHOLE, around, longest, origin
from pages._kit import charts, components, matrices, role_labels, state
from pages._kit.text import t

MAX_LINES = 2**20  # lines that a spreadsheet can hold, with the line of column names


def limits(trace: AttentionTrace, *, layer: int, head: int, query: int) -> Sequence[float]:
    """The weight at which each head's colours end; for a long text from the part that is drawn. (head,)"""
    layer_trace = trace.layers[layer]
    if longest(trace) <= WHOLE:
        return matrices.limits(layer_trace)
    part = around(trace, query, layer=layer, head=head)
    # A long text is drawn in part, so its colours end at the largest weight of that part.
    largest = float(layer_trace.weights(head, rows=part.queries, keys=part.keys).max())
    return [largest or 1.0] * layer_trace.n_heads


def show(
    trace: AttentionTrace,
    scene: state.Scene,
    *,
    layer: int,
    head: int,
    limits: Sequence[float],
    numbers: Mapping[str, object] | None,
) -> None:
    """The heads of a layer, with colours up to `limits`; nothing for a long text.

    `numbers` names the data in which the browser has the weights already (`head_view.of_traces`). The
    browser offers them as a table where a spreadsheet has room for it.
    """
    if longest(trace) > WHOLE:
        return
    layer_trace = trace.layers[layer]
    sides = layer_trace.sides
    fits = layer_trace.n_heads * layer_trace.n_query * layer_trace.n_key < MAX_LINES
    title, note = t("heads.all", layer=layer + 1), matrices.scale_note(limits)
    with st.container(horizontal=True, vertical_alignment="bottom", horizontal_alignment="distribute"):
        st.subheader(title, help=t("heads.all_help"))
        matrices.scale_control()
    components.head_grid(
        layer_trace,
        sides.queries.labels,
        keys=sides.keys.labels,
        chosen=head,
        limits=limits,
        roles=role_labels.labels(trace, scene, layer),
        on_pick=lambda index: state.go(head=index + 1),
        numbers=numbers if fits else None,
        meta=charts.described("heads", title, replace(origin(trace, layer=layer), note=note)),
    )
    st.caption(note)
