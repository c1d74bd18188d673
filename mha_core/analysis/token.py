"""One token of a trace as tables: whom it looks at, who looks at it, its scores and its mixture of values.

Whole matrices are never made: a row costs O(tokens · d_k), a column is read off row block by row block.
Positions, heads and layers are asked for from 0; heads, layers and dimensions in tables count from 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from mha_core.traces.indices import index
from mha_core.traces.layer import LayerTrace
from mha_core.traces.trace import AttentionTrace


class Looks(NamedTuple):
    """The weights between one token and all tokens in every head, and which of them the mask hides."""

    weights: pd.DataFrame  # (head, key) or (head, query)
    hidden: np.ndarray  # True where the query may not look at the key


class Leading(NamedTuple):
    """The largest of some weights by position, and how many others there are with what sum."""

    positions: np.ndarray
    n_others: int
    others: float


class OverLayers(NamedTuple):
    """One token in every layer: the mean over its heads, and in each layer the largest single weight."""

    mean: pd.DataFrame  # (layer, key) or (layer, query)
    hidden: np.ndarray  # True where every head of the layer hides the cell
    strongest: pd.DataFrame  # (layer, [head, token, weight]); position of the token from 0


class AgainstKeys(NamedTuple):
    """One query against every key: the products whose sums are the scores, and what becomes of those."""

    products: pd.DataFrame  # (key, d_k)
    numbers: pd.DataFrame  # (key, [score, scaled, masked, weight])


@dataclass(frozen=True, eq=False)
class Mixture:
    """A head's output for one token as the sum that it is, ``out = Σ_n weight_n · v_n``."""

    weights: pd.Series  # (key,)
    values: pd.DataFrame  # (key, d_v)
    output: pd.Series  # (d_v,), as the layer computed it

    @property
    def parts(self) -> pd.DataFrame:
        """What each key gives, ``weight_n · v_n``. (key, d_v)"""
        return self.values.mul(self.weights, axis=0)

    @property
    def difference(self) -> float:
        """The largest difference between the sum of the parts and the output; rounding alone."""
        return float(np.abs(self.parts.to_numpy().sum(axis=0) - self.output.to_numpy()).max())


def row_of(trace: AttentionTrace, token: int, *, layer: int) -> Looks:
    """Whom `token` looks at: ``A_i[token, :]`` of each head i of the layer. (head, key)

    Raises `MhaError` for a token that does not look or a layer that the trace does not have.
    """
    shown = _layer(trace, token, layer)
    weights, allowed = (see(rows=[token])[:, 0] for see in (shown.weights, shown.allowed))
    return Looks(_by_head(shown.sides.keys.labels, weights, "key"), ~allowed)


def column_of(trace: AttentionTrace, token: int, *, layer: int) -> Looks:
    """Who looks at `token`: ``A_i[:, token]`` of each head i of the layer. (head, query)

    The first column of a layer costs a pass over all its rows, in blocks; the others O(tokens · d_k).
    Raises `MhaError` for a token that is not looked at or a layer that the trace does not have.
    """
    shown = _layer(trace, token, layer, of="key")
    allowed = shown.allowed(keys=[token])[:, :, 0]
    return Looks(_by_head(shown.sides.queries.labels, shown.column(token), "query"), ~allowed)


def over_layers(trace: AttentionTrace, token: int, *, of: Literal["row", "column"]) -> OverLayers:
    """``mean_i A_i`` of the token's row or column, layer by layer, and the strongest head of each.

    Heads of different layers have nothing in common but their number, so no head is followed through
    the layers. `strongest` is empty for a layer in which all weights are 0.
    """
    looks = row_of if of == "row" else column_of
    means, hidden, strongest = [], [], []
    for layer in range(len(trace.layers)):
        weights, masked = looks(trace, token, layer=layer)
        hidden.append(masked.all(axis=0))
        values = weights.to_numpy()
        head, other = np.unravel_index(values.argmax(), values.shape)
        means.append(values.mean(axis=0))
        if values.any():
            strongest.append((layer + 1, int(head) + 1, int(other), float(values[head, other])))
    layers = pd.RangeIndex(1, len(trace.layers) + 1, name="layer")
    found = pd.DataFrame(strongest, columns=["layer", "head", "token", "weight"]).set_index("layer")
    return OverLayers(pd.DataFrame(np.array(means), layers, weights.columns), np.array(hidden), found)


