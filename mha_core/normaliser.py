"""Each row's log-sum-exp: with it a single weight is one dot product, ``exp(score / temperature − lse)``.

It is what FlashAttention keeps in place of the weights (Dao et al. 2022). Heads and positions count from 0.
"""

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
from torch import Tensor, from_numpy

from mha_core.layer import LayerTrace
from mha_core.rows import row_blocks

_kept: WeakKeyDictionary[LayerTrace, dict[int, np.ndarray]] = WeakKeyDictionary()  # by head


def log_sum_exp(layer: LayerTrace, heads: Sequence[int] | None = None) -> np.ndarray:
    """``log Σ exp(score / temperature)`` of each row, sinks included, −∞ where all is hidden.

    Of `heads`, or of all. (head, query), float64. With ``softmax="matrix"`` every row has that of its head's
    whole matrix. It is computed in blocks of rows, once for a head, and kept as long as the layer.
    Raises `MhaError` for a head that the layer does not have, and for a layer of which only the
    weights are known.
    """
    heads, kept = range(layer.n_heads) if heads is None else heads, _kept.setdefault(layer, {})
    for head in heads:
        if head not in kept:
            kept[head] = _computed(layer, head)
    return np.stack([kept[head] for head in heads])


def column(layer: LayerTrace, key: int) -> np.ndarray:
    """What every query takes from one key, ``A[:, key]``: O(tokens · d_k), not O(tokens²). (head, query)"""
    if not layer.knows("q"):
        return layer.weights(keys=[key])[..., 0]
    lse, found = log_sum_exp(layer), np.empty((layer.n_heads, layer.n_query), layer.q.dtype)
    own = layer.k[[layer.kv_head(head) for head in range(layer.n_heads)], key]
    scaled = np.einsum("hqd,hd->hq", layer.q, own) * layer.scale
    for rows in row_blocks(layer.n_query, layer.n_key * layer.n_heads):
        rule = layer.rule.at(slice(None), rows, n_query=layer.n_query, n_key=layer.n_key)
        rule = rule.mapped(lambda table: _at(table, key))
        masked = rule.masked(from_numpy(scaled[:, rows, None]))[..., 0].numpy()
        with np.errstate(invalid="ignore"):  # a row that is hidden altogether: −∞ − −∞
            weights = np.exp(masked / layer.rule.temperature - lse[:, rows])
        found[:, rows] = np.where(np.isneginf(masked), 0.0, weights)
    return found


def _at(table: Tensor, key: int) -> Tensor:
    """One key's column of a mask or bias; the scores of sinks are no table."""
    return table if table.dim() == 1 else table[..., [0 if table.shape[-1] == 1 else key]]


def _computed(layer: LayerTrace, head: int) -> np.ndarray:
    """One head's, (query,)."""
    temperature, found = layer.rule.temperature, np.empty(layer.n_query)
    for rows in row_blocks(layer.n_query, 2 * layer.n_key):  # a float64 is two
        scores = layer.masked(head, rows=rows).astype(np.float64)
        scores /= temperature
        found[rows] = _over_last(scores)
    if layer.rule.sinks is not None:
        found = np.logaddexp(found, float(layer.rule.sinks[head]) / temperature)
    if layer.rule.softmax == "matrix":
        found = np.full_like(found, _over_last(found.copy()))
    return found


def _over_last(scores: np.ndarray) -> np.ndarray:
    """Over the last axis; the scores themselves are used up: a second array of them would be large."""
    most = scores.max(-1)
    base = np.where(np.isfinite(most), most, 0.0)
    with np.errstate(divide="ignore"):
        scores -= base[..., None]
        return base + np.log(np.exp(scores, out=scores).sum(-1))
