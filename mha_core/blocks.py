"""A layer's weights, a block of rows at a time, and what is summed over the blocks.

Everything that is measured over all weights of a layer goes through here: memory grows with the block
and not with heads × tokens². Heads and positions count from 0.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from mha_core.layer import LayerTrace
from mha_core.normaliser import log_sum_exp
from mha_core.rows import give_back, row_blocks

# Key position minus query position.
DISTANCE = {"previous token": -1, "next token": 1, "same token": 0}
POSITIONS = (*DISTANCE, "first token")
MEASURES = (*POSITIONS, "entropy", "distance")


class Block(NamedTuple):
    """The weights of some rows in every head, and where a query may look (None: everywhere)."""

    rows: slice | np.ndarray
    weights: np.ndarray  # (head, row, key)
    allowed: np.ndarray | None  # (head or 1, row, key)


def blocks(layer: LayerTrace, queries: np.ndarray | None = None, *, each: int = 1) -> Iterator[Block]:
    """All weights of a layer, ``softmax(masked scores)``, or those of some queries, `rows.CELLS` at a time.

    A block has all heads and some rows, at least one. `each` is how many numbers its reader makes of a cell
    at once: with more of them a block is smaller. With ``softmax="matrix"`` each head's log-sum-exp over its
    whole matrix is found in a first pass.
    """
    norm = _norm(layer) if layer.rule.softmax == "matrix" and layer.knows("q") else None
    count = layer.n_query if queries is None else len(queries)
    bounds = row_blocks(count, layer.n_key * layer.n_heads * each)
    give_back(bounds)  # also what was freed before: what is still to come shall not lie on top of it
    for part in bounds:
        rows = part if queries is None else queries[part]
        yield Block(rows, _weights(layer, rows, norm), _allowed(layer, rows))
    give_back(bounds)


def _weights(layer: LayerTrace, rows: slice | np.ndarray, norm: np.ndarray | None) -> np.ndarray:
    if norm is None:
        return layer.weights(rows=rows)
    return np.exp(layer.masked(rows=rows) / layer.rule.temperature - norm)


def _norm(layer: LayerTrace) -> np.ndarray:
    """That of every row of a head's matrix; infinite, so that all weights are 0, where all is hidden."""
    norm = log_sum_exp(layer)[:, :1, None]
    return np.where(np.isfinite(norm), norm, np.inf).astype(layer.q.dtype)


def _allowed(layer: LayerTrace, rows: slice | np.ndarray) -> np.ndarray | None:
    if layer.rule.mask is None:
        return None
    allowed = layer.allowed(rows=rows)
    return allowed[:1] if allowed.strides[0] == 0 else allowed  # heads that share a mask share its sums


def same_tokens(layer: LayerTrace) -> bool:
    """Do a layer's queries look at themselves? Between two texts, positions cannot be compared."""
    return layer.kind != "cross" and layer.n_query == layer.n_key


class Patterns:
    """The sums behind `metrics.patterns`, block by block; that function says what they mean."""

    def __init__(self, layer: LayerTrace):
        self.positions = same_tokens(layer)
        self.sums = np.zeros((len(MEASURES), layer.n_heads))
        self.counts = np.zeros((len(MEASURES), layer.n_heads), int)
        self.spare = np.empty(0)

    def add(self, block: Block) -> None:
        weights, allowed = block.weights, block.allowed
        n_key = weights.shape[2]
        queries = np.arange(block.rows.start, block.rows.stop)
        visible = np.full((1, len(queries)), n_key) if allowed is None else allowed.sum(2)
        choice = visible >= 2
        for name in POSITIONS if self.positions else ():
            keys = np.zeros_like(queries) if name == "first token" else queries + DISTANCE[name]
            exists = (queries > 0) if name == "first token" else (keys >= 0) & (keys < n_key)
            at, keys = np.flatnonzero(exists), keys[exists]
            seen = choice[:, at] if allowed is None else choice[:, at] & allowed[:, at, keys]
            self._count(name, weights[:, at, keys], seen)

        total = weights.sum(2)  # less than 1 with sinks; hidden cells are 0
        counted = choice & (total > 0)
        logs = self._logs(weights)
        apart = np.abs(np.arange(n_key) - queries[:, None]).astype(weights.dtype)
        with np.errstate(divide="ignore", invalid="ignore"):
            # H(w / Σw) = log Σw − Σ w log w / Σw
            spread = (np.log(total) - np.vecdot(weights, logs) / total) / np.log(visible)
            distance = np.vecdot(weights, apart) / total
        self._count("entropy", spread.clip(0, 1), counted)  # rounding can leave the bounds
        self._count("distance", distance, counted & self.positions)

    def _logs(self, weights: np.ndarray) -> np.ndarray:
        """``log w``, finite where w is 0, in memory for every block: new pages cost more than logs."""
        if self.spare.size < weights.size or self.spare.dtype != weights.dtype:
            self.spare = np.empty(weights.size, weights.dtype)
        logs = self.spare[: weights.size].reshape(weights.shape)
        np.maximum(weights, np.finfo(weights.dtype).tiny, out=logs)
        return np.log(logs, out=logs)

    def _count(self, name: str, values: np.ndarray, counted: np.ndarray) -> None:
        at = MEASURES.index(name)
        self.sums[at] += np.where(counted, values, 0.0).sum(1, dtype=float)
        self.counts[at] += counted.sum(1)

    def table(self) -> pd.DataFrame:
        """The means, one row for each head; NaN where no row counts."""
        nothing = np.full(self.sums.shape, np.nan)
        means = np.divide(self.sums, self.counts, out=nothing, where=self.counts > 0)
        return pd.DataFrame(
            dict(zip(MEASURES, means, strict=True)), pd.RangeIndex(means.shape[1], name="head")
        )


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
