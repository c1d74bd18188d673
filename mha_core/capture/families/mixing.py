"""The matrix by which a layer without softmax mixes tokens, read out of the code that computes the layer.

Given the decays and gates of a text, each of these layers is linear in its values. So the same code, run
with unit vectors in place of the values, returns the matrix. The files `kernels`, `fourier`, `yoso` and
`lightning` know where that code is, and note its calls here while a recorder is active in the thread.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType, MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mha_core.attention.functional import HALF
from mha_core.traces.mixer import MixerTrace
from mha_core.traces.tensors import contiguous_copy, on_cpu

MAX_COLUMNS = 1 << 20  # channels times tokens in one run of a kernel
CHECKED = 64  # heads or channels of a layer that the trial compares


@dataclass(frozen=True)
class Kernel:
    """A function that mixes tokens: what it computes, and where its values have tokens, heads and width.

    In a kernel of channels, `channels` has the channel axis of each argument that has one; `gate` and `bias`
    are arguments that act on the result: ``silu(gate) · result``, ``result + bias``. `is_convolution` says
    that it is itself the short convolution that other layers have before their kernel.
    """

    rule: str
    value: str = "value"
    tokens: int = 1
    heads: int = 2
    channels: Mapping[str, int] = field(default_factory=dict)
    gate: str = ""
    bias: str = ""
    unit: str = "head"
    is_convolution: bool = False

    def by_head(self, x: Tensor) -> Tensor:
        """Values or output as (head, token, d_v); a channel is a head with one value."""
        x = x[0].movedim((self.heads - 1, self.tokens - 1), (0, 1))
        return x.unsqueeze(2) if self.channels else x

    def as_values(self, x: Tensor) -> Tensor:
        """(head, token, d_v) in the order that the kernel takes; the inverse of `by_head`."""
        x = x[..., 0] if self.channels else x
        return x.movedim((0, 1), (self.heads - 1, self.tokens - 1)).unsqueeze(0)


@dataclass(eq=False)
class KernelCall:
    """One call of a kernel: its arguments as copies in float32 on the CPU, its result, its values' dtype."""

    kernel: Kernel
    function: Callable
    arguments: dict[str, object]
    result: Tensor
    dtype: torch.dtype

    def __call__(self, heads: Sequence[int]) -> Tensor:
        """The matrices of these heads: the kernel with unit vectors as values. (head, query, key)"""
        ungated = {**self.arguments, **dict.fromkeys(filter(None, (self.kernel.gate, self.kernel.bias)))}
        columns = self._of_channels if self.kernel.channels else self._of_heads
        return torch.cat(list(columns(ungated, list(heads))), dim=-1)

    def _of_heads(self, arguments: dict[str, object], heads: list[int]) -> Iterator[Tensor]:
        """The columns of the matrices, as many at once as a head has values."""
        kernel = self.kernel
        n_heads, n_tokens, width = kernel.by_head(arguments[kernel.value]).shape
        for start in range(0, n_tokens, width):
            units = arguments[kernel.value].new_zeros(n_heads, n_tokens, width)
            at = torch.arange(start, min(start + width, n_tokens))
            units[:, at, at - start] = 1.0
            mixed = self._run({**arguments, kernel.value: kernel.as_values(units)})
            yield kernel.by_head(mixed)[heads, :, : len(at)]

    def _of_channels(self, arguments: dict[str, object], heads: list[int]) -> Iterator[Tensor]:
        """The columns of the matrices: each channel as often as there are columns, one unit vector each."""
        kernel = self.kernel
        n_tokens = kernel.by_head(arguments[kernel.value]).shape[1]
        width = max(1, MAX_COLUMNS // (len(heads) * n_tokens))
        for start in range(0, n_tokens, width):
            at = torch.arange(start, min(start + width, n_tokens))
            repeated = torch.tensor(heads).repeat_interleave(len(at))
            several = {
                name: arguments[name].index_select(axis, repeated)
                for name, axis in kernel.channels.items()
                if isinstance(arguments.get(name), Tensor)
            }
            units = torch.eye(n_tokens).to(arguments[kernel.value])[at].repeat(len(heads), 1).unsqueeze(2)
            mixed = self._run({**arguments, **several, kernel.value: kernel.as_values(units)})
            yield kernel.by_head(mixed)[..., 0].unflatten(0, (len(heads), len(at))).mT

    def _run(self, arguments: dict[str, object]) -> Tensor:
        return _first(self.function(**arguments)).float()

    def tensors(self) -> dict[str, Tensor]:
        """What a `MixerTrace` has of the call."""
        kernel, result = self.kernel, self.kernel.by_head(self.result)
        tensors = {"v": kernel.by_head(self.arguments[kernel.value]).to(self.dtype), "output": result}
        if isinstance(gate := self.arguments.get(kernel.gate), Tensor):
            tensors["gate"] = F.silu(kernel.by_head(gate))
        if isinstance(bias := self.arguments.get(kernel.bias), Tensor):
            tensors["bias"] = bias.view(-1, 1, 1)
        return {name: tensor.contiguous() for name, tensor in tensors.items()}


class KernelRecorder:
    """The calls of kernels in the latest forward pass: for each use of a layer its name and calls."""

    def __init__(self):
        self.uses: list[tuple[str, list[KernelCall]]] = []

    def add(self, name: str, kernel: Kernel, function: Callable, arguments: Mapping, result: object) -> None:
        """Note a call; one with a batch, or with a function that is not linear around it, is left out."""
        value, result = arguments.get(kernel.value), _first(result)
        if not isinstance(value, Tensor) or value.shape[0] != 1 or arguments.get("activation") is not None:
            return
        copies = {key: float_copy(entry) for key, entry in arguments.items()}
        call = KernelCall(kernel, function, copies, contiguous_copy(result), value.dtype)
        next(calls for other, calls in reversed(self.uses) if other == name).append(call)

    def layers(self, convolutions: Mapping[str, int]) -> tuple[MixerTrace, ...]:
        """The layers; several calls of one layer, of the same kernel, stand side by side as its heads."""
        return tuple(
            _layer(name, calls, convolutions[name])
            for name, calls in self.uses
            if calls and name in convolutions
        )


_active: ContextVar[KernelRecorder | None] = ContextVar("headscope_mixing", default=None)


@contextmanager
def recording() -> Iterator[KernelRecorder]:
    """While this is entered, the kernels of watched models that run in this thread are recorded."""
    recorder = KernelRecorder()
    token = _active.set(recorder)
    try:
        yield recorder
    finally:
        _active.reset(token)


def current() -> KernelRecorder | None:
    """The recorder that is active in this thread."""
    return _active.get()


def watch(model: nn.Module, layers: Mapping[str, nn.Module]) -> Mapping[str, int]:
    """Note when a pass begins and each time that one of these layers runs. → the layers' names

    Each with the width of the short convolution through which its values went, 0 where there is none.
    """
    widths = {}
    for name, layer in layers.items():
        parent = model.get_submodule(name.rpartition(".")[0])
        widths[name] = _convolution(layer) or _convolution(parent)
        layer.register_forward_pre_hook(partial(_entered, name))
    model.register_forward_pre_hook(_started)
    return MappingProxyType(widths)


def provable(layers: Sequence[MixerTrace]) -> set[str]:
    """The names of the layers whose matrices make their recorded output, as far as the trial compares."""
    names = set()
    for layer in layers:
        try:
            layer.proven(range(0, layer.n_heads, -(-layer.n_heads // CHECKED)))
        except Exception:  # any library's any error: the layer is then named without a matrix
            continue
        names.add(layer.name)
    return names


def _started(_model: nn.Module, _args: tuple) -> None:
    """A forward pass begins; what was recorded of another one is forgotten."""
    if (recorder := _active.get()) is not None:
        recorder.uses.clear()


def _entered(name: str, _module: nn.Module, _args: tuple) -> None:
    if (recorder := _active.get()) is not None:
        recorder.uses.append((name, []))


def run(name: str, kernel: Kernel, function: Callable, *args: object, **kwargs: object) -> object:
    """The result of a layer's kernel, which is noted if a recorder is active."""
    result = function(*args, **kwargs)
    if (recorder := _active.get()) is not None:
        with suppress(TypeError):  # arguments of another kind: the layer is then named without a matrix
            own = inspect.unwrap(function)  # the code in the model's file, not a kernel for a GPU
            parameters = inspect.signature(own).parameters
            kwargs = {key: value for key, value in kwargs.items() if key in parameters}
            arguments = inspect.signature(own).bind(*args, **kwargs).arguments
            recorder.add(name, kernel, own, {k: v for k, v in arguments.items() if k != "kwargs"}, result)
    return result


def with_globals(function: FunctionType, names: Mapping[str, object]) -> FunctionType:
    """The same function with other globals of these names."""
    other = FunctionType(
        function.__code__,
        {**function.__globals__, **names},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    other.__kwdefaults__ = function.__kwdefaults__
    return other


def _convolution(part: nn.Module) -> int:
    """The width of the convolution over neighbouring tokens before the kernel, 0 where there is none."""
    widths = [child.kernel_size[0] for child in part.children() if isinstance(child, nn.Conv1d)]
    return widths[0] if widths else 0


def _layer(name: str, calls: list[KernelCall], convolution: int) -> MixerTrace:
    kernel, tensors = calls[0].kernel, [call.tensors() for call in calls]
    joined = {key: torch.cat([each[key] for each in tensors]) for key in tensors[0]}
    counts = [len(each["v"]) for each in tensors]
    convolution = 0 if kernel.is_convolution else convolution
    matrices = partial(_of_calls, tuple(calls), tuple(counts))
    return MixerTrace(MappingProxyType(joined), kernel.rule, kernel.unit, name, convolution, matrices)


def _of_calls(calls: Sequence[KernelCall], counts: Sequence[int], heads: Sequence[int]) -> Tensor:
    """The matrices of heads that stand side by side in several calls."""
    parts, start = {}, 0
    for call, count in zip(calls, counts, strict=True):
        if own := [head - start for head in heads if start <= head < start + count]:
            parts |= dict(zip([start + head for head in own], call(own), strict=True))
        start += count
    return torch.stack([parts[head] for head in heads])


def _first(result: object) -> Tensor:
    """The mixed values, which some kernels return with their last state."""
    result = result[0] if isinstance(result, tuple) else result
    if not isinstance(result, Tensor):
        raise TypeError(f"a kernel returned {type(result).__name__} and no tensor")
    return result


def float_copy(value: object) -> object:
    """A copy of a tensor on the CPU, in float32 where it is in half precision; anything else as it is."""
    if not isinstance(value, Tensor):
        return value
    value = on_cpu(value)
    return value.float() if value.dtype in HALF else value.clone()
