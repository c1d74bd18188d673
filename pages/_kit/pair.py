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
from pages._kit import answers, compute, head_view, heatmaps, opened_link, state
from pages._kit.text import literal, t

NAMES = ("before", "after")  # names of the first and the second side's matrices
ROUNDING = 1e-6  # a smaller share of the largest number counts as no difference


class PairSide(NamedTuple):
    """A trace under a heading, and its layer, head and query in focus, from 0.

    With a `question`, only the model's answer to it is shown above the query.
    """

    heading: str
    trace: AttentionTrace
    layer: int
    head: int
    query: int
    question: str | None = None


class Partners(NamedTuple):
    """For each query and key of the second side, its position on the first side; None if all are the same."""

    queries: Sequence[int] | None = None
    keys: Sequence[int] | None = None

    def align(self, values: np.ndarray, *axes: str | None) -> np.ndarray:
        """Arrange the first side's numbers like the second side's, where these axes are tokens."""
        for axis, name in enumerate(axes):
            order = {"query": self.queries, "token": self.queries, "key": self.keys}.get(name or "")
            values = values if order is None else values.take(order, axis)
        return values


Pair = Sequence[PairSide]  # one side or two
SAME = Partners()


def view(sides: Pair, *, key: str, answered: Sequence[AttentionTrace] = (), compact: bool = False) -> None:
    """Draw both in one head view, where the reader chooses; two heads of one trace share a drawing.

    Traces that differ in layers or numbers of heads get two views. `answered` are the traces of the same
    texts with the model's answers, if they were asked for. A `compact` view shows the words of a sentence
    only in its drawing, and no options, so that what is below it fits on the first screen of a laptop.
    """
    shapes = st.session_state[opened_link.SHAPES] = [shape_of(side.trace) for side in sides]
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
    titles = [side.heading if compact else f"{side.heading} · {side.trace.tokens.text}" for side in sides]
    head_view.draw_traces(
        [side.trace for side in sides],
        layer=sides[0].layer,
        head=sides[0].head,
        token=sides[0].query,
        heads=heads,
        titles=titles if heads is None else None,
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


def part(side: PairSide) -> Crop:
    """The tokens of a side that are drawn: in a long text those around its token."""
    return around(side.trace, side.query, layer=side.layer, head=side.head)


def show_matrices(
    sides: Pair,
    names: Sequence[str],
    *,
    key: str,
    difference: bool = False,
    partners: Partners = SAME,
    painted: Callable[[str, range, range], None] | None = None,
) -> None:
    """Draw matrices of the head on both sides, with one colour scale for both, and their `difference`.

    Of a long text, the part around the token is drawn. Cells of a query and a key can be `painted`: on both
    sides if they have the same text, else on the second one.
    """
    for name in names:
        drawn = _matrices(sides, name, partners=partners)
        paints = painted is not None and "key" in MATRICES[name].axes
        painted_sides = drawn[-1:] if sides[0].trace.title != sides[-1].trace.title else drawn
        drawn = [replace(side, paints=paints and side in painted_sides) for side in drawn]
        if difference:
            drawn.append(subtract(*drawn, partners=partners))
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
            part=part(side),
            scale=state.focus().scale,
        )
        for side_name, side in zip(NAMES, sides, strict=False)
    ]
    end = max(side.end for side in drawn)
    drawn = [replace(side, limit=end) for side in drawn]
    drawn[-1] = replace(drawn[-1], partners=(partners.queries, partners.keys))
    return drawn


def show_beside(side: PairSide, names: Sequence[str], *, key: str) -> None:
    """Draw matrices of a head of one trace beside each other."""
    drawn = [
        replace(matrix, name=name) for name in names for matrix in _matrices([side], name, partners=SAME)
    ]
    traces = dict.fromkeys(names, side.trace)
    heatmaps.draw(drawn, key=key, across=2, stacked=True, traces=traces)


def is_unchanged(sides: Pair, name: str, *, partners: Partners) -> bool:
    """Whether all visible numbers of a matrix are the same on both sides, apart from rounding."""
    drawn = _matrices(sides, name, partners=partners)
    moved = np.abs(subtract(*drawn, partners=partners).values)
    return bool(moved.max(initial=0.0, where=np.isfinite(moved)) <= ROUNDING * drawn[0].end)


def subtract(
    before: heatmaps.Heatmap, after: heatmaps.Heatmap, *, partners: Partners = SAME
) -> heatmaps.Heatmap:
    """The second matrix minus the first, a token minus its partner; a cell hidden in either is hidden."""
    first = partners.align(before.frame.to_numpy(), before.frame.index.name, before.frame.columns.name)
    with np.errstate(invalid="ignore"):  # hidden cells give −∞ minus −∞
        frame = after.frame - first
    hidden = ~np.isfinite(frame.to_numpy())
    return replace(
        after,
        name="difference",
        cell=None,
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
    return heatmaps.to_heatmap(matrix, key, limit=limit, query=query)
