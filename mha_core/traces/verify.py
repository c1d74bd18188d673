"""Is what is shown what torch computes? Asked again, on the same tensors, whenever it is shown."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from mha_core.attention.functional import row_blocks
from mha_core.attention.module import project_packed, project_per_head
from mha_core.traces.layer import LayerTrace

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
    Both are asked for a block of rows at a time: neither matrix is whole when it is long.
    """
    if not layer.knows("q"):
        return Check(None, reason="only the weights of this layer are known, not what they were made of")
    rule = layer.rule
    if rule.soft_cap is not None or rule.sinks is not None:
        return Check(None, reason="torch's function knows no soft cap and no sinks")
    k, v = (_for_each_head(layer, name) for name in "kv")
    unit = None
    if layer.n_key <= MOST_UNIT:
        unit = torch.eye(layer.n_key, dtype=v.dtype).expand(layer.n_heads, -1, -1).contiguous()
    start, stop, _ = (rows or slice(None)).indices(layer.n_query)
    found, parts = [], row_blocks(stop - start, layer.n_heads * layer.n_key)
    for part in parts:
        found += _compared(_part(layer, slice(start + part.start, start + part.stop)), k, v, unit)
    if not found:
        return Check(None, reason="every row is fully masked, which torch does not define")
    return Check(max(gap for gap, _ in found), all(passed for _, passed in found))


def _compared(layer: LayerTrace, k: Tensor, v: Tensor, unit: Tensor | None) -> list[tuple[float, bool]]:
    """The largest difference of outputs and of weights, and whether rounding can explain it."""
    rule, q = layer.rule, layer.tensors["q"]
    laid_out = rule.at(slice(None), slice(None), n_query=layer.n_query, n_key=layer.n_key)
    extra = torch.zeros(1, layer.n_query, layer.n_key, dtype=q.dtype)
    if laid_out.bias is not None:
        extra = extra + laid_out.bias.to(q.dtype)
    extra = extra / rule.temperature
    if laid_out.mask is not None:
        extra = extra.masked_fill(~laid_out.mask, float("-inf"))
    visible = (extra > float("-inf")).any(-1).expand(layer.n_heads, -1)
    if not visible.any():
        return []
    found = []
    for shown, values in ((layer.output, v), (layer.weights, unit)):
        if values is None:
            continue
        asked = F.scaled_dot_product_attention(
            q[None], k[None], values[None], attn_mask=extra[None], scale=layer.scale / rule.temperature
        )[0]
        gap = (torch.from_numpy(shown().copy()) - asked).abs()[visible]
        difference = gap.nan_to_num(nan=float("inf")).max().item()
        found.append((difference, difference <= ROUNDING[v.dtype] * max(1.0, values.abs().max().item())))
    return found


def _for_each_head(layer: LayerTrace, name: str) -> Tensor:
    shared = layer.tensors[name]
    group = layer.n_heads // layer.n_kv_heads
    return shared if group == 1 else shared.repeat_interleave(group, dim=0)


def _part(layer: LayerTrace, rows: slice) -> LayerTrace:
    """The layer as if only these queries had asked."""
    rule = layer.rule.at(slice(None), rows, n_query=layer.n_query, n_key=layer.n_key)
    return replace(layer, tensors=dict(layer.tensors) | {"q": layer.tensors["q"][:, rows]}, rule=rule)


def split_difference(layer: LayerTrace) -> float | None:
    """The largest difference between the two views of the split; exactly 0 when they agree.

    One product with each of W^Q, W^K and W^V and a cut into heads, against X contracted with each
    matrix reshaped to (d_model, head, d). None where X or the matrices are not known. Between two texts
    K is made of the other one's X, as V is.
    """
    p = layer.projections
    if "x" not in layer.tensors or p.w_q is None:
        return None
    x = layer.tensors["x"][None]
    x_v = layer.tensors["x_v"][None] if "x_v" in layer.tensors else x
    if not layer.sides.same and x_v is x:
        return None  # the X of the other text is not known
    parts = (
        (x, p.w_q, p.b_q, layer.n_heads),
        (x if layer.sides.same else x_v, p.w_k, p.b_k, layer.n_kv_heads),
        (x_v, p.w_v, p.b_v, layer.n_kv_heads),
    )
    return max((project_packed(*part) - project_per_head(*part)).abs().max().item() for part in parts)


def product_difference(layer: LayerTrace) -> float | None:
    """The largest difference between X W + b, computed now, and the product that flowed.

    What flowed is the first of q_linear, q_raw and q that is known, and likewise for k and v. None where X
    or the matrices are not known, in cross-attention those of the other text.
    """
    p = layer.projections
    if "x" not in layer.tensors or p.w_q is None or not (layer.sides.same or "x_v" in layer.tensors):
        return None
    x = layer.tensors["x"]
    x_v = layer.tensors.get("x_v", x)
    inputs = {"q": x, "k": x if layer.sides.same else x_v, "v": x_v}
    gaps = []
    for name, given in inputs.items():
        stages = (f"{name}_linear", f"{name}_raw", name)
        flowed = next(layer.tensors[stage] for stage in stages if stage in layer.tensors)
        weight, bias = getattr(p, f"w_{name}"), getattr(p, f"b_{name}")
        made = project_packed(given[None], weight, bias, flowed.shape[0])[0]
        gaps.append((made.float() - flowed.float()).abs().max().item())
    return max(gaps)
