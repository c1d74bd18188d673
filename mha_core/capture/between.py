"""What stands between a matrix and the q, k or v that it makes: found by the numbers, told in plain values.

A step is a dict: ``{"step": "norm", "kind": "RMSNorm", "over": "head"}``, ``{"step": "scale", "by": 0.125}``,
``{"step": "clip", "at": 8.0}`` or ``{"step": "rotary"}``. Sources: Zhang and Sennrich 2019 (RMSNorm), Ba,
Kiros and Hinton 2016 (LayerNorm).
"""

import math

import torch
from torch import Tensor, nn

from mha_core.capture.leaves import ROUNDINGS, Leaf, alike, apart

NORMS = ("RMSNorm", "LayerNorm")
TINY = 1e-2  # the largest number that can be what a norm adds below its root
USUAL = (1e-6, 1e-5, 1e-8)


def norm(leaf: Leaf, d_k: int) -> dict | None:
    """The norm that a leaf computes, or None for one that computes anything else.

    ``RMSNorm = g · x / √(mean(x²) + ε)``; LayerNorm takes the mean from x first. The gain g is the leaf's
    weight, 1 more than that (Gemma), or 1 where it has none. Over one head's numbers, or over all of them.
    """
    x, weight, bias = leaf.x.float(), getattr(leaf.module, "weight", None), getattr(leaf.module, "bias", None)
    told = [value for value in vars(leaf.module).values() if isinstance(value, float) and 0 < value <= TINY]
    gains = [1.0] if not isinstance(weight, Tensor) else [weight.float(), 1.0 + weight.float(), 1.0]
    shift = bias.float() if isinstance(bias, Tensor) else 0.0
    gaps = {}
    for kind in NORMS:
        centred = x - x.mean(-1, keepdim=True) if kind == "LayerNorm" else x
        for epsilon in told or USUAL:
            even = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + epsilon)
            for gain in gains:
                if _fits(gain, even) and _fits(shift, even):
                    gap = apart(even * gain + shift, leaf.y)
                    gaps[kind] = min(gap, gaps.get(kind, gap))
    # In half precision both can be near where the mean is small: the nearer one.
    kind = min(gaps, key=gaps.get, default=None)
    if kind is None or not gaps[kind] <= ROUNDINGS:
        return None
    return {"step": "norm", "kind": kind, "over": "head" if x.shape[-1] == d_k else "all"}


def adjusted(made: Tensor, wanted: Tensor) -> dict | None:
    """The one number by which all of `made` was multiplied, or at which it was cut off, to be `wanted`."""
    if made.shape != wanted.shape or not made.numel():
        return None
    wanted = wanted.to(made.dtype)  # a rotation may have been in a finer one
    known = torch.finfo(made.dtype).eps
    at = made.abs().argmax()
    largest, became = made.flatten()[at].item(), wanted.flatten()[at].item()
    by = became / largest if largest else 0.0
    if by and math.isfinite(by) and alike(made * by, wanted):
        usual = made.shape[-1] ** -0.5  # what it is in most models; a ratio of rounded numbers is rounded
        return {"step": "scale", "by": usual if math.isclose(by, usual, rel_tol=max(1e-5, known)) else by}
    limit = wanted.abs().max().item()
    if abs(largest) > limit > 0 and alike(made.clamp(-limit, limit), wanted):
        return {"step": "clip", "at": float(f"{limit:.{max(2, math.floor(-math.log10(known)))}g}")}
    return None


def apply(step: dict | None, made: Tensor) -> Tensor:
    """What a scale or a clip makes of numbers."""
    if step is None:
        return made
    return made * step["by"] if step["step"] == "scale" else made.clamp(-step["at"], step["at"])


def restored(leaf: Leaf) -> Leaf | None:
    """A leaf as it was, though the model has clipped its output in place since; None where that is not so."""
    if leaf.is_as_it_was:
        return leaf
    clipped = leaf.x._version == leaf.versions[0] and type(leaf.module).forward is nn.Linear.forward
    if not clipped:
        return None
    made = nn.functional.linear(leaf.x, leaf.module.weight, leaf.module.bias)
    limit = leaf.y.abs().max().item()
    return Leaf.of(leaf.module, leaf.x, made) if alike(made.clamp(-limit, limit), leaf.y) else None


def _fits(gain: Tensor | float, even: Tensor) -> bool:
    """Can it be multiplied with the last axes of these numbers?"""
    if isinstance(gain, float):
        return True
    return gain.dim() <= even.dim() and even.shape[even.dim() - gain.dim() :] == gain.shape
