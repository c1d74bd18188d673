"""What heads do, in numbers: where they look by position, how widely, and how alike two of them look.

Everything that is measured over all weights of a layer reads them a block of rows at a time: memory grows
with the block and not with heads × tokens². Heads and positions count from 0. Sources: Clark et al. 2019,
"What Does BERT Look At?" (patterns, entropy, similarity); Vig & Belinkov 2019, "Analyzing the Structure of
Attention in a Transformer Language Model" (mean distance).
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from mha_core.attention.functional import row_blocks
from mha_core.traces.layer import LayerTrace

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
    """All weights of a layer, ``softmax(masked scores)``, or those of some queries, `CELLS` at a time.

    A block has all heads and some rows, at least one. `each` is how many numbers its reader makes of a cell
    at once: with more of them a block is smaller. With ``softmax="matrix"`` each head's log-sum-exp over its
    whole matrix is found in a first pass.
    """
    norm = _norm(layer) if layer.rule.softmax == "matrix" and layer.knows("q") else None
    count = layer.n_query if queries is None else len(queries)
    bounds = row_blocks(count, layer.n_key * layer.n_heads * each)
    for part in bounds:
        rows = part if queries is None else queries[part]
        yield Block(rows, _weights(layer, rows, norm), _allowed(layer, rows))


def _weights(layer: LayerTrace, rows: slice | np.ndarray, norm: np.ndarray | None) -> np.ndarray:
    if norm is None:
        return layer.weights(rows=rows)
    return np.exp(layer.masked(rows=rows) / layer.rule.temperature - norm)


def _norm(layer: LayerTrace) -> np.ndarray:
    """That of every row of a head's matrix; infinite, so that all weights are 0, where all is hidden."""
    norm = layer.log_sum_exp()[:, :1, None]
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
    """The sums behind `patterns`, block by block; that function says what they mean."""

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


# Rank collapse: all rows as good as even, and the tokens as good as one. Ours.
EVEN, ALIKE, ROWS_LOOKED_AT = 0.99, 0.1, 64
AT_ONCE = 8  # numbers in memory for each cell while heads are compared, about


def patterns(layer: LayerTrace) -> pd.DataFrame:
    """Where each head looks by position and how widely: one row for each head, no linguistics.

    - "previous token", "next token", "same token": mean weight ``A[m, m−1]``, ``A[m, m+1]``, ``A[m, m]``;
    - "first token": mean ``A[m, 0]`` over m > 0, high where the first token serves as a sink;
    - "entropy": mean of ``−Σ p log p / log(visible keys)``, 0 for one key alone, 1 for all alike;
    - "distance": mean of ``Σ p |m − n|``, in positions,

    where p is row m of the weights A over its sum. A mean runs over the rows in which that key exists and
    is visible. Rows with fewer than two visible keys have no choice and are left out; NaN where none is left.
    Where one text looks at another, positions mean nothing: all but the entropy are NaN.

    Sources: Clark et al. 2019, for the distance Vig & Belinkov 2019, for sinks Xiao et al. 2023.
    """
    found = Patterns(layer)
    for block in blocks(layer):
        found.add(block)
    return found.table()


def similarity(layer: LayerTrace, *, most: int | None = None) -> np.ndarray:
    """How alike each two heads look, from 0 (never at the same key) to 1 (the same weights).

    ``1 − mean over rows of √JSD(p, q)`` with ``JSD(p, q) = H((p + q)/2) − (H(p) + H(q))/2`` in bits, p and q
    being the rows of the two heads over their sums. The root of the divergence is a metric, so heads
    that are both like a third one are like each other. (head, head)

    Rows are those of `patterns`, left out where either head has none; NaN where no row is left. Of a long
    text at most `most` rows can be compared, evenly spaced; memory never grows with tokens².
    Sources: Lin 1991 (bounds), Endres & Schindelin 2003 (the root), Clark et al. 2019 (between heads).
    """
    queries = None
    if most is not None and most < layer.n_query:
        queries = np.linspace(0, layer.n_query - 1, most).astype(int)
    apart, common = np.zeros((2, layer.n_heads, layer.n_heads))
    for block in blocks(layer, queries, each=AT_ONCE):
        p = _shares(block)
        entropy, counted = _entropy(p), p.any(2)
        for head in range(layer.n_heads - 1):
            others = slice(head + 1, None)
            mixed = _entropy((p[head] + p[others]) / 2)
            divergence = mixed - (entropy[head] + entropy[others]) / 2
            both = counted[head] & counted[others]
            apart[head, others] += np.where(both, np.sqrt(divergence.clip(0, 1)), 0.0).sum(1)
            common[head, others] += both.sum(1)
    apart, common = apart + apart.T, common + common.T
    alike = 1 - np.divide(apart, common, out=np.full(apart.shape, np.nan), where=common > 0)
    np.fill_diagonal(alike, 1.0)
    return alike


def collapse(layer: LayerTrace) -> float | None:
    """How far apart the tokens of a layer are whose heads all look evenly; None where a head still chooses.

    None too where X is not known and where the tokens look at those of another text.

    ``‖X − mean of X‖ / ‖X‖`` of the layer's input X, where that is at most `ALIKE` and the mean over rows
    of ``−Σ p log p / log(visible keys)`` at least `EVEN` in every head. At most `ROWS_LOOKED_AT` rows count.
    Source: Dong, Cordonnier & Loukas 2021, "Attention is not all you need: pure attention loses rank doubly
    exponentially with depth".
    """
    if not layer.knows("x") or not same_tokens(layer):
        return None
    length = np.linalg.norm(layer.x)
    apart = float(np.linalg.norm(layer.x - layer.x.mean(0)) / length) if length else 0.0
    if apart > ALIKE or len(layer.x) < 2:
        return None
    rows = np.linspace(0, layer.n_query - 1, min(layer.n_query, ROWS_LOOKED_AT)).astype(int)
    visible = layer.allowed(rows=rows).sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        even = _entropy(layer.weights(rows=rows).astype(np.float64)) / np.log2(visible)
    found = _mean(np.nan_to_num(even), visible > 1)
    return apart if (found >= EVEN).all() else None


def _shares(block: Block) -> np.ndarray:
    """Weights whose rows sum to 1; zero in rows without a choice. (head, row, key)"""
    weights, choice = block.weights.astype(np.float64), block.weights.shape[2] >= 2
    if block.allowed is not None:
        choice = (block.allowed.sum(2) >= 2)[..., None]
    total = weights.sum(2, keepdims=True)  # less than 1 with sinks; hidden cells are 0
    return np.divide(weights, total, out=np.zeros_like(weights), where=choice & (total > 0))


def _mean(values: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """The mean over the last axis of what counts, NaN where nothing does."""
    n = counted.sum(-1)
    total = np.where(counted, values, 0.0).sum(-1)
    return np.divide(total, n, out=np.full(total.shape, np.nan), where=n > 0)


def _entropy(p: np.ndarray) -> np.ndarray:
    """``−Σ p log₂ p`` over the last axis, in bits."""
    return -(p * np.log2(p, out=np.zeros_like(p), where=p > 0)).sum(-1)
