"""Matrices on a page: drawn on a colour scale, described for those who do not see them, taken home as CSV."""

import numpy as np
import pandas as pd
import streamlit as st

from mha_core import AttentionTrace, LayerTrace, against_torch
from mha_core.analysis.frames import WHOLE, Origin, Picture, around, long_table, picture, window
from mha_core.figures.heatmap import heatmap
from mha_core.traces.matrices import MATRICES, TOKEN_AXES
from pages._kit import charts
from pages._kit.charts import file_name
from pages._kit.text import literal, number, t

OF_ONE_HEAD = [name for name, matrix in MATRICES.items() if not matrix.of_layer]
MOST_CHECKED = 1024  # rows that are compared with torch
# Where the colours of weights end: at the largest of all heads, of each head, or at 1; they stand in links.
SHARED, OWN, FULL = ENDS = ("shared", "per head", "0 to 1")
FORMULA_START = ("=", "+", "-", "@", "\t", "\r")


def matrix(
    picture: Picture,
    *,
    key: str,
    limit: float,
    query: int,
    made: bool = False,
    end: float | None = None,
    seen: int | None = None,
) -> None:
    """One matrix as a heatmap with its meaning above it; `key` keeps it in place between runs.

    Weights are coloured up to `limit`, other numbers up to their own largest or to `end`; the row of the
    chosen token is framed where rows are tokens that look, and the cell of the token `seen` in it; `made`
    says that this is what a step makes of the others. A click on a cell chooses its tokens.
    """
    frame, (first_row, first_column) = picture.frame, picture.start
    rows_look = frame.index.name == "query" and picture.framed is None
    row = query - first_row if rows_look else None
    of_tokens = frame.columns.name in TOKEN_AXES
    # A click on a row chooses the token that looks: where another text is looked at, keys are none of those.
    of_other = frame.index.name == "key" and picture.sides is not None and not picture.sides.same
    clickable = frame.index.name in TOKEN_AXES and not of_other
    column = None if seen is None or not of_tokens else seen - first_column
    st.caption(f"{'→ ' if made else ''}**{literal(picture.symbol)}** {t(f'matrix.{picture.name}')}")
    figure = heatmap(
        frame,
        kind=picture.kind,
        rows=_axis(frame.index),
        columns=_axis(frame.columns),
        hidden=picture.hidden,
        hidden_text=t("matrix.hidden"),
        limit=limit if picture.kind == "weights" else end,
        framed=picture.framed,
        row=row,
        faint=picture.faint,
        cell=(row, column) if rows_look and column in range(frame.shape[1]) else None,
    )
    charts.draw(
        figure,
        key=key,
        alt=_alt(picture),
        title=f"{picture.symbol} {t(f'matrix.{picture.name}')}",
        origin=picture.origin or Origin(),
        table=frame,
        config=charts.FEW,
        start=(first_row, first_column if of_tokens else None) if clickable else None,
    )


def _axis(index: pd.Index) -> str:
    words = t(f"axis.{index.name or 'packed'}")
    sorted_ = index.dtype.kind in "iu" and not index.is_monotonic_increasing
    return t("axis.sorted", axis=words) if sorted_ else words


def _alt(picture: Picture) -> str:
    values = picture.frame.to_numpy()
    seen = values[np.isfinite(values)]
    low, high = (number(edge) for edge in ((seen.min(), seen.max()) if seen.size else (0, 0)))
    rows, columns = values.shape
    what = t(f"matrix.{picture.name}")
    return t("matrix.alt", symbol=picture.symbol, what=what, rows=rows, columns=columns, low=low, high=high)


def check_badge(layer: LayerTrace, query: int) -> None:
    """Whether what is shown equals what torch computes, found out now; in a long text around the token."""
    check = against_torch(layer, rows=window(layer.n_query, query, MOST_CHECKED))
    hint = t("check.help")
    if check.difference is None:
        st.badge(t("check.impossible", reason=check.reason), color="gray", help=hint)
    elif check.passed:
        difference = literal(number(check.difference))
        st.badge(t("check.passed", difference=difference), icon=":material/check:", color="green", help=hint)
    else:
        difference = literal(number(check.difference))
        st.badge(t("check.failed", difference=difference), icon=":material/error:", color="red", help=hint)


def numbers(trace: AttentionTrace, *, layer: int, head: int, query: int) -> None:
    """One matrix of the chosen head as a table, and a CSV of the same matrix for every head.

    Of a long text both are of the part around the chosen token, and of this head.
    """
    recorded = trace.layers[layer]
    offered = OF_ONE_HEAD if recorded.knows("q") else ["weights"]
    if not recorded.knows("w_o"):
        offered = [matrix for matrix in offered if matrix != "contribution"]
    name = st.selectbox(
        t("heads.matrix"),
        offered,
        index=offered.index("weights"),
        key="table",
        format_func=lambda matrix: (
            f"{MATRICES[matrix].written(trace.layers[layer], head)}  {t(f'matrix.{matrix}')}"
        ),
    )
    part = around(trace, query, layer=layer, head=head, size=WHOLE)
    shown = picture(trace, name, layer=layer, head=head, part=part).frame
    st.dataframe(shown)

    def table() -> pd.DataFrame:
        if any(part):
            return shown.reset_index()
        return long_table(trace, name, layer=layer, heads=range(trace.layers[layer].n_heads))

    st.download_button(
        t("heads.download"),
        lambda: csv(table()),
        file_name=f"{file_name(name, 'layer', layer + 1, trace.title[:40])}.csv",
        mime="text/csv",
        help=t("heads.download_help"),
        on_click="ignore",
    )


def csv(table: pd.DataFrame) -> bytes:
    """A table for spreadsheets: UTF-8 with its mark, and words that look like formulas made harmless."""
    safe = table.copy()
    for column in safe.select_dtypes(exclude="number"):
        risky = safe[column].astype(str).str.startswith(FORMULA_START)
        safe[column] = safe[column].mask(risky, "'" + safe[column].astype(str))
    return safe.to_csv(index=False).encode("utf-8-sig")


def scale_control() -> None:
    """Where the colours of weights shall end."""
    st.segmented_control(
        t("heads.scale"),
        ENDS,
        default=SHARED,
        required=True,
        key="scale",
        help=t("heads.scale_help"),
        bind="query-params",
    )


def scale() -> str:
    """The end that is chosen. A link sets it before the control is drawn, which stands below its pictures."""
    linked = st.query_params.get("scale", SHARED)
    return st.session_state.get("scale", linked if linked in ENDS else SHARED)


def limits(layer: LayerTrace) -> np.ndarray:
    """The weight at which each head's colours end. (head,)"""
    largest = layer.weights().max(axis=(1, 2))
    ends = {SHARED: np.full_like(largest, largest.max()), OWN: largest, FULL: np.ones_like(largest)}[scale()]
    return np.where(ends > 0, ends, 1.0)  # a layer that is hidden altogether has no largest weight


def scale_note(ends: np.ndarray) -> str:
    """The scale in words, so that nobody compares what cannot be compared."""
    if scale() == OWN:
        return t("heads.scale_each")
    return t("heads.scale_now", limit=number(ends[0]))
