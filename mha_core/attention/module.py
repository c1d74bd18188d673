"""Multi-head attention as a torch module: its sizes, its matrices, and the tensors of one pass.

W^Q, W^K and W^V are stacked in one packed matrix, so that Q, K and V are one product. Splitting a product
into heads and contracting it head by head give bit-identical numbers, both for the packed matrix and for one
of the three matrices alone. But Q from the packed product and X times W^Q alone need not be bit-identical: a
product may sum in another order when the matrix has another height. For numbers of ordinary size they differ
by at most 2e-6.
"""

from dataclasses import dataclass, fields
from itertools import groupby
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha_core.attention import masks
from mha_core.attention.functional import attend, join_heads
from mha_core.attention.score_rule import ScoreRule
from mha_core.errors import MhaError, in_range, listed, named_type

MAX_D_MODEL = 8192
MAX_HEADS = 128


@dataclass(frozen=True, init=False)
class AttentionSpec:
    """The sizes of one multi-head attention layer.

    ``d_k = d_model / n_heads`` unless given, ``d_v = d_k`` unless given, ``n_kv_heads = n_heads``
    unless given (fewer is grouped-query attention, one is multi-query attention).
    `bias` adds a learned vector after each projection.

    Raises `MhaError` when the sizes do not fit together.
    Source: Vaswani et al. 2017, section 3.2.2; Ainslie et al. 2023 for `n_kv_heads`.
    """

    d_model: int
    n_heads: int
    n_kv_heads: int
    d_k: int
    d_v: int
    bias: bool

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_kv_heads: int | None = None,
        d_k: int | None = None,
        d_v: int | None = None,
        bias: bool = True,
    ) -> None:
        split = d_k is None  # d_model is split into the heads
        in_range("d_model", d_model, 1, MAX_D_MODEL, fits=lambda n: not split or _divides(n_heads, n))
        in_range("h", n_heads, 1, MAX_HEADS, fits=lambda n: not split or _divides(n, d_model))
        if d_k is None:
            d_k = _split(d_model, n_heads)
        if d_v is None:
            d_v = d_k
        if n_kv_heads is None:
            n_kv_heads = n_heads
        in_range("d_k", d_k, 1, MAX_D_MODEL)
        in_range("d_v", d_v, 1, MAX_D_MODEL)
        in_range("n_kv_heads", n_kv_heads, 1, MAX_HEADS)
        if not isinstance(bias, bool):
            raise MhaError("bias is True or False; got {bias}.", bias=repr(bias))
        if n_heads % n_kv_heads:
            fits = _divisors(n_heads, n_heads)
            raise MhaError(
                "{n_heads} query heads cannot share {n_kv_heads} key/value heads evenly; {fits} can.",
                n_heads=n_heads,
                n_kv_heads=n_kv_heads,
                fits=listed(fits, "or"),
                fixes=tuple({"n_kv_heads": n} for n in fits),
            )
        for field, value in zip(fields(self), (d_model, n_heads, n_kv_heads, d_k, d_v, bias), strict=True):
            object.__setattr__(self, field.name, value)  # frozen


class Projections(NamedTuple):
    """The learned matrices and biases of one layer; None for those that it does not have.

    Where W^O is of low rank, w_o is the product of w_o_a, one matrix for each group of heads, and w_o_b
    (DeepSeek-AI 2026, "DeepSeek-V4"). In latent attention w_uk and w_uv expand the latent vectors to keys and
    values (DeepSeek-AI 2024, "DeepSeek-V2"); they are known where keys have no rotated part.
    """

    w_q: Float[Tensor, "d_model head*d_k"] | None = None
    w_k: Float[Tensor, "d_model kv_head*d_k"] | None = None
    w_v: Float[Tensor, "d_model kv_head*d_v"] | None = None
    w_o: Float[Tensor, "head*d_v d_model"] | None = None
    b_q: Float[Tensor, " head*d_k"] | None = None
    b_k: Float[Tensor, " kv_head*d_k"] | None = None
    b_v: Float[Tensor, " kv_head*d_v"] | None = None
    b_o: Float[Tensor, " d_model"] | None = None
    w_o_a: Float[Tensor, "group head*d_v/group rank"] | None = None
    w_o_b: Float[Tensor, "group*rank d_model"] | None = None
    w_uk: Float[Tensor, "rank kv_head*d_k"] | None = None
    w_uv: Float[Tensor, "rank kv_head*d_v"] | None = None

    @property
    def known(self) -> tuple[str, ...]:
        """The names of the matrices and biases that the layer has."""
        return tuple(name for name, matrix in self._asdict().items() if matrix is not None)

    def held(self) -> list[Tensor]:
        """The matrices and biases that the layer has."""
        return [matrix for matrix in self if matrix is not None]


