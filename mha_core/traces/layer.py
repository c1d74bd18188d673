"""One attention layer of a trace: q, k, v (or weights) and the score rule. Every matrix follows from them.

A trace has no batch axis, is on the CPU and never changes, so threads can share it. It holds
O(tokens · d_model) numbers. Each matrix is computed when you read it, by the functions that `attend` uses.
Heads and positions count from 0.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
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
from mha_core.attention.positions import rotated
from mha_core.attention.score_rule import ScoreRule
from mha_core.errors import MhaError, Phrase, at_least_1
from mha_core.traces import showing
from mha_core.traces.facts import Adjustments, Facts
from mha_core.traces.indices import LAYER, Picked, index, indices
from mha_core.traces.projections import ModelProjections
from mha_core.traces.sparse_index import SparseIndex
from mha_core.traces.tensors import Copies, array, compact, contiguous_copy, shared
from mha_core.traces.tokens import Sides, Tokens, numbered

# The texts of the queries and of the keys, by kind: the source text or its target.
KINDS = {
    "self": ("text", "text"),
    "encoder": ("text", "text"),
    "decoder": ("target", "target"),
    "cross": ("target", "text"),
}
NAMES = {"q": Phrase("The queries"), "k": Phrase("The keys"), "v": Phrase("The values")}


MAX_WHOLE = 4_000_000_000  # bytes of the weights that are returned at once
TINY = 1e-30  # beside a sink such a weight does not change the sum


class Strongest(NamedTuple):
    """The keys with the largest weights of each row, the largest first, and these weights: (query, k)."""

    keys: np.ndarray
    weights: np.ndarray


class Visible(NamedTuple):
    """Weights (head, row, key), and where these rows may look (head or 1, row, key), None for everywhere."""

    weights: np.ndarray
    allowed: np.ndarray | None


class Blocks(NamedTuple):
    """Blocks of weights: the `largest`, NaN where every cell is hidden, and the `sums`; (rows, columns)."""

    largest: np.ndarray
    sums: np.ndarray


@dataclass(frozen=True, eq=False)
class LayerTrace:
    """One attention layer's queries, keys, values and score rule, and every matrix that follows from them.

    q, k, v, x and x_v are copies. `projections` are the module's own matrices, which can be large: each is
    copied to the CPU when it is first read. If the module has changed it by then, reading raises `MhaError`.
    (Torch does not count a write through ``parameter.data``, so it is not noticed.)
    If only the weights are known, `tensors` has weights (head, query, key) in place of q and k, and anything
    that needs q or k raises `MhaError`.

    A model may transform the products X W before they are q, k and v. `tensors` then has the intermediate
    results, and `about.adjustments` the steps, in order, for each of q, k and v:

    - q_linear, k_linear, v_linear: the product X W itself, split into heads, if the next step is a norm, a
      scale or a limit;
    - q_raw, k_raw: queries and keys before the rotary code, with the code's cos and sin, (token, width);
      `about.rotary` describes the code;
    - q_turned, k_turned: queries and keys after the rotary code, if further steps follow;
    - q_gain, q_shift and those of k and v: the gain and shift of a LayerNorm, (1, its width), or with a row
      for each head;
    - gate: the factor on the heads' outputs before W^O, (head, query, d_v), or (head, query, 1) with one
      number for each head; `about.gate` describes it;
    - output_cos, output_sin: the cosines and sines (token, width) that rotate the heads' outputs back before
      W^O, in models that rotate values like keys; `about.output_rotary` describes the code;
    - concat, result: what a model's own code made of the heads' outputs before and behind its last matrix,
      (query, width), where that is not concat W^O of the heads in their order;
    - q_short, kv_short: in latent attention, the latent vectors (token, rank) of queries, and of keys and
      values, after their norm (DeepSeek-AI 2024).

    If a learned index chooses the keys (`index`), `tensors` also has its scores (index_scores), the indices
    of the blocks of keys that it chose (index_choice), and the mask without its choice (dense_mask).

    `kind` is the kind of attention: "self"; "encoder" and "decoder" in a model with a target sentence; and
    "cross" between two texts. `sides` are the texts of the queries and of the keys; outside a trace they are
    numbered positions, unless given. `name` is the layer's name in its model, `about` has further facts.

    Arrays are read-only, in float32 (float64 for a float64 trace); a tensor is copied when it is read from
    `tensors`. ``head=None`` returns all heads, with a leading head axis. `rows` selects queries and `keys`
    selects keys: a slice, a list or array of positions, or one position, whose axis is kept. Positions count
    from 0, negative ones from the end.
    Every method raises `MhaError` for a head, row or key that the layer does not have.
    """

    tensors: Mapping[str, Tensor] = field(repr=False)  # q, k, v or weights, and if known x, x_v
    rule: ScoreRule = field(default=ScoreRule(), repr=False)
    projections: Projections = field(default=Projections(), repr=False)
    kind: str = "self"
    name: str = ""
    about: Facts = field(default=Facts(), repr=False)
    sides: Sides = field(default=None, repr=False)  # type: ignore[assignment]  # never None afterwards

    def __post_init__(self) -> None:
        object.__setattr__(self, "tensors", Copies(self.tensors))
        if self.sides is None:
            queries, keys = numbered(self.n_query), numbered(self.n_key)
            keys = replace(keys) if self.kind == "cross" else keys  # another text, even of the same length
            object.__setattr__(self, "sides", Sides(queries, keys))

    @classmethod
    def of(
        cls,
        attended: Attended,
        *,
        x: Tensor | None = None,
        x_v: Tensor | None = None,
        kv_short: Tensor | None = None,
        projections: Projections = Projections(),
        item: int = 0,
        **described: Any,
    ) -> "LayerTrace":
        """One item of a batch as a layer, without batch axis and autograd, on the CPU.

        `described` are the `kind`, `name`, `about` and `sides` of the layer.
        """
        tensors = {"q": attended.q, "k": attended.k, "v": attended.v}
        inputs = {"x": x, "x_v": x_v, "kv_short": kv_short}
        tensors |= {name: tensor for name, tensor in inputs.items() if tensor is not None}
        return cls(
            {name: contiguous_copy(tensor[item]) for name, tensor in tensors.items()},
            attended.rule.item(item).mapped(compact),
            ModelProjections(projections._asdict()),
            **described,
        )

    # Sizes

    @property
    def n_heads(self) -> int:
        return self._rows.shape[0]

    @property
    def n_kv_heads(self) -> int:
        return self._shared["k" if self.knows("k") else "weights"].shape[0]

    @property
    def n_query(self) -> int:
        return self._rows.shape[1]

    @property
    def n_key(self) -> int:
        return self._shared["k"].shape[1] if self.knows("k") else self._shared["weights"].shape[2]

    @property
    def d_k(self) -> int:
        return self._tensor("q").shape[2]

    @property
    def d_v(self) -> int:
        return self._tensor("v").shape[2]

    @property
    def d_model(self) -> int | None:
        """The width of X and Z; None if neither X nor W^O is known."""
        if "x" in self._shared:
            return self._shared["x"].shape[1]
        w_o = self.projections.w_o
        return None if w_o is None else w_o.shape[1]

    @property
    def scale(self) -> float:
        """The factor on raw scores, ``1/√d_k`` unless the rule has another."""
        return self.rule.factor(self.d_k)

    # Recorded arrays

    @cached_property
    def q(self) -> Float[np.ndarray, "head query d_k"]:
        """Queries."""
        return array(self._tensor("q"))

    @cached_property
    def k(self) -> Float[np.ndarray, "kv_head key d_k"]:
        """Keys."""
        return array(self._tensor("k"))

    @cached_property
    def v(self) -> Float[np.ndarray, "kv_head key d_v"]:
        """Values."""
        return array(self._tensor("v"))

    @cached_property
    def x(self) -> Float[np.ndarray, "query d_model"] | None:
        """The layer's input; None if it is not known."""
        return array(self._shared["x"]) if "x" in self._shared else None

    @cached_property
    def x_v(self) -> Float[np.ndarray, "key d_model"] | None:
        """The input of W^V where it is not x, else None."""
        return array(self._shared["x_v"]) if "x_v" in self._shared else None

    @cached_property
    def index(self) -> SparseIndex | None:
        """The learned index that chose the keys of each query; None if the layer has none."""
        if "index_choice" not in self._shared:
            return None
        return SparseIndex(self.tensors, self.rule, self.about.index_block or 1)

    # Availability

    @cached_property
    def _shared(self) -> Mapping[str, Tensor]:
        return shared(self.tensors)

    def held(self) -> list[Tensor]:
        """All tensors of the layer, and the model's tensors behind its matrices, without copying."""
        return [*self._shared.values(), *self.rule.tensors().values(), *self.projections.held()]

    def knows(self, name: str) -> bool:
        """Whether the layer has a tensor, matrix or bias with this name."""
        return name in self._shared or name in self.projections.known

    def tensor(self, name: str) -> np.ndarray:
        """The tensor with this name in `tensors`, as a read-only array."""
        return array(self._tensor(name))

    def stages(self, name: str) -> list[str]:
        """The names of the tensors from the product X W to q, k or v, in order; most models have one."""
        earlier = (f"{name}_{stage}" for stage in ("linear", "raw", "turned"))
        return [*(stage for stage in earlier if self.knows(stage)), name]

    @property
    def adjustments(self) -> Adjustments:
        """The steps of the model between the products X W and q, k and v."""
        if self.about.adjustments is not None:
            return self.about.adjustments
        rotation = () if self.about.rotary is None else (self.about.rotary,)
        return Adjustments(rotation, rotation)

    def _tensor(self, name: str) -> Tensor:
        if name not in self._shared:
            raise MhaError(
                "{names} of this layer are not known; ask for its weights instead.",
                names=NAMES.get(name, name),
            )
        return self._shared[name]

    @property
    def _rows(self) -> Tensor:
        """A tensor expanded to all heads and queries."""
        return self._shared["q" if self.knows("q") else "weights"]

    def kv_head(self, head: int) -> int:
        """The key/value head of query head `head`; neighbouring heads share one."""
        return self.head_index(head) // (self.n_heads // self.n_kv_heads)

    def head_index(self, head: int) -> int:
        """The index of a head, from 0; ``-1`` is the last one."""
        return index("head", head, self.n_heads, of=LAYER)

    def row_indices(self, rows: Picked) -> slice | list[int]:
        """The positions of the selected queries, from 0."""
        return indices("row", rows, self.n_query)

    def key_indices(self, keys: Picked) -> slice | list[int]:
        """The positions of the selected keys, from 0."""
        return indices("key", keys, self.n_key)

    # Matrices

    def scores(
        self, head: int | None = None, *, rows: Picked = None, keys: Picked = None
    ) -> Float[np.ndarray, "*head query key"]:
        """Raw scores ``q kᵀ``."""
        return self._as_array(self._raw(head, self.row_indices(rows)), head, keys)

    def scaled(
        self, head: int | None = None, *, rows: Picked = None, keys: Picked = None
    ) -> Float[np.ndarray, "*head query key"]:
        """Scores times `scale`."""
        return self._as_array(self._logits(head, self.row_indices(rows))[0], head, keys)

    def masked(
        self, head: int | None = None, *, rows: Picked = None, keys: Picked = None
    ) -> Float[np.ndarray, "*head query key"]:
        """The input of the softmax: scaled scores with cap and bias, −∞ where hidden."""
        return self._as_array(self._logits(head, self.row_indices(rows))[1], head, keys)

    def weights(
        self, head: int | None = None, *, rows: Picked = None, keys: Picked = None
    ) -> Float[np.ndarray, "*head query key"]:
        """Attention weights: how much each query looks at each key; a row sums to 1.

        A row whose keys are all hidden is 0 everywhere; with sinks a row sums to less than 1. Patched weights
        are the numbers of the patch. Raises `MhaError` for computed weights of more than `MAX_WHOLE` bytes
        without `rows`.
        """
        n_heads = self.n_heads if head is None else 1
        if (
            rows is None
            and self.knows("q")
            and (size := n_heads * self.n_query * self.n_key * self._tensor("q").element_size()) > MAX_WHOLE
        ):
            raise MhaError(
                "All weights of {n_heads} heads over {n_query:,} queries and {n_key:,} keys take {size:,.1f} "
                "GB; name rows, as in weights(head, rows=slice(0, 64)), or take blocks(head, 64) or "
                "strongest(head, 8).",
                n_heads=n_heads,
                n_query=self.n_query,
                n_key=self.n_key,
                size=size / 1e9,
            )
        return self._as_array(self._weights(head, self.row_indices(rows)), head, keys)

    def visible(self, head: int | None = None, *, rows: Picked = None) -> Visible:
        """The weights of some rows up to the last key that any of them may look at, and where they may look.

        Further keys have the weight 0; in a causal text these are half of all cells.
        """
        rows = self.row_indices(rows)
        rule, keys = self._reach(head, rows)
        weights = array(self._weights(head, rows, rule, keys))
        return Visible(weights, _allowed(rule, weights.shape))

    def strongest(self, head: int, k: int) -> Strongest:
        """The `k` keys of each row with the largest weights, the largest first, and these weights.

        All keys if there are fewer than `k`; of equal weights any comes first. It reads the weights in blocks
        of rows, so that memory grows with ``tokens · k``. Raises `MhaError` for a `k` below 1.
        """
        k = min(at_least_1("k", k, Phrase("keys")), self.n_key)
        blocks = row_blocks(self.n_query, self.n_key)
        found = [torch.topk(self._weights(head, rows)[0].float(), k) for rows in blocks]
        values, keys = (torch.cat(parts) for parts in zip(*found, strict=True))
        return Strongest(array(keys), array(values))

    def blocks(self, head: int, size: int) -> Blocks:
        """The largest weight, and the sum of all weights, in each block of ``size × size`` cells.

        The last blocks may be smaller. A row of sums adds up to the number of rows in the block, less where
        a row of weights sums to less than 1; so no weight is lost in a picture of a long text, as one would
        be in a mean. One pass over blocks of rows computes them and the head's `log_sum_exp`; the
        (query, key) matrix never exists. Raises `MhaError` for a `size` below 1.
        """
        head, size = self.head_index(head), at_least_1("size", size, Phrase("tokens"))
        shape = -(-self.n_query // size), -(-self.n_key // size)
        largest, sums, visible = np.zeros(shape, np.float32), np.zeros(shape), np.zeros(shape, bool)
        lse = np.empty(self.n_query)
        is_new = self.knows("q") and self.rule.patched_weights is None and head not in self._log_sum_exps
        for rows in row_blocks(self.n_query, self.n_key):
            rule, keys = self._reach(head, rows)
            if is_new:
                weights, lse[rows] = self._softmax(head, rows, rule, keys)
            else:
                weights = self._weights(head, rows, rule, keys)
            [cells], allowed = array(weights), _allowed(rule, weights.shape)
            first, last = rows.start // size, -(-rows.stop // size)
            columns = np.arange(0, cells.shape[1], size)
            into = np.s_[first:last, : len(columns)]
            edges = (np.arange(first, last + 1) * size - rows.start).clip(0, len(cells))
            np.maximum(largest[into], _pooled(np.maximum, cells, edges, columns), out=largest[into])
            sums[into] += _pooled(np.add, cells, edges, columns)
            visible[into] |= allowed is None or _pooled(np.logical_or, allowed[0], edges, columns)
        if is_new:
            self._log_sum_exps[head] = lse
        largest[~visible] = np.nan
        return Blocks(largest, sums)

    def column(self, key: int) -> Float[np.ndarray, "head query"]:
        """How much every query looks at one key, ``A[:, key]``, in O(tokens · d_k)."""
        key = index("key", key, self.n_key, of=LAYER)
        if not self.knows("q") or self.rule.patched_weights is not None:
            return self.weights(keys=[key])[..., 0]
        lse, column = self.log_sum_exp(), np.empty((self.n_heads, self.n_query), self.q.dtype)
        keys = self.k[[self.kv_head(head) for head in range(self.n_heads)], key]
        scaled = np.einsum("hqd,hd->hq", self.q, keys) * self.scale
        for rows in row_blocks(self.n_query, self.n_key * self.n_heads):
            rule = self.rule.at(slice(None), rows, n_query=self.n_query, n_key=self.n_key)
            masked = rule.for_keys([key]).masked(torch.from_numpy(scaled[:, rows, None]))[..., 0].numpy()
            with np.errstate(invalid="ignore"):  # a fully hidden row: −∞ − −∞
                weights = np.exp(masked / self.rule.temperature - lse[:, rows])
            column[:, rows] = np.where(np.isneginf(masked), 0.0, weights)
        return column

    def log_sum_exp(self, head: int | None = None) -> Float[np.ndarray, "*head query"]:
        """``log Σ exp(score / temperature)`` of each row in float64, with sinks.

        It comes from the computed scores, also where weights are patched, and is −∞ for a fully hidden row.
        With it a single weight needs one dot product, ``exp(score / temperature − log_sum_exp)``;
        FlashAttention stores it in place of the weights (Dao et al. 2022). It is computed once per head, in
        blocks of rows. Raises `MhaError` for a layer of which only the weights are known.
        """
        if head is None:
            return np.stack([self.log_sum_exp(one) for one in range(self.n_heads)])
        head = self.head_index(head)
        if head not in self._log_sum_exps:
            sums = np.empty(self.n_query)
            for rows in row_blocks(self.n_query, self.n_key):
                sums[rows] = self._softmax(head, rows, *self._reach(head, rows))[1]
            self._log_sum_exps[head] = sums
        return self._log_sum_exps[head]

    def allowed(
        self, head: int | None = None, *, rows: Picked = None, keys: Picked = None
    ) -> Bool[np.ndarray, "*head query key"]:
        """True where the query may look at the key."""
        rows = self.row_indices(rows)
        mask = self._rule(head, rows).mask
        shape = (*self._rows[self._heads(head)][:, rows].shape[:2], self.n_key)
        allowed = torch.ones(shape, dtype=torch.bool) if mask is None else mask.expand(shape)
        return self._as_array(allowed, head, keys)

    def output(self, head: int | None = None, *, rows: Picked = None) -> Float[np.ndarray, "*head query d_v"]:
        """Each head's output, the weighted sum ``weights v`` unless it is patched."""
        return self._as_array(self._output(head, self.row_indices(rows)), head)

    def concat(self, *, rows: Picked = None) -> Float[np.ndarray, "query width"]:
        """The concatenated outputs of the heads, h · d_v wide, after a gate or rotation if any."""
        if self.knows("concat"):
            return array(self._shared["concat"][self.row_indices(rows)])
        return array(concat_heads(self._to_w_o(None, self.row_indices(rows))))

    def contribution(
        self, head: int | None = None, *, rows: Picked = None
    ) -> Float[np.ndarray, "*head query d_model"]:
        """A head's contribution to the layer's output, ``(gate_i · head_i) W_i^O``.

        The contributions of all heads and the bias of W^O sum to `result`; most layers have no gate. If a
        model rotates the heads' outputs back before W^O, the contribution comes from the rotated output.
        """
        heads = self._to_w_o(head, self.row_indices(rows))
        w_o = self._w_o(heads.dtype).unflatten(0, (self.n_heads, self.d_v))[self._heads(head)]
        return self._as_array(heads @ w_o, head)

    def result(self, *, rows: Picked = None) -> Float[np.ndarray, "query d_model"]:
        """The layer's output ``concat W^O + b^O``."""
        if self.knows("result"):
            return array(self._shared["result"][self.row_indices(rows)])
        heads, b_o = self._to_w_o(None, self.row_indices(rows)), self.projections.b_o
        b_o = None if b_o is None else b_o.to(heads.dtype)
        return array(join_heads(heads, self._w_o(heads.dtype), b_o))

    def __repr__(self) -> str:
        recorded = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in self._shared.items())
        return f"<LayerTrace {' '.join(filter(None, (self.kind, self.name)))}: {recorded}>"

    def _repr_html_(self) -> str:
        """HTML for a notebook: the recorded tensors, and small pictures of the weights."""
        return showing.layer_html(self)

    # Computation

    def _heads(self, head: int | None) -> slice:
        return slice(None) if head is None else slice(at := self.head_index(head), at + 1)

    def _kv(self, name: str, head: int | None) -> Tensor:
        tensor = self._tensor(name)
        return tensor if head is None else tensor[self.kv_head(head)][None]

    def _raw(self, head: int | None, rows: slice | list[int]) -> Tensor:
        return raw_scores(self._queries(head, rows), self._kv("k", head))

    def _queries(self, head: int | None, rows: slice | list[int]) -> Tensor:
        return self._tensor("q")[self._heads(head)][:, rows]

    def _rule(self, head: int | None, rows: slice | list[int]) -> ScoreRule:
        return self.rule.at(self._heads(head), rows, n_query=self.n_query, n_key=self.n_key)

    def _reach(self, head: int | None, rows: slice | list[int]) -> tuple[ScoreRule, slice]:
        """The rule of some rows for the keys up to the last that any of them may look at, and these keys."""
        rule = self._rule(head, rows)
        keys = slice(rule.reach(self.n_key))
        return rule.for_keys(keys), keys

    def _logits(self, head: int | None, rows: slice | list[int]) -> tuple[Tensor, Tensor]:
        return self._rule(head, rows).logits(self._raw(head, rows), self.d_k)

    def _weights(
        self,
        head: int | None,
        rows: slice | list[int],
        rule: ScoreRule | None = None,
        keys: slice = slice(None),
    ) -> Tensor:
        """The weights of some rows, with `rule` and `keys` of `_reach` only on these keys."""
        if not self.knows("q"):
            return self._shared["weights"][self._heads(head)][:, rows][..., keys]
        rule = self._rule(head, rows) if rule is None else rule
        weights = attention_weights(self._queries(head, rows), self._kv("k", head)[:, keys], rule)
        return weights.to(self._tensor("v").dtype)

    def _output(self, head: int | None, rows: slice | list[int]) -> Tensor:
        blocks: Sequence[slice | list[int]] = [rows]
        if rows == slice(None):  # the weights of a long text are never in memory all at once
            blocks = row_blocks(self.n_query, self.n_key * (self.n_heads if head is None else 1))
        v = self._kv("v", head)
        return torch.cat(
            [self._rule(head, block).outputs(mix(self._weights(head, block), v)) for block in blocks], dim=1
        )

    def _to_w_o(self, head: int | None, rows: slice | list[int]) -> Tensor:
        """The heads' outputs as the input of W^O: after a gate or a rotation."""
        output = self._output(head, rows)
        if "gate" in self._shared:
            output = output * self._shared["gate"][self._heads(head)][:, rows]
        if (code := self.about.output_rotary) is not None:
            cos, sin = (self._shared[name][rows] for name in ("output_cos", "output_sin"))
            output = rotated(output, cos, sin, form=code.form, start=code.start).to(output.dtype)
        return output

    @cached_property
    def _log_sum_exps(self) -> dict[int, np.ndarray]:
        return {}

    def _softmax(self, head: int, rows: slice, rule: ScoreRule, keys: slice) -> tuple[Tensor, np.ndarray]:
        """Some rows of a head's computed weights, (1, row, key), and their log-sum-exp.

        That is the row's largest score less the logarithm of its weight, which the softmax has anyway.
        """
        temperature = self.rule.temperature
        raw = raw_scores(self._queries(head, rows), self._kv("k", head)[:, keys])
        masked = rule.masked(raw.mul_(self.scale), spent=True)
        largest = masked[0].amax(-1).double() / temperature
        weights = replace(rule, patched_weights=None).weights(masked, spent=True)
        taken = weights[0].amax(-1).double()
        alone = float("-inf") if self.rule.sinks is None else float(self.rule.sinks[head]) / temperature
        sums = torch.where(taken > TINY, largest - taken.log(), alone)
        return weights, sums.numpy()

    def _w_o(self, dtype: torch.dtype) -> Tensor:
        """W^O in the precision of the heads' outputs, which under autocast is lower than its own."""
        w_o = self.projections.w_o
        if w_o is None:
            raise MhaError("The output matrix W^O of this layer is not known; look at `output` instead.")
        return w_o.to(dtype)

    def _as_array(self, tensor: Tensor, head: int | None, keys: Picked = None) -> np.ndarray:
        tensor = tensor[..., self.key_indices(keys)]
        return array(tensor if head is None else tensor[0])


