"""Two traces of one sentence beside each other: before and after a training, without and with edits."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from mha_core import AttentionTrace
from mha_core.analysis.frames import Part, around, picture
from pages._kit import compute, head_view, heatmaps, matrices, sentence
from pages._kit.text import t

Pair = Mapping[str, AttentionTrace]  # by their headings


def view(pair: Pair, *, layer: int, head: int, query: int, key: str) -> None:
    """Both in one head view, in which layer, head and token are chosen."""
    head_view.of_traces(
        list(pair.values()),
        layer=layer,
        head=head,
        token=query,
        titles=[f"{heading} · {side.tokens.text}" for heading, side in pair.items()],
        key=key,
        more={
            "strips": True,
            "compared": True,
            "answers": [sentence.answers(side) for side in pair.values()],
        },
    )


def show_matrices(
    pair: Pair,
    names: Sequence[str],
    *,
    layer: int,
    head: int,
    query: int,
    key: str,
    difference: bool = False,
) -> None:
    """Matrices of the head on both sides, each on one colour scale, and what is between them.

    Of a long text the part around the token is drawn.
    """
    place = {"layer": layer, "head": head, "query": query}
    place["part"] = around(next(iter(pair.values())), query, layer=layer, head=head)
    for name in names:
        drawn = [
            compute.of(side, _matrix, name=name, key=place_name, heading=heading, **place)
            for place_name, (heading, side) in zip(("before", "after"), pair.items(), strict=True)
        ]
        end = max(side.end for side in drawn)
        drawn = [replace(side, limit=end) for side in drawn]
        if difference:
            drawn.append(_difference(*drawn, name="difference"))
        traces = dict(zip(("before", "after"), pair.values(), strict=True))
        heatmaps.draw(drawn, key=f"{key}-{name}", stacked=True, traces=traces)


def _difference(before: heatmaps.Heatmap, after: heatmaps.Heatmap, *, name: str) -> heatmaps.Heatmap:
    """The second matrix minus the first."""
    return replace(
        after,
        name=name,
        matrix=None,
        symbol=t("pair.difference"),
        meaning=t("pair.difference_meaning"),
        frame=after.frame - before.frame,
        kind="signed",
        limit=None,
        hidden=None if np.isfinite(after.values).all() else after.hidden,  # a hidden weight is 0
    )


def _matrix(
    side: AttentionTrace, *, name: str, key: str, heading: str, layer: int, head: int, query: int, part: Part
) -> heatmaps.Heatmap:
    matrix = picture(side, name, layer=layer, head=head, part=part)
    matrix = replace(matrix, symbol=f"{heading} · {matrix.symbol}")
    limit = float(np.nanmax(matrix.frame.to_numpy())) or 1.0
    return matrices.of_picture(matrix, key, limit=limit, query=query)
