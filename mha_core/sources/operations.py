"""What single operations of torch do to scores that are followed, as far as the rule has a place for it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mha_core.sources.products import FAR, Scores


@dataclass(frozen=True, eq=False)
class Times:
    """A tensor that is this many times another one."""

    factor: float


@dataclass(frozen=True, eq=False)
class Weights:
    """What the softmax made of scores, in any shape whose last two axes are query and key."""

    scores: Scores


@dataclass(frozen=True, eq=False)
class Log:
    """The logarithm of the sum that scores are divided by, or of the weights themselves."""

    scores: Scores
    of_weights: bool = False


def changed(name: str, at: int, known: Scores, args: tuple, kwargs: dict) -> Scores | None:
    """Scores after one of the operations of which the rule has a place."""
    if name == "tanh":
        return known.capped()
    if name == "masked_fill" and at == 0:
        value = number(kwargs["value"] if "value" in kwargs else args[2])
        return known.hiding(args[1]) if value is not None and value <= FAR else None
    if name == "where":
        cells, other = args[0], args[3 - at]
        far = float(other.max()) if isinstance(other, Tensor) else other
        return None if far > FAR else known.hiding(~cells if at == 1 else cells)
    other = args[1 - at]
    if name in ("add", "sub"):
        if name == "sub" and at == 1:
            return None
        return known.plus(other, float(kwargs.get("alpha", 1.0)) * (1 if name == "add" else -1))
    factor = number(other)
    if name in ("mul", "div") and kwargs.get("rounding_mode") is None:
        if factor and (name == "mul" or at == 0):
            return known.times(factor if name == "mul" else 1 / factor)
        if name == "mul" and isinstance(other, Tensor) and bool(((other == 0) | (other == 1)).all()):
            return known.emptying(other == 0)
    return None


def same(result: Tensor, given: Tensor, kwargs: dict) -> bool:
    """Are all numbers what they were, but for those that hide a cell?"""
    if result is given:
        return not kwargs.get("training") or not kwargs.get("p")
    far = (result <= FAR) & (given <= FAR)
    return bool(((result == given) | far).all())


def number(value: object) -> float | None:
    """A number, or a tensor of a single one."""
    if isinstance(value, Tensor):
        return float(value) if value.numel() == 1 and not value.is_complex() else None
    return float(value) if isinstance(value, int | float) else None


def as_product(equation: str, ends: Sequence[Tensor], result: Tensor) -> tuple[tuple, tuple]:
    """The two factors of an einsum in their order as ``left @ right = made``, and these three.

    left (…, i, c), right (…, c, j), made (…, i, j). Fails for what is no such product.
    """
    terms, made = equation.replace(" ", "").split("->")
    terms = terms.split(",")
    (over,) = set(terms[0]) & set(terms[1]) - set(made)
    (rows,), (columns,) = ((set(terms[n]) & set(made)) - set(terms[1 - n]) for n in (0, 1))
    if made.index(rows) > made.index(columns):
        (rows, columns), terms, ends = (columns, rows), terms[::-1], ends[::-1]
    lead = [axis for axis in made if axis not in (rows, columns)]
    left = ends[0].permute([terms[0].index(axis) for axis in (*lead, rows, over)])
    right = ends[1].permute([terms[1].index(axis) for axis in (*lead, over, columns)])
    order = [*lead, rows, columns]
    turned = result if order == list(made) else result.permute([made.index(axis) for axis in order])
    return tuple(ends), (left, right, turned)


def seen_as(known: Scores | Weights, shape: torch.Size) -> Scores | Weights | None:
    """Scores or weights in a tensor of another shape."""
    if isinstance(known, Scores):
        return known.seen_as(shape)
    scores = known.scores.seen_as(shape)
    return None if scores is None else Weights(scores)


def times(before: list) -> float:
    """How many times itself the product of some tensors is."""
    return math.prod(known.factor for known in before if isinstance(known, Times))
