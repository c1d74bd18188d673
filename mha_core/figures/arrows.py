"""Pairs of numbers as arrows in the plane, before and after a rotation."""

import html
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mha_core.figures.theme import colour

BEFORE_COLOUR = "rgba(128, 128, 128, 1.0)"
PLACE, EDGE = 170, 34  # pixels: of one plane with its title, around all
STEPS = 24  # of the arc between two arrows
ACROSS = 4  # planes beside each other
AXIS = {"showticklabels": False, "ticks": "", "fixedrange": True, "zeroline": True}


def arrows(table: pd.DataFrame, *, titles: Sequence[str], words: tuple[str, str]) -> go.Figure:
    """A plane for each row of `table` with its two arrows and the arc between them.

    The columns x, y, x_after and y_after are the ends of the arrows; `angle` is that of the arc in radians,
    where it is finite, else the arc is the shorter one. `titles` stand above the planes, `words` name the
    arrow before (dashed) and after (solid).
    """
    across = min(ACROSS, len(table))
    down = math.ceil(len(table) / across)
    figure = make_subplots(
        rows=down,
        cols=across,
        subplot_titles=[html.escape(title) for title in titles],
        horizontal_spacing=0.03,
        vertical_spacing=0.16 / max(1, down - 1) if down > 1 else 0.0,
    )
    for at, row in enumerate(table.itertuples()):
        place = {"row": at // across + 1, "col": at % across + 1}
        end = 1.2 * max(np.hypot(row.x, row.y), np.hypot(row.x_after, row.y_after), 1e-9)
        _add_arc(figure, row, 0.45 * end, place)
        points = ((row.x, row.y), (row.x_after, row.y_after))
        for nth, (name, point) in enumerate(zip(words, points, strict=True)):
            _add_arrow(figure, nth, html.escape(name), point, place | {"showlegend": at == 0})
        grid = AXIS | {"range": [-end, end]}
        figure.update_xaxes(**grid, **place)
        figure.update_yaxes(**grid, scaleanchor=f"x{at + 1 if at else ''}", **place)
    figure.update_annotations(font_size=12)
    figure.update_layout(
        height=PLACE * down + EDGE + 30,
        margin={"l": 0, "r": 0, "t": 28, "b": 0},
        legend={"orientation": "h", "y": -0.04, "yanchor": "top", "x": 0},
    )
    return figure


def _add_arc(figure: go.Figure, row: tuple, radius: float, place: dict) -> None:
    start, angle = math.atan2(row.y, row.x), row.angle
    if not np.isfinite(angle):
        angle = math.atan2(row.y_after, row.x_after) - start
    way = start + np.linspace(0.0, math.remainder(angle, math.tau), STEPS)
    figure.add_scatter(
        x=radius * np.cos(way),
        y=radius * np.sin(way),
        mode="lines",
        hoverinfo="skip",
        line={"color": BEFORE_COLOUR, "width": 1},
        showlegend=False,
        **place,
    )


def _add_arrow(figure: go.Figure, nth: int, name: str, point: tuple[float, float], place: dict) -> None:
    """The arrow before (0) or after (1), from the origin to a point."""
    look = {"color": BEFORE_COLOUR if nth == 0 else colour(0)}
    figure.add_scatter(
        x=[0, point[0]],
        y=[0, point[1]],
        mode="lines+markers",
        name=name,
        legendgroup=str(nth),
        line=look | {"width": 2.5, "dash": "dot" if nth == 0 else "solid"},
        marker=look | {"symbol": ["circle", "arrow"], "size": [3, 11], "angleref": "previous"},
        hovertemplate=f"<b>{name}</b><br>(%{{x:.4~g}}, %{{y:.4~g}})<extra></extra>",
        **place,
    )
