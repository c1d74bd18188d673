"""Is what is shown what torch computes? Asked again, on the same tensors, whenever it is shown."""

from dataclasses import dataclass, replace

import torch
from torch.nn import functional as F

from mha_core.layer import LayerTrace
from mha_core.packed import project_packed, project_per_head

# What rounding can explain for values around 1, given that torch may add in another order.
ROUNDING = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 1e-1}

MOST_UNIT = 1024


@dataclass(frozen=True)
class Check:
    """The largest absolute difference to torch, or the reason why torch cannot be asked."""

    difference: float | None
    passed: bool = False
    reason: str = ""


def against_torch(layer: LayerTrace, *, rows: slice | None = None) -> Check:
    """Compare weights and outputs of all heads with `scaled_dot_product_attention`, in all rows or some.

    Torch's function returns outputs only; given the unit matrix as values, its output is the
    weights; of a text with more keys than `MOST_UNIT` the outputs alone are compared, since that matrix
    would be larger than all else. Rows with every key hidden are left out, since torch does not define them.
    """
    if not layer.knows("q"):
        return Check(None, reason="only the weights of this layer are known, not what they were made of")
    layer = layer if rows is None or layer.rule.softmax != "row" else _part(layer, rows)
    rule = layer.rule
    if rule.soft_cap is not None or rule.sinks is not None or rule.softmax != "row":
        return Check(
            None, reason="torch's function knows no soft cap, no sinks and no softmax over the matrix"
        )
    q, k, v = layer.tensors["q"], layer.tensors["k"], layer.tensors["v"]
    group = layer.n_heads // layer.n_kv_heads
    k, v = (t.repeat_interleave(group, dim=0) for t in (k, v))
    laid_out = rule.at(slice(None), slice(None), n_query=layer.n_query, n_key=layer.n_key)
    extra = torch.zeros(1, layer.n_query, layer.n_key, dtype=q.dtype)
    if laid_out.bias is not None:
        extra = extra + laid_out.bias.to(q.dtype)
    extra = extra / rule.temperature
    if laid_out.mask is not None:
        extra = extra.masked_fill(~laid_out.mask, float("-inf"))
    visible = (extra > float("-inf")).any(-1).expand(layer.n_heads, -1)
    if not visible.any():
        return Check(None, reason="every row is fully masked, which torch does not define")
    scale = layer.scale / rule.temperature
    differences, passed = [], True
    compared = [(layer.output(), v)]
    if layer.n_key <= MOST_UNIT:
        unit = torch.eye(layer.n_key, dtype=v.dtype).expand(layer.n_heads, -1, -1)
        compared.append((layer.weights(), unit))
    for shown, values in compared:
        asked = F.scaled_dot_product_attention(
            q[None], k[None], values[None].contiguous(), attn_mask=extra[None], scale=scale
        )[0]
        gap = (torch.from_numpy(shown.copy()) - asked).abs()[visible]
        differences.append(gap.nan_to_num(nan=float("inf")).max().item())
        passed &= differences[-1] <= ROUNDING[v.dtype] * max(1.0, values.abs().max().item())
    return Check(max(differences), passed)


def _part(layer: LayerTrace, rows: slice) -> LayerTrace:
    """The layer as if only these queries had asked."""
    rule = layer.rule.at(slice(None), rows, n_query=layer.n_query, n_key=layer.n_key)
    return replace(layer, tensors=dict(layer.tensors) | {"q": layer.tensors["q"][:, rows]}, rule=rule)


def split_difference(layer: LayerTrace) -> float | None:
    """The largest difference between the two views of the split; exactly 0 when they agree.

    One product with each of W^Q, W^K and W^V and a cut into heads, against X contracted with each
    matrix reshaped to (d_model, head, d). None where X or the matrices are not known.
    """
    p = layer.projections
    if "x" not in layer.tensors or p.w_q is None:
        return None
    x = layer.tensors["x"][None]
    x_v = layer.tensors["x_v"][None] if "x_v" in layer.tensors else x
    parts = (
        (x, p.w_q, p.b_q, layer.n_heads),
        (x, p.w_k, p.b_k, layer.n_kv_heads),
        (x_v, p.w_v, p.b_v, layer.n_kv_heads),
    )
    return max((project_packed(*part) - project_per_head(*part)).abs().max().item() for part in parts)
