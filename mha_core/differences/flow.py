"""The results of torch's functions in a run of a module, each with its line in the reader's file."""

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from mha_core.attention.functional import HALF
from mha_core.differences.search import distance
from mha_core.differences.student import Case


class Result(NamedTuple):
    """A tensor as a function of torch returned it, and the line of the reader's file in which it did."""

    value: Tensor
    line: int | None


class Flow(TorchFunctionMode):
    """The results of a run in their order; `without_dropout` leaves out each dropout that is on.

    Where the code asks for half precision it gets single: half would hide an error of a few percent.
    """

    def __init__(self, file: str, *, without_dropout: bool = False):
        super().__init__()
        self.file = file
        self.without_dropout = without_dropout
        self.results: list[Result] = []
        self.dropout: int | None = None  # the line of the first dropout that was left out
        self.is_widened = False  # half precision was asked for

    def __torch_function__(
        self, function: Callable, _types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        line, kwargs, name = self._line(), kwargs or {}, getattr(function, "__name__", "")
        if self.without_dropout and "dropout" in name and kwargs.get("training", [*args, True, True][2]):
            self.dropout = self.dropout or line
            return args[0]
        if self.without_dropout and kwargs.get("dropout_p"):  # of a fused function
            self.dropout, kwargs = self.dropout or line, {**kwargs, "dropout_p": 0.0}
        if name in ("half", "bfloat16"):
            function, self.is_widened = Tensor.float, True
        if any(map(_is_half, (*args, *kwargs.values()))):
            args = tuple(torch.float32 if _is_half(one) else one for one in args)
            kwargs = {key: torch.float32 if _is_half(one) else one for key, one in kwargs.items()}
            self.is_widened = True
        result = function(*args, **kwargs)
        for part in result if isinstance(result, list | tuple) else [result]:
            if isinstance(part, Tensor) and not part.is_complex():
                self.results.append(Result(part.detach().clone(), line))
        return result

    @classmethod
    def stacked(cls, flows: "Sequence[Flow]") -> "Flow":
        """The flow of several texts from those of each, with an axis of texts in front."""
        whole = cls(flows[0].file, without_dropout=flows[0].without_dropout)
        whole.dropout, whole.is_widened = flows[0].dropout, flows[0].is_widened
        for parts in zip(*(flow.results for flow in flows), strict=False):
            if len({part.value.shape for part in parts}) == 1:
                whole.results.append(Result(torch.stack([part.value for part in parts]), parts[0].line))
        return whole

    def _line(self) -> int | None:
        frame: Any = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename != self.file:
            frame = frame.f_back
        return None if frame is None else frame.f_lineno

    def place(self, matrix: Tensor, tolerance: float, *, start: int = 0) -> int | None:
        """Where a matrix first is among the results, its axes in any order and neighbouring ones joined."""
        for place, (value, _) in enumerate(self.results[start:], start):
            if any(distance(one, value) <= tolerance for one in arranged(matrix, value.shape)):
                return place
        return None


def _is_half(value: object) -> bool:
    return isinstance(value, torch.dtype) and value in HALF


class Run(NamedTuple):
    """A run of a module: its output, (batch, query, width), and the results of its operations."""

    case: Case
    output: Tensor
    flow: Flow


def arranged(matrix: Tensor, shape: Sequence[int]) -> Iterator[Tensor]:
    """A matrix with its axes in every order, where it then has that shape after joining neighbours."""
    if matrix.numel() != torch.Size(shape).numel():
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
