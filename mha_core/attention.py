"""Attention itself: the one place in this project where queries meet keys.

Shapes are written with h heads, n_kv key/value heads, L queries, S keys; batch axes come first.

Q, K and V of self-attention are one product, so a Q that was recorded is not X times its own W^Q
bit for bit, but within 2e-6; `packed` says what does hold in every bit.
"""

from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mha_core import masks
from mha_core.errors import MhaError
from mha_core.packed import cut, name_apart, product
from mha_core.rows import row_blocks
from mha_core.rule import ScoreRule
from mha_core.spec import AttentionSpec

LEAST = 64  # rows of a block: products of fewer use the processor badly


def attend(q: Tensor, k: Tensor, v: Tensor, rule: ScoreRule = ScoreRule()) -> Tensor:
    """Scaled dot-product attention: ``softmax(rule(q kᵀ)) v``.

    q (…, h, L, d_k), k (…, n_kv, S, d_k), v (…, n_kv, S, d_v) → (…, h, L, d_v), where h is a
    multiple of n_kv: query head i uses key/value head ``i // (h / n_kv)``, which is not copied.
    Works in fp32, fp64, and in bf16 and fp16 with scores and softmax in fp32. Nothing is remembered.
    The rows are computed in blocks, so the L × S matrix of all heads never exists at once.

    Raises `MhaError` when the shapes do not fit. Source: Vaswani et al. 2017, equation 1.
    """
    _check(q, k, v)
    n_query, n_key = q.shape[-2], k.shape[-2]
    # Half of the cells: the model has tensors of its own beside them.
    blocks = row_blocks(n_query, 2 * q.shape[:-2].numel() * n_key, least=LEAST)
    if len(blocks) <= 1 or rule.softmax == "matrix":
        return _attend(q, k, v, rule.at(slice(None), slice(None), n_query=n_query, n_key=n_key))
    parts = (
        _attend(q[..., rows, :], k, v, rule.at(slice(None), rows, n_query=n_query, n_key=n_key))
        for rows in blocks
    )
    if torch.is_grad_enabled():
        return torch.cat(list(parts), dim=-2)
    # Kept one by one, small results would lie between the freed scores and hold on to their memory.
    found = v.new_empty((*q.shape[:-1], v.shape[-1]))
    for rows, part in zip(blocks, parts, strict=True):
        found[..., rows, :] = part
    return found


def fused(q: Tensor, k: Tensor, v: Tensor, rule: ScoreRule = ScoreRule()) -> Tensor:
    """`attend` by torch's fused kernel: the same but for rounding, in less time and memory.

    What that kernel cannot do, or only with all scores at once, is left to `attend`.
    """
    fits = q.dim() == 4 and q.shape[-1] == v.shape[-1] and q.dtype == torch.float32
    if not (fits and rule.is_plain):
        return attend(q, k, v, rule)
    _check(q, k, v)
    scale, grouped = rule.factor(q.shape[-1]), q.shape[-3] != k.shape[-3]
    return nn.functional.scaled_dot_product_attention(q, k, v, rule.mask, scale=scale, enable_gqa=grouped)


def _attend(q: Tensor, k: Tensor, v: Tensor, rule: ScoreRule) -> Tensor:
    return mix(attention_weights(q, k, rule).to(v.dtype), v)


def attention_weights(q: Tensor, k: Tensor, rule: ScoreRule) -> Tensor:
    """``softmax(rule(q kᵀ))`` for a rule laid out for these rows. → (…, h, L, S), fp32 or fp64"""
    scaled = raw_scores(q, k).mul_(rule.factor(q.shape[-1]))
    return rule.weights(rule.masked(scaled), spent=True)


def raw_scores(q: Tensor, k: Tensor) -> Tensor:
    """``q kᵀ``: element [m, n] is query m · key n. (…, h, L, d_k), (…, n_kv, S, d_k) → (…, h, L, S)

    In fp32 for bf16 and fp16 tensors: an fp16 score can overflow before it is scaled.
    """
    if q.dtype in (torch.float16, torch.bfloat16):
        q, k = q.float(), k.float()
    return _shared(q, k.mT)