class Attended(NamedTuple):
    """The tensors of one pass through a layer: its output, and q, k, v and rule, which give every matrix."""

    output: Float[Tensor, "batch query d_model"]
    q: Float[Tensor, "batch head query d_k"]
    k: Float[Tensor, "batch kv_head key d_k"]
    v: Float[Tensor, "batch kv_head key d_v"]
    rule: ScoreRule


class MultiHeadAttention(nn.Module):
    """``concat(head_1 … head_h) W^O`` with ``head_i = attend(X W_i^Q, X W_i^K, X W_i^V)``.

    `spec.n_kv_heads` makes it MHA, GQA or MQA. With a context it is cross-attention, else self-attention. The
    parameters are two `nn.Linear`: qkv, whose rows are W^Q, W^K and W^V stacked as in torch's
    ``in_proj_weight``, and o. A state dict has all four matrices separately.

    Source: Vaswani et al. 2017, section 3.2.2.
    """

    def __init__(self, spec: AttentionSpec):
        super().__init__()
        if not isinstance(spec, AttentionSpec):
            raise MhaError(
                "A layer is made of an AttentionSpec, as in AttentionSpec(d_model=512, n_heads=8); got "
                "{type}.",
                type=named_type(spec),
            )
        self.spec = spec
        self.widths = spec.n_heads * spec.d_k, spec.n_kv_heads * spec.d_k, spec.n_kv_heads * spec.d_v
        self.qkv = nn.Linear(spec.d_model, sum(self.widths), spec.bias)
        self.o = nn.Linear(spec.n_heads * spec.d_v, spec.d_model, spec.bias)
        # A file has each matrix by name, so that the code is free to pack them in another way.
        self.register_state_dict_post_hook(_split_qkv)
        self.register_load_state_dict_pre_hook(_pack_qkv)

    def forward(
        self,
        x: Float[Tensor, "batch query d_model"],
        context: Float[Tensor, "batch key d_model"] | None = None,
        values: Float[Tensor, "batch key d_model"] | None = None,
        *,
        mask: Bool[Tensor, "*broadcast query key"] | None = None,
        key_padding: Bool[Tensor, "batch key"] | None = None,
        rule: ScoreRule = ScoreRule(),
    ) -> Attended:
        """Attention from x to the context, or to x itself.

        V comes from `values` if given, else from the context. `mask` may have every shape of `masks.combine`;
        `mask` and `key_padding` are True where a query may look, and are combined with the mask of `rule`.
        Raises `MhaError` for a wrong width or a mask of the wrong shape.
        """
        q, k, v = self.project(x, context, values)
        if mask is not None or key_padding is not None:
            batch, n_heads, n_query, _ = q.shape
            sizes = {"batch": batch, "n_heads": n_heads, "n_query": n_query, "n_key": k.shape[2]}
            rule = rule.hiding(masks.combine(mask, key_padding, **sizes))
        return Attended(self.join(attend(q, k, v, rule)), q, k, v, rule)

    def project(
        self,
        x: Float[Tensor, "batch query d_model"],
        context: Float[Tensor, "batch key d_model"] | None = None,
        values: Float[Tensor, "batch key d_model"] | None = None,
    ) -> tuple[
        Float[Tensor, "batch head query d_k"],
        Float[Tensor, "batch kv_head length d_k"],
        Float[Tensor, "batch kv_head length d_v"],
    ]:
        """Q, K and V of an input; K and V have the length of the context, or else of x."""
        context = x if context is None else context
        values = context if values is None else values
        self._check_inputs(x, context, values)
        if x is context is values:
            q, k, v = product(x, self.qkv.weight, self.qkv.bias).split(self.widths)
        else:
            q, k, v = self._products(x, context, values)
        n_heads, n_kv = self.spec.n_heads, self.spec.n_kv_heads
        return split_heads(q, x, n_heads), split_heads(k, context, n_kv), split_heads(v, values, n_kv)

    def _products(self, *inputs: Tensor) -> list[Tensor]:
        """Q, K and V, each of its input; neighbours with the same input, such as K and V, are one product."""
        parts = zip(inputs, self.widths, strict=True)
        runs = [list(run) for _, run in groupby(parts, lambda part: id(part[0]))]
        heights = [sum(width for _, width in run) for run in runs]
        weights = self.qkv.weight.split(heights)
        biases = [None] * len(runs) if self.qkv.bias is None else self.qkv.bias.split(heights)
        products = []
        for run, weight, bias in zip(runs, weights, biases, strict=True):
            products += product(run[0][0], weight, bias).split([width for _, width in run])
        return products

    def join(self, heads: Float[Tensor, "batch head query d_v"]) -> Float[Tensor, "batch query d_model"]:
        """``concat · W^O + b_o``."""
        return join_heads(heads, self.o.weight.mT, self.o.bias)

    def parts(self) -> list[tuple[Tensor, int]]:
        """Views of W^Q, W^K, W^V and their biases, as rows of heads, each with the number of its heads."""
        heads = self.spec.n_heads, self.spec.n_kv_heads, self.spec.n_kv_heads
        packed = (parameter.split(self.widths) for parameter in self.qkv.parameters())
        return [pair for parts in packed for pair in zip(parts, heads, strict=True)]

    def projections(self) -> Projections:
        """Views of the layer's matrices and biases, transposed as in the formula ``X W``."""
        w_o, b_o = self.o.weight.detach().mT, None if self.o.bias is None else self.o.bias.detach()
        w_q, w_k, w_v = self.qkv.weight.detach().mT.split(self.widths, dim=1)
        biases = (None,) * 3 if self.qkv.bias is None else self.qkv.bias.detach().split(self.widths)
        b_q, b_k, b_v = biases
        return Projections(w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o)

    def _check_inputs(self, x: Tensor, context: Tensor, values: Tensor) -> None:
        for tensor in (x,) if x is context is values else (x, context, values):
            if tensor.dim() != 3 or tensor.shape[::2] != (x.shape[0], self.spec.d_model):
                raise MhaError(
                    "The input has shape {shape}; expected (batch, tokens, {d_model})."
                    if tensor is x
                    else "The input has shape {shape}; expected (batch, tokens, {d_model}) "
                    "with batch {n_texts}.",
                    shape=tuple(tensor.shape),
                    d_model=self.spec.d_model,
                    n_texts=x.shape[0],
                )


