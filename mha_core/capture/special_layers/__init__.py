"""Layers that only a few families of models have: without softmax attention, or with a sparse one.

`WATCHERS` says by which sign a part of a model is known to be such a layer. For attention with a softmax it
has the hook that such a part gets. For any other layer it has a function ``watch(place, part)``, which
returns True if the layer's mixing matrix is recorded from then on.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from types import FunctionType, MappingProxyType
from typing import Any

import torch
from torch import nn

from mha_core.capture.special_layers import bands, chunks, learned_index, without_softmax
from mha_core.errors import Phrase

Watcher = Callable[..., Any]
# The sign of a layer: the class of a part, its name in the model, an attribute, or a function, method or
# buffer that its code uses.
WATCHERS: dict[tuple[str, str], Watcher] = {
    ("attribute", "one_sided_attn_window_size"): bands.on_leaving,  # Longformer, LED
    ("class", "LSHSelfAttention"): chunks.on_leaving,  # Reformer
    ("class", "LocalSelfAttention"): chunks.on_leaving,
    ("name", "indexer"): learned_index.on_leaving,  # DeepSeek V3.2, MiniMax M3 and others
    ("class", "FNetFourierTransform"): without_softmax.watch_fourier,
    ("class", "YosoSelfAttention"): without_softmax.watch_yoso,
    ("code", "diagonal_decay"): without_softmax.watch_lightning,  # MiniMax
    **{("class", name): without_softmax.watch_kernel for name in without_softmax.MODULES},
    **{("code", name): without_softmax.watch_kernel for name in without_softmax.FUNCTIONS},
    **{("code", name): without_softmax.watch_kernel for name in without_softmax.METHODS},
}
SPARSE: set[Watcher] = {bands.on_leaving, chunks.on_leaving, learned_index.on_leaving}
# Names of classes that mix tokens (MIXERS), and of classes that only contain or serve them (AROUND).
MIXERS = re.compile(  # SSM in capitals alone: "ssm" is also in GptOssMLP
    r"SSM|(?i:mamba|rwkv|rglru|delta(?:net|attention)|linearattention|lightningattention|deform(?:able)?att|shortconv$|fnetfourier|yososelfattention|xlstm|hyena)"
)
AROUND = re.compile(r"model|block|layer$|norm|cache|conv1d|mlp$|feedforward$", re.IGNORECASE)
SCRIPTED = re.compile(r"aten::\w*(?:softmax|attention)")  # operations in the code of a module of torch.jit
STATE = "A_log"  # the decay of a state-space layer, whatever its class is called


def watcher(place: str, part: nn.Module) -> Watcher | None:
    """The entry of `WATCHERS` for a part of a model; None for nearly all parts."""
    signs = [("class", type(part).__name__), ("name", place.rpartition(".")[2])]
    signs += [("attribute", name) for name in vars(part)]
    forward = inspect.unwrap(type(part).forward)
    if isinstance(forward, FunctionType):
        used = [name for name in forward.__code__.co_names if ("code", name) in WATCHERS]
        signs += [("code", name) for name in used if name in forward.__globals__ or hasattr(part, name)]
    return next((WATCHERS[sign] for sign in signs if sign in WATCHERS), None)


def watch(model: nn.Module) -> Mapping[str, int]:
    """Put hooks on the special layers of a model of our own, once.

    Returns the layers without softmax whose mixing matrices are recorded, each with the width of the short
    convolution before its values, 0 where there is none.
    """
    mixers = {}
    for place, part in list(model.named_modules()):
        watch_part = watcher(place, part)
        if watch_part in SPARSE:
            part.register_forward_hook(watch_part, with_kwargs=True)
        elif watch_part is not None and place and "forward" not in vars(part) and watch_part(place, part):
            mixers[place] = part
    return without_softmax.watch_layers(model, mixers) if mixers else MappingProxyType({})


def without_attention(model: nn.Module) -> dict[str, str]:
    """The layers that mix tokens by a recurrent state or a sum: a sentence for each name.

    The names of classes and kernels show them; torch's own recurrent layers are among them.
    """
    layers: dict[str, str] = {}
    for name, part in model.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            attends = SCRIPTED.search(str(getattr(part, "inlined_graph", ""))) is not None
            if attends and not any(name.startswith(f"{other}.") for other in layers):
                layers[name] = Phrase(
                    "{name}: it is made by torch.jit, where nothing is seen", name=name or part.original_name
                )
            continue
        kind = type(part).__name__
        mixes = MIXERS.search(kind) is not None and AROUND.search(kind) is None
        mixes |= hasattr(part, STATE) or isinstance(part, nn.RNNBase)
        mixes |= watcher(name, part) not in {None, *SPARSE}
        if mixes and name and not any(name.startswith(f"{other}.") for other in layers):
            layers[name] = Phrase(
                "{name}: {kind} mixes tokens by other means than attention", name=name, kind=kind
            )
    return layers


def convolutions(model: nn.Module, run: Callable[[], object]) -> dict[str, str]:
    """The convolutions over several positions that a `run` of a text uses: a sentence for each name.

    Convolutions inside a layer that `without_attention` names, or in the same block, are left out.
    """
    named, used, hooks = without_attention(model), {}, []
    for name, part in model.named_modules():
        wide = isinstance(part, nn.Conv1d | nn.Conv2d) and max(part.kernel_size) > 1
        block = name.rpartition(".")[0]
        is_of_mixer = any(
            f"{name}.".startswith(f"{layer}.") or layer.rpartition(".")[0] == block for layer in named
        )
        if wide and not is_of_mixer:
            said = Phrase("{name}: {kind} mixes neighbouring tokens", name=name, kind=type(part).__name__)
            hooks.append(part.register_forward_hook(lambda *_, key=name, said=said: used.update({key: said})))
    if hooks:
        run()
    for hook in hooks:
        hook.remove()
    return used
