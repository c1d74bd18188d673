"""What one attention layer leaves behind: q, k, v (or weights) and its rule. All else is a view of them.

A trace has no batch axis, lives on the CPU and never changes, so threads can share it. It holds
O(tokens · d_model) numbers; each matrix is computed when somebody looks, by the same functions
that `attend` is made of. Heads and positions count from 0.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Self

import numpy as np
import torch
from torch import Tensor

from mha_core.attention.functional import (
    attention_weights,
    concat_heads,
    join_heads,
    mix,
    raw_scores,
    row_blocks,
)
from mha_core.attention.module import Attended, Projections
from mha_core.attention.score_rule import ScoreRule
from mha_core.errors import MhaError, one_of
from mha_core.traces.facts import Facts
from mha_core.traces.indices import Picked, index, indices
from mha_core.traces.projections import ModelProjections
from mha_core.traces.tokens import Sides, Tokens, positions

# Whose tokens look, and at whose: those of a text, or of a target that is written from it.
KINDS = {
    "self": ("text", "text"),
    "encoder": ("text", "text"),
    "decoder": ("target", "target"),
    "cross": ("target", "text"),
}
LAYER = "This layer"  # as messages call it
NAMES = {"q": "The queries", "k": "The keys", "v": "The values"}


@dataclass(frozen=True, eq=False)
class LayerTrace:
    """One attention layer's queries, keys, values and score rule, and every matrix they imply.

    q, k, v, x and x_v are copies; `projections` are the module's own matrices, which can be large: each
    comes to the CPU when it is asked for, and is refused once the module has changed it.
    Where somebody else computed the weights and kept no queries and keys, `tensors` has weights
    (head, query, key) in their place, and what would follow from q and k is not known.

    Between the matrices and q, k and v a model may do more; `tensors` then has what it made on the way, and
    `about.adjustments` says what it did, in order, for each of q, k and v:

    - q_linear, k_linear, v_linear: the product itself, X W cut into heads, where anything but a rotation
      comes next: a norm, a scale, a limit at which numbers are cut off;
    - q_raw, k_raw: before a rotary code turns them, with the code's cos and sin, (token, width);
      `about.rotary` says how these are used;
    - q_turned, k_turned: behind the rotation, where that is not yet q and k;
    - q_short and kv_short: of a latent attention, the short vectors that queries, and keys and values, are
      made of, (token, rank), behind their norm (DeepSeek-AI 2024).

    `kind` says what sort of attention it is: "self", in a model with a target sentence "encoder" and
    "decoder", and "cross" where one text looks at another. `sides` are the tokens that look and those that
    are looked at: positions until the layer stands in a trace, or those it is given. `name` is the layer's
    in its model, `about` has what else is worth knowing.

    Arrays come back read-only, in float32 (float64 for a float64 trace). ``head=None`` gives all
    heads with a leading head axis; `rows` picks queries and `keys` picks keys by a slice, a list or array of
    positions, or one position, whose axis stays. Positions count from 0, negative ones from the end.
    Every method raises `MhaError` for a head, row or key that the layer does not have.
    """

    tensors: Mapping[str, Tensor] = field(repr=False)  # q, k, v or weights, and what is known of x, x_v
    rule: ScoreRule = field(default=ScoreRule(), repr=False)
    projections: Projections = field(default=Projections(), repr=False)
    kind: str = "self"
    name: str = ""
    about: Facts = field(default=Facts(), repr=False)
    sides: Sides = field(default=None, repr=False)  # type: ignore[assignment]  # never None afterwards

    def __post_init__(self):
        if self.sides is None:
            queries, keys = positions(self.n_query), positions(self.n_key)
            keys = replace(keys) if self.kind == "cross" else keys  # another text, even if it is as long
            object.__setattr__(self, "sides", Sides(queries, keys))

    @classmethod
    def of(
        cls,
        attended: Attended,
        *,
        x: Tensor | None = None,
        x_v: Tensor | None = None,
        projections: Projections = Projections(),
        item: int = 0,
        **described: object,
    ) -> Self:
        """Keep one item of a batch: the batch axis ends here, and so do the GPU and autograd.

        `described` are the layer's kind, name and what is known about it.
        """
        tensors = {"q": attended.q, "k": attended.k, "v": attended.v}
        tensors |= {name: given for name, given in (("x", x), ("x_v", x_v)) if given is not None}
        return cls(
            MappingProxyType({name: owned(tensor[item]) for name, tensor in tensors.items()}),
            attended.rule.item(item).mapped(shared),
            ModelProjections(projections._asdict()),
            **described,
        )

    # Sizes

    @property
    def n_heads(self) -> int:
        return self._rows.shape[0]

    @property
    def n_kv_heads(self) -> int:
        return self.tensors["k" if self.knows("k") else "weights"].shape[0]

    @property
    def n_query(self) -> int:
        return self._rows.shape[1]

    @property
    def n_key(self) -> int:
        return self.tensors["k"].shape[1] if self.knows("k") else self.tensors["weights"].shape[2]

    @property
    def d_k(self) -> int:
        return self._known("q").shape[2]

    @property
    def d_v(self) -> int:
        return self._known("v").shape[2]

    @property
    def d_model(self) -> int | None:
        """The width of X and Z, None where neither X nor W^O is known."""
        if "x" in self.tensors:
            return self.tensors["x"].shape[1]
        return self.projections.w_o.shape[1] if self.knows("w_o") else None

    @property
    def scale(self) -> float:
        """What raw scores are multiplied with, ``1/√d_k`` unless the rule says otherwise."""
        return self.rule.factor(self.d_k)

    # What flowed

    @cached_property
    def q(self) -> np.ndarray:
        """Queries. (head, query, d_k)"""
        return array(self._known("q"))

    @cached_property
    def k(self) -> np.ndarray:
        """Keys. (kv_head, key, d_k)"""
        return array(self._known("k"))

    @cached_property
    def v(self) -> np.ndarray:
        """Values. (kv_head, key, d_v)"""
        return array(self._known("v"))

    @cached_property
    def x(self) -> np.ndarray | None:
        """The layer's input, None where it is not known. (query, d_model)"""
        return array(self.tensors["x"]) if "x" in self.tensors else None

    @cached_property
    def x_v(self) -> np.ndarray | None:
        """What V is made of, None where that is x. (key, d_model)"""
        return array(self.tensors["x_v"]) if "x_v" in self.tensors else None

    # What is known

    def knows(self, name: str) -> bool:
        """Was the tensor of that name recorded, or is the matrix of that name known?"""
        return name in self.tensors or name in self.projections.known

    def tensor(self, name: str) -> np.ndarray:
        """The tensor that was recorded under a name, as `tensors` has it."""
        return array(self._known(name))

    def _known(self, name: str) -> Tensor:
        if name not in self.tensors:
            raise MhaError(
                f"{NAMES.get(name, name)} of this layer are not known; ask for its weights instead."
            )
        return self.tensors[name]

    @property
    def _rows(self) -> Tensor:
        """A tensor with all heads and queries."""
        return self.tensors["q" if self.knows("q") else "weights"]

    def kv_head(self, head: int) -> int:
        """The key/value head that query head `head` uses: neighbours share one."""
        return self.head_index(head) // (self.n_heads // self.n_kv_heads)

    def head_index(self, head: int) -> int:
        """The number of a head from 0; ``-1`` is the last one."""
        return index("head", head, self.n_heads, of=LAYER)

    def row_indices(self, rows: Picked) -> slice | list[int] | None:
        """The tokens that look, by their positions from 0; None for all."""
        return indices("row", rows, self.n_query, of=LAYER)

    def key_indices(self, keys: Picked) -> slice | list[int] | None:
        """The tokens that are looked at, by their positions from 0; None for all."""
        return indices("key", keys, self.n_key, of=LAYER)

    # Matrices

    def scores(self, head: int | None = None, *, rows: Picked = None, keys: Picked = None) -> np.ndarray:
        """Raw scores ``q kᵀ``. ([head,] query, key)"""
        return self._shown(self._raw(head, self.row_indices(rows)), head, keys)

    def scaled(self, head: int | None = None, *, rows: Picked = None, keys: Picked = None) -> np.ndarray:
        """Scores times `scale`. ([head,] query, key)"""
        return self._shown(self._logits(head, self.row_indices(rows))[0], head, keys)

    def masked(self, head: int | None = None, *, rows: Picked = None, keys: Picked = None) -> np.ndarray:
        """What the softmax gets: capped, biased, and −∞ where hidden. ([head,] query, key)"""
        return self._shown(self._logits(head, self.row_indices(rows))[1], head, keys)

    def weights(self, head: int | None = None, *, rows: Picked = None, keys: Picked = None) -> np.ndarray:
        """How much each query takes from each key; a row sums to 1. ([head,] query, key)

        A row whose keys are all hidden is zero everywhere; with sinks a row sums to less than 1.
        """
        return self._shown(self._weights(head, self.row_indices(rows)), head, keys)

    def column(self, key: int) -> np.ndarray:
        """What every query takes from one key, ``A[:, key]``: O(tokens · d_k) numbers. (head, query)"""
        key = index("key", key, self.n_key, of=LAYER)
        if not self.knows("q"):
            return self.weights(keys=[key])[..., 0]
        lse, column = self.log_sum_exp(), np.empty((self.n_heads, self.n_query), self.q.dtype)
        keys = self.k[[self.kv_head(head) for head in range(self.n_heads)], key]
        scaled = np.einsum("hqd,hd->hq", self.q, keys) * self.scale
        for rows in row_blocks(self.n_query, self.n_key * self.n_heads):
            rule = self.rule.at(slice(None), rows, n_query=self.n_query, n_key=self.n_key)
            rule = rule.mapped(lambda table: _at_key(table, key))
            masked = rule.masked(torch.from_numpy(scaled[:, rows, None]))[..., 0].numpy()
            with np.errstate(invalid="ignore"):  # a row that is hidden altogether: −∞ − −∞
                weights = np.exp(masked / self.rule.temperature - lse[:, rows])
            column[:, rows] = np.where(np.isneginf(masked), 0.0, weights)
        return column

    def log_sum_exp(self, head: int | None = None) -> np.ndarray:
        """``log Σ exp(score / temperature)`` of each row, sinks included, −∞ where all is hidden. float64

        With it a single weight is one dot product, ``exp(score / temperature − log_sum_exp)``: it is what
        FlashAttention keeps in place of the weights (Dao et al. 2022). ([head,] query)
        It is computed once for a head, in blocks of rows. Raises `MhaError` for a layer of which only the
        weights are known.
        """
        if head is None:
            return np.stack([self.log_sum_exp(one) for one in range(self.n_heads)])
        head = self.head_index(head)
        if head not in self._log_sum_exps:
            self._log_sum_exps[head] = self._log_sum_exp(head)
        return self._log_sum_exps[head]

    def allowed(self, head: int | None = None, *, rows: Picked = None, keys: Picked = None) -> np.ndarray:
        """True where the query may look at the key. ([head,] query, key)"""
        rows = self.row_indices(rows)
        mask = self._rule(head, rows).mask
        queries = self._rows[self._heads(head)]
        shape = (*(queries if rows is None else queries[:, rows]).shape[:2], self.n_key)
        return self._shown(torch.ones(shape, dtype=bool) if mask is None else mask.expand(shape), head, keys)

    def output(self, head: int | None = None, *, rows: Picked = None) -> np.ndarray:
        """Each head's output, the mixture ``weights v``. ([head,] query, d_v)"""
        return self._shown(self._output(head, self.row_indices(rows)), head)

    def concat(self) -> np.ndarray:
        """The heads' outputs side by side. (query, h · d_v)"""
        return array(concat_heads(self._output(None, None)))

    def contribution(self, head: int | None = None, *, rows: Picked = None) -> np.ndarray:
        """What a head adds to the layer's output, ``head_i W_i^O``. ([head,] query, d_model)

        The contributions of all heads and the bias of W^O sum to `result`.
        """
        w_o = self._w_o().unflatten(0, (self.n_heads, self.d_v))[self._heads(head)]
        return self._shown(self._output(head, self.row_indices(rows)) @ w_o, head)

    def result(self) -> np.ndarray:
        """The layer's output ``concat W^O + b^O``. (query, d_model)"""
        return array(join_heads(self._output(None, None), self._w_o(), self.projections.b_o))

    def _repr_html_(self) -> str:
        """What a notebook shows: what was recorded, and small pictures of the weights."""
        from mha_core.export.notebook import of_layer

        return of_layer(self)

    # How

    def _heads(self, head: int | None) -> slice:
        return slice(None) if head is None else slice(at := self.head_index(head), at + 1)

    def _kv(self, name: str, head: int | None) -> Tensor:
        tensor = self._known(name)
        return tensor if head is None else tensor[self.kv_head(head)][None]

    def _raw(self, head: int | None, rows: slice | list[int] | None) -> Tensor:
        return raw_scores(self._queries(head, rows), self._kv("k", head))

    def _queries(self, head: int | None, rows: slice | list[int] | None) -> Tensor:
        q = self._known("q")[self._heads(head)]
        return q if rows is None else q[:, rows]

    def _rule(self, head: int | None, rows: slice | list[int] | None) -> ScoreRule:
        rows = slice(None) if rows is None else rows
        return self.rule.at(self._heads(head), rows, n_query=self.n_query, n_key=self.n_key)

    def _logits(self, head: int | None, rows: slice | list[int] | None) -> tuple[Tensor, Tensor]:
        return self._rule(head, rows).logits(self._raw(head, rows), self.d_k)

    def _weights(self, head: int | None, rows: slice | list[int] | None) -> Tensor:
        if not self.knows("q"):
            given = self.tensors["weights"][self._heads(head)]
            return given if rows is None else given[:, rows]
        weights = attention_weights(self._queries(head, rows), self._kv("k", head), self._rule(head, rows))
        return weights.to(self._known("v").dtype)

    def _output(self, head: int | None, rows: slice | list[int] | None) -> Tensor:
        parts = [rows]
        if rows is None:  # so that the weights are never whole when long
            parts = row_blocks(self.n_query, self.n_key * (self.n_heads if head is None else 1))
        v = self._kv("v", head)
        return torch.cat([mix(self._weights(head, part), v) for part in parts], dim=1)

    @cached_property
    def _log_sum_exps(self) -> dict[int, np.ndarray]:
        return {}

    def _log_sum_exp(self, head: int) -> np.ndarray:
        temperature, sums = self.rule.temperature, np.empty(self.n_query)
        for rows in row_blocks(self.n_query, 2 * self.n_key):  # a float64 is two
            scores = self.masked(head, rows=rows).astype(np.float64)
            scores /= temperature
            sums[rows] = _log_sum_exp_of_rows(scores)
        if self.rule.sinks is not None:
            sums = np.logaddexp(sums, float(self.rule.sinks[head]) / temperature)
        return sums

    def _w_o(self) -> Tensor:
        if not self.knows("w_o"):
            raise MhaError("The output matrix W^O of this layer is not known; look at `output` instead.")
        return self.projections.w_o

    def _shown(self, tensor: Tensor, head: int | None, keys: Picked = None) -> np.ndarray:
        keys = self.key_indices(keys)
        tensor = tensor if keys is None else tensor[..., keys]
        return array(tensor if head is None else tensor[0])


