"""The page Token: what one token looks at and who looks at it, in every head, in one, and over the layers."""

import numpy as np
import pandas as pd
import streamlit as st

from mha_core.figures.bars import bars
from mha_core.token_views import Looks, leading, over_layers
from pages._kit import state
from pages._kit.one_side import Side, beside, cell, lines
from pages._kit.one_view import View, chart, table, whole, word
from pages._kit.text import number, t

MOST_BARS = 15
NAMED = 3  # tokens for each head in the table of all heads


def every_head(view: View, both: tuple[Side, Side]) -> None:
    """Heads × tokens in both directions on one colour scale, and each head's first three in words."""
    largest = max(float(side.looks.weights.to_numpy().max()) for side in both)

    def draw(side: Side) -> None:
        values = side.looks.weights.to_numpy()
        head, other = np.unravel_index(values.argmax(), values.shape)
        largest_at = {"weight": number(values.max()), "head": head + 1, "token": view.labels[other]}
        lines(
            view,
            side,
            side.looks,
            rows=t("one.head"),
            framed=view.head,
            limit=largest,
            key=f"one-{side.name}-heads",
            alt=lambda tokens: t(
                "one.heads_alt", what=side.said, heads=len(values), tokens=tokens, **largest_at
            ),
        )

    beside(draw, both)
    if largest > 0:
        st.caption(f"{t('heads.scale_now', limit=number(largest))} {t('one.framed', head=view.head + 1)}")
        st.dataframe(_first_three(view, both), hide_index=True)
    table(_long(view, both), name="heads", view=view)


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
        drawn = lines(
            view,
            side,
            Looks(mean, hidden),
            rows=t("control.layer"),
            framed=view.layer,
            limit=largest,
            key=f"one-{side.name}-layers",
            alt=lambda tokens: t("one.layers_alt", what=side.said, layers=len(mean), tokens=tokens),
        )
        if not drawn:
            return
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
