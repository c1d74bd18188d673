"""Layers without softmax: the code by which they mix tokens is watched, and asked for its matrix.

Given the decays and gates of a text, each of these layers is linear in its values. So the same code, with
unit vectors in place of the values, returns the matrix itself; FNet's two matrices are in `_on_fourier`. The
model's code is not touched: a layer of the twin gets a `forward` of its own, whose kernel is noted when a
recorder is active in this thread.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType, MappingProxyType, MethodType, SimpleNamespace

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
    are arguments that act on the result: ``silu(gate) · result``, ``result + bias``.
    """

    rule: str
    value: str = "value"
    tokens: int = 1
    heads: int = 2
    channels: Mapping[str, int] = field(default_factory=dict)
    gate: str = ""
    bias: str = ""
    unit: str = "head"

    def by_head(self, x: Tensor) -> Tensor:
        """Values or output as (head, token, d_v); a channel is a head with one value."""
        x = x[0].movedim((self.heads - 1, self.tokens - 1), (0, 1))
        return x.unsqueeze(2) if self.channels else x

    def as_values(self, x: Tensor) -> Tensor:
        """(head, token, d_v) in the order that the kernel takes; the inverse of `by_head`."""
        x = x[..., 0] if self.channels else x
        return x.movedim((0, 1), (self.heads - 1, self.tokens - 1)).unsqueeze(0)


SCAN = Kernel(
    "selective state space (Mamba)",
    "hidden_states",
    unit="channel",
    tokens=2,
    heads=1,
    channels={"hidden_states": 1, "dt": 1, "A": 0, "D": 0, "z": 1, "delta_bias": 0},
    gate="z",
)
CONVOLUTION = Kernel(
    "short convolution",
    "hidden_states",
    unit="channel",
    tokens=2,
    heads=1,
    channels={"hidden_states": 1, "weight": 0, "bias": 0},
    bias="bias",
)
# By the names that the files of transformers give them.
FUNCTIONS = {
    "torch_chunk_gated_delta_rule": Kernel("gated delta rule"),
    "chunk_kimi_delta_attention": Kernel("Kimi delta attention"),
    "mamba2_chunk_scan": Kernel("state space duality (Mamba 2)", "hidden_states"),
    "mamba_selective_scan": SCAN,
    "rwkv_linear_attention": Kernel(
        "RWKV", unit="channel", channels={"time_decay": 0, "time_first": 0, "key": 2, "value": 2}
    ),
    "causal_conv1d_fn": CONVOLUTION,
}
METHODS = {
    "_rnn_scan": Kernel(
        "gated linear recurrence (RG-LRU)",
        "hidden_states",
        unit="channel",
        channels={"hidden_states": 2, "recurrent_gate": 2},
    )
}
MODULES = {"xLSTMBackend": Kernel("mLSTM", tokens=2, heads=1)}
FOURIER, FOURIER_CLASS = Kernel("Fourier transform (FNet)", unit="component"), "FNetFourierTransform"
YOSO, YOSO_CLASS = Kernel("expected hash collisions (YOSO)", tokens=2, heads=1), "YosoSelfAttention"
LIGHTNING = Kernel("lightning attention", tokens=2, heads=1)
LIGHTNING_PARTS = ("slope_rate", "diagonal_decay")  # names in the code of a module that computes it
# What classes are called that mix tokens, and classes that only hold or serve them.
NAMES = re.compile(  # SSM in capitals alone: "ssm" is also in GptOssMLP
    r"SSM|(?i:mamba|rwkv|rglru|delta(?:net|attention)|linearattention|lightningattention|shortconv$|fnetfourier|yososelfattention|xlstm|hyena)"
)
AROUND = re.compile(r"model|block|layer$|norm|cache|conv1d|mlp$|feedforward$", re.IGNORECASE)
SCRIPTED = re.compile(r"aten::\w*(?:softmax|attention)")  # operations in the code of a module of torch.jit
STATE = "A_log"  # the decay of a state-space layer, whatever its class is called


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
        copies = {key: _copied(entry) for key, entry in arguments.items()}
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


def watch(model: nn.Module) -> Mapping[str, int]:
    """Prepare a model, once. → the names of its layers without softmax whose kernel is known

    Each with the width of the short convolution through which its values went, 0 where there is none.
    """
    names = {}
    for name, part in list(model.named_modules()):
        if name and "forward" not in vars(part) and _watch(name, part):
            parent = model.get_submodule(name.rpartition(".")[0])
            names[name] = _convolution(part) or _convolution(parent)
            part.register_forward_pre_hook(partial(_entered, name))
    model.register_forward_pre_hook(_started)
    return MappingProxyType(names)


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


