"""The two directions of attention on the page Token: what the token looks at, and what looks at it."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
import streamlit as st

from mha_core.analysis.token import Looks, column_of, densest, row_of
from mha_core.figures.heatmap import heatmap
from pages._kit.text import isolated, number, t
from pages.see._token.subject import Subject, chart, word

MAX_COLUMNS = 40  # tokens across one heatmap


class Direction(NamedTuple):
    """One direction of attention, a row or a column of weights, with its texts."""

    name: Literal["looks", "seen"]
    title: str
    plain_title: str  # without Markdown
    empty: str  # the text where all weights are 0
    axis: str
    looks: Looks


def both_directions(subject: Subject) -> tuple[Direction, Direction]:
    """The token's row and its column in every head of the layer."""
    row = row_of(subject.trace, subject.token, layer=subject.layer)
    column = column_of(subject.trace, subject.key, layer=subject.layer)
    label, key = subject.labels[subject.token], row.weights.columns[subject.key]
    return (
        Direction(
            "looks",
            t("one.looks", token=subject.name),
            t("one.looks", token=label),
            t("one.looks_nowhere", token=subject.name),
            t("axis.key"),
            row,
        ),
        Direction(
            "seen",
            t("one.seen", token=word(key)),
            t("one.seen", token=key),
            t("one.seen_nowhere", token=word(key)),
            t("axis.query"),
            column,
        ),
    )


def beside(draw: Callable[[Direction], None], both: tuple[Direction, Direction]) -> None:
    """Draw both directions side by side, or one below the other on a narrow page."""
    cells = st.grid(2, min_column_width=300)
    for side in both:
        with cells.container():
            st.markdown(f"**{side.title}**")
            draw(side)


def lines(
    subject: Subject,
    side: Direction,
    looks: Looks,
    *,
    rows: str,
    framed: int,
    limit: float,
    key: str,
    alt: Callable[[int], str],
) -> bool:
    """A heatmap of heads or layers × the tokens with the most weight; returns whether any weight is above 0.

    `alt` takes the number of tokens that are drawn.
    """
    values = looks.weights.to_numpy()
    if not values.any():
        st.markdown(side.empty)
        return False
    columns = densest(looks.weights, MAX_COLUMNS)
    masked = looks.hidden[:, columns]
    figure = heatmap(
        with_text_index(looks.weights.iloc[:, columns]),
        kind="weights",
        rows=rows,
        columns=side.axis,
        hidden=masked if masked.any() else None,
        hidden_text=t("matrix.hidden"),
        limit=limit,
        row=framed,
    )
    chart(subject, figure, key=key, alt=alt(len(columns)))
    partly(values, columns)
    return True


def with_text_index(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with its index as text, so that the axis has a tick for every line."""
    return frame.set_axis(frame.index.astype(str), axis=0)


def cell(label: str, value: float) -> str:
    """A token and its weight, for a cell of a table."""
    return f"{isolated(label)} {value:.2f}"


def partly(values: np.ndarray, columns: np.ndarray) -> None:
    """A note on how many tokens of a long text are not drawn, and on their largest weight."""
    if len(columns) == values.shape[-1]:
        return
    largest = np.delete(values, columns, axis=-1).max()
    st.caption(t("one.partly", shown=len(columns), count=values.shape[-1], maximum=number(largest)))
