"""How many bits of q and k are enough, so that no weight that is computed from them moves.

Bits that are zero cost next to nothing once they are deflated. Heads and positions count from 0.
"""

from collections.abc import Sequence
from math import ceil, log2

import numpy as np
from torch import from_numpy

from mha_core.attention.functional import raw_scores, row_blocks
from mha_core.traces.layer import LayerTrace

TOLERANCE = 5e-5  # of a weight: half of the last of four digits
LEAST, ALL = 10, 23  # bits of a float32 number behind its point
TRIED = 16  # bits with which the sample is rounded
SAMPLE = 64  # queries


def rounded(values: np.ndarray, bits: int) -> np.ndarray:
    """The nearest float32 numbers of so many bits behind the point: each at most 2^−(bits + 1) of itself off.

    The other 23 − bits are zero.
    """
    spare = ALL - bits
    found = np.ascontiguousarray(values, np.float32).view(np.uint32)
    if spare:
        found = (found + np.uint32(1 << (spare - 1))) >> np.uint32(spare) << np.uint32(spare)
    return found.view(np.float32)


def few_bits(layer: LayerTrace, heads: Sequence[int], lse: np.ndarray) -> int:
    """The fewest bits of q and k with which no weight of these heads moves by more than `TOLERANCE`.

    What a sample of queries asks for is tried in every cell, and a bit more whenever one is not content;
    q and k as they are need no trial. `lse` is the heads' log-sum-exp, (head, query).
    """
    if not (np.isfinite(layer.q).all() and np.isfinite(layer.k).all()):
        return ALL
    own = list(zip(heads, lse.astype(layer.q.dtype), strict=True))
    some = list(range(0, layer.n_query, max(1, layer.n_query // SAMPLE)))
    moved = min(1.0, max(_moved(layer, TRIED, head, base, some) for head, base in own))
    guess = TRIED + ceil(log2(moved / TOLERANCE)) if moved else LEAST  # a bit less moves twice as much
    for bits in range(min(max(guess, LEAST), ALL), ALL):
        if all(
            _moved(layer, bits, head, base, rows) <= TOLERANCE
            for rows in row_blocks(layer.n_query, 2 * layer.n_key)  # as they are, and with fewer bits
            for head, base in own
        ):
            return bits
    return ALL


def _moved(layer: LayerTrace, bits: int, head: int, lse: np.ndarray, rows: slice | list[int]) -> float:
    """By how much fewer bits in q and k move a weight in these rows at most; `lse` of the head, (query,)."""
    base, temperature = lse[rows, None], layer.rule.temperature
    with np.errstate(invalid="ignore", over="ignore"):  # a row that is hidden altogether: −∞ − −∞
        apart, other = (
            np.exp(masked / temperature - base)
            for masked in (layer.masked(head, rows=rows), _masked(layer, bits, head, rows))
        )
        np.abs(np.subtract(apart, other, out=apart), out=apart)
    return float(np.nanmax(apart, initial=0.0))


def _masked(layer: LayerTrace, bits: int, head: int, rows: slice | list[int]) -> np.ndarray:
    """What the softmax would get from q and k with so many bits, (row, key)."""
    q, k = rounded(layer.q[head, rows], bits), rounded(layer.k[layer.kv_head(head)], bits)
    rule = layer.rule.at(slice(head, head + 1), rows, n_query=layer.n_query, n_key=layer.n_key)
    _, masked = rule.logits(raw_scores(from_numpy(q)[None], from_numpy(k)[None]), layer.d_k)
    return masked[0].numpy()
