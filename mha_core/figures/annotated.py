"""A heatmap with columns of text beside its rows."""

import html
from collections.abc import Sequence

import plotly.graph_objects as go

TEXT_SHARE = 0.42  # of the width
GAP = 0.02


def annotated(figure: go.Figure, texts: Sequence[Sequence[str]], headers: Sequence[str]) -> go.Figure:
    """Give a heatmap of named rows a column of texts for each of `headers`, on the same rows.

    `texts` has one text for each row and header, (row, header); they are shown as typed, tags included.
    """
    rows = list(figure.data[0].y)
    figure.update_layout(
        xaxis={"domain": [0, 1 - TEXT_SHARE - GAP]},
        xaxis2={
            "domain": [1 - TEXT_SHARE, 1],
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
    for place, column in enumerate(zip(*texts, strict=True)):
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
