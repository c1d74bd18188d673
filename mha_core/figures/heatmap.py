"""One matrix as a heatmap: token names on its axes, and each value on hover."""

import html
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mha_core.figures.theme import axis_title

TALL_ROW, LOW_ROW, FEW_ROWS = 20, 15, 24  # pixels of a row, the second for more rows than the third
MIN_HEIGHT, MAX_HEIGHT = 190, 860  # pixels
PACKED_HEIGHT = 600  # pixels, for too many rows to label each
LEGEND_HEIGHT = 26
FEW_COLUMNS = 8  # most columns in which cells have room for their numbers
MAX_LABEL = 14  # characters
HIDDEN_COLOUR = "rgba(128, 128, 128, 0.28)"
HIDDEN_TEXT = "hidden by the mask"
MARK_COLOUR = "rgba(128, 128, 128, 0.75)"
# Lines from the hovered cell to its names on both axes.
CROSSHAIR = {
    "showspikes": True,
    "spikemode": "across",
    "spikesnap": "hovered data",
    "spikethickness": 1,
    "spikedash": "solid",
    "spikecolor": "rgba(128, 128, 128, 0.9)",
}


def heatmap(
    frame: pd.DataFrame,
    *,
    kind: Literal["weights", "signed"],
    rows: str,
    columns: str,
    hidden: np.ndarray | None = None,
) -> go.Figure:
    """Draw a matrix; `rows` and `columns` are the titles of its axes.

    `kind` "weights" colours from 0 to 1, "signed" around 0, as far as the largest absolute value. The two
    colour scales are those of the template in use, so that a page can change them with its theme. `hidden`
    cells are hatched and have no colour of the scale. Numbered columns that are not consecutive stay in the
    order of the frame, each with its number.
    """
    values = frame.to_numpy(dtype=np.float32)
    blank = ~np.isfinite(values) if hidden is None else hidden | ~np.isfinite(values)
    visible = np.where(blank, np.nan, values)
    limit = 1.0 if kind == "weights" else float(np.nanmax(np.abs(visible), initial=0.0)) or 1.0
    row_names, column_names = axis_names(frame.index), axis_names(frame.columns)
    few = visible.shape[0] <= FEW_ROWS // 2 and visible.shape[1] <= FEW_COLUMNS
    data: list = [
        go.Heatmap(
            z=visible,
            x=column_names,
            y=row_names,
            zmin=0.0 if kind == "weights" else -limit,
            zmax=limit,
            autocolorscale=True,
            hoverongaps=False,
            hovertemplate=f"{html.escape(rows)} <b>%{{y}}</b><br>{html.escape(columns)} <b>%{{x}}</b>"
            "<br><b>%{z:.4~g}</b><extra></extra>",
            text=[[_written(value) for value in row] for row in visible.tolist()] if few else None,
            texttemplate="%{text}" if few else None,
            colorbar={"thickness": 8, "outlinewidth": 0, "len": 1, "nticks": 5, "xpad": 4},
        )
    ]
    if blank.any():
        data.append(_hidden(blank, row_names, column_names))
    n_rows = len(row_names)
    tall = n_rows * (TALL_ROW if n_rows <= FEW_ROWS else LOW_ROW)
    words = frame.columns.dtype.kind not in "iu"
    every = 1 if tall <= MAX_HEIGHT else None  # None: plotly skips some names
    layout = {  # set at once: plotly validates everything again for each part that is added
        "shapes": [_hatching(blank, column_names)] if blank.any() else [],
        "margin": {"l": 0, "r": 0, "t": LEGEND_HEIGHT if blank.any() else 6, "b": 0},
        "legend": {"orientation": "h", "x": 1, "xanchor": "right", "y": 1, "yanchor": "bottom"},
        "height": int(np.clip(tall + 84, MIN_HEIGHT, MAX_HEIGHT)) if tall <= MAX_HEIGHT else PACKED_HEIGHT,
        "xaxis": _axis(column_names, columns) | {"tickangle": -50 if words else 0},
        "yaxis": _axis(row_names, rows) | {"autorange": "reversed", "dtick": every},
    }
    return go.Figure(data, layout)


def _written(value: float) -> str:
    """A value in its cell; 0.00 is a dot, since rows of zeros would hide the other values."""
    return "" if np.isnan(value) else "·" if abs(value) < 0.005 else f"{value:.2f}"


def _axis(names: Sequence, words: str) -> dict:
    return {
        "type": "category" if _named(names) else "linear",
        "title": axis_title(words),
        "tickfont": {"size": 11 if len(names) <= FEW_ROWS else 10},
        "showgrid": False,
        "zeroline": False,
        "automargin": True,
        "ticks": "",
        **CROSSHAIR,
    }


def _named(names: Sequence) -> bool:
    return len(names) > 0 and isinstance(names[0], str)


def axis_names(index: pd.Index) -> list:
    """Axis names, shortened but still unique for each position; numbers stay numbers.

    Plotly interprets tags in labels, so they are escaped; it merges equal names, so they are made unique.
    """
    if index.dtype.kind in "iu":
        numbers = index.tolist()
        return numbers if (np.diff(numbers) == 1).all() else [str(number) for number in numbers]
    short = [label if len(label) <= MAX_LABEL else label[: MAX_LABEL - 1] + "…" for label in index]
    unique = [s if short.count(s) == 1 else f"{s}\u2009{i + 1}" for i, s in enumerate(short)]
    return [html.escape(label, quote=False) for label in unique]


def _hidden(blank: np.ndarray, rows: list, columns: list) -> go.Heatmap:
    return go.Heatmap(
        z=np.where(blank, 0.0, np.nan).astype(np.float32),
        x=columns,
        y=rows,
        colorscale=[[0, HIDDEN_COLOUR], [1, HIDDEN_COLOUR]],
        showscale=False,
        hoverongaps=False,
        hovertemplate=f"<b>%{{y}}</b> → <b>%{{x}}</b><br>{HIDDEN_TEXT}<extra></extra>",
        name=HIDDEN_TEXT,
        showlegend=True,
    )


def _hatching(blank: np.ndarray, columns: list) -> dict:
    """Slanted lines over hidden cells, one along each diagonal of cells; two more between if rows are few.

    A run of hidden cells on one diagonal is one line.
    """
    lines = []
    n_rows, n_columns = blank.shape
    for total in range(n_rows + n_columns - 1):  # row + column, the same all along a diagonal
        at_columns = np.arange(max(0, total - n_rows + 1), min(n_columns, total + 1))
        on = np.flatnonzero(blank[total - at_columns, at_columns])
        for run in np.split(on, np.flatnonzero(np.diff(on) > 1) + 1) if len(on) else []:
            first, last = at_columns[run[0]], at_columns[run[-1]]
            lines.append((first - 0.5, total - first + 0.5, last + 0.5, total - last - 0.5))
    if n_rows <= FEW_ROWS:
        for row, column in np.argwhere(blank):
            lines.append((column - 0.5, row, column, row - 0.5))
            lines.append((column, row + 0.5, column + 0.5, row))
    first = 0 if _named(columns) else columns[0]  # categories count from 0, numbers are their position
    return {
        "type": "path",
        "path": "".join(f"M{x + first:g} {y:g}L{to_x + first:g} {to_y:g}" for x, y, to_x, to_y in lines),
        "line": {"color": MARK_COLOUR, "width": 1},
    }
