"""Copies and read-only arrays of the tensors that a trace keeps."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mha_core.attention.functional import HALF


def on_cpu(tensor: Tensor) -> Tensor:
    """The tensor on the CPU, without autograd; it may share memory with the original."""
    tensor = tensor.detach() if tensor.requires_grad else tensor
    return tensor if tensor.is_cpu else tensor.to("cpu")  # `to` is slow even if there is nothing to do


def copied(tensor: Tensor) -> Tensor:
    """A contiguous copy on the tensor's own device, independent of the batch and of later changes."""
    tensor = tensor.detach() if tensor.requires_grad else tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def contiguous_copy(tensor: Tensor) -> Tensor:
    """A contiguous copy on the CPU, independent of the batch."""
    return copied(on_cpu(tensor))


def compact(tensor: Tensor) -> Tensor:
    """The tensor itself, so that layers can share one mask; a copy if its memory holds more numbers."""
    tensor = on_cpu(tensor)
    return tensor if tensor.untyped_storage().nbytes() <= tensor.nbytes else tensor.clone()


class Copies(Mapping[str, Tensor]):
    """Tensors by name, each copied whenever it is read, so that nobody can change them."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._held = dict(shared(tensors))

    def __getitem__(self, name: str) -> Tensor:
        return self._held[name].clone()

    def __contains__(self, name: object) -> bool:
        return name in self._held

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __or__(self, other: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {**self, **other}


def shared(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The tensors themselves, which nobody may change, where each reading would be a copy."""
    return tensors._held if isinstance(tensors, Copies) else tensors


def version(tensor: Tensor) -> int:
    """The number of changes of a tensor in place; 0 for an inference tensor, which does not count them."""
    return 0 if tensor.is_inference() else tensor._version


def native(value: Any) -> Any:
    """An array that numpy understands as one that torch reads: in this machine's byte order, and writable.

    Torch warns of an array that is read-only, as those of a trace are. Anything else is returned unchanged.
    """
    if isinstance(value, Tensor) or not (
        hasattr(value, "__array__") or hasattr(value, "__array_interface__")
    ):
        return value
    values = np.asarray(value)
    return values.astype(values.dtype.newbyteorder("="), copy=not values.flags.writeable)


def array(tensor: Tensor) -> np.ndarray:
    """The tensor as a read-only array; half precision becomes float32, which is exact."""
    if tensor.dtype in HALF:
        tensor = tensor.float()
    array = tensor.numpy().view()
    array.setflags(write=False)
    return array