def with_texts(text: Tokens, target: Tokens | None, layers: Iterable[LayerTrace]) -> tuple[LayerTrace, ...]:
    """The same layers with the sides that their kinds say, between a text and the `target` written from it.

    Raises `MhaError` for a kind of layer that nobody knows, and for one whose text is not given.
    """
    texts, named = {"text": text, "target": target}, []
    for layer in layers:
        one_of("kind of layer", layer.kind, KINDS, parameter="kind")
        queries, keys = (texts[side] for side in KINDS[layer.kind])
        if queries is None or keys is None:
            raise MhaError(f"A {layer.kind} layer needs the tokens of a target, and there are none.")
        named.append(replace(layer, sides=Sides(queries, keys)))
    return tuple(named)


def plain(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu")


def shared(tensor: Tensor) -> Tensor:
    """The tensor itself, so that layers can share one mask, unless it is a part of something larger."""
    tensor = plain(tensor)
    return tensor if tensor.untyped_storage().nbytes() <= tensor.nbytes else tensor.clone()


def owned(tensor: Tensor) -> Tensor:
    """A copy in plain order: it keeps no batch alive, and nobody else can change it."""
    return plain(tensor).clone(memory_format=torch.contiguous_format)


def array(tensor: Tensor) -> np.ndarray:
    """A read-only array; half precision, which numpy only half knows, becomes float32 exactly."""
    if tensor.dtype in (torch.float16, torch.bfloat16):
        tensor = tensor.float()
    array = tensor.numpy().view()
    array.setflags(write=False)
    return array


def _at_key(table: Tensor, key: int) -> Tensor:
    """One key's column of a mask or bias; the scores of sinks are no table."""
    return table if table.dim() == 1 else table[..., [0 if table.shape[-1] == 1 else key]]


def _log_sum_exp_of_rows(scores: np.ndarray) -> np.ndarray:
    """Over the last axis; `scores` are written over: a second array of them would be large."""
    most = scores.max(-1)
    base = np.where(np.isfinite(most), most, 0.0)
    with np.errstate(divide="ignore"):
        scores -= base[..., None]
        return base + np.log(np.exp(scores, out=scores).sum(-1))
