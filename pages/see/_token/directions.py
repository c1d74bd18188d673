"""One direction of attention on the page Token: what the token looks at, or who looks at it."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
import streamlit as st

from mha_core.analysis.token import Looks, column_of, densest, row_of
from mha_core.figures.heatmap import heatmap
from pages._kit.text import isolated, number, t
from pages.see._token.subject import Subject, chart, word

MOST_DRAWN = 40  # tokens across one heatmap


class Direction(NamedTuple):
    """One direction of attention, with its words: what the token looks at, or who looks at it."""

    name: Literal["looks", "seen"]
    title: str
    said: str  # the title where no Markdown is read
    nothing: str
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
    """Both directions next to each other, or below each other where there is no room."""
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
    """Heads or layers × the tokens that most weight goes to, or that nothing does; is there anything?

    `alt` gets the number of tokens that are drawn.
    """
    values = looks.weights.to_numpy()
    if not values.any():
        st.markdown(side.nothing)
        return False
    kept = densest(looks.weights, MOST_DRAWN)
    masked = looks.hidden[:, kept]
    figure = heatmap(
        named(looks.weights.iloc[:, kept]),
        kind="weights",
        rows=rows,
        columns=side.axis,
        hidden=masked if masked.any() else None,
        hidden_text=t("matrix.hidden"),
        limit=limit,
        row=framed,
    )
    chart(subject, figure, key=key, alt=alt(len(kept)))
    partly(values, kept)
    return True


def named(frame: pd.DataFrame) -> pd.DataFrame:
    """The same lines with their numbers as names, so that every one of them is written on the axis."""
    return frame.set_axis(frame.index.astype(str), axis=0)


def cell(label: str, value: float) -> str:
    """A token and its weight, for a cell of a table."""
    return f"{isolated(label)} {value:.2f}"


def partly(values: np.ndarray, kept: np.ndarray) -> None:
    """Say which tokens of a long text are not drawn."""
    if len(kept) == values.shape[-1]:
        return
    most = np.delete(values, kept, axis=-1).max()
    st.caption(t("one.partly", shown=len(kept), count=values.shape[-1], most=number(most)))
