"""The page Token: what one token looks at and who looks at it, in every head, in one, and over the layers."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
import streamlit as st

from mha_core.figures.bars import bars
from mha_core.figures.heatmap import heatmap
from mha_core.token_views import Looks, column_of, densest, leading, over_layers, row_of
from pages._kit import state
from pages._kit.one_view import View, chart, table, whole, word
from pages._kit.text import isolated, number, t

MOST_DRAWN = 40  # tokens across one heatmap
MOST_BARS = 15
NAMED = 3  # tokens for each head in the table of all heads


class Side(NamedTuple):
    """One direction of attention, with its words: what the token looks at, or who looks at it."""

    name: Literal["looks", "seen"]
    title: str
    said: str  # the title where no Markdown is read
    nothing: str
    axis: str
    looks: Looks


def sides(view: View) -> tuple[Side, Side]:
    """The token's row and its column in every head of the layer."""
    row, column = (see(view.trace, view.token, layer=view.layer) for see in (row_of, column_of))
    label = view.labels[view.token]
    return (
        Side(
            "looks",
            t("one.looks", token=view.name),
            t("one.looks", token=label),
            t("one.looks_nowhere", token=view.name),
            t("axis.key"),
            row,
        ),
        Side(
            "seen",
            t("one.seen", token=view.name),
            t("one.seen", token=label),
            t("one.seen_nowhere", token=view.name),
            t("axis.query"),
            column,
        ),
    )


def beside(draw: Callable[[Side], None], both: tuple[Side, Side]) -> None:
    """Both directions next to each other, or below each other where there is no room."""
    cells = st.grid(2, min_column_width=300)
    for side in both:
        with cells.container():
            st.markdown(f"**{side.title}**")
            draw(side)


def every_head(view: View, both: tuple[Side, Side]) -> None:
    """Heads × tokens in both directions on one colour scale, and each head's first three in words."""
    largest = max(float(side.looks.weights.to_numpy().max()) for side in both)

    def draw(side: Side) -> None:
        weights, hidden = side.looks
        values = weights.to_numpy()
        if not values.any():
            st.markdown(side.nothing)
            return
        kept = densest(weights, MOST_DRAWN)
        masked = hidden[:, kept]
        head, other = np.unravel_index(values.argmax(), values.shape)
        chart(
            view,
            heatmap(
                named(weights.iloc[:, kept]),
                kind="weights",
                rows=t("one.head"),
                columns=side.axis,
                hidden=masked if masked.any() else None,
                hidden_text=t("matrix.hidden"),
                limit=largest,
                row=view.head,
            ),
            key=f"one-{side.name}-heads",
            alt=t(
                "one.heads_alt",
                what=side.said,
                heads=len(values),
                tokens=len(kept),
                weight=number(values.max()),
                head=head + 1,
                token=view.labels[other],
            ),
        )
        partly(values, kept)

    beside(draw, both)
    if largest > 0:
        st.caption(f"{t('heads.scale_now', limit=number(largest))} {t('one.framed', head=view.head + 1)}")
        st.dataframe(_first_three(view, both), hide_index=True)
    table(_long(view, both), name="heads", view=view)


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


def _first_three(view: View, both: tuple[Side, Side]) -> pd.DataFrame:
    columns = {t("one.head"): range(1, view.of_layer.n_heads + 1)}
    for side in both:
        values = side.looks.weights.to_numpy()
        order = np.argsort(-values, axis=1, kind="stable")
        for place in range(min(NAMED, values.shape[1])):
            first = t("one.column_looks") if side.name == "looks" else t("one.column_seen")
            columns[f"{first} {place + 1}"] = [
                cell(view.labels[row[place]], weights[row[place]]) if weights[row[place]] > 0 else "–"
                for row, weights in zip(order, values, strict=True)
            ]
    return pd.DataFrame(columns)


def _long(view: View, both: tuple[Side, Side]) -> pd.DataFrame:
    heads, tokens = view.of_layer.n_heads, len(view.labels)
    return pd.DataFrame(
        {
            "head": np.repeat(np.arange(1, heads + 1), tokens),
            "position": np.tile(np.arange(1, tokens + 1), heads),
            "token": np.tile(np.array(view.labels, dtype=object), heads),
            "weight given": both[0].looks.weights.to_numpy().ravel(),
            "weight received": both[1].looks.weights.to_numpy().ravel(),
        }
    )


