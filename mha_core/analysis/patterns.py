"""Measures of heads: the positions they look at, how widely they look, and how similar two of them are.

Measures over all weights of a layer read one block of rows at a time: memory grows with the block, not
with heads × tokens². Heads and positions count from 0. Sources: Clark et al. 2019,
"What Does BERT Look At?" (patterns, entropy, similarity); Vig & Belinkov 2019, "Analyzing the Structure of
Attention in a Transformer Language Model" (mean distance).
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import pandas as pd
from numpy.lib.stride_tricks import sliding_window_view

from mha_core.attention.functional import row_blocks
from mha_core.errors import MhaError, Phrase, at_least_1, listed, named_type, shown
from mha_core.traces.indices import index
from mha_core.traces.layer import LayerTrace
from mha_core.traces.tensors import shared
from mha_core.traces.tokens import Sides, Tokens, special_positions
from mha_core.traces.trace import AttentionTrace

Without = Literal["special"] | Sequence[int]

# Key position minus query position.
DISTANCE = {"previous token": -1, "next token": 1, "same token": 0}
POSITIONS = (*DISTANCE, "first token")
MEASURES = (*POSITIONS, "entropy", "distance")


class RowBlock(NamedTuple):
    """The weights of some rows in every head, and where a query may look (None: everywhere).

    Keys after the last one that any of the rows may look at are left out.
    """

    rows: slice
    weights: np.ndarray  # (head, row, key)
    allowed: np.ndarray | None  # (head or 1, row, key)


def blocks(layer: LayerTrace, *, head: int | None = None) -> Iterator[RowBlock]:
    """All weights of a layer or of one head, `CELLS` of them at a time.

    A block has all heads, or that one, and at least one row.
    """
    for rows in row_blocks(layer.n_query, layer.n_key * (layer.n_heads if head is None else 1)):
        yield RowBlock(rows, *layer.visible(head, rows=rows))


def visible_keys(block: RowBlock) -> np.ndarray:
    """How many keys each row may look at. (head or 1, row)"""
    if block.allowed is None:
        return np.full((1, block.weights.shape[1]), block.weights.shape[2])
    return np.asarray(block.allowed.sum(2))


def at_position(name: str, queries: np.ndarray, n_key: int) -> tuple[np.ndarray, np.ndarray]:
    """The places among `queries` of those that have a key at a position of `POSITIONS`, and these keys."""
    keys = np.zeros_like(queries) if name == "first token" else queries + DISTANCE[name]
    exists = (queries > 0) if name == "first token" else (keys >= 0) & (keys < n_key)
    at = np.flatnonzero(exists)
    return at, keys[at]


class RowValues(NamedTuple):
    """A measure in some rows of every head, and which of them count."""

    measure: str
    rows: np.ndarray  # (row,): positions in the block
    values: np.ndarray  # (head, row)
    counted: np.ndarray  # (head or 1, row)


class Patterns:
    """The sums behind `metrics`, added up block by block; `metrics` documents the measures."""

    def __init__(self, layer: LayerTrace, n_heads: int | None = None):
        n_heads = layer.n_heads if n_heads is None else n_heads
        self.positions = layer.sides.same
        self.sums = np.zeros((len(MEASURES), n_heads))
        self.counts = np.zeros((len(MEASURES), n_heads), int)
        # |key − query| of every cell, (query, key), as windows on one row of numbers
        apart = np.abs(np.arange(1 - layer.n_query, layer.n_key)).astype(np.float32)
        self.apart = sliding_window_view(apart, layer.n_key)[::-1]
        self.buffer = np.empty(0)

    def add(self, block: RowBlock) -> None:
        for name, _, values, counted in self.rows(block):
            at = MEASURES.index(name)
            self.sums[at] += np.where(counted, values, 0.0).sum(1, dtype=float)
            self.counts[at] += counted.sum(1)

    def rows(self, block: RowBlock) -> Iterator[RowValues]:
        """Every measure in each row of a block that has it."""
        weights, allowed = block.weights, block.allowed
        n_key = weights.shape[2]
        queries = np.arange(block.rows.start, block.rows.stop)
        visible = visible_keys(block)
        choice = visible >= 2
        for name in POSITIONS if self.positions else ():
            at, keys = at_position(name, queries, n_key)
            counted = choice[:, at] if allowed is None else choice[:, at] & allowed[:, at, keys]
            yield RowValues(name, at, weights[:, at, keys], counted)

        total = np.vecdot(weights, np.ones(n_key, weights.dtype))  # less than 1 with sinks; hidden: 0
        counted = choice & (total > 0)
        logs = self._logs(weights)
        with np.errstate(divide="ignore", invalid="ignore"):
            # H(w / Σw) = log Σw − Σ w log w / Σw
            spread = (np.log(total) - np.vecdot(weights, logs) / total) / np.log(visible)
            distance = np.vecdot(weights, self.apart[block.rows, :n_key]) / total
        rows = np.arange(len(queries))
        yield RowValues("entropy", rows, spread.clip(0, 1), counted)  # rounding can exceed the bounds
        yield RowValues("distance", rows, distance, counted & self.positions)

    def _logs(self, weights: np.ndarray) -> np.ndarray:
        """``log w``, finite where w is 0. All blocks share a buffer: new memory costs more than logs."""
        if self.buffer.size < weights.size or self.buffer.dtype != weights.dtype:
            self.buffer = np.empty(weights.size, weights.dtype)
        logs = self.buffer[: weights.size].reshape(weights.shape)
        np.add(weights, np.finfo(weights.dtype).tiny, out=logs)  # a third of the time of np.maximum
        return np.log(logs, out=logs)

    def table(self) -> pd.DataFrame:
        """The means, one row for each head; NaN where no row counts."""
        means = _means(self.sums, self.counts)
        return pd.DataFrame(
            dict(zip(MEASURES, means, strict=True)), pd.RangeIndex(means.shape[1], name="head")
        )


# Rank collapse: all rows nearly uniform and all tokens nearly equal. These limits are our choice.
EVEN, ALIKE, MAX_SAMPLED_ROWS = 0.99, 0.1, 64
VALUES_PER_CELL = 8  # numbers in memory for each cell while heads are compared, about


def metrics(trace: AttentionTrace | LayerTrace, *, without: Without = ()) -> pd.DataFrame:
    """The positions each head looks at, and how widely it looks: one row for each (layer, head) of a trace.

    For a single layer the rows are its heads.

    - "previous token", "next token", "same token": mean weight ``A[m, m−1]``, ``A[m, m+1]``, ``A[m, m]``;
    - "first token": mean ``A[m, 0]`` over m > 0, high where the first token serves as a sink;
    - "entropy": mean of ``−Σ p log p / log(visible keys)``, 0 for a single key, 1 for equal weights;
    - "distance": mean of ``Σ p |m − n|``, in positions,

    where p is row m of the weights A over its sum. A mean runs over the rows in which that key exists and is
    visible. Rows with fewer than two visible keys are left out; NaN if no row remains. In cross-attention
    positions mean nothing: weights on positions and the distance are NaN.

    ``without="special"`` leaves out special tokens and padding, a list of positions those tokens, as queries
    and as keys. The other weights are divided by their sum, ``w / Σ w`` over the remaining keys, and
    positions are counted among the remaining tokens.

    Raises `MhaError` for a value that is not a trace, for positions that the text does not have, and if no
    token remains. Sources: Clark et al. 2019, for the distance Vig & Belinkov 2019, for sinks Xiao et al.
    2023.
    """
    remaining = leave_out(trace, without)
    if isinstance(remaining, LayerTrace):
        return _measured(remaining)
    return pd.concat({at: _measured(layer) for at, layer in enumerate(remaining.layers)}, names=["layer"])


def similarity(
    trace: AttentionTrace | LayerTrace, *, without: Without = (), max_rows: int | None = None
) -> pd.DataFrame:
    """Similarity of every two heads, from 0 (never the same key) to 1 (the same weights).

    ``1 − mean over rows of √JSD(p, q)`` with ``JSD(p, q) = H((p + q)/2) − (H(p) + H(q))/2`` in bits, p and q
    being the rows of the two heads, divided by their sums. The root of the divergence is a metric: two heads
    that are close to a third one are close to each other. A trace compares all heads of all layers,
    ((layer, head), (layer, head)), a layer its own heads, (head, head).

    Rows are those of `metrics`, left out where either head has none; NaN where no row remains. `max_rows`
    compares at most that many rows of a long text, evenly spaced; memory never grows with tokens².
    `without` leaves tokens out as in `metrics`.

    Raises `MhaError` as `metrics` does, and for layers of several kinds, whose rows are different tokens.
    Sources: Lin 1991 (bounds), Endres & Schindelin 2003 (the root), Clark et al. 2019 (between heads).
    """
    remaining = leave_out(trace, without)
    layers = (remaining,) if isinstance(remaining, LayerTrace) else of_one_kind(remaining).layers
    n_query, n_key, n_heads = layers[0].n_query, layers[0].n_key, sum(layer.n_heads for layer in layers)
    queries = None
    if max_rows is not None and at_least_1("max_rows", max_rows, Phrase("rows")) < n_query:
        queries = np.linspace(0, n_query - 1, max_rows).astype(int)
    distances, common = np.zeros((2, n_heads, n_heads))
    count = n_query if queries is None else len(queries)
    for part in row_blocks(count, n_key * n_heads * VALUES_PER_CELL):
        rows = part if queries is None else queries[part]
        p = np.concatenate([_shares(*layer.visible(rows=rows), n_key) for layer in layers])
        entropy, counted = row_entropy(p), np.asarray(p.any(2))
        for head in range(n_heads - 1):
            others = slice(head + 1, None)
            mean_entropy = row_entropy((p[head] + p[others]) / 2)
            divergence = mean_entropy - (entropy[head] + entropy[others]) / 2
            in_both = counted[head] & counted[others]
            distances[head, others] += np.where(in_both, np.sqrt(divergence.clip(0, 1)), 0.0).sum(1)
            common[head, others] += in_both.sum(1)
    distances, common = distances + distances.T, common + common.T
    similarities = 1 - _means(distances, common)
    np.fill_diagonal(similarities, 1.0)
    heads = pd.RangeIndex(n_heads, name="head")
    if not isinstance(remaining, LayerTrace):
        pairs = [(at, head) for at, layer in enumerate(layers) for head in range(layer.n_heads)]
        heads = pd.MultiIndex.from_tuples(pairs, names=["layer", "head"])
    return pd.DataFrame(similarities, heads, heads)


def of_one_kind(trace: AttentionTrace) -> AttentionTrace:
    """The trace itself. Raises `MhaError` if its layers are of several kinds, whose tokens differ."""
    check_whole(trace)
    if len(trace.kinds) > 1:
        raise MhaError(
            "This trace has layers of the kinds {kinds}, between different tokens; "
            "take one of them, as in trace.part({kind!r}).",
            kinds=listed(trace.kinds, "comma"),
            kind=trace.kinds[-1],
        )
    return trace


def check_whole(trace: AttentionTrace | LayerTrace) -> None:
    """Raise `MhaError` for a single layer where a whole trace is needed."""
    if isinstance(trace, LayerTrace):
        raise MhaError("A whole trace is needed, as mha.trace(text) returns it; got one of its layers.")


@overload
def leave_out(trace: AttentionTrace, without: Without) -> AttentionTrace: ...
@overload
def leave_out(trace: LayerTrace, without: Without) -> LayerTrace: ...
def leave_out(trace: AttentionTrace | LayerTrace, without: Without) -> AttentionTrace | LayerTrace:
    """A trace or a layer without some of its tokens; the remaining weights are divided by their sum.

    `metrics` documents `without`.

    Queries, keys and values of the tokens are dropped, and the softmax runs over the remaining keys. In
    cross-attention "special" leaves out those of both texts, and a list of positions is refused.
    """
    if not isinstance(trace, AttentionTrace | LayerTrace):
        raise MhaError(
            "A trace is needed, as mha.trace(text) returns it, or one of its layers; got {type}.",
            type=named_type(trace),
        )
    if isinstance(trace, AttentionTrace) and not trace.layers:
        raise MhaError("This trace has no layer with attention weights, and there is nothing to measure.")
    if not (isinstance(without, str) and without == "special"):
        without = _listed_positions(without)
        if not without:
            return trace
    layers: tuple[LayerTrace, ...] = (trace,) if isinstance(trace, LayerTrace) else trace.layers
    for layer in layers:
        if without == "special" and not layer.sides.named:
            raise MhaError("A layer by itself does not know its tokens: leave special ones out of its trace.")
        if without != "special" and not layer.sides.same:
            raise MhaError("Positions of two texts cannot be told apart; without='special' works for both.")
    remaining = {}  # by identity, so that a text that looks at itself remains one object

    def of_text(tokens: Tokens) -> tuple[list[int], Tokens]:
        if id(tokens) not in remaining:
            left_out = special_positions(tokens) if without == "special" else without
            positions = _remaining_positions(len(tokens), left_out)
            remaining[id(tokens)] = positions, _selected_tokens(tokens, positions)
        return remaining[id(tokens)]

    layers = tuple(
        _selected_layer(layer, of_text(layer.sides.queries), of_text(layer.sides.keys)) for layer in layers
    )
    if isinstance(trace, LayerTrace):
        return layers[0]
    return AttentionTrace(of_text(trace.tokens)[1], layers, trace.source)


def _listed_positions(without: Any) -> list:
    """The positions to leave out, as a list: an array or a generator has no truth value or length."""
    with suppress(TypeError):
        if not isinstance(without, str):
            return list(without)
    raise MhaError("without is 'special' or a list of positions; got {without}.", without=shown(without))


def _remaining_positions(count: int, without: Sequence[int]) -> list[int]:
    """The positions below `count` that are not left out; negative ones count from the end, as in numpy."""
    left_out = {index("token", at, count, of=Phrase("The text")) for at in without}
    positions = [at for at in range(count) if at not in left_out]
    if not positions:
        raise MhaError("All {count} tokens would be left out; leave one at least.", count=count)
    return positions


def _selected_layer(
    layer: LayerTrace, queries: tuple[list[int], Tokens], keys: tuple[list[int], Tokens]
) -> LayerTrace:
    (rows, query_tokens), (columns, key_tokens) = queries, keys
    sides = Sides(query_tokens, key_tokens)
    rule = replace(layer.rule, patched_weights=None, patched_outputs=None)
    rule = rule.at(slice(None), rows, n_query=layer.n_query, n_key=layer.n_key).for_keys(columns)
    if not layer.knows("q") or layer.rule.patched_weights is not None:
        any_tensor = next(iter(shared(layer.tensors).values()))
        weights = any_tensor.new_tensor(layer.weights(rows=rows, keys=columns))
        total = weights.sum(-1, keepdim=True)
        tensors = {"weights": weights / total.masked_fill(total == 0, 1)}
    else:
        held, positions = shared(layer.tensors), {"q": rows, "k": columns, "v": columns}
        tensors = {name: held[name][:, at] for name, at in positions.items()}
    return replace(layer, tensors=tensors, rule=rule, sides=sides)


def _selected_tokens(tokens: Tokens, positions: list[int]) -> Tokens:
    pieces = tuple(tokens.pieces[at] for at in positions)
    spans = tuple(tokens.spans[at] for at in positions if tokens.spans)
    unknown = tuple(new for new, at in enumerate(positions) if at in tokens.unknown)
    return Tokens(tokens.text, pieces, spans, unknown=unknown)


def _measured(layer: LayerTrace) -> pd.DataFrame:
    """The measures of one layer, a row for each head."""
    sums = Patterns(layer)
    for block in blocks(layer):
        sums.add(block)
    return sums.table()


def collapse(layer: LayerTrace) -> float | None:
    """The relative distance between a layer's tokens if rank has collapsed there, else None.

    ``‖X − mean of X‖ / ‖X‖`` of the layer's input X, if that is at most `ALIKE` and the mean over rows of
    ``−Σ p log p / log(visible keys)`` is at least `EVEN` in every head, over at most `MAX_SAMPLED_ROWS` rows.
    None too if X is not known, and in cross-attention. Source: Dong, Cordonnier & Loukas 2021, "Attention is
    not all you need: pure attention loses rank doubly exponentially with depth".
    """
    x = layer.x
    if x is None or not layer.sides.same:
        return None
    length = np.linalg.norm(x)
    distance = float(np.linalg.norm(x - x.mean(0)) / length) if length else 0.0
    if distance > ALIKE or len(x) < 2:
        return None
    rows = np.linspace(0, layer.n_query - 1, min(layer.n_query, MAX_SAMPLED_ROWS)).astype(int)
    visible = layer.allowed(rows=rows).sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        evenness = row_entropy(layer.weights(rows=rows).astype(np.float64)) / np.log2(visible)
    several = visible > 1
    means = _means(np.where(several, evenness, 0.0).sum(-1), several.sum(-1))
    return distance if (means >= EVEN).all() else None


def special_share(layer: LayerTrace, special: tuple[int, ...]) -> float | None:
    """The mean share of a row's weight on special tokens; None if there are none.

    At most `MAX_SAMPLED_ROWS` rows count, evenly spaced. None too if the numbers of queries and keys differ.
    """
    if not special or layer.n_query != layer.n_key:
        return None
    step = max(1, -(-layer.n_query // MAX_SAMPLED_ROWS))
    return float(layer.weights(rows=slice(None, None, step))[..., list(special)].sum(-1).mean())


def _shares(weights: np.ndarray, allowed: np.ndarray | None, n_key: int) -> np.ndarray:
    """Weights whose rows sum to 1; zero in rows with fewer than two visible keys. (head, row, n_key)"""
    weights = weights.astype(np.float64)
    choice = weights.shape[2] >= 2 if allowed is None else (allowed.sum(2) >= 2)[..., None]
    total = weights.sum(2, keepdims=True)  # less than 1 with sinks; hidden cells are 0
    shares = np.zeros((*weights.shape[:2], n_key))
    np.divide(weights, total, out=shares[..., : weights.shape[2]], where=choice & (total > 0))
    return shares


def _means(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """``sums / counts``; NaN where nothing was counted."""
    return np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)


def row_entropy(p: np.ndarray) -> np.ndarray:
    """``−Σ p log₂ p`` over the last axis, in bits."""
    return -(p * np.log2(p, out=np.zeros_like(p), where=p > 0)).sum(-1)
