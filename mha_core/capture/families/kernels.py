"""Layers that mix tokens in one known function: Mamba, RWKV, delta rules, RG-LRU, mLSTM and others.

In our copy of the model (its twin) such a layer has its own `forward`: that of its class, with a function
that also records each call. The model's code is not changed.
"""

import inspect
from functools import partial
from types import FunctionType, MethodType

from torch import nn

from mha_core.capture.families.mixing import Kernel, run, with_globals
from mha_core.errors import Phrase

SCAN = Kernel(
    Phrase("selective state space (Mamba)"),
    "hidden_states",
    unit="channel",
    tokens=2,
    heads=1,
    channels={"hidden_states": 1, "dt": 1, "A": 0, "D": 0, "z": 1, "delta_bias": 0},
    gate="z",
)
CONVOLUTION = Kernel(
    Phrase("short convolution"),
    "hidden_states",
    unit="channel",
    tokens=2,
    heads=1,
    channels={"hidden_states": 1, "weight": 0, "bias": 0},
    bias="bias",
    is_convolution=True,
)
# By their names in the files of transformers.
FUNCTIONS = {
    "torch_chunk_gated_delta_rule": Kernel(Phrase("gated delta rule")),
    "chunk_kimi_delta_attention": Kernel(Phrase("Kimi delta attention")),
    "mamba2_chunk_scan": Kernel(Phrase("state space duality (Mamba 2)"), "hidden_states"),
    "mamba_selective_scan": SCAN,
    "rwkv_linear_attention": Kernel(
        "RWKV", unit="channel", channels={"time_decay": 0, "time_first": 0, "key": 2, "value": 2}
    ),
    "causal_conv1d_fn": CONVOLUTION,
}
METHODS = {
    "_rnn_scan": Kernel(
        Phrase("gated linear recurrence (RG-LRU)"),
        "hidden_states",
        unit="channel",
        channels={"hidden_states": 2, "recurrent_gate": 2},
    )
}
MODULES = {"xLSTMBackend": Kernel("mLSTM", tokens=2, heads=1)}


def watch(place: str, part: nn.Module) -> bool:
    """Record the calls of a part's kernel. False where it has no known kernel."""
    forward, kernels = inspect.unwrap(type(part).forward), _kernels(part)
    if type(part).__name__ in MODULES:
        own = MethodType(type(part).forward, part)
        part.forward = partial(run, place, MODULES[type(part).__name__], own)
    elif not kernels:
        return False
    elif METHODS.keys() & kernels:
        for known, kernel in kernels.items():
            own = MethodType(getattr(type(part), known), object())  # it uses no attribute of the module
            setattr(part, known, partial(run, place, kernel, own))
    else:
        if len(kernels) > 1:  # the convolution before the kernel
            kernels = {known: kernel for known, kernel in kernels.items() if not kernel.is_convolution}
        around = {
            known: partial(run, place, kernel, forward.__globals__[known])
            for known, kernel in kernels.items()
        }
        part.forward = MethodType(with_globals(forward, around), part)
    return True


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
