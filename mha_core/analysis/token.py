"""One token of a trace as tables: its rows and columns of weights, its scores and its mixture of values.

Whole matrices are never computed: a row costs O(tokens · d_k), a column is read one block of rows at a time.
Arguments count positions, heads and layers from 0; tables count heads, layers and dimensions from 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from mha_core.traces.trace import AttentionTrace


class Looks(NamedTuple):
    """The weights between one token and all tokens in every head, and the mask."""

    weights: pd.DataFrame  # (head, key) or (head, query)
    hidden: np.ndarray  # True where the query may not look at the key


class Leading(NamedTuple):
    """The positions of the largest weights, and the number and the sum of the others."""

    positions: np.ndarray
    n_others: int
    others: float


class OverLayers(NamedTuple):
    """One token in every layer: the mean over its heads, and in each layer the largest single weight."""

    mean: pd.DataFrame  # (layer, key) or (layer, query)
    hidden: np.ndarray  # True where every head of the layer hides the cell
    strongest: pd.DataFrame  # (layer, [head, token, weight]); position of the token from 0


class AgainstKeys(NamedTuple):
    """One query with every key: the products that sum to the scores, and the steps to the weights."""

    products: pd.DataFrame  # (key, d_k)
    numbers: pd.DataFrame  # (key, [score, scaled, masked, weight])


@dataclass(frozen=True, eq=False)
class Mixture:
    """A head's output for one token as a weighted sum, ``out = Σ_n weight_n · v_n``."""

    weights: pd.Series  # (key,)
    values: pd.DataFrame  # (key, d_v)
    output: pd.Series  # (d_v,), as the layer computed it

    @cached_property
    def parts(self) -> pd.DataFrame:
        """The term of each key, ``weight_n · v_n``. (key, d_v)"""
        return self.values.mul(self.weights, axis=0)

    @cached_property
    def difference(self) -> float:
        """The largest difference between the sum of the parts and the output, caused by rounding alone."""
        return float(np.abs(self.parts.to_numpy().sum(axis=0) - self.output.to_numpy()).max())


def row_of(trace: AttentionTrace, token: int, *, layer: int) -> Looks:
    """The weights from `token` to every key: ``A_i[token, :]`` of each head i of the layer. (head, key)"""
    layer_trace = trace.layers[layer]
    weights, allowed = (rows_of(rows=[token])[:, 0] for rows_of in (layer_trace.weights, layer_trace.allowed))
    return Looks(_by_head(layer_trace.sides.keys.labels, weights, "key"), ~allowed)


def column_of(trace: AttentionTrace, token: int, *, layer: int) -> Looks:
    """The weights from every query to `token`: ``A_i[:, token]`` of each head i of the layer. (head, query)

    The first column of a layer costs a pass over all its rows, in blocks; the others O(tokens · d_k).
    """
    layer_trace = trace.layers[layer]
    allowed = layer_trace.allowed(keys=[token])[:, :, 0]
    return Looks(_by_head(layer_trace.sides.queries.labels, layer_trace.column(token), "query"), ~allowed)


def over_layers(trace: AttentionTrace, token: int, *, of: Literal["row", "column"]) -> OverLayers:
    """``mean_i A_i`` of the token's row or column, layer by layer, and the strongest head of each.

    Heads with the same number in different layers are unrelated, so layers are compared by their mean.
    `strongest` is empty for a layer in which all weights are 0.
    """
    looks = row_of if of == "row" else column_of
    means, hidden, strongest = [], [], []
    for layer in range(len(trace.layers)):
        weights, hidden_in_head = looks(trace, token, layer=layer)
        hidden.append(hidden_in_head.all(axis=0))
        values = weights.to_numpy()
        head, other = np.unravel_index(values.argmax(), values.shape)
        means.append(values.mean(axis=0))
        if values.any():
            strongest.append((layer + 1, int(head) + 1, int(other), float(values[head, other])))
    layers = pd.RangeIndex(1, len(trace.layers) + 1, name="layer")
    largest = pd.DataFrame(strongest, columns=["layer", "head", "token", "weight"]).set_index("layer")
    return OverLayers(pd.DataFrame(np.array(means), layers, weights.columns), np.array(hidden), largest)


