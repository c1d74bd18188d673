"""The matrices of a layer by name: their axes, their symbols in formulas, and their values."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from mha_core.traces.indices import Picked
from mha_core.traces.layer import LayerTrace
from mha_core.traces.tokens import subscript

TOKEN_AXES = ("token", "query", "key")


@dataclass(frozen=True)
class Matrix:
    """One matrix of a layer.

    `axes` are the names of its rows and columns; `symbol` is its symbol in formulas, with {} for the head,
    from 1. `of_layer` is True for a matrix of the whole layer. `kind` is its colour scale.
    """

    name: str
    axes: tuple[str, str]
    symbol: str
    of_layer: bool = False
    kind: Literal["weights", "signed"] = "signed"

    def written(self, layer: LayerTrace, head: int) -> str:
        """Its symbol for a head, from 0: ``Q₃`` for head 2. K and V have their key/value head's number."""
        owner = layer.kv_head(head) if self.name in ("k", "v") else layer.head_index(head)
        return self.symbol.format(subscript(owner + 1))

    def values(
        self, layer: LayerTrace, head: int | None = None, *, rows: Picked = None, keys: Picked = None
    ) -> np.ndarray | None:
        """Its values for one head, for all heads or for the layer; None for an X that is not known.

        `rows` selects queries and `keys` selects keys, on the axes that have them. A computed matrix is
        computed for these rows only.
        """
        values = getattr(layer, self.name)  # an array, or the method that computes it
        if callable(values) and self.of_layer:
            return values(rows=rows)
        if callable(values):
            return values(head, rows=rows, keys=keys) if self.axes[1] == "key" else values(head, rows=rows)
        if values is None:
            return None
        if not self.of_layer and head is not None:
            values = values[layer.head_index(head) if self.name == "q" else layer.kv_head(head)]
        positions = layer.key_indices(keys) if self.axes[0] == "key" else layer.row_indices(rows)
        return values[..., positions, :]


MATRICES = {
    matrix.name: matrix
    for matrix in (
        Matrix("x", ("token", "d_model"), "X", of_layer=True),
        Matrix("x_v", ("key", "d_model"), "Y", of_layer=True),
        Matrix("q", ("query", "d_k"), "Q{}"),
        Matrix("k", ("key", "d_k"), "K{}"),
        Matrix("v", ("key", "d_v"), "V{}"),
        Matrix("scores", ("query", "key"), "S{}"),
        Matrix("scaled", ("query", "key"), "S{} / √d_k"),
        Matrix("masked", ("query", "key"), "S{} masked"),
        Matrix("weights", ("query", "key"), "A{}", kind="weights"),
        Matrix("output", ("query", "d_v"), "head{}"),
        Matrix("concat", ("token", "h·d_v"), "concat", of_layer=True),
        Matrix("contribution", ("query", "d_model"), "head{0} · Wᴼ{0}"),
        Matrix("result", ("token", "d_model"), "Z", of_layer=True),
    )
}
VIEWED = ("q", "k", "v", "scores", "weights", "output")  # the six matrices of a head that the head view draws
