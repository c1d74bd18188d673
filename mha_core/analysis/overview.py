"""All layers × heads of a trace at a glance: a thumbnail and the measures of each head."""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from mha_core.analysis import roles
from mha_core.analysis.patterns import (
    MEASURES,
    POSITIONS,
    Patterns,
    RowBlock,
    Without,
    blocks,
    check_whole,
    leave_out,
)
from mha_core.traces.layer import LayerTrace
from mha_core.traces.trace import AttentionTrace

MAX_SIDE, MIN_SIDE = 32, 8  # of a thumbnail, in pixels
MAX_PIXELS = 1 << 21  # of all thumbnails together: thousands of heads get smaller ones


class Thumbnail:
    """A small picture of a head. A pixel shows the largest weight of its cells, so that thin lines remain."""

    def __init__(self, layer: LayerTrace, side: int):
        height, width = min(side, layer.n_query), min(side, layer.n_key)
        self.rows = np.arange(height + 1) * layer.n_query // height
        self.keys = np.arange(width) * layer.n_key // width
        self.largest = np.full((height, width), np.nan, np.float32)

    def add(self, block: RowBlock) -> None:
        """Take in some rows of the weights of this head."""
        start, stop = block.rows.start, block.rows.stop
        first = np.searchsorted(self.rows, start, "right") - 1
        keys = self.keys[self.keys < block.weights.shape[2]]
        for row in range(first, np.searchsorted(self.rows, stop, "left")):
            part = slice(max(self.rows[row], start) - start, min(self.rows[row + 1], stop) - start)
            maxima = np.maximum.reduceat(block.weights[0, part].max(0), keys)
            if block.allowed is not None:
                maxima[~np.logical_or.reduceat(block.allowed[0, part].any(0), keys)] = np.nan
            pixels = self.largest[row, : len(keys)]
            np.fmax(pixels, maxima, out=pixels)

    def weights(self) -> np.ndarray:
        """The largest weight of each pixel, NaN where all cells are hidden. (side, side), float32

        `side` is at most the number of tokens; the shorter of two texts is stretched to the same side.
        """
        side = max(self.largest.shape)
        rows, keys = (np.arange(side) * length // side for length in self.largest.shape)
        return self.largest[rows][:, keys]


@dataclass(frozen=True, eq=False)
class Overview:
    """All heads at a glance: the thumbnails of each layer and the measures of each head.

    `thumbs` has an array (head, side, side) float32 for each layer: the largest weight among the cells of a
    pixel, NaN where the mask hides them all. `table` has the columns of `metrics` and a row for each
    (layer, head), from 0. `n_tokens` is the number of keys.
    """

    thumbs: tuple[np.ndarray, ...] = field(repr=False)
    table: pd.DataFrame
    n_tokens: int

    @property
    def side(self) -> int:
        """Rows and columns of a picture, in pixels; for short texts a pixel is one cell."""
        return self.thumbs[0].shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes of the pictures and of the table."""
        return sum(thumbs.nbytes for thumbs in self.thumbs) + int(self.table.memory_usage().sum())

    def positions(self) -> dict[tuple[int, int], tuple[str, float]]:
        """The position that a head mostly looks at, if any: (layer, head) → (name, mean weight).

        The rule is that of `roles.labels`, with ``1/L`` as baseline and as score before training.
        """
        long = self.table[[*POSITIONS]].rename_axis(columns="role").stack().rename("score").reset_index()
        return roles.labels(long.assign(baseline=1 / self.n_tokens, control=1 / self.n_tokens))


def overview(trace: AttentionTrace, *, without: Without = ()) -> Overview:
    """Thumbnails and measures of every head of every layer, in one pass over blocks of weights.

    Memory grows with tokens · d_model at most; the L × L matrix of a head of a long text never exists.
    `without` leaves tokens out as in `metrics`. Raises `MhaError` as `metrics` does.
    """
    trace = leave_out(trace, without)
    check_whole(trace)
    heads = Heads(trace)
    for layer, head in heads.places:
        heads.add(layer, head)
    return heads.overview()


class Heads:
    """The overview of a trace as it grows, head by head, in any order; what is missing in it is NaN.

    One thread may add heads while others read `overview`.
    """

    def __init__(self, trace: AttentionTrace):
        self.layers = trace.layers
        self.places = [(at, head) for at, layer in enumerate(trace.layers) for head in range(layer.n_heads)]
        self.done: set[tuple[int, int]] = set()
        side = MAX_SIDE
        while side > MIN_SIDE and len(self.places) * side**2 > MAX_PIXELS:
            side //= 2
        self.side = side
        index = pd.MultiIndex.from_tuples(self.places, names=["layer", "head"])
        self.table = pd.DataFrame(np.nan, index, [*MEASURES])
        self.thumbs = []
        for layer in trace.layers:
            pixels = min(side, max(layer.n_query, layer.n_key))
            self.thumbs.append(np.full((layer.n_heads, pixels, pixels), np.nan, np.float32))

    def add(self, layer: int, head: int) -> None:
        """Compute one head, in blocks of rows."""
        of_layer = self.layers[layer]
        thumbnail, measures = Thumbnail(of_layer, self.side), Patterns(of_layer, 1)
        for block in blocks(of_layer, head=head):  # thumbnail and measures of the same cells
            thumbnail.add(block)
            measures.add(block)
        self.thumbs[layer][head] = thumbnail.weights()
        self.table.loc[layer, head] = measures.table().iloc[0]
        self.done.add((layer, head))

    def overview(self) -> Overview:
        thumbs = tuple(thumbs.copy() for thumbs in self.thumbs)
        return Overview(thumbs, self.table.copy(), max(layer.n_key for layer in self.layers))
