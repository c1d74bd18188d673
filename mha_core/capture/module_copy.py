"""The tensors in what a module was given and has made, what kind they are, and a copy of them."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

Given = tuple[tuple, dict]  # the arguments of a module


@contextmanager
def drawing_alike() -> Iterator[None]:
    """Draw the same random numbers in each run of the block, and compute no gradients in it."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        yield


def tensors(value: Any) -> Iterator[Tensor]:
    """The tensors with numbers in what a module was given or has made, in their order."""
    if isinstance(value, Tensor):
        if not (value.is_nested or value.is_meta):
            yield value
    elif isinstance(value, tuple | list | dict) or hasattr(value, "to_tuple"):
        for part in value.values() if hasattr(value, "values") else value:
            yield from tensors(part)


def is_plain(value: Any) -> bool:
    """Whether it has nothing but tensors, numbers and words."""
    if isinstance(value, dict):
        return all(map(is_plain, value.values()))
    if type(value) in (tuple, list):
        return all(map(is_plain, value))
    return value is None or isinstance(value, Tensor | bool | int | float | str)


def is_mask(tensor: Tensor) -> bool:
    """Whether a tensor has yes and no in place of numbers."""
    return tensor.dtype == torch.bool or bool(((tensor == 0) | (tensor == 1)).all())


def copied(value: Any, memo: dict | None = None) -> Any:
    """A copy of what a module was given, since it may write into it; what was given twice is one tensor."""
    memo = {} if memo is None else memo
    if isinstance(value, Tensor):
        if id(value) not in memo:
            memo[id(value)] = value.detach().clone()
        return memo[id(value)]
    if isinstance(value, dict):
        return {name: copied(part, memo) for name, part in value.items()}
    if type(value) in (tuple, list):
        return type(value)(copied(part, memo) for part in value)
    return copy.deepcopy(value, memo)
