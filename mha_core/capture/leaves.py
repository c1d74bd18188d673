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
    if (found := known(leaf.module)) is not None:
        return found
    weight, bias = getattr(leaf.module, "weight", None), getattr(leaf.module, "bias", None)
    if not isinstance(weight, Tensor) or weight.dim() != 2 or not weight.is_floating_point():
        return None
    if (turned := _turned(leaf, weight.detach(), bias)) is None:
        return None
    found = _matrices[leaf.module] = turned, _plain(bias)
    return found


def known(module: nn.Module) -> tuple[Tensor, Tensor | None] | None:
    """W (in, out) and b of a module of which they were shown, as it has them now."""
    if (found := _matrices.get(module)) is None:
        return None
    own = module._parameters  # a module's attributes take ten times as long to read
    if _lie_there(found, own.get("weight"), own.get("bias")):
        return found
    if not is_linear(module):
        return None
    found = _matrices[module] = module.weight.detach().mT, _plain(module.bias)
    return found


def _plain(bias: Tensor | None) -> Tensor | None:
    return None if bias is None else bias.detach()


def is_linear(module: nn.Module) -> bool:
    """Does it compute ``x W^T + b`` by torch's own code?"""
    return type(module).forward is nn.Linear.forward


def _lie_there(known: tuple[Tensor, Tensor | None], weight: Tensor | None, bias: Tensor | None) -> bool:
    """Do a weight and a bias lie where a product that was shown has them?"""
    if weight is None or (bias is None) != (known[1] is None):
        return False
    here = known[0].data_ptr() == weight.data_ptr()
    return here and (bias is None or known[1].data_ptr() == bias.data_ptr())


def _turned(leaf: Leaf, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """A weight as it stands in the formula: as it is or turned, as the numbers say."""
    x, y = leaf.x.flatten(0, -2)[-2:], leaf.y.flatten(0, -2)[-2:]
    for turned in (weight.mT,) if is_linear(leaf.module) else (weight, weight.mT):
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
