"""Attention: the one place in this project where scores are computed from queries and keys.

Batch axes come first. In messages h are heads, n_kv key/value heads, L queries and S keys.

Scores and weights are computed in blocks of rows: the L × S matrix of a long text never exists whole.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mha_core.attention.score_rule import ScoreRule
from mha_core.errors import MhaError, listed, named_type

CELLS = 1 << 20  # in a block of rows: small enough for the processor's cache
HALF = (torch.float16, torch.bfloat16)
MIN_ROWS = 64  # in a block: products with fewer rows are slow


def attend(
    q: Float[Tensor, "*batch head query d_k"],
    k: Float[Tensor, "*batch kv_head key d_k"],
    v: Float[Tensor, "*batch kv_head key d_v"],
    rule: ScoreRule = ScoreRule(),
) -> Float[Tensor, "*batch head query d_v"]:
    """Scaled dot-product attention: ``softmax(rule(q kᵀ)) v``.

    The number of heads is a multiple of that of key/value heads: query head i uses key/value head
    ``i // (heads / kv_heads)``, which is not copied. Works in fp32, fp64, and in bf16 and fp16 with scores
    and softmax in fp32.

    Raises `MhaError` when the shapes do not fit, and for arguments that are not tensors or not a rule.
    Source: Vaswani et al. 2017, equation 1.
    """
    _check(q, k, v)
    if not isinstance(rule, ScoreRule):
        raise MhaError(
            "rule is a ScoreRule, as in ScoreRule(temperature=0.5); got {type}.", type=named_type(rule)
        )
    n_query, n_key = q.shape[-2], k.shape[-2]
    # Half as many cells: the model's own tensors need memory, too.
    blocks = row_blocks(n_query, 2 * q.shape[:-2].numel() * n_key, min_rows=MIN_ROWS)
    if len(blocks) <= 1:
        return _attend(q, k, v, rule.at(slice(None), slice(None), n_query=n_query, n_key=n_key))

    def attended(rows: slice) -> Tensor:
        expanded = rule.at(slice(None), rows, n_query=n_query, n_key=n_key)
        keys = slice(expanded.reach(n_key))
        return _attend(q[..., rows, :], k[..., keys, :], v[..., keys, :], expanded.for_keys(keys))

    parts = map(attended, blocks)
    if torch.is_grad_enabled():
        return torch.cat(list(parts), dim=-2)
    # A list of small results would fragment memory between the freed scores.
    output = v.new_empty((*q.shape[:-1], v.shape[-1]))
    for rows, part in zip(blocks, parts, strict=True):
        output[..., rows, :] = part
    return output


def fused(
    q: Float[Tensor, "*batch head query d_k"],
    k: Float[Tensor, "*batch kv_head key d_k"],
    v: Float[Tensor, "*batch kv_head key d_v"],
    rule: ScoreRule = ScoreRule(),
) -> Float[Tensor, "*batch head query d_v"]:
    """`attend` by torch's fused kernel: equal up to rounding, with less time and memory.

    It calls `attend` where the kernel does not support the rule, or would need all scores in memory.
    """
    fits = q.dim() == 4 and q.shape[-1] == v.shape[-1] and q.dtype == torch.float32
    if not (fits and rule.is_plain):
        return attend(q, k, v, rule)
    _check(q, k, v)
    scale, grouped = rule.factor(q.shape[-1]), q.shape[-3] != k.shape[-3]
    return nn.functional.scaled_dot_product_attention(q, k, v, rule.mask, scale=scale, enable_gqa=grouped)


def _attend(q: Tensor, k: Tensor, v: Tensor, rule: ScoreRule) -> Tensor:
    return rule.outputs(mix(attention_weights(q, k, rule).to(v.dtype), v))


def attention_weights(
    q: Float[Tensor, "*batch head query d_k"], k: Float[Tensor, "*batch kv_head key d_k"], rule: ScoreRule
) -> Float[Tensor, "*batch head query key"]:
    """``softmax(rule(q kᵀ))`` for a rule expanded for these rows, in fp32 or fp64."""
    scaled = raw_scores(q, k).mul_(rule.factor(q.shape[-1]))
    return rule.weights(rule.masked(scaled, spent=True), spent=True)


def raw_scores(
    q: Float[Tensor, "*batch head query d_k"], k: Float[Tensor, "*batch kv_head key d_k"]
) -> Float[Tensor, "*batch head query key"]:
    """``q kᵀ``: element [m, n] is query m · key n.

    In fp32 for bf16 and fp16 tensors: an fp16 score can overflow before it is scaled.
    """
    if q.dtype in HALF:
        q, k = q.float(), k.float()
    return _per_kv_head(q, k.mT)


def mix(
    weights: Float[Tensor, "*batch head query key"], v: Float[Tensor, "*batch kv_head key d_v"]
) -> Float[Tensor, "*batch head query d_v"]:
    """``weights v``: weighted sums of values."""
    return _per_kv_head(weights, v)


def _per_kv_head(rows: Tensor, matrix: Tensor) -> Tensor:
    """Multiply the rows of each head by the matrix of its key/value head.

    Heads that share a matrix are stacked into one tall block of rows, so that the matrix is not repeated.
    """
    h, n_kv = rows.shape[-3], matrix.shape[-3]
    if h == n_kv:
        return rows @ matrix
    stacked = rows.unflatten(-3, (n_kv, h // n_kv)).flatten(-3, -2)
    return (stacked @ matrix).unflatten(-2, (h // n_kv, -1)).flatten(-4, -3)


def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
    if not (isinstance(q, Tensor) and isinstance(k, Tensor) and isinstance(v, Tensor)):
        types = listed(map(named_type, (q, k, v)), "and")
        raise MhaError(
            "q, k and v are torch tensors, as torch.as_tensor makes them; got {types}.", types=types
        )
    q_shape, k_shape = q.shape, k.shape  # torch builds a new shape at each access
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
            "q {q}, k {k} and v {v} do not fit; expected "
            "q (…, h, L, d_k), k (…, n_kv, S, d_k), v (…, n_kv, S, d_v) with h a multiple of n_kv, S ≥ 1.",
            q=tuple(q.shape),
            k=tuple(k.shape),
            v=tuple(v.shape),
        )


def join_heads(
    heads: Float[Tensor, "*batch head query d_v"],
    w_o: Float[Tensor, "head*d_v d_model"],
    b_o: Float[Tensor, " d_model"] | None,
) -> Float[Tensor, "*batch query d_model"]:
    """``concat(heads) W^O + b^O``."""
    return nn.functional.linear(concat_heads(heads), w_o.mT, b_o)


def concat_heads(heads: Float[Tensor, "*batch head query d_v"]) -> Float[Tensor, "*batch query head*d_v"]:
    """The concatenated outputs of the heads."""
    return heads.transpose(-3, -2).flatten(-2)


def row_blocks(n_rows: int, cells_per_row: int, *, min_rows: int = 1) -> list[slice]:
    """All rows in blocks of neighbouring rows, each with at most `CELLS` cells or with `min_rows` rows.

    ``row_blocks(5, CELLS // 2)`` is ``[slice(0, 2), slice(2, 4), slice(4, 5)]``.
    """
    if 0 < n_rows * cells_per_row <= CELLS:
        return [slice(0, n_rows)]
    step = max(min_rows, CELLS // max(1, cells_per_row))
    return [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]
