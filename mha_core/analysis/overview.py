"""All layers × heads of a trace at a glance: a small picture and the same few numbers of each head."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from mha_core.analysis import roles
from mha_core.analysis.patterns import POSITIONS, Block, Patterns, Without, blocks, leave_out
from mha_core.traces.layer import LayerTrace
from mha_core.traces.trace import AttentionTrace


class Thumbnails:
    """A small picture of each head: each pixel the largest weight of its cells, so that thin lines stay.

    (head, side, side), side at most the number of tokens; where one of two texts is shorter, its tokens are
    that much larger.
    """

    def __init__(self, layer: LayerTrace, side: int):
        self.side = min(side, max(layer.n_query, layer.n_key))
        down, across = min(self.side, layer.n_query), min(self.side, layer.n_key)
        self.rows = np.arange(down + 1) * layer.n_query // down
        self.keys = np.arange(across) * layer.n_key // across
        self.largest = np.zeros((layer.n_heads, down, across), np.float32)
        self.seen = np.zeros(self.largest.shape, bool)

    def add(self, block: Block) -> None:
        start, stop = block.rows.start, block.rows.stop
        first = np.searchsorted(self.rows, start, "right") - 1
        for row in range(first, np.searchsorted(self.rows, stop, "left")):
            part = slice(max(self.rows[row], start) - start, min(self.rows[row + 1], stop) - start)
            tall = np.maximum.reduceat(block.weights[:, part].max(1), self.keys, axis=1)
            own = self.largest[:, row]
            np.maximum(own, tall, out=own)
            if block.allowed is None:
                self.seen[:, row] = True
            else:
                seen = np.logical_or.reduceat(block.allowed[:, part].any(1), self.keys, axis=1)
                self.seen[:, row] |= seen

    def codes(self, hidden: int) -> np.ndarray:
        """``√w · (hidden − 1)``, rounded, and `hidden` where nobody may look. (head, side, side), uint8"""
        codes = np.rint(np.sqrt(self.largest.clip(0, 1)) * (hidden - 1))
        codes = np.where(self.seen, codes, hidden).astype(np.uint8)
        rows, keys = (np.arange(self.side) * length // self.side for length in codes.shape[1:])
        return codes[:, rows][:, :, keys]


HIDDEN = 255  # the code of a pixel whose cells are all hidden; the others are √weight · 254
SIDE, LEAST_SIDE = 32, 8
MOST_PIXELS = 1 << 21  # of all pictures together: with thousands of heads there is room for small ones alone


@dataclass(frozen=True, eq=False)
class Overview:
    """What one look over all heads needs: for each layer its pictures, for each head its measures.

    `thumbs` has for each layer (head, side, side) uint8: ``√w · 254`` of the largest weight w among the
    cells of a pixel, 255 where the mask hides them all. `table` has the columns of `metrics`
    and a row for each (layer, head), from 0. `n_tokens` is the length of the text that is looked at.
    """

    thumbs: tuple[np.ndarray, ...]
    table: pd.DataFrame
    n_tokens: int

    @property
    def side(self) -> int:
        """Rows and columns of a picture, in pixels; one pixel is one cell where a text is that short."""
        return self.thumbs[0].shape[1]

    def positions(self) -> dict[tuple[int, int], tuple[str, float]]:
        """The position that a head mostly looks at, where there is one: (layer, head) → (name, mean weight).

        As `roles.labels` does it, with ``1/L`` for the baseline and for the head before training.
        """
        long = self.table[[*POSITIONS]].rename_axis(columns="role").stack().rename("score").reset_index()
        return roles.labels(long.assign(baseline=1 / self.n_tokens, control=1 / self.n_tokens))


def overview(trace: AttentionTrace, *, without: Without = ()) -> Overview:
    """Picture and measure every head of every layer, in one pass over blocks of weights.

    Memory grows with tokens · d_model at most; the L × L matrix of a head never exists when it is long.
    `without` leaves tokens out as in `metrics`. Raises `MhaError` as `metrics` does.
    """
    trace = leave_out(trace, without)
    n_heads = sum(layer.n_heads for layer in trace.layers)
    side = SIDE
    while side > LEAST_SIDE and n_heads * side**2 > MOST_PIXELS:
        side //= 2
    thumbs, tables = [], []
    for layer in trace.layers:
        pictures, measures = Thumbnails(layer, side), Patterns(layer)
        for block in blocks(layer, each=2):  # pictures and measures, of the same cells
            pictures.add(block)
            measures.add(block)
        thumbs.append(pictures.codes(HIDDEN))
        tables.append(measures.table())
    table = pd.concat(dict(enumerate(tables)), names=["layer"])
    return Overview(tuple(thumbs), table, max(layer.n_key for layer in trace.layers))
