"""What a token reaches in several layers: by all heads of all of them, or by one head and then another."""

import numpy as np
import pandas as pd

from mha_core.analysis.patterns import Without, blocks, in_one_kind, leave_out
from mha_core.errors import MhaError, one_of
from mha_core.traces.layer import LayerTrace
from mha_core.traces.trace import AttentionTrace

HEADS = {"mean": np.mean, "max": np.max, "min": np.min}


def rollout(
    trace: AttentionTrace,
    *,
    layer: int = -1,
    residual: float = 0.5,
    heads: str = "mean",
    without: Without = (),
) -> pd.DataFrame:
    """Attention rollout: how much of each token each token has seen after a layer, the last if none is said.

    ``R_l = Ã_l R_{l−1}``, ``R_{−1} = I``, with ``Ã_l = (1 − r) Ā_l + r I``, its rows divided by their sums.
    Ā is the mean of the layer's heads (or their "max" or "min" in each cell), and `residual` is r, the part
    that goes around attention: 0.5 in the paper, 0 without the residual connection. (query, key), rows sum
    to 1. Values, W^O, norms and the layers between attentions are left out, so it says what could have
    come from where, not what did.

    `without` leaves tokens out as in `metrics`.
    Raises `MhaError` for a layer that is not there, for a residual outside 0 to 1, and where a layer looks at
    another text: there the next step would not start where the one before ended.
    Source: Abnar & Zuidema 2020, "Quantifying Attention Flow in Transformers".
    """
    trace = in_one_kind(leave_out(trace, without))
    last = trace.layer_index(layer)
    if not 0 <= residual <= 1:
        raise MhaError(f"residual {residual} is out of range; 0 to 1 work.")
    one_of("way to join heads", heads, HEADS, parameter="heads")
    if not trace.sides.same:
        raise MhaError("A rollout stays in one text; these layers look from one text at another.")
    reached = np.eye(len(trace.tokens))
    for one in trace.layers[: last + 1]:
        step = (1 - residual) * _joined(one, heads) + residual * np.eye(len(reached))
        total = step.sum(1, keepdims=True)  # less than 1 with sinks, and where all keys are hidden
        reached = np.divide(step, total, out=np.zeros_like(step), where=total > 0) @ reached
    index = pd.Index(trace.tokens.labels, name="query")
    return pd.DataFrame(reached, index, pd.Index(trace.tokens.labels, name="key"))


def _joined(layer: LayerTrace, heads: str) -> np.ndarray:
    """The weights of all heads as one matrix, some rows at a time. (query, key), float64"""
    joined = np.empty((layer.n_query, layer.n_key))
    for block in blocks(layer):
        joined[block.rows] = HEADS[heads](block.weights.astype(np.float64), axis=0)
    return joined


def two_hops(trace: AttentionTrace, *, first: int, second: int, layer: int = 1) -> pd.DataFrame:
    """``A² A¹``: how much of each token's word reaches each token by two steps of attention.

    ``(A² A¹)[m, n] = Σ_t A²[m, t] · A¹[t, n]``, A² of head `second` in `layer`, A¹ of head `first` in the
    layer before; heads and layers count from 0. (query, key), rows sum to 1 where those of both do. It
    follows attention alone: residual connections, values and W^O are left out. It is one path of
    attention rollout (Abnar and Zuidema 2020), for a single pair of heads.

    Raises `MhaError` for a layer without one before it, for heads that are not there, and where a layer
    looks at another text: the second step would have to start where the first one did not end.
    """
    before, after = _layers(trace, layer)
    product = after.weights(second) @ before.weights(first)
    index = pd.Index(trace.tokens.labels, name="query")
    return pd.DataFrame(product, index, pd.Index(trace.tokens.labels, name="key"))


def best_hops(trace: AttentionTrace, query: int, key: int, *, layer: int = 1) -> tuple[int, int]:
    """The pair of heads, of the layer before and of `layer`, through which `query` reaches `key` most."""
    before, after = _layers(trace, layer)
    reached = np.einsum("it,jt->ij", before.weights()[:, :, key], after.weights()[:, query])
    first, second = np.unravel_index(reached.argmax(), reached.shape)
    return int(first), int(second)


def _layers(trace: AttentionTrace, layer: int):
    layer = trace.layer_index(layer)
    if not layer:
        raise MhaError("Two hops end in a layer that has one before it; layer 0 is the first.")
    if not all(one.sides.same for one in trace.layers[layer - 1 : layer + 1]):
        raise MhaError("Two hops stay in one text; these layers look from one text at another.")
    return trace.layers[layer - 1], trace.layers[layer]
