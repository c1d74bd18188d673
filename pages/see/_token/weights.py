"""The page Token: what one token looks at and who looks at it, in every head, in one, and over the layers."""

import numpy as np
import pandas as pd
import streamlit as st

from mha_core.analysis.token import Looks, leading, over_layers
from mha_core.figures.bars import bars
from pages._kit import state
from pages._kit.text import number, t
from pages.see._token.directions import Direction, beside, cell, lines
from pages.see._token.subject import Subject, chart, table, whole, word

MOST_BARS = 15
WAYS = ("given", "received")
NAMED = 3  # tokens for each head in the table of all heads


def every_head(subject: Subject, both: tuple[Direction, Direction]) -> None:
    """Heads × tokens in both directions on one colour scale, and each head's first three in words."""
    largest = max(float(side.looks.weights.to_numpy().max()) for side in both)

    def draw(side: Direction) -> None:
        values = side.looks.weights.to_numpy()
        head, other = np.unravel_index(values.argmax(), values.shape)
        largest_at = {
            "weight": number(values.max()),
            "head": head + 1,
            "token": side.looks.weights.columns[other],
        }
        lines(
            subject,
            side,
            side.looks,
            rows=t("one.head"),
            framed=subject.head,
            limit=largest,
            key=f"one-{side.name}-heads",
            alt=lambda tokens: t(
                "one.heads_alt", what=side.said, heads=len(values), tokens=tokens, **largest_at
            ),
        )

    beside(draw, both)
    if largest > 0:
        st.caption(f"{t('heads.scale_now', limit=number(largest))} {t('one.framed', head=subject.head + 1)}")
        st.dataframe(_first_three(subject, both), hide_index=True)
    table(_long(subject, both), name="heads", subject=subject)


def _first_three(subject: Subject, both: tuple[Direction, Direction]) -> pd.DataFrame:
    columns = {t("one.head"): range(1, subject.of_layer.n_heads + 1)}
    for side in both:
        values, labels = side.looks.weights.to_numpy(), side.looks.weights.columns
        order = np.argsort(-values, axis=1, kind="stable")
        for place in range(min(NAMED, values.shape[1])):
            first = t("one.column_looks") if side.name == "looks" else t("one.column_seen")
            columns[f"{first} {place + 1}"] = [
                cell(labels[row[place]], weights[row[place]]) if weights[row[place]] > 0 else "–"
                for row, weights in zip(order, values, strict=True)
            ]
    return pd.DataFrame(columns)


def _long(subject: Subject, both: tuple[Direction, Direction]) -> pd.DataFrame:
    return _listed(
        subject, "head", {f"weight {how}": side.looks.weights for how, side in zip(WAYS, both, strict=True)}
    )


def _listed(subject: Subject, line: str, found: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """One row for each line (a head, a layer) and token; of two texts one after the other."""

    def listed(weights: pd.DataFrame, columns: dict) -> pd.DataFrame:
        n_lines, n_tokens = weights.shape
        return pd.DataFrame(
            {
                line: np.repeat(weights.index.to_numpy(), n_tokens),
                "position": np.tile(np.arange(1, n_tokens + 1), n_lines),
                "token": np.tile(np.array(weights.columns, dtype=object), n_lines),
            }
            | {name: values.to_numpy().ravel() for name, values in columns.items()}
        )

    if subject.trace.sides.same:
        return listed(next(iter(found.values())), found)
    return pd.concat([listed(weights, {name: weights}) for name, weights in found.items()], ignore_index=True)


def ranked(subject: Subject, both: tuple[Direction, Direction]) -> None:
    """Both directions of the chosen head as bars, the largest first; a click goes to that token."""
    goes_on = not subject.trace.sides.same

    def draw(side: Direction) -> None:
        weights = side.looks.weights.iloc[subject.head]
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
        key = f"one-{side.name}-{subject.token if side.name == 'looks' else subject.key}"
        chart(
            subject,
            bars(rows, words=t("one.weight"), hue=subject.head, together=several),
            key=key,
            alt=t(
                "one.bars_alt",
                what=side.said,
                head=subject.head + 1,
                count=len(found.positions),
                list=", ".join(
                    f"{label} {number(value)}" for label, value in rows["value"].head(NAMED).items()
                ),
            ),
            on_select=lambda: clicked(key, "key_token" if goes_on and side.name == "looks" else "token"),
            selection_mode="points",
        )
        st.caption(_sum(subject, side, float(weights.to_numpy().sum(dtype=np.float64))))

    beside(draw, both)
    if any(side.looks.weights.iloc[subject.head].any() for side in both):
        st.caption(t("one.click"))


def _sum(subject: Subject, side: Direction, total: float) -> str:
    if side.name == "seen":
        return t(
            "one.sum_column",
            total=f"{total:.2f}",
            even=f"{subject.of_layer.n_query / subject.of_layer.n_key:.3g}",
        )
    return whole(total)


def clicked(key: str, moved: str = "token") -> None:
    """Go to the token whose bar was clicked on; the bar of several stands for none."""
    points = st.session_state[key]["selection"]["points"]
    place = np.ravel(points[0]["customdata"]) if points else [-1]
    if place[0] >= 0:
        state.go(**{moved: int(place[0]) + 1})


def layers(subject: Subject, both: tuple[Direction, Direction]) -> None:
    """The mean over the heads of each layer, both directions, and the strongest head of each in words."""
    found = {
        "looks": over_layers(subject.trace, subject.token, of="row"),
        "seen": over_layers(subject.trace, subject.key, of="column"),
    }
    largest = max(float(side.mean.to_numpy().max()) for side in found.values())

    def draw(side: Direction) -> None:
        mean, hidden, strongest = found[side.name]
        drawn = lines(
            subject,
            side,
            Looks(mean, hidden),
            rows=t("control.layer"),
            framed=subject.layer,
            limit=largest,
            key=f"one-{side.name}-layers",
            alt=lambda tokens: t("one.layers_alt", what=side.said, layers=len(mean), tokens=tokens),
        )
        if not drawn:
            return
        for layer, best in strongest.iterrows():
            said = {"layer": layer, "head": int(best["head"]), "weight": number(best["weight"])}
            other = word(mean.columns[int(best["token"])])
            if side.name == "looks":
                st.markdown(t("one.strongest_looks", token=other, **said))
            else:
                st.markdown(t("one.strongest_seen", token=other, **said))

    beside(draw, both)
    means = {f"mean weight {how}": side.mean for how, side in zip(WAYS, found.values(), strict=True)}
    table(_listed(subject, "layer", means), name="layers", subject=subject)
