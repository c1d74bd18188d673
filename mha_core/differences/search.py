"""Which mistakes turn the right run of a layer into the run that is wrong."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import torch
from torch import Tensor

from mha_core.differences.formula import IMPOSSIBLE, MISTAKES, Mistake, Products, stages

# Largest difference by rounding, as a share of a matrix's largest number.
ROUNDING = {torch.float64: 1e-8, torch.float32: 3e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}
MAX_HIDDEN = 2 / 3  # share of numbers that a formula leaves open, in rows whose keys are all hidden
HIDING = -1e3  # a lower score hides a key as −∞ does
MAX_CELLS = 1 << 19  # of the weights of a layer for which pairs of mistakes are tried


def rounding(*dtypes: torch.dtype) -> float:
    """The rounding of the coarsest of these types."""
    return max(ROUNDING.get(dtype, ROUNDING[torch.float32]) for dtype in dtypes)


def distance(computed: Tensor, there: Tensor) -> float:
    """The largest difference, as a share of the largest number computed.

    Rows that the formula leaves open, NaN, may have any numbers. It is infinite for matrices of different
    shapes.
    """
    if computed.shape != there.shape or computed.isnan().all():
        return torch.inf
    known = ~computed.isnan() | there.isnan()
    if known.float().mean() < 1 - MAX_HIDDEN:
        return torch.inf
    computed, there = computed[known].double(), there[known].double()
    is_same = (computed == there) | (computed.isnan() & there.isnan())
    is_same |= computed.isneginf() & (there < HIDING)
    differences = torch.where(is_same, 0.0, (computed - there).abs())
    finite = computed[computed.isfinite()].abs()
    largest = finite.max().item() if finite.numel() else 1.0
    worst = differences.nan_to_num(nan=torch.inf).max().item() if differences.numel() else 0.0
    return worst / (largest or 1.0)


def gives(
    given: Sequence[Products],
    runs: Sequence[Mapping[str, Tensor]],
    mistakes: Sequence[Mistake],
    tolerance: float,
) -> bool:
    """Whether the formula with these mistakes gives all known matrices of every run within rounding."""
    try:
        for products, run in zip(given, runs, strict=True):
            computed = stages(products, *mistakes)
            if any(distance(computed[name], matrix) > tolerance for name, matrix in run.items()):
                return False
    except IMPOSSIBLE:
        return False
    return True


def causes(
    given: Sequence[Products], runs: Sequence[Mapping[str, Tensor]], tolerance: float, *, pairs: bool = False
) -> list[tuple[Mistake, ...]]:
    """All mistakes, or all `pairs` of them, that give the matrices of every run.

    `given` is what the right formula starts from in each run, and `runs` are the matrices that are there.
    Pairs are not tried for long texts. What changes no known matrix is no cause.
    """
    q, k = (given[0].products[name, name] for name in "qk")
    if pairs and given[0].n_heads * q.shape[1] * k.shape[1] > MAX_CELLS:
        return []
    right = {name: matrix for name, matrix in stages(given[0]).items() if name in runs[0]}
    possible = [one for one in MISTAKES if not gives(given[:1], [right], [one], tolerance)]
    tried = [
        mistakes
        for mistakes in combinations(possible, 2 if pairs else 1)
        if len({mistake.term for mistake in mistakes}) == len(mistakes)
    ]
    return [mistakes for mistakes in tried if gives(given, runs, mistakes, tolerance)]
