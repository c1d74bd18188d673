"""Two hops: what a token reaches through a head of one layer after a head of the layer before."""

import numpy as np
import pandas as pd

from mha_core.analysis.patterns import same_tokens
from mha_core.errors import MhaError
from mha_core.traces.trace import AttentionTrace


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
    if not 1 <= layer < len(trace.layers):
        raise MhaError(
            f"Two hops end in a layer that has one before it; this trace has layers 0 to "
            f"{len(trace.layers) - 1} and layer {layer} was asked for."
        )
    if not all(map(same_tokens, trace.layers[layer - 1 : layer + 1])):
        raise MhaError("Two hops stay in one text; these layers look from one text at another.")
    return trace.layers[layer - 1], trace.layers[layer]
