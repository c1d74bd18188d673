"""Heads by two measures over many texts, each with its interval and its place with shuffled words."""

import html
from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mha_core.figures.scatter import RING_COLOUR, SYMBOLS, free_sides
from mha_core.figures.theme import axis_title, colour, interval

HEIGHT = 360
NARROW, AROUND = 260, 90  # pixels of the plot in the narrowest window; those that names take of the height
QUIET = {"hoverinfo": "skip", "showlegend": False}
GREY = "rgba(128, 128, 128, 0.7)"
PALE = "rgba(128, 128, 128, 0.35)"
WHISKER = {"thickness": 1, "width": 3, "color": GREY}
DOTTED = {"dash": "dot", "width": 1, "color": GREY}
UNIT = -0.1, 1.1  # the axis of a share, and of another measure in its largest value


def head_map(
    points: pd.DataFrame,
    *,
    axes: tuple[str, str],
    layers: Sequence[str],
    shuffled: str,
    chosen: tuple[int, int] | None = None,
) -> go.Figure:
    """Draw `points`, a row for each (layer, head), by two measures titled `axes`.

    The columns of each measure begin with "x" or "y": "x" is the mean, "x_low" and "x_high" its interval,
    "x_shuffled" the mean with the words shuffled, "x_chance" that of equal weights; "name" is the short name
    of the head and "label" its long one. A head has the colour of its number and the mark of its layer,
    called as in `layers`; a thin line leads to the hollow mark, called `shuffled`; dotted lines are at equal
    weights. Names are written where there is room. `chosen` is ringed. A click on a point returns its layer
    and head.
    """
    known = points.dropna(subset=["x", "y"])
    data: list[dict] = [_threads(known)]
    for number, rows in known.groupby(level=0):
        look = {"symbol": SYMBOLS[number % len(SYMBOLS)], "color": [colour(head) for _, head in rows.index]}
        places = [list(place) for place in rows.index]
        data += [
            _marks(
                rows["x_shuffled"],
                rows["y_shuffled"],
                marker={**look, "symbol": f"{look['symbol']}-open", "size": 7, "opacity": 0.7},
                text=[f"{html.escape(label)}, {html.escape(shuffled)}" for label in rows["label"]],
                customdata=places,
                hovertemplate="%{text}<br>%{x:.2f}, %{y:.2f}<extra></extra>",
                showlegend=False,
            ),
            _marks(
                rows["x"],
                rows["y"],
                name=html.escape(layers[number]),
                marker={**look, "size": 11},
                error_x=interval(rows, "x", "x_low", "x_high", **WHISKER),
                error_y=interval(rows, "y", "y_low", "y_high", **WHISKER),
                text=[html.escape(label) for label in rows["label"]],
                customdata=places,
                hovertemplate=f"<b>%{{text}}</b><br>{html.escape(axes[0])} <b>%{{x:.2f}}</b><br>"
                f"{html.escape(axes[1])} <b>%{{y:.2f}}</b><extra></extra>",
                # A click chooses a head, but must not fade the others.
                unselected={"marker": {"opacity": 1}},
            ),
        ]
    key = {"symbol": "circle-open", "size": 7, "color": GREY}
    data.append(_marks([None], [None], name=html.escape(shuffled), marker=key, hoverinfo="skip"))
    if chosen in known.index:
        ring = {"symbol": "circle-open", "size": 20, "color": RING_COLOUR, "line": {"width": 2}}
        data.append(_marks(known.loc[[chosen], "x"], known.loc[[chosen], "y"], marker=ring, **QUIET))
    data.append(_names(known, chosen))
    layout = {
        "height": HEIGHT,
        "margin": {"l": 0, "r": 8, "t": 6, "b": 0},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "hovermode": "closest",
        "xaxis": _axis(known, "x", axes[0]),
        "yaxis": _axis(known, "y", axes[1]),
        "shapes": [_chance(known, letter) for letter in "xy" if len(known)],
    }
    return go.Figure(data, layout)


def _marks(x: object, y: object, **look: object) -> dict:
    return {"type": "scatter", "mode": "markers", "x": x, "y": y, **look}


def _threads(known: pd.DataFrame) -> dict:
    """A line from each head to its place with shuffled words, all as one trace with gaps."""
    x, y = (
        np.column_stack([known[letter], known[f"{letter}_shuffled"], np.full(len(known), np.nan)]).ravel()
        for letter in "xy"
    )
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": {"width": 1, "color": PALE}, **QUIET}


def _names(known: pd.DataFrame, chosen: tuple[int, int] | None) -> dict:
    """The short names of the heads that have room for them in the narrowest window."""
    sizes = {"x": NARROW, "y": HEIGHT - AROUND}
    ends = {letter: _ends(known, letter) for letter in sizes}

    def placed(kind: str) -> pd.DataFrame:
        """Where these marks of the heads are, in pixels."""
        at = {
            letter: (known[f"{letter}{kind}"].to_numpy() - ends[letter][0]) / np.ptp(ends[letter]) * size
            for letter, size in sizes.items()
        }
        return pd.DataFrame(at, known["name"].to_numpy())

    pixels = placed("")
    corners = pd.DataFrame([dict.fromkeys(sizes, 0.0), sizes])  # the figure goes beyond the outer points
    first = known["name"].get(chosen)
    sides = free_sides(
        pd.concat([pixels, corners]),
        pixels,
        pixels[:0],
        first=first,
        widths=(NARROW,),
        height=HEIGHT,
        marks=pd.concat([pixels, placed("_shuffled")]).dropna(),
    )
    # Above or beneath its point a name that has room keeps it in a wider window; beside it, it need not.
    sides = {name: side for name, side in sides.items() if side.endswith("center")}
    by_name = known.set_index("name").loc[list(sides)]
    return _marks(
        by_name["x"],
        by_name["y"],
        mode="markers+text",
        marker={"size": 15, "opacity": 0},  # keeps the names off the points
        text=[html.escape(name) for name in sides],
        textposition=list(sides.values()),
        textfont={"size": 11, "shadow": "auto"},
        **QUIET,
    )


def _axis(known: pd.DataFrame, letter: str, words: str) -> dict:
    return {
        "range": _ends(known, letter),
        "title": axis_title(words),
        "zeroline": False,
        "automargin": True,
    }


def _ends(known: pd.DataFrame, letter: str) -> tuple[float, float]:
    """Where an axis begins and ends."""
    largest = known[[letter, f"{letter}_high", f"{letter}_shuffled", f"{letter}_chance"]].max().max()
    low, high = (end * (largest if largest > 1 else 1.0) for end in UNIT)
    return low, high


def _chance(known: pd.DataFrame, letter: str) -> dict:
    """A dotted line across the figure at the mean of equal weights."""
    value, other = float(known[f"{letter}_chance"].mean()), "y" if letter == "x" else "x"
    across = {f"{other}0": 0, f"{other}1": 1, f"{other}ref": f"{other} domain"}
    at = {f"{letter}0": value, f"{letter}1": value, f"{letter}ref": letter}
    return {"type": "line", "line": DOTTED, "layer": "below", **across, **at}
