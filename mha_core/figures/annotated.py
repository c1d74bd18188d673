"""A matrix with what becomes of each of its rows written beside it."""

import html
from collections.abc import Sequence

import plotly.graph_objects as go

SHARE = 0.42  # of the width that the numbers take
GAP = 0.02


def annotated(figure: go.Figure, written: Sequence[Sequence[str]], headers: Sequence[str]) -> go.Figure:
    """Give a heatmap of named rows a column of texts for each of `headers`, on the same rows.

    `written` has the texts of each row; they are shown as they are, tags included.
    """
    rows = list(figure.data[0].y)
    figure.update_layout(
        xaxis={"domain": [0, 1 - SHARE - GAP]},
        xaxis2={
            "domain": [1 - SHARE, 1],
            "range": [-0.5, len(headers) - 0.5],
            "tickvals": list(range(len(headers))),
            "ticktext": [html.escape(header) for header in headers],
            "side": "top",
            "tickfont": {"size": 11},
            "tickangle": 0,
            "ticks": "",
            "showgrid": False,
            "zeroline": False,
            "fixedrange": True,
        },
        margin={"t": 26},
    )
    for place, column in enumerate(zip(*written, strict=True)):
        figure.add_scatter(
            x=[place] * len(rows),
            y=rows,
            text=[html.escape(text, quote=False) for text in column],
            mode="text",
            textfont={"size": 11},
            xaxis="x2",
            hoverinfo="skip",
            showlegend=False,
        )
    return figure
