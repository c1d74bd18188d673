"""Ranked shares as bars, the largest first, each with its exact value."""

import html

import pandas as pd
import plotly.graph_objects as go

from mha_core.figures.heatmap import axis_names
from mha_core.figures.theme import colour

BAR, EDGE = 24, 14  # pixels
ROOM = 1.22  # length of the axis in longest bars, with room for their numbers
HATCH = {"size": 5, "solidity": 0.35}


def bars(table: pd.DataFrame, *, words: str, hue: int = 0, together: bool = False) -> go.Figure:
    """Draw the column `value` by the index of a table, its first row on top; `words` is the name of the axis.

    A click on a bar returns the column `place`. `hue` is the number of one of the theme's colours, from 0.
    `together` means that the last row is the sum of several; it is hatched.
    """
    values = table["value"].to_numpy()
    patterns = [""] * len(table)
    if together:
        patterns[-1] = "/"
    data = go.Bar(
        x=values,
        y=axis_names(table.index),
        orientation="h",
        customdata=table["place"].to_numpy(),
        marker={"color": colour(hue), "pattern": HATCH | {"shape": patterns}},
        text=[f"{value:.4g}" for value in values],
        textposition="outside",
        cliponaxis=False,
        hovertemplate=f"<b>%{{y}}</b><br>{html.escape(words)} <b>%{{x:.4~g}}</b><extra></extra>",
    )
    longest = max(values.max(initial=0.0), 1e-12)
    layout = {
        "margin": {"l": 0, "r": 0, "t": 0, "b": 0},
        "height": BAR * len(table) + EDGE,
        "bargap": 0.3,
        "showlegend": False,
        "xaxis": {"visible": False, "range": [0, ROOM * longest], "fixedrange": True},
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
    return go.Figure(data, layout)
