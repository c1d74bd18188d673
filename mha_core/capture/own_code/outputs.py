"""Where the outputs of heads go: through views to W^O and its bias, or to a sum without W^O."""

import weakref
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from torch import Tensor, nn

VIEWS = {"view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "view_as", "reshape_as"}
PERMUTATIONS = {"transpose", "permute", "swapaxes", "swapdims", "movedim", "t", "T", "mT"}
CASTS = {"float", "double", "half", "bfloat16", "to", "type", "type_as", "contiguous", "clone", "detach"}
UNCHANGED = VIEWS | PERMUTATIONS | CASTS | {"flip", "roll", "index_select", "getitem", "data"}
SUMS = {"add", "iadd"}
PRODUCTS = {"matmul": 0, "mm": 0, "bmm": 0, "linear": 0, "tensordot": 0, "addmm": 1, "einsum": 1}


class Stage(Enum):
    """A tensor on its way: outputs of heads, their sum with another tensor, their product with W^O, or a sum
    with that product."""

    HEADS = 0
    SUM = 1
    PRODUCT = 2
    RESIDUAL = 3


class Output(NamedTuple):
    """The end of the outputs of heads: the `concat` that was multiplied, W^O and its bias if they are a matrix
    and a vector, and the result."""

    concat: Tensor
    matrix: Tensor | None
    bias: Tensor | None
    result: Tensor


class _Mark(NamedTuple):
    tensor: weakref.ref
    stage: Stage
    found: Callable[[Output | None], None]
    output: Output | None = None


class OutputFlow:
    """Follows outputs of heads by their tensors; `found` of each is called whenever more is known of it."""

    def __init__(self) -> None:
        self._marks: dict[int, _Mark] = {}

    @property
    def is_on(self) -> bool:
        """Whether there are outputs to follow."""
        return bool(self._marks)

    def watch(self, heads: Tensor, found: Callable[[Output | None], None]) -> None:
        """Call `found` with the output that becomes of these heads, and with None if it was none."""
        self._note(heads, Stage.HEADS, found)

    def follow(self, name: str, args: tuple, kwargs: dict, result: Any) -> None:
        """An operation: its name, arguments and result."""
        if not isinstance(result, Tensor):
            return
        if name == "einsum" and len(args) == 2 and isinstance(args[1], tuple | list):
            args = (args[0], *args[1])
        for at, arg in enumerate(args):
            mark = self._marks.get(id(arg))
            if mark is not None and mark.tensor() is arg:
                self._went(name, at, mark, args, kwargs, result)
                return

    def _went(self, name: str, at: int, mark: _Mark, args: tuple, kwargs: dict, result: Tensor) -> None:
        operand, others = args[at], [arg for arg in args if isinstance(arg, Tensor) and arg is not args[at]]
        _, stage, found, output = mark
        if name in UNCHANGED and result.numel() == operand.numel():
            self._note(result, stage, found, output)
        elif name in SUMS and len(others) == 1 and not kwargs:
            bias = others[0] if others[0].dim() == 1 and is_parameter(others[0]) else None
            if output is None:  # there was no W^O, unless the sum goes on to it
                if stage is Stage.HEADS:
                    found(Output(operand, None, None, operand))
                self._note(result, Stage.SUM, found)
            elif bias is None:
                self._note(result, Stage.RESIDUAL, found, output)
            elif output.bias is None:  # also where it follows the sum with the input
                whole = output._replace(bias=bias, result=output.result + bias)
                found(whole)
                self._note(result, stage, found, whole)
        elif name in PRODUCTS and any(map(is_parameter, others)) and stage in (Stage.HEADS, Stage.SUM):
            if stage is Stage.SUM:  # it was not the end
                found(None)
                return
            matrix, bias = next(filter(is_parameter, others)), None
            if name in ("linear", "addmm"):
                vector, matrix = (args[0], args[2]) if name == "addmm" else ((*args, None)[2], args[1])
                bias = kwargs.get("bias", vector)
            matrix = matrix.mT if name == "linear" else matrix
            is_right = matrix.dim() == 2 and name != "einsum" and PRODUCTS[name] == at
            output = Output(operand, matrix if is_right else None, bias, result)
            found(output)
            self._note(result, Stage.PRODUCT, found, output)

    def _note(
        self,
        tensor: Tensor,
        stage: Stage,
        found: Callable[[Output | None], None],
        output: Output | None = None,
    ) -> None:
        key = id(tensor)
        gone = weakref.ref(tensor, lambda _: self._marks.pop(key, None))
        self._marks[key] = _Mark(gone, stage, found, output)


def is_parameter(tensor: Tensor) -> bool:
    """Whether the tensor is a parameter of a module, or a view of one, and so not of tokens."""
    return isinstance(tensor, nn.Parameter) or isinstance(tensor._base, nn.Parameter)
