"""Attention over several layers: through all heads of every layer, or through one head and then another."""

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from mha_core.analysis.patterns import Without, blocks, leave_out, of_one_kind
from mha_core.attention.functional import row_blocks
from mha_core.errors import MhaError, Phrase, listed, one_of
from mha_core.traces.indices import Picked
from mha_core.traces.trace import AttentionTrace

HEADS: Mapping[str, Callable[..., np.ndarray]] = {"mean": np.mean, "max": np.max, "min": np.min}


def rollout(
    trace: AttentionTrace,
    *,
    layer: int = -1,
    residual: float = 0.5,
    heads: str = "mean",
    without: Without = (),
) -> pd.DataFrame:
    """Attention rollout: the share of each token in each other after a layer, by default the last.

    ``R_l = Ã_l R_{l−1}``, ``R_{−1} = I``, with ``Ã_l = (1 − r) Ā_l + r I``, its rows divided by their sums. Ā
    is the mean of the layer's heads (or their "max" or "min" in each cell), and `residual` is r, the share of
    the residual connection: 0.5 in the paper, 0 for attention alone. (query, key), rows sum to 1. Values,
    W^O, norms and the layers between attentions are left out, so the result shows which tokens could have had
    an influence, not which ones had.

    `without` leaves tokens out as in `metrics`. Raises `MhaError` for a layer that the trace does not have,
    for a residual outside 0 to 1, for a model that has layers without softmax, which have no weights to
    multiply, and for cross-attention, whose steps cannot be chained: queries and keys are tokens of different
    texts. Source: Abnar & Zuidema 2020, "Quantifying Attention Flow in Transformers".
    """
    remaining = of_one_kind(leave_out(trace, without))
    if trace.mixers:
        rules = listed(dict.fromkeys(mixer.rule for mixer in trace.mixers), "comma")
        raise MhaError(
            "A rollout goes through every layer, and {n_layers} layers of this model have no "
            "weights ({rules}); look at single layers, and at mixing() of trace.mixers.",
            n_layers=len(trace.mixers),
            rules=rules,
        )
    trace, last = remaining, remaining.layer_index(layer)
    if not isinstance(residual, int | float) or not 0 <= residual <= 1:
        raise MhaError("residual {residual} is out of range; 0 to 1 work.", residual=residual)
    one_of(Phrase("way to join heads"), heads, HEADS, parameter="heads")
    if not trace.sides.same:
        raise MhaError("A rollout stays in one text; these layers look from one text at another.")
    shares = np.eye(len(trace.tokens))
    for current in trace.layers[: last + 1]:
        joined = np.zeros(shares.shape)
        for block in blocks(current):
            keys = slice(block.weights.shape[2])
            joined[block.rows, keys] = HEADS[heads](block.weights.astype(np.float64), axis=0)
        step = (1 - residual) * joined + residual * np.eye(len(shares))
        total = step.sum(1, keepdims=True)  # less than 1 with sinks, 0 if all keys are hidden
        shares = np.divide(step, total, out=np.zeros_like(step), where=total > 0) @ shares
    axes = (pd.Index(trace.tokens.labels, name=axis) for axis in ("query", "key"))
    return pd.DataFrame(shares, *axes)


def two_hops(
    trace: AttentionTrace,
    *,
    first: int,
    second: int,
    layer: int = 1,
    rows: Picked = None,
    keys: Picked = None,
) -> pd.DataFrame:
    """``A² A¹``: the weight with which each token reaches each other by two steps of attention.

    ``(A² A¹)[m, n] = Σ_t A²[m, t] · A¹[t, n]``, A² of head `second` in `layer`, A¹ of head `first` in the
    layer before it; heads and layers count from 0. (query, key), rows sum to 1 if those of both do. Residual
    connections, values and W^O are left out. This is one path of attention rollout (Abnar and Zuidema 2020),
    for a single pair of heads. `rows` selects queries and `keys` selects keys, as in `LayerTrace`; the sum
    runs over all tokens t.
    """
    before, after = trace.layers[layer - 1], trace.layers[layer]
    frame = trace.frame("weights", layer=layer, head=second, rows=rows, keys=keys)
    weights, product = after.weights(second, rows=rows), np.zeros(frame.shape, frame.dtypes.iloc[0])
    for block in row_blocks(before.n_query, before.n_key):
        product += weights[:, block] @ before.weights(first, rows=block, keys=keys)
    return pd.DataFrame(product, frame.index, frame.columns)


def best_hops(trace: AttentionTrace, query: int, key: int, *, layer: int = 1) -> tuple[int, int]:
    """The pair of heads, of the layer before and of `layer`, through which `query` reaches `key` most."""
    before, after = trace.layers[layer - 1], trace.layers[layer]
    weights = before.column(key) @ after.weights(rows=[query])[:, 0].T
    first, second = np.unravel_index(weights.argmax(), weights.shape)
    return int(first), int(second)
