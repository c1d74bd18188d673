"""The gap between two computations of the same numbers, and the largest gap that rounding explains."""

import torch
from torch import Tensor

# The largest gap that rounding explains, for each dtype.
CLOSE = {torch.float64: 1e-6, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}


def gap(one: Tensor, other: Tensor) -> float:
    """The largest difference, divided by the largest number if that is above 1.

    Two NaNs, or equal infinities, differ by 0. NaN in one tensor alone, or another shape, counts as infinite.
    """
    if one.shape != other.shape:
        return float("inf")
    one, other = one.float(), other.float()
    same = (one == other) | (one.isnan() & other.isnan())
    difference = (one - other).abs().masked_fill(same, 0.0).nan_to_num(nan=float("inf"))
    largest = other.abs().nan_to_num(posinf=0.0).max().item()  # an infinite number would make every gap 0
    return difference.max().item() / max(1.0, largest)