def without_attention(model: nn.Module) -> dict[str, str]:
    """The layers that mix tokens by a state that is carried along, or by a sum: a sentence for each name.

    They are told by the names of their classes and kernels; torch's own recurrent layers are among them.
    """
    layers: dict[str, str] = {}
    for name, part in model.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            if _attends(part) and not any(name.startswith(f"{other}.") for other in layers):
                layers[name] = f"{name or part.original_name}: it is made by torch.jit, where nothing is seen"
            continue
        kind = type(part).__name__
        mixes = NAMES.search(kind) is not None and AROUND.search(kind) is None
        mixes |= hasattr(part, STATE) or isinstance(part, nn.RNNBase) or bool(_kernels(part))
        if mixes and name and not any(name.startswith(f"{other}.") for other in layers):
            layers[name] = f"{name}: {kind} mixes tokens by other means than attention"
    return layers


def _attends(part: torch.jit.ScriptModule) -> bool:
    """Is there attention in the compiled code of a module, or a softmax that may be one?"""
    return SCRIPTED.search(str(getattr(part, "inlined_graph", ""))) is not None


def _kernels(part: nn.Module) -> dict[str, Kernel]:
    """The kernels that the code of a module calls, by their names."""
    forward = inspect.unwrap(type(part).forward)
    if not isinstance(forward, FunctionType):
        return {}
    used = forward.__code__.co_names
    methods = {name: METHODS[name] for name in used if name in METHODS and hasattr(part, name)}
    return methods or {
        name: FUNCTIONS[name] for name in used if name in FUNCTIONS and name in forward.__globals__
    }


def _watch(name: str, part: nn.Module) -> bool:
    """Put a recorder around the kernel of one module; False where it has none that is known."""
    forward, kernels = inspect.unwrap(type(part).forward), _kernels(part)
    if type(part).__name__ in MODULES:
        own = MethodType(type(part).forward, part)
        part.forward = partial(_call, name, MODULES[type(part).__name__], own)
    elif type(part).__name__ == FOURIER_CLASS:
        part.self.register_forward_hook(partial(_on_fourier, name))
    elif type(part).__name__ == YOSO_CLASS:
        if not part.use_expectation or part.use_conv:  # hashes by chance; a convolution beside it
            return False
        cumulation = forward.__globals__["YosoCumulation"]
        around = SimpleNamespace(apply=partial(_call_yoso, name, part.num_attention_heads, cumulation))
        part.forward = MethodType(_with_globals(forward, {"YosoCumulation": around}), part)
    elif isinstance(forward, FunctionType) and {*forward.__code__.co_names}.issuperset(LIGHTNING_PARTS):
        _watch_lightning(name, part, forward)
    elif not kernels:
        return False
    elif METHODS.keys() & kernels:
        for known, kernel in kernels.items():
            own = MethodType(getattr(type(part), known), object())  # it uses nothing of the module
            setattr(part, known, partial(_call, name, kernel, own))
    else:
        if len(kernels) > 1:  # the convolution before the kernel
            kernels = {known: kernel for known, kernel in kernels.items() if kernel is not CONVOLUTION}
        around = {
            known: partial(_call, name, kernel, forward.__globals__[known])
            for known, kernel in kernels.items()
        }
        part.forward = MethodType(_with_globals(forward, around), part)
    return True


def _started(_model: nn.Module, _args: tuple) -> None:
    """A forward pass begins; what was recorded of another one is forgotten."""
    if (recorder := _active.get()) is not None:
        recorder.uses.clear()


def _entered(name: str, _module: nn.Module, _args: tuple) -> None:
    if (recorder := _active.get()) is not None:
        recorder.uses.append((name, []))


def _call(name: str, kernel: Kernel, function: Callable, *args: object, **kwargs: object) -> object:
    """The kernel's result, noted where a recorder is active."""
    result = function(*args, **kwargs)
    if (recorder := _active.get()) is not None:
        with suppress(TypeError):  # arguments of another kind: the layer is then named without a matrix
            own = inspect.unwrap(function)  # the code in the model's file, not a kernel for a GPU
            parameters = inspect.signature(own).parameters
            kwargs = {key: value for key, value in kwargs.items() if key in parameters}
            arguments = inspect.signature(own).bind(*args, **kwargs).arguments
            recorder.add(name, kernel, own, {k: v for k, v in arguments.items() if k != "kwargs"}, result)
    return result


