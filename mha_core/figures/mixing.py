"""A signed matrix from token to token, with the sum of each row beside it."""

import html

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mha_core.figures.heatmap import axis_names, heatmap
from mha_core.figures.theme import axis_title, colour

MATRIX, SUMS = (0.0, 0.78), (0.82, 1.0)  # parts of the width


def mixing(
    frame: pd.DataFrame,
    sums: np.ndarray,
    *,
    rows: str,
    columns: str,
    words: str,
    hidden: np.ndarray | None = None,
    hidden_text: str = "later",
    row: int | None = None,
) -> go.Figure:
    """Draw the matrix with colours from −limit to limit around 0, and a bar for each row's `sums`.

    `words` says what the sums are; the other arguments are those of `heatmap`.
    """
    figure = heatmap(
        frame, kind="signed", rows=rows, columns=columns, hidden=hidden, hidden_text=hidden_text, row=row
    )
    figure.add_bar(
        x=sums,
        y=axis_names(frame.index),
        orientation="h",
        xaxis="x2",
        showlegend=False,
        marker={"color": colour(0)},
        hovertemplate=f"<b>%{{y}}</b><br>{html.escape(words)} <b>%{{x:.4~g}}</b><extra></extra>",
    )
    return figure.update_layout(
        xaxis_domain=MATRIX,
        xaxis2={
            "domain": SUMS,
            "anchor": "y",
            "title": axis_title(words),
            "tickfont": {"size": 10},
            "nticks": 3,
            "zeroline": True,
            "showgrid": False,
        },
        bargap=0.35,
    )
