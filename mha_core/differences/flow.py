"""The operations of torch in a run of a module, each with its result and its line in the reader's file."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


class Operation(NamedTuple):
    """One call of a function of torch: its result as it was then, and the line that made it."""

    name: str
    function: Callable
    args: tuple
    kwargs: dict
    result: Tensor
    value: Tensor
    line: int | None

    def again(self, changed: Mapping[int, Tensor]) -> Tensor:
        """The result with other tensors in place of some, by their ids."""
        other = self.exchanged(changed)
        result: Tensor = other.function(*other.args, **other.kwargs)
        return result

    def exchanged(self, changed: Mapping[int, Tensor]) -> "Operation":
        """The operation with other tensors in place of some arguments, by their ids."""

        def other(entry: Any) -> Any:
            if isinstance(entry, list | tuple):
                return type(entry)(map(other, entry))
            return changed.get(id(entry), entry) if isinstance(entry, Tensor) else entry

        kwargs = {name: other(entry) for name, entry in self.kwargs.items()}
        return self._replace(args=other(self.args), kwargs=kwargs)


class Flow(TorchFunctionMode):
    """The operations of a run; `without_dropout` leaves every dropout out."""

    def __init__(self, file: str, *, without_dropout: bool = False):
        super().__init__()
        self.file = file
        self.without_dropout = without_dropout
        self.operations: list[Operation] = []
        self.dropout: int | None = None  # the line of a dropout that was left out

    def __torch_function__(
        self, function: Callable, _types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "").strip("_")
        if self.without_dropout and "dropout" in name:
            self.dropout = self._line()
            return args[0]
        result = function(*args, **kwargs)
        for part in tensors_in([result]):
            value = part.detach().clone()
            self.operations.append(Operation(name, function, args, kwargs, part, value, self._line()))
        return result

    def _line(self) -> int | None:
        frame: Any = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename != self.file:
            frame = frame.f_back
        return None if frame is None else frame.f_lineno


def tensors_in(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(value)


def arranged(matrix: Tensor, shape: torch.Size) -> Iterator[Tensor]:
    """A matrix with its axes in every order, where it then has that shape after joining neighbours."""
    if matrix.numel() != shape.numel():
        return
    for order in permutations(range(matrix.dim())):
        turned = matrix.permute(order)
        if _joins(turned.shape, shape):
            yield turned.reshape(shape)


def _joins(sizes: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether neighbouring axes of these sizes can be joined to axes of that shape."""
    rest = [size for size in sizes if size > 1]
    for whole in (size for size in shape if size > 1):
        part = 1
        while part < whole and rest:
            part *= rest.pop(0)
        if part != whole:
            return False
    return not rest


def relaid(matrix: Tensor, like: Tensor, shape: torch.Size) -> Tensor:
    """A matrix laid out in the way in which another one, of equal axes but other lengths, gets that shape."""
    for order in permutations(range(like.dim())):
        turned = like.permute(order)
        if _joins(turned.shape, shape):
            groups, rest = [], list(matrix.permute(order).shape)
            sizes = list(turned.shape)
            for whole in shape:
                part, group = 1, 1
                while part < whole:
                    part, group = part * sizes.pop(0), group * rest.pop(0)
                groups.append(group)
            return matrix.permute(order).reshape(groups)
    raise ValueError("another layout")


def restored(value: Tensor, sizes: Sequence[int]) -> Tensor | None:
    """The inverse of `arranged`: a result as a tensor of these sizes; None where no order of axes fits."""
    if value.numel() != torch.Size(sizes).numel():
        return None
    for order in permutations(range(len(sizes))):
        turned = [sizes[axis] for axis in order]
        if _joins(turned, value.shape):
            back = sorted(range(len(order)), key=order.__getitem__)
            return value.reshape(turned).permute(back)
    return None
