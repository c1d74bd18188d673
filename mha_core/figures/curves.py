"""The course of a training: loss, and held-out shares, over the steps."""

from collections.abc import Mapping
from types import MappingProxyType

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mha_core.figures.theme import COLOURS, colour

HEIGHT = 300
EVENT = {"width": 1, "color": "rgba(128, 128, 128, 0.8)"}


def curves(
    frame: pd.DataFrame,
    *,
    names: dict[str, str],
    step: str,
    marked: int | None = None,
    events: Mapping[int, str] = MappingProxyType({}),
    narrow: bool = False,
) -> go.Figure:
    """Two panels over one axis: `loss` on the left, every other column, shares from 0 to 1, on the right.

    On a `narrow` page the shares are below the loss. `frame` is indexed by step; `names` are the labels of
    the columns, `step` is that of the axis; `marked` draws a line at that step, `events` a fainter line at
    each of its steps, labelled beside the loss. Colours are those of the template in use.
    """
    shares = [column for column in frame.columns if column != "loss"]
    place = {"row": 2, "col": 1} if narrow else {"row": 1, "col": 2}
    sizes = {"rows": place["row"], "cols": place["col"]}
    figure = make_subplots(**sizes, subplot_titles=[names["loss"], ""], horizontal_spacing=0.1)
    for column in ("loss", *shares):
        figure.add_scatter(
            x=frame.index,
            y=frame[column],
            name=names[column],
            mode="lines",
            showlegend=column != "loss",
            hovertemplate="%{y:.3f}",
            **({"row": 1, "col": 1} if column == "loss" else place),
        )
    for at, words in events.items():
        if len(frame) and frame.index.min() < at < frame.index.max():
            figure.add_vline(x=at, line=EVENT, row="all", col="all")
            figure.add_annotation(
                x=at,
                y=0,
                xref="x",
                yref="y domain",
                text=words,
                xanchor="left",
                yanchor="bottom",
                showarrow=False,
            )
    if marked is not None:
        figure.add_vline(x=marked, line={"width": 1, "dash": "dot"}, row="all", col="all")
    figure.update_xaxes(title={"text": step, "font": {"size": 12}}, showgrid=False)
    figure.update_yaxes(rangemode="tozero", row=1, col=1)
    figure.update_yaxes(range=[0, 1.03], **place)
    figure.update_layout(
        height=2 * HEIGHT if narrow else HEIGHT,
        margin={"l": 0, "r": 0, "t": 30, "b": 0},
        hovermode="x unified",
        legend={"orientation": "h", "x": 1.0, "xanchor": "right"}
        | ({"y": -0.1, "yanchor": "top"} if narrow else {"y": 1.0, "yanchor": "bottom"}),
        colorway=[colour(number) for number in range(COLOURS)],
    )
    return figure
