"""A model's twin: new modules and configs around the same tensors, or around copies in fp32.

Changes of a twin do not affect its model. A trial runs in a twin in fp32, since in half precision rounding
can exceed the effect of an error.
"""

import copy
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from mha_core.attention.functional import HALF
from mha_core.errors import MhaError
from mha_core.sources.huggingface import memory

Net = TypeVar("Net", bound=nn.Module)


def twin(module: Net, others: Mapping[int, Tensor] = MappingProxyType({})) -> Net:
    """A copy of a model's modules and configs with the same tensors, or with `others` by their ids."""
    try:
        other = copy.deepcopy(module, {id(tensor): tensor for tensor in tensors_of(module)} | {**others})
    except Exception as error:  # objects attached to the model can raise any error
        raise MhaError(
            "{model} holds something that cannot be copied ({type}: "
            "{reason}), so it cannot be traced without changing it. Its attention can be recorded: "
            "with mha.record(tokens=…) as recorded: model(**inputs).",
            model=type(module).__name__,
            type=type(error).__name__,
            reason=str(error),
        ) from error
    parts: Iterable[Any] = other.modules()
    for part in parts:
        if getattr(part, "layers_are_rescaled", None) is False:
            part.config.rescale_every = 0  # RWKV would divide the shared weights in place
    return other


def tensors_of(module: nn.Module) -> list[Tensor]:
    """The parameters and buffers of a model, and other tensors in attributes of its modules."""
    held = [value for part in module.modules() for value in vars(part).values() if isinstance(value, Tensor)]
    return [*module.parameters(), *module.buffers(), *held]


def halves(module: nn.Module) -> list[Tensor]:
    """The tensors of a model that are in bf16 or fp16."""
    return list({id(tensor): tensor for tensor in tensors_of(module) if tensor.dtype in HALF}.values())


def in_float32(module: Net) -> Net | None:
    """A twin that computes in fp32, with copies of the tensors in half precision.

    If memory is too small for all copies at once, each layer copies its own tensors while it runs. None if
    memory is too small even for that.
    """
    layers, half, device = _layers_of(module), halves(module), str(next(module.parameters()).device)
    by_layer = [{id(tensor): tensor.numel() for tensor in halves(layer)} for layer in layers]
    in_layers = {number for layer in by_layer for number in layer}
    outside = [tensor for tensor in half if id(tensor) not in in_layers]
    largest = max((sum(layer.values()) for layer in by_layer), default=0)
    if _has_room(sum(tensor.numel() for tensor in half), device):
        other = twin(module, {id(tensor): _precise(tensor) for tensor in half})
    elif _has_room(sum(tensor.numel() for tensor in outside) + largest, device):
        other = twin(module, {id(tensor): _precise(tensor) for tensor in outside})
        for layer in _layers_of(other):
            _make_precise_while_it_runs(layer)
    else:
        return None
    for config in {id(c): c for part in other.modules() if (c := vars(part).get("config"))}.values():
        if getattr(config, "dtype", None) in HALF:
            config.dtype = torch.float32
    return other


def _has_room(numbers: int, device: str) -> bool:
    free = memory.free_bytes(device)
    return free is None or torch.float32.itemsize * numbers * memory.PASS_FACTOR <= free


def _precise(tensor: Tensor) -> Tensor:
    numbers = tensor.detach().float()
    return nn.Parameter(numbers, requires_grad=False) if isinstance(tensor, nn.Parameter) else numbers


def _layers_of(module: nn.Module) -> list[nn.Module]:
    """The parts of a model that are in lists, such as its layers; parts inside of others are left out."""
    layers: list[nn.Module] = []
    places: list[str] = []
    for place, part in module.named_modules():
        if isinstance(part, nn.ModuleList) and not any(place.startswith(f"{outer}.") for outer in places):
            places.append(place)
            layers += part
    return layers


def _make_precise_while_it_runs(layer: nn.Module) -> None:
    replaced: list[tuple[dict, str, Tensor]] = []

    def replace_all(*_: object) -> None:
        for part in layer.modules():
            holders: tuple[dict, ...] = (part._parameters, part._buffers, vars(part))
            for holder in holders:
                for name, tensor in holder.items():
                    if isinstance(tensor, Tensor) and tensor.dtype in HALF:
                        replaced.append((holder, name, tensor))
                        holder[name] = _precise(tensor)

    def put_back(*_: object) -> None:
        while replaced:
            holder, name, tensor = replaced.pop()
            holder[name] = tensor

    layer.register_forward_pre_hook(replace_all)
    layer.register_forward_hook(put_back, always_call=True)  # also after an error
