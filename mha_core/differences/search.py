"""Which mistakes turn the right run of a layer into the run that is wrong."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

import torch
from torch import Tensor

from mha_core.differences.formula import MISTAKES, RIGHT, Mistake, Products, stages, with_mistakes

# Largest difference by rounding, as a share of a matrix's largest number.
ROUNDING = {torch.float64: 1e-8, torch.float32: 3e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}
MAX_HIDDEN = 2 / 3  # share of numbers that a formula leaves open, in rows whose keys are all hidden
MAX_CELLS = 1 << 19  # of the weights of a layer for which pairs of mistakes are tried


def rounding(*dtypes: torch.dtype) -> float:
    """The rounding of the coarsest of these types."""
    return max(ROUNDING.get(dtype, ROUNDING[torch.float32]) for dtype in dtypes)


def distance(computed: Tensor, there: Tensor) -> float:
    """The largest difference, as a share of the largest number computed; rows left open do not count."""
    known = ~computed.isnan()
    if known.float().mean() < 1 - MAX_HIDDEN:
        return torch.inf
    computed, there = computed[known].double(), there.expand(known.shape)[known].double()
    differences = torch.where(computed == there, 0.0, (computed - there).abs())
    finite = computed[computed.isfinite()].abs()
    largest = finite.max().item() if finite.numel() else 1.0
    worst = differences.nan_to_num(nan=torch.inf).max().item() if differences.numel() else 0.0
    return worst / (largest or 1.0)


def fits(computed: Mapping[str, Tensor], there: Mapping[str, Tensor], tolerance: float) -> bool:
    """Whether all known matrices of a run are the computed ones within rounding."""
    return all(
        name in computed
        and computed[name].shape == matrix.shape
        and distance(computed[name], matrix) <= tolerance
        for name, matrix in there.items()
    )


def causes(
    given: Sequence[Products], runs: Sequence[Mapping[str, Tensor]], tolerance: float, *, pairs: bool = False
) -> list[tuple[Mistake, ...]]:
    """All mistakes, or all `pairs` of them, that give the matrices of every run.

    `given` is what the right formula starts from in each run, and `runs` are the matrices that are there.
    Pairs are not tried for long texts.
    """
    possible = [mistake for mistake in MISTAKES if _changes(given[0], runs[0], mistake, tolerance)]
    q, k = given[0].products["q", "q"], given[0].products["k", "k"]
    if pairs and given[0].n_heads * q.shape[1] * k.shape[1] > MAX_CELLS:
        return []
    tried = _pairs(possible) if pairs else ((mistake,) for mistake in possible)
    return [mistakes for mistakes in tried if _gives(given, runs, mistakes, tolerance)]


def _pairs(mistakes: Iterable[Mistake]) -> Iterator[tuple[Mistake, Mistake]]:
    return ((one, other) for one, other in combinations(mistakes, 2) if one.term != other.term)


def _changes(given: Products, run: Mapping[str, Tensor], mistake: Mistake, tolerance: float) -> bool:
    """Whether a mistake changes a matrix that is known, for these inputs."""
    try:
        wrong, right = stages(given, with_mistakes(mistake)), stages(given, RIGHT)
    except (ValueError, RuntimeError):
        return False
    known = {name: right[name] for name in run if name in right}
    return not fits(wrong, known, tolerance)


def _gives(
    given: Sequence[Products],
    runs: Sequence[Mapping[str, Tensor]],
    mistakes: tuple[Mistake, ...],
    tolerance: float,
) -> bool:
    formula = with_mistakes(*mistakes)
    try:
        return all(fits(stages(one, formula), run, tolerance) for one, run in zip(given, runs, strict=True))
    except (ValueError, RuntimeError):  # these sizes do not allow it
        return False
