"""Two traces beside each other: without and with edits, before and after a training, two heads or models."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import streamlit as st

from mha_core import AttentionTrace
from mha_core.analysis.frames import Crop, around, picture
from mha_core.scene.places import shape_of
from mha_core.traces.matrices import MATRICES
from pages._kit import answers, compute, head_view, heatmaps, matrices, state, visit
from pages._kit.text import literal, t

NAMES = ("before", "after")  # of the first and the second side's matrices
ROUNDING = 1e-6  # of the largest number: a difference as small is none


class PairSide(NamedTuple):
    """A trace under a heading, and the layer, head and query that are looked at, from 0.

    With a `question` the model's answer to it stands alone above the query, whatever else the model answers.
    """

    heading: str
    trace: AttentionTrace
    layer: int
    head: int
    query: int
    question: str | None = None


class Partners(NamedTuple):
    """Of each query and key of the second side its position in the first side's text; None for the same."""

    queries: Sequence[int] | None = None
    keys: Sequence[int] | None = None

    def of(self, values: np.ndarray, *axes: str | None) -> np.ndarray:
        """The first side's numbers as the second one has them, where these axes are tokens."""
        for axis, name in enumerate(axes):
            order = {"query": self.queries, "token": self.queries, "key": self.keys}.get(name or "")
            values = values if order is None else values.take(order, axis)
        return values


Pair = Sequence[PairSide]  # one side or two
SAME = Partners()


def view(sides: Pair, *, key: str, answered: Sequence[AttentionTrace] = (), compact: bool = False) -> None:
    """Both in one head view, in which layer, head and token are chosen; two heads of a trace in one drawing.

    Traces with other layers or numbers of heads stand in two views. `answered` are those of the same texts
    with the model's answers, where it was asked for them. A `compact` view has the words of a sentence in its
    drawing alone, and no options, so that what stands below is on the first screen of a laptop.
    """
    shapes = st.session_state[visit.SHAPES] = [shape_of(side.trace) for side in sides]
    if len(sides) == 2 and sides[0].trace is sides[1].trace:
        _draw(sides[:1], key=key, heads=[side.head for side in sides], compact=compact)
    elif shapes[0] == shapes[-1]:
        _draw(sides, key=key, answered=answered, compact=compact)
    else:
        for column, side, name in zip(st.columns(2), sides, NAMES, strict=True):
            with column:
                st.caption(literal(side.heading))  # one view alone has no title
                _draw([side], key=f"{key}_{name}", compact=compact)


def _draw(
    sides: Pair,
    *,
    key: str,
    heads: Sequence[int] | None = None,
    answered: Sequence[AttentionTrace] = (),
    compact: bool = False,
) -> None:
    head_view.of_traces(
        [side.trace for side in sides],
        layer=sides[0].layer,
        head=sides[0].head,
        token=sides[0].query,
        heads=heads,
        titles=[_title(side, compact) for side in sides] if heads is None else None,
        key=key,
        more={
            "strips": not compact,
            "compact": compact,
            "answers": [
                answers.in_words(trace, side.question, side.query)
                for side, trace in zip(sides, answered or [side.trace for side in sides], strict=False)
            ],
        },
    )


def _title(side: PairSide, compact: bool) -> str:
    return side.heading if compact else f"{side.heading} · {side.trace.tokens.text}"


def part(sides: Pair) -> Crop:
    """The tokens that are drawn: of a long text those around the first side's token."""
    first = sides[0]
    return around(first.trace, first.query, layer=first.layer, head=first.head)


def show_matrices(
    sides: Pair,
    names: Sequence[str],
    *,
    key: str,
    difference: bool = False,
    partners: Partners = SAME,
    painted: Callable[[str, range, range], None] | None = None,
) -> None:
    """Matrices of the head on both sides, each on one colour scale, and what is between them.

    Of a long text the part around the token is drawn. Cells of a query and a key can be `painted`: of both
    sides where they have the same tokens at the same positions, else of the second one.
    """
    for name in names:
        drawn = _matrices(sides, name, partners=partners)
        paints = painted is not None and "key" in MATRICES[name].axes
        painted_sides = drawn[-1:] if sides[0].trace.title != sides[-1].trace.title else drawn
        drawn = [replace(side, paints=paints and side in painted_sides) for side in drawn]
        if difference:
            drawn.append(between(*drawn, partners=partners))
        traces = {one.name: side.trace for one, side in zip(drawn, sides, strict=False)}
        heatmaps.draw(drawn, key=f"{key}-{name}", stacked=True, traces=traces, painted=painted)


def _matrices(sides: Pair, name: str, *, partners: Partners) -> list[heatmaps.Heatmap]:
    """The matrix of that name on each side, on one colour scale."""
    drawn = [
        compute.once(
            side.trace,
            _matrix,
            name=name,
            key=side_name,
            heading=side.heading,
            layer=side.layer,
            head=side.head,
            query=side.query,
            part=part([side]),
            scale=state.focus().scale,
        )
        for side_name, side in zip(NAMES, sides, strict=False)
    ]
    end = max(side.end for side in drawn)
    drawn = [replace(side, limit=end) for side in drawn]
    if partners is not SAME:
        drawn[-1] = replace(drawn[-1], partners=(partners.queries, partners.keys))
    return drawn


def show_beside(side: PairSide, names: Sequence[str], *, key: str) -> None:
    """Matrices of a head of one trace beside each other."""
    drawn = [
        replace(matrix, name=name) for name in names for matrix in _matrices([side], name, partners=SAME)
    ]
    traces = dict.fromkeys(names, side.trace)
    heatmaps.draw(drawn, key=key, across=2, stacked=True, traces=traces)


def is_unchanged(sides: Pair, name: str, *, partners: Partners = SAME) -> bool:
    """Whether all numbers of a matrix are the same on both sides, but for rounding; hidden ones are none."""
    drawn = _matrices(sides, name, partners=partners)
    moved = np.abs(between(*drawn, partners=partners).values)
    return bool(moved.max(initial=0.0, where=np.isfinite(moved)) <= ROUNDING * drawn[0].end)


def between(
    before: heatmaps.Heatmap, after: heatmaps.Heatmap, *, partners: Partners = SAME
) -> heatmaps.Heatmap:
    """The second matrix minus the first, a token minus its partner; what one of them hides is hidden."""
    first = partners.of(before.frame.to_numpy(), before.frame.index.name, before.frame.columns.name)
    with np.errstate(invalid="ignore"):  # −∞ minus −∞, of hidden cells
        frame = after.frame - first
    hidden = ~np.isfinite(frame.to_numpy())
    return replace(
        after,
        name="difference",
        matrix=None,
        paints=False,
        symbol=t("pair.difference"),
        meaning=t("pair.difference_meaning"),
        frame=frame,
        kind="signed",
        limit=None,
        hidden=hidden if hidden.any() else None,  # a hidden weight is 0
    )


def _matrix(
    side: AttentionTrace,
    *,
    name: str,
    key: str,
    heading: str,
    layer: int,
    head: int,
    query: int,
    part: Crop,
    scale: str,
) -> heatmaps.Heatmap:
    matrix = picture(side, name, layer=layer, head=head, part=part)
    matrix = replace(matrix, symbol=f"{heading} · {matrix.symbol}")
    limit = heatmaps.scale_end(scale, float(np.nanmax(matrix.frame.to_numpy())))
    return matrices.of_picture(matrix, key, limit=limit, query=query)
