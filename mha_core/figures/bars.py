"""Ranked shares as bars, the largest first, each with its exact value."""

import html
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mha_core.figures.heatmap import axis_names
from mha_core.figures.theme import colour

BAR, EDGE, COLUMN = 24, 14, 54  # pixels
MAX_NAME = 20  # characters
ROOM = 1.22  # length of the axis in longest bars, with room for their numbers
HATCH = {"size": 5, "solidity": 0.35}


def bars(
    table: pd.DataFrame, *, words: str, hue: int = 0, together: bool = False, columns: Mapping[str, str] = {}
) -> go.Figure:
    """Draw the column `value` by the index of a table, its first row on top; `words` is the name of the axis.

    Negative values go to the left of 0. A click on a bar returns the column `place`. `hue` is the number of
    one of the theme's colours, from 0. `together` means that the last row is the sum of several; it is
    hatched. `columns` of the table have their numbers at the right, below a heading, instead of at the bars.
    """
    values = table["value"].to_numpy()
    patterns = [""] * len(table)
    if together:
        patterns[-1] = "/"
    data = go.Bar(
        x=values,
        y=axis_names(table.index, MAX_NAME),
        orientation="h",
        customdata=table["place"].to_numpy(),
        marker={"color": colour(hue), "pattern": HATCH | {"shape": patterns}},
        text=[_written(value, 4) for value in values],
        textposition="none" if columns else "outside",
        cliponaxis=False,
        hovertemplate=f"<b>%{{y}}</b><br>{html.escape(words)} <b>%{{x:.4~g}}</b><extra></extra>",
    )
    low, high = min(values.min(initial=0.0), 0.0), max(values.max(initial=0.0), 1e-12)
    room = (ROOM - 1) * (high - low)
    layout: dict[str, Any] = {
        "margin": {"l": 0, "r": 0, "t": 0, "b": 0},
        "height": BAR * len(table) + EDGE,
        "bargap": 0.3,
        "showlegend": False,
        "xaxis": {"visible": False, "range": [low - room * (low < 0), high + room], "fixedrange": True},
        "yaxis": {
            "type": "category",
            "autorange": "reversed",
            "dtick": 1,
            "automargin": True,
            "ticks": "",
            "showgrid": False,
            "fixedrange": True,
            "tickfont": {"size": 12},
        },
    }
    if columns:
        layout |= {"margin": {"l": 0, "r": COLUMN * len(columns), "t": BAR, "b": BAR}}  # below is a button
        layout["height"] += 2 * BAR
        layout["xaxis"]["range"] = [low, high]
        layout["annotations"] = [
            {
                "text": text,
                "yref": yref,
                "y": y,
                "yanchor": anchor,
                "xref": "paper",
                "x": 1,
                "xanchor": "right",
            }
            | {"xshift": COLUMN * (at + 1), "showarrow": False, "opacity": 0.75}
            for at, name in enumerate(columns)
            for text, yref, y, anchor in [
                (html.escape(columns[name]), "paper", 1, "bottom"),
                *(
                    (_written(value, 3), "y", y, "middle")
                    for y, value in zip(data.y, table[name], strict=True)
                ),
            ]
        ]
    return go.Figure(data, layout)


def _written(value: float, digits: int) -> str:
    return "–" if np.isnan(value) else f"{'−' if value < 0 else ''}{abs(value):.{digits}g}"
