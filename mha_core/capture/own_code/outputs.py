"""Where the outputs of heads go: through views to W^O and its bias, or to a sum without W^O."""

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn

VIEWS = {"view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "view_as", "reshape_as"}
PERMUTATIONS = {"transpose", "permute", "swapaxes", "swapdims", "movedim", "t", "T", "mT"}
CASTS = {"float", "double", "half", "bfloat16", "to", "type", "type_as", "contiguous", "clone", "detach"}
REARRANGEMENTS = VIEWS | PERMUTATIONS | CASTS | {"flip", "roll", "index_select", "getitem", "data"}
# Products with W^O, by the place of the left factor.
PRODUCTS = {"matmul": 0, "mm": 0, "bmm": 0, "linear": 0, "tensordot": 0, "addmm": 1, "einsum": 1}


class Output(NamedTuple):
    """Where the outputs of heads end: the `concat` that was multiplied, W^O, its bias, and the result.

    The matrix is None where it is not to the right of concat, as in an einsum.
    """

    concat: Tensor
    matrix: Tensor | None
    bias: Tensor | None
    result: Tensor


Found = Callable[[Output | None], None]


class _Mark(NamedTuple):
    """A tensor that holds outputs of heads or, if `output` is known, their product with W^O."""

    tensor: weakref.ref
    found: Found
    output: Output | None
    is_sum: bool


class OutputFlow:
    """Follows outputs of heads from tensor to tensor."""

    def __init__(self) -> None:
        self._marks: dict[int, _Mark] = {}

    def is_in(self, args: tuple) -> bool:
        """Whether outputs may be among the arguments of an operation."""
        return bool(self._marks) and any(id(arg) in self._marks for arg in args)

    def watch(
        self, heads: Tensor, found: Found, output: Output | None = None, *, is_sum: bool = False
    ) -> None:
        """Call `found` with what these outputs of heads become; None takes back what it got before."""
        key = id(heads)
        gone = weakref.ref(heads, lambda _: self._marks.pop(key, None))
        self._marks[key] = _Mark(gone, found, output, is_sum)

    def follow(self, name: str, args: tuple, kwargs: dict, result: Any) -> None:
        """Follow the outputs through an operation."""
        marks = [(mark, at) for at, arg in enumerate(args) if (mark := self._marks.get(id(arg))) is not None]
        marks = [(mark, at) for mark, at in marks if mark.tensor() is args[at]]
        if marks and isinstance(result, Tensor):  # a sum of earlier outputs is part of the input
            mark, at = min(marks, key=lambda one: one[0].is_sum)
            self._went(name, at, mark, args, kwargs, result)

    def _went(self, name: str, at: int, mark: _Mark, args: tuple, kwargs: dict, result: Tensor) -> None:
        _, found, output, is_sum = mark
        others = [arg for arg in args if isinstance(arg, Tensor) and arg is not args[at]]
        if name in REARRANGEMENTS and result.numel() == args[at].numel():
            self.watch(result, found, output, is_sum=is_sum)
        elif name in ("add", "iadd") and len(others) == 1 and not kwargs:
            if output is None and not is_sum:  # there is no W^O, unless the sum goes on to it
                found(Output(args[at], None, None, args[at]))
                self.watch(result, found, is_sum=True)
            elif output is not None and others[0].dim() == 1 and is_parameter(others[0]):
                if output.bias is None:  # also where it follows the sum with the input
                    output = output._replace(bias=others[0], result=output.result + others[0])
                    found(output)
                self.watch(result, found, output, is_sum=is_sum)
            elif not is_sum:
                self.watch(result, found, output, is_sum=True)
        elif name in PRODUCTS and output is None and any(map(is_parameter, others)):
            if is_sum:
                found(None)
                return
            matrix, bias = next(filter(is_parameter, others)), kwargs.get("bias")
            if name == "addmm":
                bias, _, matrix = args
            elif name == "linear":
                matrix, bias = args[1].mT, (*args, bias)[2]
            is_right = matrix.dim() == 2 and name != "einsum" and PRODUCTS[name] == at
            output = Output(args[at], matrix if is_right else None, bias, result)
            found(output)
            self.watch(result, found, output)


def is_parameter(tensor: Tensor) -> bool:
    """Whether the tensor is a parameter of a module, or a view of one, and so not of tokens."""
    return isinstance(tensor, nn.Parameter) or isinstance(tensor._base, nn.Parameter)
