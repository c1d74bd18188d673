"""The weights on the page Token, in both directions: in every head, in one head, and over the layers."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
import streamlit as st

from mha_core import AttentionTrace
from mha_core.analysis.frames import origin
from mha_core.analysis.token import Looks, OverLayers, column_of, densest, leading, over_layers, row_of
from mha_core.figures.bars import bars
from pages._kit import charts, compute, heatmaps, state
from pages._kit.heatmaps import Heatmap, MatrixCell
from pages._kit.text import isolated, joined, number, short, t
from pages.see._token.subject import Subject, sum_of_row, table, word

MAX_COLUMNS = 40  # tokens across one heatmap
MAX_BARS = 15
WAYS = ("given", "received")  # in the columns of the CSV files
NAMED = 3  # tokens for each head in the table of all heads


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


def every_head(subject: Subject, both: tuple[Direction, Direction]) -> None:
    """Heads × tokens in both directions; below a fold each head's largest three."""
    has_any = any(side.looks.weights.to_numpy().any() for side in both)
    above = (lambda: st.dataframe(_largest_three(subject, both), hide_index=True)) if has_any else None
    _draw(subject, both, "head", above)


def _draw(
    subject: Subject, both: Sequence[Direction], lines: str, above: Callable[[], object] | None
) -> None:
    """Draw heads or layers × tokens in both directions, and a fold with `above` and all numbers.

    A sentence says where all weights are 0.
    """
    for side in both:
        if not side.looks.weights.to_numpy().any():
            st.markdown(side.empty)
    drawn = subject.of(_drawn, lines=lines, head=subject.head, key=subject.key, scale=state.focus().scale)
    if drawn:
        traces = {one.name: subject.trace for one in drawn if one.cell}
        heatmaps.draw(drawn, key=f"one-{lines}s", across=2, stacked=True, traces=traces)
    for side in both:
        partly(side.looks.weights, MAX_COLUMNS)
    kind = "weight" if lines == "head" else "mean weight"
    weights = {f"{kind} {how}": side.looks.weights for how, side in zip(WAYS, both, strict=True)}
    table(subject, lambda: _long_table(subject, lines, weights), name=f"{lines}s", above=above)


def _drawn(
    trace: AttentionTrace, *, lines: str, layer: int, head: int, token: int, key: int, scale: str
) -> list[Heatmap]:
    """Heads or layers × the tokens with the most weight, in each direction that has any, on one scale."""
    both: Sequence[Direction] = compute.once(trace, both_of, layer=layer, token=token, key=key)
    if lines == "layer":
        both = _of_means(both, _means(trace, token, key))
    limit = heatmaps.scale_end(scale, max(float(side.looks.weights.to_numpy().max()) for side in both))
    ends = {"looks": token, "seen": key}
    drawn = []
    for side in both:
        weights, hidden = side.looks
        if not weights.to_numpy().any():
            continue
        columns = densest(weights, MAX_COLUMNS)
        frame = weights.iloc[:, columns]
        names = pd.Index([t(f"one.{lines}_number", number=number) for number in frame.index], name=lines)
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
                row=head if lines == "head" else layer,
                origin=origin(trace, layer=layer, head=head),
                cell=partial(_cell, side.name, ends[side.name], columns) if lines == "head" else None,
            )
        )
    return drawn


def _cell(direction: str, end: int, columns: np.ndarray, row: int, column: int) -> MatrixCell:
    pair = (end, int(columns[column]))
    return MatrixCell("weights", row, *(pair if direction == "looks" else pair[::-1]))


def partly(weights: pd.DataFrame, size: int) -> None:
    """A note on how many tokens of a long text are not drawn, and on their largest weight."""
    count = len(weights.columns)
    if count > size:
        largest = np.delete(weights.to_numpy(), densest(weights, size), axis=1).max()
        st.caption(t("one.partly", shown=size, count=count, maximum=number(largest)))


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
        places, names = list(largest.positions), list(weights.index[largest.positions])
        values = list(weights.to_numpy()[largest.positions])
        if largest.n_others:
            places.append(-1)
            names.append(t("one.others", count=largest.n_others))
            values.append(largest.others)
        rows = pd.DataFrame({"value": values, "place": places}, names)
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
            bars(rows, words=t("one.weight"), hue=subject.head, together=largest.n_others > 0),
            key=key,
            config=charts.BARS_CONFIG,
            alt=alt,
            title=alt,
            origin=subject.origin,
            on_select=lambda: clicked(key, "key_token" if two_texts and side.name == "looks" else "token"),
            selection_mode="points",
        )
        total = float(weights.to_numpy().sum(dtype=np.float64))
        if side.name == "seen":
            even = subject.of_layer.n_query / subject.of_layer.n_key
            st.caption(t("one.sum_column", total=f"{total:.2f}", even=f"{even:.3g}"))
        else:
            st.caption(sum_of_row(total))

    _beside(draw, both)
    if any(side.looks.weights.iloc[subject.head].any() for side in both):
        st.caption(t("one.click"))


def _beside(draw: Callable[[Direction], None], both: tuple[Direction, Direction]) -> None:
    """Draw both directions side by side, or one below the other on a narrow page."""
    cells = st.grid(2, min_column_width=300)
    for side in both:
        with cells.container():
            st.markdown(f"**{side.title}**")
            draw(side)


def clicked(key: str, setting: str) -> None:
    """Set `setting` to the token of the clicked bar; the bar of all other tokens changes nothing."""
    points = st.session_state[key]["selection"]["points"]
    place = np.ravel(points[0]["customdata"]) if points else [-1]
    if place[0] >= 0:
        state.go(**{setting: int(place[0]) + 1})


def layers(subject: Subject, both: tuple[Direction, Direction]) -> None:
    """The mean over the heads of each layer in both directions, and each layer's strongest head in words."""
    means = _means(subject.trace, subject.token, subject.key)
    above = partial(_beside, lambda side: _strongest(side, means[side.name]), both)
    _draw(subject, _of_means(both, means), "layer", above)


def _means(trace: AttentionTrace, token: int, key: int) -> dict[str, OverLayers]:
    return {
        "looks": compute.once(trace, over_layers, token=token, of="row"),
        "seen": compute.once(trace, over_layers, token=key, of="column"),
    }


def _of_means(both: Sequence[Direction], means: Mapping[str, OverLayers]) -> list[Direction]:
    """Both directions with the means of all layers in place of the weights of one."""
    return [side._replace(looks=Looks(means[side.name].mean, means[side.name].hidden)) for side in both]


def _strongest(side: Direction, means: OverLayers) -> None:
    """The strongest single head of each layer, a sentence each."""
    for layer, best in means.strongest.iterrows():
        values = {"layer": layer, "head": int(best["head"]), "weight": number(best["weight"])}
        other = word(means.mean.columns[int(best["token"])])
        st.markdown(t(f"one.strongest_{side.name}", token=other, **values))