def against_keys(trace: AttentionTrace, token: int, *, layer: int, head: int) -> AgainstKeys:
    """The token's query q against each key k: ``q ⊙ k``, its sum ``q·k``, and on to the weight.

    `products` (key, d_k) sum to `score`, row by row; `scaled` is what the rule makes of that,
    `masked` what the softmax gets (−∞ where hidden), `weight` what comes out.
    Raises `MhaError` for a token, a layer or a head that is not there.
    """
    shown = _layer(trace, token, layer)
    products = shown.q[shown.head_index(head), token] * shown.k[shown.kv_head(head)]
    steps = {"score": shown.scores, "scaled": shown.scaled, "masked": shown.masked, "weight": shown.weights}
    keys = pd.Index(shown.sides.keys.labels, name="key")
    numbers = {name: see(head, rows=[token])[0] for name, see in steps.items()}
    return AgainstKeys(
        pd.DataFrame(products, keys, pd.RangeIndex(1, shown.d_k + 1, name="d_k")),
        pd.DataFrame(numbers, keys),
    )


def mixture(trace: AttentionTrace, token: int, *, layer: int, head: int) -> Mixture:
    """The head's output for the token as a mixture of values: ``out[c] = Σ_n A[token, n] · V[n, c]``.

    Raises `MhaError` for a token, a layer or a head that is not there.
    """
    shown = _layer(trace, token, layer)
    keys = pd.Index(shown.sides.keys.labels, name="key")
    dimensions = pd.RangeIndex(1, shown.d_v + 1, name="d_v")
    return Mixture(
        pd.Series(shown.weights(head, rows=[token])[0], keys, name="weight"),
        pd.DataFrame(shown.v[shown.kv_head(head)], keys, dimensions),
        pd.Series(shown.output(head, rows=[token])[0], dimensions, name="output"),
    )


def vectors(trace: AttentionTrace, token: int, *, layer: int, head: int) -> dict[str, pd.DataFrame]:
    """The token's own query, key and value in a head, by the names q, k and v. (1, d_k) or (1, d_v)

    A token that looks at another text has a query alone: keys and values are those of the other text.
    """
    shown = _layer(trace, token, layer)
    label = shown.sides.queries.labels[token]
    own = {"q": shown.q[shown.head_index(head), token]}
    if shown.sides.same:
        own |= {name: getattr(shown, name)[shown.kv_head(head), token] for name in "kv"}
    return {
        name: pd.DataFrame(
            [values],
            pd.Index([label], name="query" if name == "q" else "key"),
            pd.RangeIndex(1, len(values) + 1, name="d_v" if name == "v" else "d_k"),
        )
        for name, values in own.items()
    }


def leading(weights: pd.Series, most: int, *, least: float = 0.0) -> Leading:
    """At most `most` entries, largest first: all that are not 0, or the largest and one for the others.

    Others are those that find no room and those below `least`. They are always two or more: a single
    one would take the same room as itself.
    """
    values = weights.to_numpy()
    order = np.argsort(-values, kind="stable")[: np.count_nonzero(values)]
    n_kept = int((values[order] >= least).sum())
    if len(order) > most:
        n_kept = min(n_kept, most - 1)
    if len(order) - n_kept < 2:
        return Leading(order, 0, 0.0)
    kept, rest = order[:n_kept], order[n_kept:]
    return Leading(kept, len(rest), float(values[rest].sum(dtype=np.float64)))


def densest(table: pd.DataFrame, most: int) -> np.ndarray:
    """The positions of at most `most` columns, those with the largest entries, in their own order."""
    return np.sort(np.argsort(-table.to_numpy().max(axis=0), kind="stable")[:most])


def _layer(
    trace: AttentionTrace, token: int, layer: int, of: Literal["query", "key"] = "query"
) -> LayerTrace:
    shown = trace.layer(layer)
    index("token", token, len(shown.sides.queries if of == "query" else shown.sides.keys), of="This text")
    return shown


def _by_head(labels: Sequence[str], weights: np.ndarray, axis: str) -> pd.DataFrame:
    heads = pd.RangeIndex(1, len(weights) + 1, name="head")
    return pd.DataFrame(weights, heads, pd.Index(labels, name=axis))