def project_packed(
    x: Float[Tensor, "batch query d_model"],
    weight: Float[Tensor, "d_model width"],
    bias: Float[Tensor, " width"] | None,
    n_heads: int,
) -> Float[Tensor, "batch head query d_k"]:
    """One product, then split into heads.

    ``Q[m, e] = Σ_d X[m, d] · W[d, e] + b[e]``.
    """
    return split_heads(product(x, weight.mT, bias), x, n_heads)


def project_per_head(
    x: Float[Tensor, "batch query d_model"],
    weight: Float[Tensor, "d_model width"],
    bias: Float[Tensor, " width"] | None,
    n_heads: int,
) -> Float[Tensor, "batch head query d_k"]:
    """The same projection head by head: W is reshaped to (d_model, h, d_k) and contracted with X.

    ``Q[h, m, c] = Σ_d W[d, h, c] · X[m, d] + b[h, c]``, the identical tensor that `project_packed` gives.
    """
    per_head = torch.tensordot(weight.unflatten(-1, (n_heads, -1)), x, dims=([0], [2]))  # (h, d_k, batch, L)
    if bias is not None:
        per_head += bias.view(n_heads, -1, 1, 1)
    return per_head.permute(2, 0, 3, 1)


def product(
    x: Float[Tensor, "batch query d_model"],
    weight: Float[Tensor, "width d_model"],
    bias: Float[Tensor, " width"] | None,
) -> Float[Tensor, "width batch*query"]:
    """``W X^T + b`` with W as in `nn.Linear`.

    It is transposed because torch uses several processors better in this form when there are few tokens. The
    bias is added afterwards, because the fused product rounds differently from the per-head one.
    """
    columns = weight @ x.flatten(0, 1).mT
    return columns if bias is None else columns.add_(bias[:, None])


