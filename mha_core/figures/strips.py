"""Distributions as strips, one below the other: quantiles, mean, and the values to compare it with."""

import html
from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mha_core.figures.head_map import GREY
from mha_core.figures.scatter import RING_COLOUR
from mha_core.figures.theme import colour, interval

ROW, EDGE = 22, 36  # pixels
# Of 100, 80 and 40 % of the values: from which quantile to which, thickness in rows, opacity.
BOXES = (("q0", "q100", 0.12, 0.3), ("q10", "q90", 0.34, 0.3), ("q30", "q70", 0.56, 0.35))
RANGE = (-0.02, 1.03)


def strips(
    table: pd.DataFrame,
    *,
    names: Mapping[str, str],
    words: Mapping[str, str],
    hue: int = 0,
    bold: Collection[str] = (),
) -> go.Figure:
    """Draw each row of a table, its first row on top: a measure from 0 to 1, called as in `names`.

    Columns q0, q10 … q100 are its quantiles; "mean", "low" and "high" the mean and its interval. The mean,
    "shuffled", "chance", "fixed" and "own" are marks with the names in `words`; a missing value has no mark.
    `hue` is the number of one of the theme's colours; names of `bold` measures are bold.
    """
    rows = [
        f"<b>{html.escape(names[name])}</b>" if name in bold else html.escape(names[name])
        for name in table.index
    ]
    data: list[dict] = [
        {
            "type": "bar",
            "orientation": "h",
            "y": rows,
            "base": table[low].to_numpy(),
            "x": (table[high] - table[low]).to_numpy(),
            "width": thick,
            "marker": {"color": colour(hue), "opacity": opacity, "line": {"width": 0}},
            "hoverinfo": "skip",
        }
        for low, high, thick, opacity in BOXES
    ]
    looks = {
        "chance": {"symbol": "line-ns", "size": 12, "line": {"width": 2, "color": GREY}},
        "fixed": {"symbol": "x-thin", "size": 7, "line": {"width": 1.5, "color": GREY}},
        "shuffled": {"symbol": "circle-open", "size": 9, "color": colour(hue), "line": {"width": 1.5}},
        "mean": {"symbol": "circle", "size": 9, "color": colour(hue)},
        "own": {"symbol": "diamond-open", "size": 11, "color": RING_COLOUR, "line": {"width": 2}},
    }
    for column, look in looks.items():
        known = table[column].notna().to_numpy() if column in table else np.zeros(len(table), bool)
        if not known.any():
            continue
        mark = {
            "type": "scatter",
            "mode": "markers",
            "x": table.loc[known, column].to_numpy(),
            "y": [row for row, is_known in zip(rows, known, strict=True) if is_known],
            "name": html.escape(words[column]),
            "marker": look,
            "hovertemplate": f"<b>%{{y}}</b><br>{html.escape(words[column])} %{{x:.2f}}<extra></extra>",
        }
        if column == "mean":
            mark["error_x"] = interval(table[known], "mean", "low", "high", thickness=1.5, width=4)
        data.append(mark)
    layout = {
        "height": ROW * len(table) + EDGE,
        "margin": {"l": 0, "r": 8, "t": 6, "b": 0},
        "barmode": "overlay",
        "hovermode": "closest",
        "showlegend": False,
        "xaxis": {"range": RANGE, "fixedrange": True, "zeroline": False, "side": "bottom"},
        "yaxis": {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": rows[::-1],
            "range": [-0.6, len(rows) - 0.4],
            "fixedrange": True,
            "automargin": True,
            "ticks": "",
            "dtick": 1,
            "showgrid": False,
            "tickfont": {"size": 12},
        },
    }
    return go.Figure(data, layout)
