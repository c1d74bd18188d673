"""Code for a few families of models, each in a file that other models do not load.

`FILES` says which part of a model needs which file. ``watch(place, part)`` of a file puts its hooks on such a
part, and returns True if the part is a layer without softmax whose mixing matrix is recorded from then on.
"""

# mypy: disable-error-code=no-redef
# `file` in `_loaded` is a module of its own in each case, and only one case runs.

import inspect
import re
from collections.abc import Callable, Mapping
from types import FunctionType, MappingProxyType, ModuleType

import torch
from torch import nn

from mha_core.errors import Phrase

# The sign of each file: the class of a part, its name in the model, an attribute, or a function, method or
# buffer that its code uses.
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
# Names of classes that mix tokens (MIXERS), and of classes that only contain or serve them (AROUND).
MIXERS = re.compile(  # SSM in capitals alone: "ssm" is also in GptOssMLP
    r"SSM|(?i:mamba|rwkv|rglru|delta(?:net|attention)|linearattention|lightningattention|shortconv$|fnetfourier|yososelfattention|xlstm|hyena)"
)
AROUND = re.compile(r"model|block|layer$|norm|cache|conv1d|mlp$|feedforward$", re.IGNORECASE)
SCRIPTED = re.compile(r"aten::\w*(?:softmax|attention)")  # operations in the code of a module of torch.jit
STATE = "A_log"  # the decay of a state-space layer, whatever its class is called


def file_of(place: str, part: nn.Module) -> str | None:
    """The file that a part of a model needs; None for nearly all parts."""
    signs = [("class", type(part).__name__), ("name", place.rpartition(".")[2])]
    signs += [("attribute", name) for name in vars(part)]
    forward = inspect.unwrap(type(part).forward)
    if isinstance(forward, FunctionType):
        used = [name for name in forward.__code__.co_names if ("code", name) in FILES]
        signs += [("code", name) for name in used if name in forward.__globals__ or hasattr(part, name)]
    return next((FILES[sign] for sign in signs if sign in FILES), None)


def has(model: nn.Module, file: str) -> bool:
    """Whether a model has a part that needs a file."""
    return any(file_of(place, part) == file for place, part in model.named_modules())


def watch(model: nn.Module) -> Mapping[str, int]:
    """Put the hooks of its family on a model of our own, once. → its layers that are recorded

    These are the layers without softmax that have a mixing matrix, each with the width of the short
    convolution before its values, 0 where there is none.
    """
    mixers = {}
    for place, part in list(model.named_modules()):
        file = file_of(place, part)
        if file in WITHOUT_SOFTMAX and (not place or "forward" in vars(part)):  # its forward was replaced
            continue
        if file is not None and _loaded(file).watch(place, part):
            mixers[place] = part
    if not mixers:
        return MappingProxyType({})
    from mha_core.capture.families import mixing

    return mixing.watch(model, mixers)


def without_attention(model: nn.Module) -> dict[str, str]:
    """The layers that mix tokens by a recurrent state or a sum: a sentence for each name.

    The names of classes and kernels show them; torch's own recurrent layers are among them.
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
        mixes |= file_of(name, part) in WITHOUT_SOFTMAX
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
    """Whether the compiled code of a module has attention, or a softmax."""
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
