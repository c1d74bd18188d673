"""Query heads that share keys and values: a dot for each head, and a line to its key/value head."""

import html
from collections.abc import Sequence

import plotly.graph_objects as go

from mha_core.figures.theme import COLOURS, colour

HEIGHT, EDGE = 190, 22  # pixels: of the figure, of its margins
QUERY, KEY = 1.0, 0.0  # y of the two rows
HALF = 0.09  # half of the height of a bar in the lower row
MIN_HEADS = 8  # length of the axis for fewer heads, so that they are drawn close together
DASHES = ("solid", "dash", "dot")  # for each round of the theme's colours
MAX_NUMBERS = 16  # labelled in one row
GREY, FILL = "rgba(128, 128, 128, 0.9)", "rgba(128, 128, 128, 0.22)"


def grouped_query(of: Sequence[int], *, queries: str, keys: str, hover: Sequence[str]) -> go.Figure:
    """Draw each query head, in its colour, with a line to its key/value head.

    `of` is the key/value head of each query head, from 0; `queries` and `keys` are the labels of the rows,
    `hover` is the hover text of each query head.
    """
    places = [[head for head, other in enumerate(of) if other == kv] for kv in range(max(of) + 1)]
    middles = [sum(heads) / len(heads) for heads in places]
    figure = _heads([[middles[kv]] for kv in of], hover)
    figure.add_scatter(
        x=middles,
        y=[KEY] * len(middles),
        mode="markers+text",
        marker={"symbol": "square", "size": 16, "color": FILL, "line": {"color": GREY, "width": 1.5}},
        text=_numbers(len(middles)),
        textposition="bottom center",
        hoverinfo="skip",
        showlegend=False,
    )
    return _rows(figure, len(of), queries, keys)


def latent(
    n_heads: int, parts: Sequence[tuple[int, str]], *, queries: str, keys: str, hover: Sequence[str]
) -> go.Figure:
    """Draw each query head with lines to the latent vectors that keys and values of all heads are made of.

    `parts` are the vectors that a cache keeps for a token, by width and name; each is a bar of that width.
    """
    total, left, edges = sum(width for width, _ in parts), -0.4, []
    for width, _ in parts:
        edges.append((left, left := left + (n_heads - 0.2) * width / total))
    figure = _heads([[(left + right) / 2 for left, right in edges]] * n_heads, hover)
    for (left, right), (width, name) in zip(edges, parts, strict=True):
        figure.add_scatter(
            x=[left, right, right, left, left],
            y=[KEY - HALF, KEY - HALF, KEY + HALF, KEY + HALF, KEY - HALF],
            mode="lines",
            fill="toself",
            fillcolor=FILL,
            line={"color": GREY, "width": 1.5},
            name=html.escape(name),
            hoveron="fills",
            hoverinfo="name",
            showlegend=False,
        )
        figure.add_annotation(
            x=(left + right) / 2,
            y=KEY - HALF,
            text=html.escape(str(width)),
            showarrow=False,
            yanchor="top",
            font_size=12,
        )
    return _rows(figure, n_heads, queries, keys)


def _heads(ends: Sequence[Sequence[float]], hover: Sequence[str]) -> go.Figure:
    """The query heads, each with its lines to these positions."""
    figure = go.Figure()
    names = _numbers(len(ends))
    for head, (places, words) in enumerate(zip(ends, hover, strict=True)):
        figure.add_scatter(
            x=[at for end in places for at in (head, end, None)],
            y=[QUERY, KEY + HALF, None] * len(places),
            mode="lines+markers+text",
            line={"color": colour(head), "width": 1.5, "dash": DASHES[head // COLOURS % len(DASHES)]},
            marker={"color": colour(head), "size": [11, 0, 0] * len(places), "opacity": 1},
            text=[names[head]],
            textposition="top center",
            hovertemplate=f"{html.escape(words)}<extra></extra>",
            showlegend=False,
        )
    return figure


def _numbers(count: int) -> list[str]:
    """Labels from 1: all, or for many heads the first and every fourth, eighth and so on."""
    step = 1
    while count / step > MAX_NUMBERS:
        step *= 2 if step > 1 else 4
    return [str(at + 1) if (at + 1) % step == 0 or (at == 0 and step > 1) else "" for at in range(count)]


def _rows(figure: go.Figure, n_heads: int, queries: str, keys: str) -> go.Figure:
    for words, height, anchor in ((queries, 1.0, "bottom"), (keys, 0.0, "top")):
        figure.add_annotation(
            text=html.escape(words),
            x=0,
            y=height,
            xref="paper",
            yref="paper",
            xanchor="left",
            yanchor=anchor,
            showarrow=False,
            font_size=13,
        )
    figure.update_layout(height=HEIGHT, margin={"l": 0, "r": 0, "t": EDGE, "b": EDGE}, hovermode="closest")
    figure.update_xaxes(visible=False, range=[-0.6, max(n_heads, MIN_HEADS) - 0.4], fixedrange=True)
    figure.update_yaxes(visible=False, range=[KEY - 0.34, QUERY + 0.3], fixedrange=True)
    return figure
