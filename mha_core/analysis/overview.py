"""All layers × heads of a trace at a glance: a thumbnail and the measures of each head."""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from mha_core.analysis import roles
from mha_core.analysis.patterns import POSITIONS, Patterns, RowBlock, Without, blocks, check_whole, leave_out
from mha_core.traces.layer import LayerTrace
from mha_core.traces.trace import AttentionTrace

MAX_SIDE, MIN_SIDE = 32, 8  # of a thumbnail, in pixels
MAX_PIXELS = 1 << 21  # of all thumbnails together: thousands of heads get smaller ones


class Thumbnails:
    """A small picture of each head. A pixel shows the largest weight of its cells, so that thin lines remain.

    (head, side, side), where side is at most the number of tokens; the shorter of two texts is stretched to
    the same side.
    """

    def __init__(self, layer: LayerTrace, side: int):
        self.side = min(side, max(layer.n_query, layer.n_key))
        height, width = min(self.side, layer.n_query), min(self.side, layer.n_key)
        self.rows = np.arange(height + 1) * layer.n_query // height
        self.keys = np.arange(width) * layer.n_key // width
        self.largest = np.zeros((layer.n_heads, height, width), np.float32)
        self.visible = np.zeros(self.largest.shape, bool)

    def add(self, block: RowBlock[slice]) -> None:
        start, stop = block.rows.start, block.rows.stop
        first = np.searchsorted(self.rows, start, "right") - 1
        for row in range(first, np.searchsorted(self.rows, stop, "left")):
            part = slice(max(self.rows[row], start) - start, min(self.rows[row + 1], stop) - start)
            maxima = np.maximum.reduceat(block.weights[:, part].max(1), self.keys, axis=1)
            pixels = self.largest[:, row]
            np.maximum(pixels, maxima, out=pixels)
            if block.allowed is None:
                self.visible[:, row] = True
            else:
                visible = np.logical_or.reduceat(block.allowed[:, part].any(1), self.keys, axis=1)
                self.visible[:, row] |= visible

    def weights(self) -> np.ndarray:
        """The largest weight of each pixel, NaN where all cells are hidden. (head, side, side), float32"""
        weights = np.where(self.visible, self.largest, np.float32(np.nan))
        rows, keys = (np.arange(self.side) * length // self.side for length in weights.shape[1:])
        return weights[:, rows][:, :, keys]


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
    n_heads = sum(layer.n_heads for layer in trace.layers)
    side = MAX_SIDE
    while side > MIN_SIDE and n_heads * side**2 > MAX_PIXELS:
        side //= 2
    thumbs, tables = [], []
    for layer in trace.layers:
        thumbnails, measures = Thumbnails(layer, side), Patterns(layer)
        for block in blocks(layer, each=2):  # thumbnails and measures of the same cells
            thumbnails.add(block)
            measures.add(block)
        thumbs.append(thumbnails.weights())
        tables.append(measures.table())
    table = pd.concat(dict(enumerate(tables)), names=["layer"])
    return Overview(tuple(thumbs), table, max(layer.n_key for layer in trace.layers))
