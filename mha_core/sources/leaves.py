"""The modules of a model that make numbers of numbers, as they were used, and what can be shown of them."""

from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

# The W and b of a module, shown once of each. They lie where its weight and bias lay then, and hold that
# place: a module that was given other ones, or moved, has them elsewhere.
_matrices: WeakKeyDictionary[nn.Module, tuple[Tensor, Tensor | None]] = WeakKeyDictionary()
ROUNDINGS = 16  # how many units in the last place two ways to the same number may differ


class Leaf(NamedTuple):
    """A matrix or a norm of the model as it was used: what went in, and what came out."""

    module: nn.Module
    x: Tensor
    y: Tensor
    versions: tuple[int, int]  # of x and y as they were then

    @classmethod
    def of(cls, module: nn.Module, x: Tensor, y: Tensor) -> "Leaf":
        return cls(module, x, y, (x._version, y._version))

    @property
    def is_as_it_was(self) -> bool:
        """False if the model has changed x or y in place since: they are then no longer input and output."""
        return self.versions == (self.x._version, self.y._version)


def matrix(leaf: Leaf) -> tuple[Tensor, Tensor | None] | None:
    """W (in, out) and b of a leaf that computes ``x W + b``, or None for one that computes anything else."""
    weight, bias = getattr(leaf.module, "weight", None), getattr(leaf.module, "bias", None)
    known = _matrices.get(leaf.module)
    if known is not None and _place(known[0]) == _place(weight) and _place(known[1]) == _place(bias):
        return known
    if not isinstance(weight, Tensor) or weight.dim() != 2 or not weight.is_floating_point():
        return None
    if (turned := _turned(leaf, weight.detach(), bias)) is None:
        return None
    found = _matrices[leaf.module] = turned, None if bias is None else bias.detach()
    return found


def _place(tensor: object) -> int | None:
    return tensor.data_ptr() if isinstance(tensor, Tensor) else None


def _turned(leaf: Leaf, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """A weight as it stands in the formula: turned in an `nn.Linear`, else as the numbers say."""
    if type(leaf.module).forward is nn.Linear.forward:
        return weight.mT
    x, y = leaf.x.flatten(0, -2)[-2:], leaf.y.flatten(0, -2)[-2:]
    for turned in (weight, weight.mT):
        if turned.shape == (x.shape[-1], y.shape[-1]) and turned.dtype == x.dtype:
            asked = x @ turned if bias is None else x @ turned + bias.detach()
            if alike(asked, y):
                return turned
    return None


def alike(one: Tensor, other: Tensor) -> bool:
    """Are two tensors the same numbers, but for rounding?"""
    return one.shape == other.shape and apart(one, other) <= ROUNDINGS


def apart(one: Tensor, other: Tensor) -> float:
    """The largest difference of two tensors of one shape, in units in the last place of the largest."""
    unit = torch.finfo(other.dtype).eps * max(1.0, other.abs().max().item())
    return (one.float() - other.float()).abs().max().item() / unit


def is_the_same(one: Tensor, other: Tensor) -> bool:
    """Are they the same numbers in the same place?"""
    same = one.data_ptr() == other.data_ptr() and one.dtype == other.dtype
    return same and one.shape == other.shape and one.stride() == other.stride()
