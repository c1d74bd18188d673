"""The kind of each layer of a model: full attention, window, learned index, linear, latent, gated."""

from dataclasses import dataclass

import numpy as np

from mha_core.traces.indices import Picked, by_number
from mha_core.traces.layer import LayerTrace
from mha_core.traces.trace import AttentionTrace

ROWS = 512  # of a long text, searched for the largest number of visible keys
CONVOLUTION = "short convolution"  # the rule of mixers that are not linear attention


@dataclass(frozen=True)
class LayerKind:
    """The kind of one layer of a model, read off its masks in this text.

    `layer` is its index in `trace.layers`, or `mixer` its index in `trace.mixers`. `kind` is "full",
    "window", "index", "part", "linear" or "convolution". `size` is the number of keys in the "window", of
    keys that the "index" chooses, or of the "part" that a query sees; the width of a "convolution"; None for
    other kinds. `traits` are any of "latent" and "gated".
    """

    name: str
    kind: str
    layer: int | None = None
    mixer: int | None = None
    size: int | None = None
    traits: tuple[str, ...] = ()


def layer_kinds(trace: AttentionTrace) -> tuple[LayerKind, ...]:
    """The kind of each layer and each mixer, in the order of the model."""
    kinds = []
    for number, layer in enumerate(trace.layers):
        facts = {"latent": layer.about.latent, "gated": layer.about.gate}
        traits = tuple(trait for trait, fact in facts.items() if fact is not None)
        kind, size = _visible(layer)
        kinds.append(LayerKind(layer.name, kind, layer=number, size=size, traits=traits))
    for number, mixer in enumerate(trace.mixers):
        if mixer.rule == CONVOLUTION:
            kind, size = "convolution", int((mixer.mixing(0) != 0).sum(1).max())
        else:
            kind, size = "linear", None
        kinds.append(LayerKind(mixer.name, kind, mixer=number, size=size))
    if trace.mixers and all(kind.name for kind in kinds):
        kinds.sort(key=lambda kind: by_number(kind.name))
    return tuple(kinds)


def _visible(layer: LayerTrace) -> tuple[str, int | None]:
    """The kind and size of a mask, read off its first, middle and last two rows."""
    if layer.index is not None:
        return "index", layer.index.budget * layer.index.block_size
    if layer.n_query != layer.n_key:
        return "full", None
    last = layer.n_query - 1
    first, middle, before, end = (
        np.flatnonzero(_allowed(layer, [row])[0]) for row in (0, last // 2, max(last - 1, 0), last)
    )
    causal = len(first) <= 1 < layer.n_key
    if len(end) == layer.n_key and (causal or len(middle) == layer.n_key):
        return "full", None
    together = all(len(row) and row[-1] - row[0] + 1 == len(row) for row in (middle, before, end))
    slides = not causal or (len(end) == len(before) and end[-1] == last)
    size = int(_allowed(layer, slice(-ROWS, None)).sum(1).max())
    return ("window" if together and slides else "part"), size


def _allowed(layer: LayerTrace, rows: Picked) -> np.ndarray:
    """Which keys the first head may look at, (query, key); from the weights where only those are known."""
    return layer.allowed(0, rows=rows) if layer.knows("q") else layer.weights(0, rows=rows) > 0
