"""Matrices on a page: as heatmaps with a text alternative, as tables, and as CSV files."""

from dataclasses import replace

import numpy as np
import pandas as pd
import streamlit as st

from mha_core import AttentionTrace, LayerTrace, against_torch
from mha_core.analysis.derivation import PRIMES
from mha_core.analysis.explanation import EXPLAINED
from mha_core.analysis.frames import (
    MAX_ALL_PAIRS,
    Picture,
    around,
    long_table,
    picture,
    window,
    without_formulas,
)
from mha_core.traces.matrices import MATRICES, TOKEN_AXES
from pages._kit import charts, compute
from pages._kit.heatmaps import Heatmap, axis
from pages._kit.text import literal, number, said, t

HEAD_MATRICES = [name for name, matrix in MATRICES.items() if not matrix.of_layer]
MAX_CHECKED_ROWS = 1024  # compared with torch


def to_heatmap(picture: Picture, name: str, *, limit: float, query: int, result: bool = False) -> Heatmap:
    """Turn the picture of a matrix into a heatmap of that name.

    Weights are coloured up to `limit`, other numbers up to their largest absolute value. Where rows are
    queries, the row of the token `query` is framed. `result` marks the matrix as the result of a step with an
    arrow. A click on a cell chooses its tokens.
    """
    frame, (first_row, first_column) = picture.frame, picture.start
    rows_are_queries = frame.index.name == "query" and picture.framed is None
    # A click on a row chooses the query, unless the rows are keys of another text. A column chooses the key
    # only if keys are of another text; otherwise the key follows from the query.
    two_texts = picture.sides is not None and not picture.sides.same
    columns_chosen = two_texts and frame.columns.name in TOKEN_AXES
    clickable = frame.index.name in TOKEN_AXES and not (two_texts and frame.index.name == "key")
    return Heatmap(
        name,
        symbol(picture.symbol),
        t(f"matrix.{picture.name}"),
        frame,
        picture.kind,
        limit=limit if picture.kind == "weights" else None,
        hidden=picture.hidden,
        framed=picture.framed,
        row=query - first_row if rows_are_queries else None,
        origin=picture.origin,
        start=(first_row, first_column if columns_chosen else None) if clickable else None,
        result=result,
        matrix=picture.name if _has_numbers_of_the_trace(picture) else None,
        first=picture.start,
    )


def symbol(written: str) -> str:
    """A symbol in the reader's language: "S₁ masked" contains a word, "head_i" an index."""
    scores, is_masked, _ = written.partition(" masked")
    if is_masked:
        return t("matrix.masked_symbol", scores=scores)
    return written.replace("head_i", "headᵢ")


def _has_numbers_of_the_trace(picture: Picture) -> bool:
    """Whether its cells are the trace's own: not of an earlier stage, and not of all heads at once."""
    whole = picture.framed is None or picture.name == "concat"
    return picture.name in EXPLAINED and whole and not set(picture.symbol) & set(PRIMES)


def check_badge(layer: LayerTrace, query: int) -> None:
    """Show whether this layer equals what torch computes; in a long text, for the rows around the token."""
    check = compute.once(layer, against_torch, rows=window(layer.n_query, query, MAX_CHECKED_ROWS))
    hint = t("check.help")
    if check.difference is None:
        st.badge(t("check.impossible", reason=said(check.reason)), color="gray", help=hint)
    elif check.passed:
        difference = np.format_float_positional(check.difference, precision=1, fractional=False, trim="-")
        st.badge(t("check.passed", difference=difference), icon=":material/check:", color="green", help=hint)
    else:
        difference = literal(number(check.difference))
        st.badge(t("check.failed", difference=difference), icon=":material/error:", color="red", help=hint)


def numbers(trace: AttentionTrace, *, layer: int, head: int, query: int) -> None:
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
    assert drawn.origin is not None  # a matrix of a trace has one
    if drawn.origin.spans:
        st.caption(charts.part(drawn.origin.spans))

    # The file of a whole text has all heads.
    origin = drawn.origin if any(part) else replace(drawn.origin, head=None)

    def table() -> pd.DataFrame:
        heads = [head] if any(part) else range(layer_trace.n_heads)
        return long_table(trace, name, layer=layer, heads=heads, part=part)

    st.download_button(
        t("heads.download"),
        lambda: csv(table()),
        file_name=f"{charts.described(name, '', origin)['file']}.csv",
        mime="text/csv",
        help=None if any(part) else t("heads.download_help"),
        on_click="ignore",
    )


def csv(table: pd.DataFrame) -> bytes:
    """A CSV file for spreadsheets: UTF-8 with a byte order mark, no cell a formula."""
    return without_formulas(table).to_csv(index=False).encode("utf-8-sig")
