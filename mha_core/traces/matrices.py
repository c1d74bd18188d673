"""The matrices of a layer by name: what is on their axes, how they are written, what their numbers are."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from mha_core.traces.indices import Picked
from mha_core.traces.layer import LayerTrace

TOKEN_AXES = ("token", "query", "key")
SUBSCRIPT = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


@dataclass(frozen=True)
class Matrix:
    """One matrix of a layer.

    `axes` says what its rows and its columns are, `symbol` how it is written, {} being the head from 1.
    `of_layer` is True for a matrix that all heads have in common. `kind` is the meaning of its colours.
    """

    name: str
    axes: tuple[str, str]
    symbol: str
    of_layer: bool = False
    kind: Literal["weights", "signed"] = "signed"

    def written(self, layer: LayerTrace, head: int) -> str:
        """Its symbol for a head from 0, ``Q₃`` for head 2; K and V go by their own head."""
        owner = layer.kv_head(head) if self.name in ("k", "v") else layer.head_index(head)
        return self.symbol.format(str(owner + 1).translate(SUBSCRIPT))

    def values(
        self, layer: LayerTrace, head: int | None = None, *, rows: Picked = None, keys: Picked = None
    ) -> np.ndarray | None:
        """Its numbers, for one head, for all heads or for the layer; None for an X that is not known.

        `rows` picks tokens that look and `keys` those that are looked at, on the axes that have them; what
        has to be computed is computed for these rows alone.
        """
        found = getattr(layer, self.name)
        if callable(found) and not self.of_layer:
            return found(head, rows=rows, keys=keys) if self.axes[1] == "key" else found(head, rows=rows)
        if callable(found):
            found = found()
        elif self.name == "q" and head is not None:
            found = found[layer.head_index(head)]
        elif self.name in ("k", "v") and head is not None:
            found = found[layer.kv_head(head)]
        if found is None:
            return None
        picked = layer.key_indices(keys) if self.axes[0] == "key" else layer.row_indices(rows)
        return found if picked is None else found[..., picked, :]


MATRICES = {
    matrix.name: matrix
    for matrix in (
        Matrix("x", ("token", "d_model"), "X", of_layer=True),
        Matrix("x_v", ("key", "d_model"), "E", of_layer=True),
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
