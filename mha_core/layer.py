"""What one attention layer leaves behind: q, k, v and its score rule. All else is a view of them.

A trace has no batch axis, lives on the CPU and never changes, so threads can share it. It holds
O(tokens · d_model) numbers; each matrix is computed when somebody looks, by the same functions
that `attend` is made of. Heads and positions count from 0.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mha_core.attention import attention_weights, concat_heads, join_heads, mix, raw_scores
from mha_core.errors import MhaError
from mha_core.recorded import Recorded, array
from mha_core.rows import row_blocks
from mha_core.rule import ScoreRule

Rows = slice | list[int] | None


@dataclass(frozen=True, eq=False)
class LayerTrace(Recorded):
    """One attention layer's queries, keys, values and score rule, and every matrix they imply.

    q, k, v, x and x_v are copies; `projections` are the module's own matrices, which can be large.
    Where somebody else computed the weights and kept no queries and keys, `tensors` has weights
    (head, query, key) in their place, and what would follow from q and k is not known.

    Between the matrices and q, k and v a model may do more; `tensors` then has what it made on the way, and
    ``about["between"]`` says the steps in order, for each of q, k and v:

    - q_linear, k_linear, v_linear: the product itself, X W cut into heads, where anything but a rotation
      comes next: a norm, a scale, a limit at which numbers are cut off;
    - q_raw, k_raw: before a rotary code turns them, with the code's cos and sin, (token, width);
      ``about["rotary"]`` says how these are used;
    - q_turned, k_turned: behind the rotation, where that is not yet q and k;
    - q_short and kv_short: of a latent attention, the short vectors that queries, and keys and values, are
      made of, (token, rank), behind their norm (DeepSeek-AI 2024).

    `kind` says whose tokens look at whose: "self", in a model with a target sentence "encoder" and
    "decoder", and "cross" where the target looks at the sentence. `name` is the layer's in its model,
    `about` has what else is worth knowing, in plain values.

    Arrays come back read-only, in float32 (float64 for a float64 trace). ``head=None`` gives all
    heads with a leading head axis; `rows` picks queries, `keys` picks keys. Positions count from 0.
    Every method raises `MhaError` for a head that the layer does not have.
    """

    def scores(self, head: int | None = None, *, rows: Rows = None, keys: Rows = None) -> np.ndarray:
        """Raw scores ``q kᵀ``. ([head,] query, key)"""
        return self._shown(self._raw(head, rows), head, keys)

    def scaled(self, head: int | None = None, *, rows: Rows = None, keys: Rows = None) -> np.ndarray:
        """Scores times `scale`. ([head,] query, key)"""
        return self._shown(self._logits(head, rows)[0], head, keys)

    def masked(self, head: int | None = None, *, rows: Rows = None, keys: Rows = None) -> np.ndarray:
        """What the softmax gets: capped, biased, and −∞ where hidden. ([head,] query, key)"""
        return self._shown(self._logits(head, rows)[1], head, keys)

    def weights(self, head: int | None = None, *, rows: Rows = None, keys: Rows = None) -> np.ndarray:
        """How much each query takes from each key; a row sums to 1. ([head,] query, key)

        A row whose keys are all hidden is zero everywhere; with sinks a row sums to less than 1.
        """
        return self._shown(self._weights(head, rows), head, keys)

    def allowed(self, head: int | None = None, *, rows: Rows = None, keys: Rows = None) -> np.ndarray:
        """True where the query may look at the key. ([head,] query, key)"""
        mask = self._rule(head, rows).mask
        queries = self._rows[self._heads(head)]
        shape = (*(queries if rows is None else queries[:, rows]).shape[:2], self.n_key)
        return self._shown(torch.ones(shape, dtype=bool) if mask is None else mask.expand(shape), head, keys)

    def output(self, head: int | None = None, *, rows: Rows = None) -> np.ndarray:
        """Each head's output, the mixture ``weights v``. ([head,] query, d_v)"""
        return self._shown(self._output(head, rows), head)

    def concat(self) -> np.ndarray:
        """The heads' outputs side by side. (query, h · d_v)"""
        return array(concat_heads(self._output(None, None)))

    def contribution(self, head: int | None = None, *, rows: Rows = None) -> np.ndarray:
        """What a head adds to the layer's output, ``head_i W_i^O``. ([head,] query, d_model)

        The contributions of all heads and the bias of W^O sum to `result`.
        """
        w_o = self._w_o().unflatten(0, (self.n_heads, self.d_v))[self._heads(head)]
        return self._shown(self._output(head, rows) @ w_o, head)

    def result(self) -> np.ndarray:
        """The layer's output ``concat W^O + b^O``. (query, d_model)"""
        return array(join_heads(self._output(None, None), self._w_o(), self.projections.b_o))

    def _repr_html_(self) -> str:
        """What a notebook shows: what was recorded, and small pictures of the weights."""
        from mha_core.preview import of_layer

        return of_layer(self)

    # How

    def _heads(self, head: int | None) -> slice:
        return slice(None) if head is None else slice(self.checked(head), head + 1)

    def _kv(self, name: str, head: int | None) -> Tensor:
        tensor = self._known(name)
        return tensor if head is None else tensor[self.kv_head(head)][None]

    def _raw(self, head: int | None, rows: Rows) -> Tensor:
        return raw_scores(self._queries(head, rows), self._kv("k", head))

    def _queries(self, head: int | None, rows: Rows) -> Tensor:
        q = self._known("q")[self._heads(head)]
        return q if rows is None else q[:, rows]

    def _rule(self, head: int | None, rows: Rows) -> ScoreRule:
        rows = slice(None) if rows is None else rows
        return self.rule.at(self._heads(head), rows, n_query=self.n_query, n_key=self.n_key)

    def _logits(self, head: int | None, rows: Rows) -> tuple[Tensor, Tensor]:
        return self._rule(head, rows).logits(self._raw(head, rows), self.d_k)

    def _weights(self, head: int | None, rows: Rows) -> Tensor:
        if not self.knows("q"):
            given = self.tensors["weights"][self._heads(head)]
            return given if rows is None else given[:, rows]
        if self.rule.softmax == "matrix" and rows is not None:
            return self._weights(head, None)[:, rows]  # a cell depends on the whole matrix
        weights = attention_weights(self._queries(head, rows), self._kv("k", head), self._rule(head, rows))
        return weights.to(self._known("v").dtype)

    def _output(self, head: int | None, rows: Rows) -> Tensor:
        parts = [rows]
        if rows is None and self.rule.softmax == "row":  # so that the weights are never whole when long
            parts = row_blocks(self.n_query, self.n_key * (self.n_heads if head is None else 1))
        v = self._kv("v", head)
        return torch.cat([mix(self._weights(head, part), v) for part in parts], dim=1)

    def _w_o(self) -> Tensor:
        if self.projections.w_o is None:
            raise MhaError("The output matrix W^O of this layer is not known; look at `output` instead.")
        return self.projections.w_o

    @staticmethod
    def _shown(tensor: Tensor, head: int | None, keys: Rows = None) -> np.ndarray:
        tensor = tensor if keys is None else tensor[..., keys]
        return array(tensor if head is None else tensor[0])