def _on_fourier(name: str, _module: nn.Module, args: tuple, result: tuple[Tensor, ...]) -> None:
    """FNet takes the real part of a transform over words and width, ``Re(F X G)``, with complex matrices.

    That is ``Re F · Re(X G) − Im F · Im(X G)``: two real matrices of the words, each with values of its own.
    What the layer computed, less the first summand, is held against the second one.
    """
    if (recorder := _active.get()) is not None:
        values = torch.view_as_real(torch.fft.fft(args[0], dim=2)).movedim(3, 2)
        cosines = _fourier(values)[:, :, 0]
        output = torch.stack([cosines, result[0] - cosines], dim=2)
        recorder.add(name, FOURIER, _fourier, {"value": values}, output)


def _fourier(value: Tensor) -> Tensor:
    """The transform over words of both components. (1, token, component, d_v)"""
    mixed = torch.fft.fft(value, dim=1)
    return torch.stack([mixed[:, :, 0].real, -mixed[:, :, 1].imag], dim=2)


def _call_yoso(name: str, n_heads: int, cumulation: type, *args: object) -> Tensor:
    """YOSO weighs each value by how often its key is expected to fall into the bucket of the query.

    Its arguments are masks of queries and keys, queries, keys and values (head, token, width), and settings.
    """
    result = cumulation.apply(*args)
    if (recorder := _active.get()) is not None and len(result) == n_heads:
        query_mask, key_mask, query, key, value, settings = args
        more = {"query_mask": query_mask, "key_mask": key_mask, "query": query, "key": key}
        arguments = {"value": value[None], **more, "settings": settings}
        recorder.add(name, YOSO, partial(_yoso, cumulation), arguments, result[None])
    return result


def _yoso(
    cumulation: type,
    *,
    value: Tensor,
    query_mask: Tensor,
    key_mask: Tensor,
    query: Tensor,
    key: Tensor,
    settings: dict,
) -> Tensor:
    return cumulation.apply(query_mask, key_mask, query, key, value[0], settings)[None]


def _watch_lightning(name: str, part: nn.Module, forward: Callable) -> None:
    """Lightning attention is written inside its module: what its projection and its norm see is recorded."""
    projected: ContextVar[Tensor | None] = ContextVar(f"headscope_lightning {name}", default=None)

    def on_projected(_module: nn.Module, _args: tuple, result: Tensor) -> None:
        if _active.get() is not None:
            projected.set(result)

    def on_norm(_module: nn.Module, args: tuple) -> None:
        recorder, result = _active.get(), projected.get()
        if recorder is None or result is None:
            return
        shape = (*result.shape[:2], part.num_attention_heads, -1)
        q, k, v = result.view(*shape).transpose(1, 2).split(part.head_dim, dim=3)
        own = partial(_lightning, forward, _stand_in(part))
        output = args[0].view(*shape).transpose(1, 2)
        recorder.add(name, LIGHTNING, own, {"query": q, "key": k, "value": v}, output)

    part.act_fn.register_forward_hook(on_projected)
    part.norm.register_forward_pre_hook(on_norm)


def _stand_in(part: nn.Module) -> SimpleNamespace:
    """What lightning attention's `forward` needs, with nothing before the mixing and nothing after it."""
    values = {name: _copied(buffer) for name, buffer in part.named_buffers(recurse=False)}
    values |= {name: value for name, value in vars(part).items() if isinstance(value, int | float)}
    same = dict.fromkeys(("act_fn", "qkv_proj", "norm", "out_proj"), _same)
    return SimpleNamespace(**values, **same, output_gate=lambda _: torch.tensor(torch.inf))


def _lightning(
    forward: Callable, stand_in: SimpleNamespace, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    joined = torch.cat([query, key, value], dim=3).transpose(1, 2).flatten(2)
    output = forward(stand_in, joined, None, None)[0]
    return output.unflatten(2, (value.shape[1], -1)).transpose(1, 2)


def _same(x: Tensor) -> Tensor:
    return x


def _with_globals(function: FunctionType, names: Mapping[str, object]) -> FunctionType:
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
    convolution = 0 if kernel is CONVOLUTION else convolution
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


def _copied(value: object) -> object:
    """A tensor as a copy on the CPU, in float32 where it is in half precision; anything else as it is."""
    if not isinstance(value, Tensor):
        return value
    value = on_cpu(value)
    return value.float() if value.dtype in HALF else value.clone()
