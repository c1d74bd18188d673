"""The weights on the page Token: one token in every head, in one head, and over the layers."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import streamlit as st

from mha_core import AttentionTrace
from mha_core.analysis.frames import origin
from mha_core.analysis.token import Looks, OverLayers, leading, over_layers
from mha_core.figures.bars import bars
from pages._kit import charts, compute, state
from pages._kit.heatmaps import Heatmap, scale_end
from pages._kit.text import isolated, joined, number, short, t
from pages.see._token.directions import Direction, beside, both_of, heatmaps_of, on_one_scale
from pages.see._token.subject import Subject, sum_of_row, table, word

MAX_BARS = 15
WAYS = ("given", "received")  # in the columns of the CSV files
NAMED = 3  # tokens for each head in the table of all heads


def every_head(subject: Subject, both: tuple[Direction, Direction]) -> None:
    """Heads × tokens in both directions on one colour scale; below a fold each head's largest three."""
    largest = max(float(side.looks.weights.to_numpy().max()) for side in both)
    limit = scale_end(state.focus().scale, largest)
    drawn = subject.of(_heads_drawn, head=subject.head, key=subject.key, limit=limit)
    heatmaps_of(subject.trace, [(side, side.looks) for side in both], drawn, key="one-heads")
    weights = {f"weight {how}": side.looks.weights for how, side in zip(WAYS, both, strict=True)}
    table(
        lambda: _long_table(subject, "head", weights),
        name="heads",
        subject=subject,
        above=(lambda: st.dataframe(_largest_three(subject, both), hide_index=True)) if largest > 0 else None,
    )


def _heads_drawn(
    trace: AttentionTrace, *, layer: int, head: int, token: int, key: int, limit: float
) -> list[Heatmap]:
    looks = [(side, side.looks) for side in compute.once(trace, both_of, layer=layer, token=token, key=key)]
    ends = {"looks": token, "seen": key}
    source = origin(trace, layer=layer, head=head)
    return on_one_scale(looks, framed=head, limit=limit, origin=source, ends=ends)


def _largest_three(subject: Subject, both: tuple[Direction, Direction]) -> pd.DataFrame:
    columns: dict[str, Sequence] = {t("one.head"): range(1, subject.of_layer.n_heads + 1)}
    for side in both:
        values, labels = side.looks.weights.to_numpy(), side.looks.weights.columns
        order = np.argsort(-values, axis=1, kind="stable")
        for place in range(min(NAMED, values.shape[1])):
            columns[f"{t(f'one.column_{side.name}')} {place + 1}"] = [
                f"{isolated(labels[at])} {short(weights[at])}" if weights[at] > 0 else "–"
                for at, weights in zip(order[:, place], values, strict=True)
            ]
    return pd.DataFrame(columns)


def _long_table(subject: Subject, line: str, frames: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """One row for each line (a head or a layer) and token; with two texts one frame after the other."""

    def rows(weights: pd.DataFrame, columns: dict) -> pd.DataFrame:
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
        return rows(next(iter(frames.values())), frames)
    return pd.concat([rows(weights, {name: weights}) for name, weights in frames.items()], ignore_index=True)


def ranked(subject: Subject, both: tuple[Direction, Direction]) -> None:
    """Both directions of the chosen head as bars, the largest first; a click goes to that token."""
    two_texts = not subject.trace.sides.same

    def draw(side: Direction) -> None:
        weights = side.looks.weights.iloc[subject.head]
        largest = leading(weights, MAX_BARS)
        if not len(largest.positions):
            st.markdown(side.empty)
            return
        has_others = largest.n_others > 0
        names = [*weights.index[largest.positions], *[t("one.others", count=largest.n_others)] * has_others]
        rows = pd.DataFrame(
            {
                "value": [*weights.to_numpy()[largest.positions], *[largest.others] * has_others],
                "place": [*largest.positions, *[-1] * has_others],
            },
            index=names,
        )
        # The key changes with the token, so that the new chart does not keep the click that led to it.
        key = f"one-{side.name}-{subject.token if side.name == 'looks' else subject.key}"
        alt = t(
            "one.bars_alt",
            what=side.plain_title,
            head=subject.head + 1,
            count=len(largest.positions),
            list=joined(f"{label} {number(value)}" for label, value in rows["value"].head(NAMED).items()),
        )
        charts.draw(
            bars(rows, words=t("one.weight"), hue=subject.head, together=has_others),
            key=key,
            config=charts.BARS_CONFIG,
            alt=alt,
            title=alt,
            origin=subject.origin,
            on_select=lambda: clicked(key, "key_token" if two_texts and side.name == "looks" else "token"),
            selection_mode="points",
        )
        st.caption(_sum_of_direction(subject, side, float(weights.to_numpy().sum(dtype=np.float64))))

    beside(draw, both)
    if any(side.looks.weights.iloc[subject.head].any() for side in both):
        st.caption(t("one.click"))


def _sum_of_direction(subject: Subject, side: Direction, total: float) -> str:
    if side.name == "seen":
        return t(
            "one.sum_column",
            total=f"{total:.2f}",
            even=f"{subject.of_layer.n_query / subject.of_layer.n_key:.3g}",
        )
    return sum_of_row(total)


def clicked(key: str, setting: str = "token") -> None:
    """Set `setting` to the token of the clicked bar; the bar of all other tokens changes nothing."""
    points = st.session_state[key]["selection"]["points"]
    place = np.ravel(points[0]["customdata"]) if points else [-1]
    if place[0] >= 0:
        state.go(**{setting: int(place[0]) + 1})


def layers(subject: Subject, both: tuple[Direction, Direction]) -> None:
    """The mean over the heads of each layer in both directions, and each layer's strongest head in words."""
    layer_means = _means(subject.trace, subject.token, subject.key)
    drawn = subject.of(_layers_drawn, head=subject.head, key=subject.key, scale=state.focus().scale)
    heatmaps_of(subject.trace, _looks(both, layer_means), drawn, key="one-layers")
    means = {f"mean weight {how}": means.mean for how, means in zip(WAYS, layer_means.values(), strict=True)}
    table(
        lambda: _long_table(subject, "layer", means),
        name="layers",
        subject=subject,
        above=lambda: beside(lambda side: _strongest(side, layer_means[side.name]), both),
    )


def _means(trace: AttentionTrace, token: int, key: int) -> dict[str, OverLayers]:
    return {
        "looks": compute.once(trace, over_layers, token=token, of="row"),
        "seen": compute.once(trace, over_layers, token=key, of="column"),
    }


def _looks(both: tuple[Direction, Direction], means: dict[str, OverLayers]) -> list[tuple[Direction, Looks]]:
    return [(side, Looks(means[side.name].mean, means[side.name].hidden)) for side in both]


def _layers_drawn(
    trace: AttentionTrace, *, layer: int, head: int, token: int, key: int, scale: str
) -> list[Heatmap]:
    means = _means(trace, token, key)
    limit = scale_end(scale, max(float(of.mean.to_numpy().max()) for of in means.values()))
    looks = _looks(compute.once(trace, both_of, layer=layer, token=token, key=key), means)
    return on_one_scale(looks, framed=layer, limit=limit, origin=origin(trace, layer=layer, head=head))


def _strongest(side: Direction, means: OverLayers) -> None:
    """The strongest single head of each layer, a sentence each."""
    for layer, best in means.strongest.iterrows():
        values = {"layer": layer, "head": int(best["head"]), "weight": number(best["weight"])}
        other = word(means.mean.columns[int(best["token"])])
        st.markdown(t(f"one.strongest_{side.name}", token=other, **values))
