"""The two directions of attention on the page Token: what the token looks at, and what looks at it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
import streamlit as st

from mha_core import AttentionTrace
from mha_core.analysis.frames import Origin
from mha_core.analysis.token import Looks, column_of, densest, row_of
from pages._kit import heatmaps
from pages._kit.heatmaps import Heatmap
from pages._kit.text import number, t
from pages.see._token.subject import word

MAX_COLUMNS = 40  # tokens across one heatmap


class Direction(NamedTuple):
    """One direction of attention, a row or a column of weights, with its texts."""

    name: Literal["looks", "seen"]
    title: str
    plain_title: str  # without Markdown
    empty: str  # the text where all weights are 0
    looks: Looks


def both_of(trace: AttentionTrace, *, layer: int, token: int, key: int) -> tuple[Direction, Direction]:
    """The row of a token and the column of a key, in every head of the layer."""
    row, column = row_of(trace, token, layer=layer), column_of(trace, key, layer=layer)
    label, key_label = trace.layers[layer].sides.queries.labels[token], row.weights.columns[key]

    def direction(name: Literal["looks", "seen"], token: str, looks: Looks) -> Direction:
        title, plain = (t(f"one.{name}", token=written) for written in (word(token), token))
        return Direction(name, title, plain, t(f"one.{name}_nowhere", token=word(token)), looks)

    return direction("looks", label, row), direction("seen", key_label, column)


def beside(draw: Callable[[Direction], None], both: tuple[Direction, Direction]) -> None:
    """Draw both directions side by side, or one below the other on a narrow page."""
    cells = st.grid(2, min_column_width=300)
    for side in both:
        with cells.container():
            st.markdown(f"**{side.title}**")
            draw(side)


def heatmaps_of(
    trace: AttentionTrace,
    looks: Sequence[tuple[Direction, Looks]],
    drawn: Sequence[Heatmap],
    *,
    key: str,
) -> None:
    """Draw heatmaps of both directions; where all weights of a direction are 0 a sentence says so."""
    for side, (weights, _) in looks:
        if not weights.to_numpy().any():
            st.markdown(side.empty)
    if drawn:
        traces = {one.name: trace for one in drawn if one.explains}
        heatmaps.draw(drawn, key=key, across=2, stacked=True, traces=traces)
    for _, (weights, _) in looks:
        partly(weights.to_numpy(), densest(weights, MAX_COLUMNS))


def on_one_scale(
    looks: Sequence[tuple[Direction, Looks]],
    *,
    framed: int,
    limit: float,
    origin: Origin,
    ends: Mapping[str, int] | None = None,
) -> list[Heatmap]:
    """Heads or layers × the tokens with the most weight, in each direction that has any weight.

    `ends` are the token that looks and the one that is looked at, by the names of the directions.
    """

    def cell_of(end: int, direction: str, columns: np.ndarray) -> Callable[[int, int], heatmaps.MatrixCell]:
        def cell(row: int, column: int) -> heatmaps.MatrixCell:
            pair = (end, int(columns[column]))
            return heatmaps.MatrixCell("weights", row, *(pair if direction == "looks" else pair[::-1]))

        return cell

    drawn = []
    for side, (weights, hidden) in looks:
        if not weights.to_numpy().any():
            continue
        columns = densest(weights, MAX_COLUMNS)
        frame = weights.iloc[:, columns]
        line = frame.index.name  # head or layer
        names = pd.Index([t(f"one.{line}_number", number=number) for number in frame.index], name=line)
        masked = hidden[:, columns]
        drawn.append(
            Heatmap(
                side.name,
                side.plain_title,
                "",
                frame.set_axis(names, axis=0),
                "weights",
                limit=limit,
                hidden=masked if masked.any() else None,
                row=framed,
                origin=origin,
                cell=cell_of(ends[side.name], side.name, columns) if ends else None,
            )
        )
    return drawn


def partly(values: np.ndarray, columns: np.ndarray) -> None:
    """A note on how many tokens of a long text are not drawn, and on their largest weight."""
    if len(columns) == values.shape[-1]:
        return
    largest = np.delete(values, columns, axis=-1).max()
    st.caption(t("one.partly", shown=len(columns), count=values.shape[-1], maximum=number(largest)))
