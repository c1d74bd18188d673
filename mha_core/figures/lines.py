"""Measurements by the number of heads: a few lines, each labelled at its end."""

import html
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mha_core.figures.theme import axis_title

HEIGHT = 286
DASHES = {"solid": "──", "dash": "– –", "dot": "····"}  # lines and their labels differ in more than hue
# Margins in pixels, equal in every figure so that they align; the top has room for plotly's buttons.
LEFT, TOP, RIGHT, BOTTOM = 56, 34, 92, 44
NAME_HEIGHT = 16  # pixels
LEVEL_COLOUR = "rgba(128, 128, 128, 0.7)"


def lines(
    table: pd.DataFrame,
    *,
    names: Mapping[str, str],
    across: str,
    up: str,
    ticks: Sequence[int],
    limits: tuple[float, float],
    decimals: int = 2,
    level: tuple[float, str] | None = None,
) -> go.Figure:
    """Draw columns of a table over its index, which is on a log₂ axis marked at `ticks`.

    `names` are the columns to draw and the labels at their ends; `across` and `up` are the titles of the
    axes; `limits` are the ends of the vertical axis. `level` is a value for comparison and its name. Figures
    with the same ticks have the same axis.
    """
    figure = go.Figure()
    for dash, (column, name) in zip(DASHES, names.items(), strict=False):
        figure.add_scatter(
            x=table.index.to_numpy(),
            y=table[column].to_numpy(),
            name=html.escape(name),
            mode="lines+markers",
            line={"dash": dash, "width": 2},
            marker={"size": 7},
            hovertemplate=f"{html.escape(name)}: <b>%{{y:.{decimals}f}}</b><br>"
            f"{html.escape(across)}: %{{x}}<extra></extra>",
            showlegend=False,
        )
    if level is not None:
        figure.add_hline(y=level[0], line={"dash": "dot", "width": 1, "color": LEVEL_COLOUR})
    figure.update_layout(
        height=HEIGHT, margin={"l": LEFT, "r": RIGHT, "t": TOP, "b": BOTTOM}, hovermode="closest"
    )
    ends = np.log10([ticks[0] / 1.25, ticks[-1] * 1.25])
    figure.update_xaxes(
        type="log", range=ends, tickvals=list(ticks), title=axis_title(across), zeroline=False, showgrid=False
    )
    figure.update_yaxes(range=limits, title=axis_title(up), zeroline=False, nticks=6)
    if len(table):
        values = [table[column].iloc[-1] for column in names]
        heights = apart(values, limits=limits, room=HEIGHT - TOP - BOTTOM)
        for dash, name, value, height in zip(DASHES.values(), names.values(), values, heights, strict=False):
            _write(figure, f"{dash} {name}", table.index[-1], value, shift=height)
    if level is not None:
        _write(figure, level[1], ticks[-1] * 1.2, level[0], shift=NAME_HEIGHT / 2, side="right")
    return figure


def apart(values: Sequence[float], *, limits: tuple[float, float], room: float) -> list[float]:
    """The pixels by which each label moves up, so that labels of close values stay readable."""
    per_unit = room / (limits[1] - limits[0])
    at = [value * per_unit for value in values]
    moved, ceiling = [0.0] * len(values), np.inf
    for i in sorted(range(len(values)), key=lambda i: -at[i]):
        place = min(at[i], ceiling)
        moved[i], ceiling = place - at[i], place - NAME_HEIGHT
    return moved


def _write(figure: go.Figure, name: str, x: float, y: float, *, shift: float, side: str = "left") -> None:
    figure.add_annotation(
        text=html.escape(name),
        x=float(np.log10(x)),
        y=y,
        xanchor=side,
        xshift=8 if side == "left" else 0,
        yshift=shift,
        showarrow=False,
        font={"size": 12},
    )