def mix(weights: Tensor, v: Tensor) -> Tensor:
    """``weights v``: each row a mixture of values. (…, h, L, S), (…, n_kv, S, d_v) → (…, h, L, d_v)"""
    return _shared(weights, v)


def _shared(rows: Tensor, matrix: Tensor) -> Tensor:
    """Multiply each head's rows with the matrix of its key/value head.

    The heads that share a matrix are stacked into one tall block of rows, instead of repeating
    the matrix for each of them.
    """
    h, n_kv = rows.shape[-3], matrix.shape[-3]
    if h == n_kv:
        return rows @ matrix
    stacked = rows.unflatten(-3, (n_kv, h // n_kv)).flatten(-3, -2)
    return (stacked @ matrix).unflatten(-2, (h // n_kv, -1)).flatten(-4, -3)


def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
    q_shape, k_shape = q.shape, k.shape  # each asking for a shape makes it anew
    fits = (
        len(q_shape) >= 3
        and len(k_shape) >= 3
        and q_shape[:-3] == k_shape[:-3]
        and q_shape[-1] == k_shape[-1]
        and k_shape[:-1] == v.shape[:-1]
        and k_shape[-2] > 0
        and k_shape[-3] > 0
        and q_shape[-3] % k_shape[-3] == 0
    )
    if not fits:
        raise MhaError(
            f"q {tuple(q.shape)}, k {tuple(k.shape)} and v {tuple(v.shape)} do not fit; expected "
            f"q (…, h, L, d_k), k (…, n_kv, S, d_k), v (…, n_kv, S, d_v) with h a multiple of n_kv, S ≥ 1."
        )


class Projections(NamedTuple):
    """The learned matrices of one layer and their biases; None where a layer has none.

    w_q (d_model, h·d_k), w_k (d_model, n_kv·d_k), w_v (d_model, n_kv·d_v), w_o (h·d_v, d_model).
    """

    w_q: Tensor | None = None
    w_k: Tensor | None = None
    w_v: Tensor | None = None
    w_o: Tensor | None = None
    b_q: Tensor | None = None
    b_k: Tensor | None = None
    b_v: Tensor | None = None
    b_o: Tensor | None = None


class Attended(NamedTuple):
    """What one layer computed: its output and everything needed to compute each matrix again."""

    output: Tensor  # (batch, L, d_model)
    q: Tensor  # (batch, h, L, d_k)
    k: Tensor  # (batch, n_kv, S, d_k)
    v: Tensor  # (batch, n_kv, S, d_v)
    rule: ScoreRule


class MultiHeadAttention(nn.Module):
    """``concat(head_1 … head_h) W^O`` with ``head_i = attend(X W_i^Q, X W_i^K, X W_i^V)``.

    MHA, GQA and MQA by `spec.n_kv_heads`; self-attention, or cross-attention when a context is
    given. The parameters are those of two `nn.Linear`: qkv, whose rows are W^Q, W^K and W^V on top
    of each other as in torch's ``in_proj_weight``, and o; a state dict has them apart, as four.

    Source: Vaswani et al. 2017, section 3.2.2.
    """

    def __init__(self, spec: AttentionSpec):
        super().__init__()
        self.spec = spec
        self.widths = spec.n_heads * spec.d_k, spec.n_kv_heads * spec.d_k, spec.n_kv_heads * spec.d_v
        self.qkv = nn.Linear(spec.d_model, sum(self.widths), spec.bias)
        self.o = nn.Linear(spec.n_heads * spec.d_v, spec.d_model, spec.bias)
        name_apart(self)

    def forward(
        self,
        x: Tensor,
        context: Tensor | None = None,
        values: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        key_padding: Tensor | None = None,
        rule: ScoreRule = ScoreRule(),
    ) -> Attended:
        """x (batch, L, d_model), context (batch, S, d_model) or None → output (batch, L, d_model).

        V is made of `values` (batch, S, d_model) where given, and of the context otherwise.
        `mask` takes every shape of `masks.combine`, `key_padding` is (batch, S); both are True
        where a query may look, and narrow the mask that `rule` may hold.
        Raises `MhaError` for a wrong width or a mask of the wrong shape.
        """
        q, k, v = self.project(x, context, values)
        if mask is not None or key_padding is not None:
            batch, n_heads, n_query, _ = q.shape
            sizes = {"batch": batch, "n_heads": n_heads, "n_query": n_query, "n_key": k.shape[2]}
            rule = rule.hiding(masks.combine(mask, key_padding, **sizes))
        return Attended(self.join(attend(q, k, v, rule)), q, k, v, rule)

    def project(
        self, x: Tensor, context: Tensor | None = None, values: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Q (batch, h, L, d_k), K (batch, n_kv, S, d_k) and V (batch, n_kv, S, d_v) of an input."""
        context = x if context is None else context
        values = context if values is None else values
        self._check_inputs(x, context, values)
        if x is context is values:
            q, k, v = product(x, self.qkv.weight, self.qkv.bias).split(self.widths)
        else:
            q, k, v = self._products(x, context, values)
        n_heads, n_kv = self.spec.n_heads, self.spec.n_kv_heads
        return cut(q, x, n_heads), cut(k, context, n_kv), cut(v, values, n_kv)

    def _products(self, *inputs: Tensor) -> list[Tensor]:
        """Q, K and V of an input each; neighbours with the same one, as K and V may have, are one product."""
        parts = zip(inputs, self.widths, strict=True)
        runs = [list(run) for _, run in groupby(parts, lambda part: id(part[0]))]
        heights = [sum(width for _, width in run) for run in runs]
        weights = self.qkv.weight.split(heights)
        biases = [None] * len(runs) if self.qkv.bias is None else self.qkv.bias.split(heights)
        products = []
        for run, weight, bias in zip(runs, weights, biases, strict=True):
            products += product(run[0][0], weight, bias).split([width for _, width in run])
        return products

    def join(self, heads: Tensor) -> Tensor:
        """``concat · W^O + b_o``: (batch, h, L, d_v) → (batch, L, d_model)."""
        o = self.o
        return nn.functional.linear(concat_heads(heads), o.weight, o.bias)

    def projections(self) -> Projections:
        """The layer's own matrices, turned to stand as in the formula; views, not copies."""
        w_o, b_o = self.o.weight.detach().mT, None if self.o.bias is None else self.o.bias.detach()
        matrices = self.qkv.weight.detach().mT.split(self.widths, dim=1)
        biases = (None,) * 3 if self.qkv.bias is None else self.qkv.bias.detach().split(self.widths)
        return Projections(*matrices, w_o, *biases, b_o)

    def _check_inputs(self, x: Tensor, context: Tensor, values: Tensor) -> None:
        for given in (x,) if x is context is values else (x, context, values):
            if given.dim() != 3 or given.shape[::2] != (x.shape[0], self.spec.d_model):
                raise MhaError(
                    f"The input has shape {tuple(given.shape)}; expected (batch, tokens, {self.spec.d_model})"
                    f"{'' if given is x else f' with batch {x.shape[0]}'}."
                )


def join_heads(heads: Tensor, w_o: Tensor, b_o: Tensor | None) -> Tensor:
    """``concat(heads) W^O + b^O``: (…, h, L, d_v), (h·d_v, d_model) → (…, L, d_model)."""
    return nn.functional.linear(concat_heads(heads), w_o.mT, b_o)


def concat_heads(heads: Tensor) -> Tensor:
    """The heads' outputs side by side: (…, h, L, d_v) → (…, L, h·d_v)."""
    return heads.transpose(-3, -2).flatten(-2)
