"""The cone of a change: the tokens of each layer that the change can reach."""

from collections.abc import Sequence

import numpy as np

from mha_core.attention.edits import Edit, Output, Site, Weights, by_layer
from mha_core.errors import MhaError
from mha_core.traces.layer import KINDS, LayerTrace
from mha_core.traces.trace import AttentionTrace


def cone(trace: AttentionTrace, edits: Sequence[Edit], *, changed: Sequence[int] = ()) -> list[np.ndarray]:
    """For each layer, which tokens have an attention output that the edits can change, (query,) bool.

    A row can change if an edit acts on it, if its own token changed below, or if it may look at a token that
    changed: ``O_l = E_l ∪ C_l ∪ {q : mask_l[q, k], k ∈ C_l}``, and ``C_{l+1} = O_l``. This is what the masks
    allow; a weight may still be near 0. `changed` are tokens of the text that differ from the start, C₁.
    Layers of an encoder–decoder are in the order of computation; cross layers lead from the text to its
    target.

    `trace` is the trace without the edits. Raises `MhaError` for edits that do not fit, and for a model in
    which layers other than the attention of the trace carry a change along the text.
    """
    if trace.mixers or trace.source.skipped:
        names = [mixer.rule for mixer in trace.mixers] or list(trace.source.skipped)
        raise MhaError(
            "Some layers of this model mix tokens by other means than the attention that is known "
            "({name}), so masks do not say what a change can reach.",
            name=names[0],
        )
    sites = [
        Site(layer.kind, layer.n_heads, layer.d_v, layer.sides.queries, layer.sides.keys)
        for layer in trace.layers
    ]
    others: dict[str, np.ndarray] = {}
    reached = []
    for layer, site, acting in zip(trace.layers, sites, by_layer(edits, sites, modules=True), strict=True):
        queries, keys = (
            others.setdefault(side, np.isin(np.arange(size), changed if side == "text" else ()))
            for side, size in zip(KINDS[layer.kind], (layer.n_query, layer.n_key), strict=True)
        )
        visible = _visible(layer)
        rows = queries | (visible & keys).any(-1)
        for edit in acting:
            rows = rows | _rows(edit, site, visible)
        others[KINDS[layer.kind][0]] = rows
        reached.append(rows)
    return reached


def _rows(edit: Edit, site: Site, visible: np.ndarray) -> np.ndarray:
    """The rows on which an edit acts. An edit of scores acts on rows that may look at one of its keys."""
    cells = edit.cells(site).any(0).numpy()  # (query or 1, key or 1)
    if isinstance(edit, Output | Weights):
        return np.broadcast_to(cells[:, 0], len(visible))
    return (visible & cells).any(-1)


def _visible(layer: LayerTrace) -> np.ndarray:
    """True where a query of some head may look at a key; with a learned index, at any key it could choose."""
    if layer.index is not None:
        mask = layer.tensors.get("dense_mask")
    else:
        mask = layer.rule.at(slice(None), slice(None), n_query=layer.n_query, n_key=layer.n_key).mask
    if mask is None:
        return np.ones((layer.n_query, layer.n_key), bool)
    rows = mask.reshape(-1, *mask.shape[-2:]).any(0)
    return rows.expand(layer.n_query, layer.n_key).numpy()
