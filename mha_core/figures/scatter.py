"""Words as points on two or three axes: close points are similar words, an arrow is a difference."""

import html
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

HEIGHT = 520
SYMBOLS = ("circle", "diamond", "square", "cross", "x")  # in 3-D, too; not only hues differ
CAMERA = {"eye": {"x": 1.35, "y": 1.35, "z": 0.85}, "center": {"x": 0, "y": 0, "z": -0.15}}
OPACITY = 0.45  # of a point, so that words on it can be read
WIDTHS, LETTER, LINE = (600,), 7.5, 15  # pixels: of a figure, a letter, a line of text
SIZE, SMALL = 13, 11  # pixels of letters
AIR = 4  # extra pixels between two lines if one has small letters
AROUND, PADDED = 90, 1.1  # pixels around for names and legend; length of axes relative to the points
GAP = 10  # pixels between a point and a word at its side
MARK = 12  # pixels of a mark
# The directions in which a word can be placed from its point: to the side, and up.
SIDES = {
    "top center": (0, 1),
    "bottom center": (0, -1),
    "middle right": (1, 0),
    "middle left": (-1, 0),
    "top right": (1, 1),
    "bottom right": (1, -1),
    "top left": (-1, 1),
    "bottom left": (-1, -1),
}
REST_COLOUR = "rgba(128, 128, 128, 0.75)"
ARROW_COLOUR = "rgba(128, 128, 128, 1.0)"
RING_COLOUR = "rgba(214, 118, 30, 0.95)"


def scatter(
    points: pd.DataFrame,
    *,
    axes: Sequence[str],
    groups: pd.Series,
    rest: str | None = None,
    labelled: Collection[str] = (),
    small: Collection[str] = (),
    chosen: str | None = None,
    arrows: Iterable[tuple[str, str]] = (),
    height: int = HEIGHT,
    widths: Sequence[int] = WIDTHS,
) -> go.Figure:
    """Draw `points`, a row for each word and a column for each of two or three `axes`, titled by these names.

    `groups` has each word's group, which has one colour of the template and one mark; the group `rest` is
    grey. `labelled` words are written beside their points; on two axes only those that have room in a figure
    of each of `widths`, in pixels. The `small` words are written in small letters in the room that is left.
    `chosen` is ringed and always written; `arrows` lead from one word to another on two axes. A click on a
    point returns its word as customdata.
    """
    flat = len(axes) == 2
    data = _group_marks(points, groups[points.index], rest, flat=flat)
    quiet = {"hoverinfo": "skip", "showlegend": False}
    if chosen in points.index:
        ring = {"symbol": "circle-open", "size": 15, "color": RING_COLOUR, "line": {"width": 2}}
        data.append(_marks(points.loc[[chosen]], flat)(mode="markers", marker=ring, **quiet))
    written = points.loc[[word for word in points.index if word in labelled]]
    if flat and len(written):
        others = points.loc[[word for word in points.index if word in small and word not in labelled]]
        sides = free_sides(points, written, others, first=chosen, widths=widths, height=height)
        # Invisible marks: they keep the words off the points.
        look = {"mode": "markers+text", "marker": {"size": LINE, "opacity": 0}}
        font = {"size": [SMALL if word in others.index else SIZE for word in sides], "shadow": "auto"}
        names = zip(sides, _escaped(sides), strict=True)
        text = [name if word in others.index else f"<b>{name}</b>" for word, name in names]
        places = _marks(points.loc[list(sides)], flat)
        data.append(places(text=text, textposition=list(sides.values()), textfont=font, **look, **quiet))
    titles = [{"title": {"text": html.escape(words), "font": {"size": 12}}} for words in axes]
    layout = {
        "height": height,
        "margin": {"l": 0, "r": 0, "t": 6, "b": 0},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "hovermode": "closest",
    }
    if flat:
        axis = {"zeroline": False, "automargin": True}
        # One unit has the same length on both axes, so that distances are true.
        layout |= {"xaxis": titles[0] | axis, "yaxis": titles[1] | axis | {"scaleanchor": "x"}}
        layout["annotations"] = [_arrow(points.loc[start], points.loc[end]) for start, end in arrows]
    else:
        named = dict(zip(("xaxis", "yaxis", "zaxis"), titles, strict=True))
        words = [_in_space(word, place) for word, place in written.iterrows()]
        layout["scene"] = named | {"aspectmode": "data", "camera": CAMERA, "annotations": words}
    return go.Figure(data, layout)


