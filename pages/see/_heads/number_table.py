"""A matrix of the chosen head as a table, and as a CSV file."""

from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from mha_core import AttentionTrace
from mha_core.analysis.frames import MAX_ALL_PAIRS, around, csv, long_table, picture
from mha_core.traces.matrices import MATRICES
from pages._kit import charts
from pages._kit.heatmaps import axis, symbol
from pages._kit.text import t

HEAD_MATRICES = [name for name, matrix in MATRICES.items() if not matrix.of_layer]


def show(trace: AttentionTrace, *, layer: int, head: int, query: int) -> None:
    """Draw a matrix of the chosen head as a table, and offer a CSV file with the matrix for every head.

    For a long text, both hold the part around the chosen token and this head alone.
    """
    layer_trace = trace.layers[layer]
    options = HEAD_MATRICES if layer_trace.knows("q") else ["weights"]
    if not layer_trace.knows("w_o"):
        options = [matrix for matrix in options if matrix != "contribution"]
    name = st.selectbox(
        t("heads.matrix"),
        options,
        index=options.index("weights"),
        key="table",
        format_func=lambda matrix: (
            f"{symbol(MATRICES[matrix].written(layer_trace, head))}  {t(f'matrix.{matrix}')}"
        ),
    )
    part = around(trace, query, layer=layer, head=head, size=MAX_ALL_PAIRS)
    drawn = picture(trace, name, layer=layer, head=head, part=part)
    frame = drawn.frame
    st.dataframe(frame.rename_axis(index=axis(frame.index)))
    if drawn.origin.spans:
        st.caption(charts.part(drawn.origin.spans))

    heads: Sequence[int] = [head]
    origin, hint = drawn.origin, None
    if not any(part):  # the file of a whole text has all heads
        heads, origin = range(layer_trace.n_heads), replace(origin, head=None)
        hint = t("heads.download_help")
    st.download_button(
        t("heads.download"),
        lambda: csv(long_table(trace, name, layer=layer, heads=heads, part=part)),
        file_name=f"{charts.described(name, '', origin)['file']}.csv",
        mime="text/csv",
        help=hint,
        on_click="ignore",
    )