def with_texts(text: Tokens, target: Tokens | None, layers: Iterable[LayerTrace]) -> tuple[LayerTrace, ...]:
    """The layers with their `sides`, by their kinds: a text and its `target`.

    Raises `MhaError` for a layer that needs a target if there is none.
    """
    texts, with_sides = {"text": text, "target": target}, []
    for layer in layers:
        queries, keys = (texts[side] for side in KINDS[layer.kind])
        if queries is None or keys is None:
            raise MhaError(
                "A {kind} layer needs the tokens of a target, and there are none.", kind=layer.kind
            )
        with_sides.append(replace(layer, sides=Sides(queries, keys)))
    return tuple(with_sides)


def _allowed(rule: ScoreRule, shape: Sequence[int]) -> np.ndarray | None:
    """The cells that an expanded rule leaves visible, (head or 1, row, key); None for all of them."""
    if rule.mask is None:
        return None
    mask = rule.mask.reshape(-1, *rule.mask.shape[-2:])
    allowed = array(mask.expand(-1, *shape[1:]))
    return allowed[:1] if allowed.strides[0] == 0 else allowed  # heads that share a mask share its sums


def _pooled(reduce: np.ufunc, cells: np.ndarray, edges: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The cells reduced between neighbouring `edges` of rows, and from each of `columns` to the next."""
    rows = [reduce.reduce(cells[start:stop], axis=0) for start, stop in pairwise(edges)]
    return reduce.reduceat(np.stack(rows), columns, axis=1)