def split_heads(
    columns: Float[Tensor, "width place"], x: Float[Tensor, "batch query d_model"], n_heads: int
) -> Float[Tensor, "batch head query d_k"]:
    """The `product` of x in heads."""
    return columns.view(n_heads, -1, x.shape[0], x.shape[1]).permute(2, 0, 3, 1)


def _split_qkv(module: MultiHeadAttention, state: dict[str, Tensor], prefix: str, _metadata: dict) -> None:
    """Replace qkv in a state dict by q, k and v, which are views of it."""
    for kind, _ in module.qkv.named_parameters():
        parts = state.pop(f"{prefix}qkv.{kind}").split(module.widths)
        state.update({f"{prefix}{name}.{kind}": part for name, part in zip("qkv", parts, strict=True)})


def _pack_qkv(
    module: MultiHeadAttention,
    state: dict[str, Tensor],
    prefix: str,
    _metadata: dict,
    _strict: bool,
    missing: list[str],
    unexpected: list[str],
    errors: list[str],
) -> None:
    """Pack q, k and v of a state dict. Those that are missing or do not fit are reported and not loaded."""
    for kind, packed in module.qkv.named_parameters():
        parts = list(packed.detach().split(module.widths))
        for index, name in enumerate("qkv"):
            tensor = state.pop(f"{prefix}{name}.{kind}", None)
            if tensor is None:
                missing.append(f"{prefix}{name}.{kind}")
            elif tensor.shape != parts[index].shape:
                # Each part is checked: a W^Q with one row too many and a W^K with one too few would fit
                # together.
                errors.append(
                    f"size mismatch for {prefix}{name}.{kind}: found {tuple(tensor.shape)}, "
                    f"expected {tuple(parts[index].shape)}."
                )
            else:
                parts[index] = tensor
        if f"{prefix}qkv.{kind}" in state:
            unexpected.append(f"{prefix}qkv.{kind}")  # nothing reads it
        state[f"{prefix}qkv.{kind}"] = torch.cat(parts)


def _split(d_model: int, n_heads: int) -> int:
    if d_model % n_heads == 0:
        return d_model // n_heads
    below = d_model - d_model % n_heads
    near = [n for n in (below, below + n_heads) if 1 <= n <= MAX_D_MODEL]
    fits = _divisors(d_model, MAX_HEADS)
    heads = [n for n in fits if n < n_heads][-1:] + [n for n in fits if n > n_heads][:1]
    raise MhaError(
        "d_model {d_model} cannot be split into {n_heads} heads; {near} can. "
        "With d_model {d_model}, 1 head works."
        if heads == [1]
        else "d_model {d_model} cannot be split into {n_heads} heads; {near} can. "
        "With d_model {d_model}, {heads} heads work.",
        d_model=d_model,
        n_heads=n_heads,
        near=listed(near, "or"),
        heads=listed(heads, "or"),
        fixes=tuple({"d_model": n} for n in near) + tuple({"h": n} for n in heads),
    )


def _divisors(number: int, largest: int) -> list[int]:
    return [n for n in range(1, min(number, largest) + 1) if number % n == 0]


def _divides(divisor: object, number: int) -> bool:
    """Whether it divides the width. A divisor that is not a valid size is checked elsewhere."""
    return not isinstance(divisor, int) or divisor < 1 or number % divisor == 0