def _group_marks(points: pd.DataFrame, groups: pd.Series, rest: str | None, *, flat: bool) -> list:
    """The points of each group, with a colour of the template and a mark of its own."""
    traces = []
    places = groups.groupby(groups).indices  # positions of the words of each group
    for count, name in enumerate(sorted(places, key=lambda name: (name == rest, name))):
        members = points.iloc[places[name]]
        look = {"color": REST_COLOUR} if name == rest else {"symbol": SYMBOLS[count % len(SYMBOLS)]}
        traces.append(
            _marks(members, flat)(
                mode="markers",
                name=html.escape(name),
                marker={"size": 6 if flat else 3, "opacity": OPACITY} | look,
                # A click chooses a word, but must not fade the others.
                unselected={"marker": {"opacity": OPACITY}} if flat else None,
                text=_escaped(members.index),
                customdata=members.index.to_numpy(object),
                hovertemplate=f"<b>%{{text}}</b><br>{html.escape(name)}<extra></extra>",
            )
        )
    return traces


def free_sides(
    points: pd.DataFrame,
    written: pd.DataFrame,
    small: pd.DataFrame,
    *,
    first: str | None,
    widths: Sequence[int],
    height: int,
    marks: pd.DataFrame | None = None,
) -> dict[str, str]:
    """The side of its point on which each word is written, so that no two overlap in any width.

    A word without room on any side is left out. The word `first` is placed before all others, and `small`
    words after those that are `written`, if no edge of the figure cuts them. No other word than the first
    covers one of the `marks`.
    """
    spans = (points.max() - points.min()).to_numpy()
    units = [PADDED * max(spans / (width, height - AROUND)) or 1.0 for width in widths]  # for one pixel
    ends = [points.iloc[:, 0].agg(end) / np.array(units) for end in ("min", "max")]
    words = [*sorted(written.index, key=lambda word: word != first), *small.index]
    n_marks = 0 if marks is None else len(marks)
    taken = np.empty((n_marks + len(words), len(widths), 3))  # of each mark and word: across, up, width
    if marks is not None:
        taken[:n_marks, :, :2] = marks.to_numpy()[:, None] / np.array(units)[None, :, None]
        taken[:n_marks, :, 2] = MARK
    sides: dict[str, str] = {}
    for word in words:
        is_small = word in small.index
        wide, line = _width(word), LINE
        if is_small:
            wide, line = wide * SMALL / SIZE, LINE + AIR
        across, up = points.loc[word].to_numpy()[:, None] / units
        others = taken[n_marks if word == first else 0 : n_marks + len(sides)]
        for side, (x, y) in SIDES.items():
            middle = across + x * (wide / 2 + GAP)
            if is_small and ((middle - wide / 2 < ends[0] - GAP) | (middle + wide / 2 > ends[1] + GAP)).any():
                continue
            box = np.stack([middle, up + y * LINE, np.full(len(units), wide)], -1)
            beside = abs(others[..., 0] - box[:, 0]) >= (others[..., 2] + wide) / 2
            if (beside | (abs(others[..., 1] - box[:, 1]) >= line)).all():
                taken[n_marks + len(sides)] = box
                sides[word] = side
                break
    return sides


def _width(word: str) -> float:
    """Pixels of a word in large letters; a Chinese character is as wide as it is high."""
    return sum(SIZE if unicodedata.east_asian_width(letter) in "WF" else LETTER for letter in word)


def _marks(points: pd.DataFrame, flat: bool) -> Callable[..., dict]:
    """A function that returns these points as a plotly trace in any style (checked once, with the figure)."""
    kind = {"type": "scatter" if flat else "scatter3d"}
    where = kind | dict(zip("xyz", (points[column].to_numpy() for column in points), strict=False))

    def trace(**look: object) -> dict:
        return where | {name: value for name, value in look.items() if value is not None}

    return trace


def _in_space(word: str, place: pd.Series) -> dict:
    """A word on three axes, drawn over all points, which would cover it otherwise."""
    name = f"<b>{html.escape(word, quote=False)}</b>"
    at = dict(zip("xyz", place, strict=True))
    return at | {"text": name, "showarrow": False, "yshift": GAP, "font": {"size": SIZE, "shadow": "auto"}}


def _escaped(words: Iterable[str]) -> np.ndarray:
    """An array: in a list plotly would check and copy each word, which takes longer than everything else."""
    return np.array([html.escape(word, quote=False) for word in words], object)


def _arrow(start: pd.Series, end: pd.Series) -> dict:
    return {
        "x": end.iloc[0],
        "y": end.iloc[1],
        "ax": start.iloc[0],
        "ay": start.iloc[1],
        "axref": "x",
        "ayref": "y",
        "text": "",
        "showarrow": True,
        "arrowhead": 2,
        "arrowwidth": 1.5,
        "arrowcolor": ARROW_COLOUR,
        "standoff": 4,
        "startstandoff": 4,
    }
