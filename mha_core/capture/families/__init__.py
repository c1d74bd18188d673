"""What a few families of models alone need, each in a file of its own that other models do not load.

`FILES` is the table: which part of a model asks for which file. Each file has a function that puts its hooks
on such a part, ``watch(place, part)``. The function returns whether the part is a layer without softmax whose
mixing is recorded from then on.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from types import FunctionType, MappingProxyType, ModuleType

import torch
from torch import nn

from mha_core.errors import Phrase

# By what a part of a model asks for a file: its class, its own name in the model, an attribute, or what its
# code uses, a function, a method or a buffer.
FILES = {
    ("attribute", "one_sided_attn_window_size"): "bands",  # Longformer, LED
    ("class", "LSHSelfAttention"): "chunks",  # Reformer
    ("class", "LocalSelfAttention"): "chunks",
    ("name", "indexer"): "learned_index",  # DeepSeek V3.2, MiniMax M3 and others
    ("class", "FNetFourierTransform"): "fourier",
    ("class", "YosoSelfAttention"): "yoso",
    ("class", "xLSTMBackend"): "kernels",
    ("code", "diagonal_decay"): "lightning",  # MiniMax
    ("code", "torch_chunk_gated_delta_rule"): "kernels",  # Qwen3-Next and others
    ("code", "chunk_kimi_delta_attention"): "kernels",
    ("code", "mamba2_chunk_scan"): "kernels",
    ("code", "mamba_selective_scan"): "kernels",
    ("code", "rwkv_linear_attention"): "kernels",
    ("code", "causal_conv1d_fn"): "kernels",  # LFM2
    ("code", "_rnn_scan"): "kernels",  # RecurrentGemma
}
WITHOUT_SOFTMAX = {"fourier", "yoso", "lightning", "kernels"}
# What classes are called that mix tokens, and classes that only hold or serve them.
MIXERS = re.compile(  # SSM in capitals alone: "ssm" is also in GptOssMLP
    r"SSM|(?i:mamba|rwkv|rglru|delta(?:net|attention)|linearattention|lightningattention|shortconv$|fnetfourier|yososelfattention|xlstm|hyena)"
)
AROUND = re.compile(r"model|block|layer$|norm|cache|conv1d|mlp$|feedforward$", re.IGNORECASE)
SCRIPTED = re.compile(r"aten::\w*(?:softmax|attention)")  # operations in the code of a module of torch.jit
STATE = "A_log"  # the decay of a state-space layer, whatever its class is called


def asked_by(place: str, part: nn.Module) -> str | None:
    """The file that a part of a model asks for; None for nearly all parts."""
    signs = [("class", type(part).__name__), ("name", place.rpartition(".")[2])]
    signs += [("attribute", name) for name in vars(part)]
    forward = inspect.unwrap(type(part).forward)
    if isinstance(forward, FunctionType):
        used = [name for name in forward.__code__.co_names if ("code", name) in FILES]
        signs += [("code", name) for name in used if name in forward.__globals__ or hasattr(part, name)]
    return next((FILES[sign] for sign in signs if sign in FILES), None)


def has(model: nn.Module, file: str) -> bool:
    """Has a model a part that asks for a file?"""
    return any(asked_by(place, part) == file for place, part in model.named_modules())


def watch(model: nn.Module) -> Mapping[str, int]:
    """Put the hooks of its family on a model that nobody else uses, once. → its layers that are recorded

    These are the layers without softmax whose mixing is understood, each with the width of the short
    convolution through which its values went, 0 where there is none.
    """
    mixers = {}
    for place, part in list(model.named_modules()):
        file = asked_by(place, part)
        if file in WITHOUT_SOFTMAX and (not place or "forward" in vars(part)):  # somebody has replaced it
            continue
        if file is not None and _loaded(file).watch(place, part):
            mixers[place] = part
    if not mixers:
        return MappingProxyType({})
    from mha_core.capture.families import mixing

    return mixing.watch(model, mixers)


def without_attention(model: nn.Module) -> dict[str, str]:
    """The layers that mix tokens by a state that is carried along, or by a sum: a sentence for each name.

    They are known by the names of their classes and kernels; torch's own recurrent layers are among them.
    """
    layers: dict[str, str] = {}
    for name, part in model.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            if _attends(part) and not any(name.startswith(f"{other}.") for other in layers):
                layers[name] = Phrase(
                    "{name}: it is made by torch.jit, where nothing is seen", name=name or part.original_name
                )
            continue
        kind = type(part).__name__
        mixes = MIXERS.search(kind) is not None and AROUND.search(kind) is None
        mixes |= hasattr(part, STATE) or isinstance(part, nn.RNNBase)
        mixes |= asked_by(name, part) in WITHOUT_SOFTMAX
        if mixes and name and not any(name.startswith(f"{other}.") for other in layers):
            layers[name] = Phrase(
                "{name}: {kind} mixes tokens by other means than attention", name=name, kind=kind
            )
    return layers


def convolutions(model: nn.Module, run: Callable[[], object]) -> dict[str, str]:
    """The convolutions over several positions that a `run` of a text uses: a sentence for each name.

    Those inside of layers that `without_attention` names, or beside them in one block, are part of these.
    """
    named, used, hooks = without_attention(model), {}, []
    for name, part in model.named_modules():
        wide, block = (
            isinstance(part, nn.Conv1d | nn.Conv2d) and max(part.kernel_size) > 1,
            name.rpartition(".")[0],
        )
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


def _attends(part: torch.jit.ScriptModule) -> bool:
    """Is there attention in the compiled code of a module, or a softmax that may be one?"""
    return SCRIPTED.search(str(getattr(part, "inlined_graph", ""))) is not None


def _loaded(name: str) -> ModuleType:
    match name:
        case "bands":
            from mha_core.capture.families import bands as file
        case "chunks":
            from mha_core.capture.families import chunks as file
        case "learned_index":
            from mha_core.capture.families import learned_index as file
        case "fourier":
            from mha_core.capture.families import fourier as file
        case "yoso":
            from mha_core.capture.families import yoso as file
        case "lightning":
            from mha_core.capture.families import lightning as file
        case "kernels":
            from mha_core.capture.families import kernels as file
    return file