def against_keys(trace: AttentionTrace, token: int, *, layer: int, head: int) -> AgainstKeys:
    """The token's query q against each key k: ``q ⊙ k``, its sum ``q·k``, and the steps to the weight.

    `products` (key, d_k) sum to `score`, row by row; `scaled` is the score times the layer's scale,
    `masked` the input of the softmax (capped, biased, −∞ where hidden), `weight` its output.
    """
    layer_trace = trace.layers[layer]
    products = layer_trace.q[layer_trace.head_index(head), token] * layer_trace.k[layer_trace.kv_head(head)]
    steps = {
        "score": layer_trace.scores,
        "scaled": layer_trace.scaled,
        "masked": layer_trace.masked,
        "weight": layer_trace.weights,
    }
    keys = pd.Index(layer_trace.sides.keys.labels, name="key")
    numbers = {name: rows_of(head, rows=[token])[0] for name, rows_of in steps.items()}
    return AgainstKeys(
        pd.DataFrame(products, keys, pd.RangeIndex(1, layer_trace.d_k + 1, name="d_k")),
        pd.DataFrame(numbers, keys),
    )


def mixture(trace: AttentionTrace, token: int, *, layer: int, head: int) -> Mixture:
    """The head's output for the token as a mixture of values: ``out[c] = Σ_n A[token, n] · V[n, c]``."""
    layer_trace = trace.layers[layer]
    keys = pd.Index(layer_trace.sides.keys.labels, name="key")
    dimensions = pd.RangeIndex(1, layer_trace.d_v + 1, name="d_v")
    return Mixture(
        pd.Series(layer_trace.weights(head, rows=[token])[0], keys, name="weight"),
        pd.DataFrame(layer_trace.v[layer_trace.kv_head(head)], keys, dimensions),
        pd.Series(layer_trace.output(head, rows=[token])[0], dimensions, name="output"),
    )


def vectors(trace: AttentionTrace, token: int, *, layer: int, head: int) -> dict[str, pd.DataFrame]:
    """The token's own query, key and value in a head, by the names q, k and v. (1, d_k) or (1, d_v)

    In cross-attention the token has a query alone: keys and values belong to the other text.
    """
    layer_trace = trace.layers[layer]
    label = layer_trace.sides.queries.labels[token]
    arrays = {"q": layer_trace.q[layer_trace.head_index(head), token]}
    if layer_trace.sides.same:
        arrays |= {name: getattr(layer_trace, name)[layer_trace.kv_head(head), token] for name in "kv"}
    return {
        name: pd.DataFrame(
            [values],
            pd.Index([label], name="query" if name == "q" else "key"),
            pd.RangeIndex(1, len(values) + 1, name="d_v" if name == "v" else "d_k"),
        )
        for name, values in arrays.items()
    }


def leading(weights: pd.Series, size: int, *, minimum: float = 0.0) -> Leading:
    """At most `size` entries, largest first: all that are not 0, or the largest and one for the others.

    The others are those beyond `size` and those below `minimum`: always two or more, since a single one would
    take one entry anyway.
    """
    values = weights.to_numpy()
    order = np.argsort(-values, kind="stable")[: np.count_nonzero(values)]
    n_leading = int((values[order] >= minimum).sum())
    if len(order) > size:
        n_leading = min(n_leading, size - 1)
    if len(order) - n_leading < 2:
        return Leading(order, 0, 0.0)
    first, rest = order[:n_leading], order[n_leading:]
    return Leading(first, len(rest), float(values[rest].sum(dtype=np.float64)))


def densest(table: pd.DataFrame, size: int) -> np.ndarray:
    """The positions of at most `size` columns, those with the largest entries, in the table's order."""
    return np.sort(np.argsort(-table.to_numpy().max(axis=0), kind="stable")[:size])


def _by_head(labels: Sequence[str], weights: np.ndarray, axis: str) -> pd.DataFrame:
    heads = pd.RangeIndex(1, len(weights) + 1, name="head")
    return pd.DataFrame(weights, heads, pd.Index(labels, name=axis))
