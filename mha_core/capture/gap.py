"""How far apart two ways to compute the same thing are, and how far apart rounding may put them."""

import torch
from torch import Tensor

# The largest gap that rounding explains, by the precision of the numbers.
CLOSE = {torch.float64: 1e-6, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}


def gap(one: Tensor, other: Tensor) -> float:
    """The largest difference, in units of the largest number if that is above 1.

    Where both are NaN or the same infinity there is none; one NaN, and other shapes, count as infinite.
    """
    if one.shape != other.shape:
        return float("inf")
    one, other = one.float(), other.float()
    same = (one == other) | (one.isnan() & other.isnan())
    difference = (one - other).abs().masked_fill(same, 0.0).nan_to_num(nan=float("inf"))
    largest = other.abs().nan_to_num(posinf=0.0).max().item()  # infinity would make everything small
    return difference.max().item() / max(1.0, largest)