def ranked(view: View, both: tuple[Side, Side]) -> None:
    """Both directions of the chosen head as bars, the largest first; a click goes to that token."""

    def draw(side: Side) -> None:
        weights = side.looks.weights.iloc[view.head]
        found = leading(weights, MOST_BARS)
        if not len(found.positions):
            st.markdown(side.nothing)
            return
        several = found.n_others > 0
        names = [*weights.index[found.positions], *[t("one.others", count=found.n_others)] * several]
        rows = pd.DataFrame(
            {
                "value": [*weights.to_numpy()[found.positions], *[found.others] * several],
                "place": [*found.positions, *[-1] * several],
            },
            index=names,
        )
        # A chart of its own for each token: the click that led here is not kept.
        key = f"one-{side.name}-{view.token}"
        chart(
            view,
            bars(rows, words=t("one.weight"), hue=view.head, together=several),
            key=key,
            alt=t(
                "one.bars_alt",
                what=side.said,
                head=view.head + 1,
                count=len(found.positions),
                list=", ".join(
                    f"{label} {number(value)}" for label, value in rows["value"].head(NAMED).items()
                ),
            ),
            on_select=lambda: clicked(key),
            selection_mode="points",
        )
        st.caption(_sum(side, float(weights.to_numpy().sum(dtype=np.float64))))

    beside(draw, both)
    if any(side.looks.weights.iloc[view.head].any() for side in both):
        st.caption(t("one.click"))


def _sum(side: Side, total: float) -> str:
    if side.name == "seen":
        return t("one.sum_column", total=f"{total:.2f}")
    return whole(total)


def clicked(key: str) -> None:
    """Go to the token whose bar was clicked on; the bar of several stands for none."""
    points = st.session_state[key]["selection"]["points"]
    place = np.ravel(points[0]["customdata"]) if points else [-1]
    if place[0] >= 0:
        state.go(token=int(place[0]) + 1)


def layers(view: View, both: tuple[Side, Side]) -> None:
    """The mean over the heads of each layer, both directions, and the strongest head of each in words."""
    found = {
        "looks": over_layers(view.trace, view.token, of="row"),
        "seen": over_layers(view.trace, view.token, of="column"),
    }
    largest = max(float(side.mean.to_numpy().max()) for side in found.values())

    def draw(side: Side) -> None:
        mean, hidden, strongest = found[side.name]
        values = mean.to_numpy()
        if not values.any():
            st.markdown(side.nothing)
            return
        kept = densest(mean, MOST_DRAWN)
        masked = hidden[:, kept]
        chart(
            view,
            heatmap(
                named(mean.iloc[:, kept]),
                kind="weights",
                rows=t("control.layer"),
                columns=side.axis,
                hidden=masked if masked.any() else None,
                hidden_text=t("matrix.hidden"),
                limit=largest,
                row=view.layer,
            ),
            key=f"one-{side.name}-layers",
            alt=t("one.layers_alt", what=side.said, layers=len(values), tokens=len(kept)),
        )
        partly(values, kept)
        for layer, best in strongest.iterrows():
            said = {"layer": layer, "head": int(best["head"]), "weight": number(best["weight"])}
            other = word(view.labels[int(best["token"])])
            if side.name == "looks":
                st.markdown(t("one.strongest_looks", token=other, **said))
            else:
                st.markdown(t("one.strongest_seen", token=other, **said))

    beside(draw, both)
    long = pd.DataFrame(
        {
            "layer": np.repeat(found["looks"].mean.index, len(view.labels)),
            "position": np.tile(np.arange(1, len(view.labels) + 1), len(view.trace.layers)),
            "token": np.tile(np.array(view.labels, dtype=object), len(view.trace.layers)),
            "mean weight given": found["looks"].mean.to_numpy().ravel(),
            "mean weight received": found["seen"].mean.to_numpy().ravel(),
        }
    )
    table(long, name="layers", view=view)
