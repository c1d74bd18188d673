"""Checks of a layer against torch: the same tensors, computed again with torch's own functions."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from mha_core.attention.functional import row_blocks
from mha_core.attention.module import project_packed, project_per_head
from mha_core.errors import MhaError, Phrase, named_type, shown
from mha_core.traces.layer import LayerTrace
from mha_core.traces.tensors import shared

# The largest difference that rounding causes for values around 1, if torch sums in another order.
ROUNDING = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 1e-1}
MAX_UNIT = 1024


@dataclass(frozen=True)
class Check:
    """The largest absolute difference to torch, or the reason why nothing can be compared."""

    difference: float | None
    passed: bool = False
    reason: str = ""


def against_torch(layer: LayerTrace, *, rows: slice | None = None) -> Check:
    """Compare weights and outputs of all heads with `scaled_dot_product_attention`, in all rows or some.

    Torch's function returns only outputs; with the unit matrix as values, its output is the weights. With
    more than `MAX_UNIT` keys only the outputs are compared, since the unit matrix would need too much memory.
    Rows with every key hidden are left out, since torch does not define them. Both sides are computed in
    blocks of rows, so that no whole matrix of a long text is in memory. Raises `MhaError` for anything but a
    layer, for rows that are not a slice, and for rows that the layer does not have.
    """
    if not isinstance(layer, LayerTrace):
        raise MhaError("One layer is compared, as in trace.layers[0]; got {type}.", type=named_type(layer))
    if not isinstance(rows, slice | None) or (rows and rows.step not in (None, 1)):
        raise MhaError(
            "rows is a slice without a step, as in slice(0, 10), or None; got {rows}.", rows=shown(rows)
        )
    if not layer.knows("q"):
        return Check(
            None, reason=Phrase("only the weights of this layer are known, not what they were made of")
        )
    rule = layer.rule
    if rule.soft_cap is not None or rule.sinks is not None:
        return Check(None, reason=Phrase("torch's function knows no soft cap and no sinks"))
    if rule.patched_weights is not None and layer.n_key > MAX_UNIT:
        return Check(
            None,
            reason=Phrase(
                "torch's function knows no patched weights of more than {limit} keys", limit=MAX_UNIT
            ),
        )
    # Some models rotate q and k in float32 and keep v in half precision; torch's function takes one type.
    dtype = torch.promote_types(layer.tensors["q"].dtype, layer.tensors["v"].dtype)
    group = layer.n_heads // layer.n_kv_heads  # query heads that share keys and values
    k, v = (layer.tensors[name].repeat_interleave(group, dim=0).to(dtype) for name in "kv")
    unit = None
    if layer.n_key <= MAX_UNIT:
        unit = torch.eye(layer.n_key, dtype=dtype).expand(layer.n_heads, -1, -1).contiguous()
    start, stop, _ = (rows or slice(None)).indices(layer.n_query)
    if start >= stop:
        raise MhaError(
            "{rows} has none of the {n_query} rows of this layer.", rows=shown(rows), n_query=layer.n_query
        )
    results = []
    for block in row_blocks(stop - start, layer.n_heads * layer.n_key):
        at = slice(start + block.start, start + block.stop)
        some = replace(
            layer,
            tensors={**shared(layer.tensors), "q": layer.tensors["q"][:, at]},
            rule=rule.at(slice(None), at, n_query=layer.n_query, n_key=layer.n_key),
        )
        results += _differences(some, k, v, unit)
    if not results:
        return Check(None, reason=Phrase("every row is fully masked, which torch does not define"))
    return Check(max(difference for difference, _ in results), all(passed for _, passed in results))


def _differences(layer: LayerTrace, k: Tensor, v: Tensor, unit: Tensor | None) -> list[tuple[float, bool]]:
    """The largest difference of outputs and of weights, and for each whether rounding explains it."""
    q = layer.tensors["q"].to(k.dtype)
    rule = layer.rule.at(slice(None), slice(None), n_query=layer.n_query, n_key=layer.n_key)
    extra = torch.zeros(1, layer.n_query, layer.n_key, dtype=q.dtype)
    if rule.bias is not None:
        extra = extra + rule.bias.to(q.dtype)
    extra = extra / rule.temperature
    if rule.mask is not None:
        extra = extra.masked_fill(~rule.mask, float("-inf"))
    visible = (extra > float("-inf")).any(-1).expand(layer.n_heads, -1)
    if not visible.any():
        return []
    scale, mask = layer.scale / rule.temperature, extra[None]

    def attended(values: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q[None], k[None], values[None], attn_mask=mask, scale=scale)[0]

    weights, outputs = None if unit is None else attended(unit), attended(v)
    if rule.patched_weights is not None:  # torch's function has no patches, so they are inserted here
        assert weights is not None  # with patches `against_torch` refuses more than MAX_UNIT keys
        weights = _with_patches(weights, rule.patched_weights)
        outputs = weights @ v
    if rule.patched_outputs is not None:
        outputs = _with_patches(outputs, rule.patched_outputs)
    # Rounding changes a score in its last place, and a weight by the same fraction of itself.
    # A score is at most the product of the two norms.
    lengths = [tensor.float().norm(dim=-1).max().item() for tensor in (q, k)]
    eps = torch.finfo(torch.promote_types(q.dtype, torch.float32)).eps
    rounding = max(ROUNDING[layer.tensors["v"].dtype], lengths[0] * lengths[1] * abs(scale) * eps)
    results = []
    for ours, expected, values in ((layer.output, outputs, v), (layer.weights, weights, unit)):
        if expected is None or values is None:
            continue
        differences = (torch.from_numpy(ours().copy()) - expected).abs()[visible]
        difference = differences.nan_to_num(nan=float("inf")).max().item()
        results.append((difference, difference <= rounding * max(1.0, values.abs().max().item())))
    return results


def _with_patches(computed: Tensor, patches: Tensor) -> Tensor:
    """Numbers of torch with the numbers of a patch inserted."""
    patches = patches.expand_as(computed).to(computed)
    return patches.where(patches.isfinite(), computed)


def split_difference(layer: LayerTrace) -> float | None:
    """The largest difference between two ways to split the projections into heads; 0 when they agree.

    One way multiplies X by each of W^Q, W^K and W^V and splits the product into heads; the other contracts X
    with each matrix reshaped to (d_model, head, d). None if an X (of either text, between two texts) or the
    matrices are not known.
    """
    parts = projection_parts(layer).values()
    pairs = ((project_packed(*part), project_per_head(*part)) for part in parts)
    return max(((one - other).abs().max().item() for one, other in pairs), default=None)


def product_difference(layer: LayerTrace) -> float | None:
    """The largest difference between X W + b, computed now, and the recorded product.

    The recorded product is the first known one of q_linear, q_raw and q, and likewise for k and v. None if
    `split_difference` is None.
    """
    differences = []
    for name, part in projection_parts(layer).items():
        recorded = layer.tensors[layer.stages(name)[0]]
        differences.append((project_packed(*part)[0].float() - recorded.float()).abs().max().item())
    return max(differences, default=None)


def projection_parts(layer: LayerTrace) -> dict[str, tuple[Tensor, Tensor, Tensor | None, int]]:
    """X (1, token, d_model), W, b and the number of heads for q, k and v; empty if one is not known.

    In latent attention the latent vectors (1, token, rank) are in the place of X for k and v, with W^UK and
    W^UV.
    """
    p = layer.projections
    if "x" not in layer.tensors or not (layer.sides.same or "x_v" in layer.tensors):
        return {}
    if "kv_short" in layer.tensors and not (p.w_q is None or p.w_uk is None or p.w_uv is None):
        short = layer.tensors["kv_short"][None]
        return {
            "q": (layer.tensors["x"][None], p.w_q, p.b_q, layer.n_heads),
            "k": (short, p.w_uk, None, layer.n_kv_heads),
            "v": (short, p.w_uv, None, layer.n_kv_heads),
        }
    if p.w_q is None or p.w_k is None or p.w_v is None:
        return {}
    x = layer.tensors["x"][None]
    x_v = layer.tensors["x_v"][None] if "x_v" in layer.tensors else x
    return {
        "q": (x, p.w_q, p.b_q, layer.n_heads),
        "k": (x if layer.sides.same else x_v, p.w_k, p.b_k, layer.n_kv_heads),
        "v": (x_v, p.w_v, p.b_v, layer.n_kv_heads),
    }
