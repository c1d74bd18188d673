"""Copies and read-only arrays of the tensors that a trace keeps."""

import numpy as np
import torch
from torch import Tensor

from mha_core.attention.functional import HALF


def on_cpu(tensor: Tensor) -> Tensor:
    """The tensor on the CPU, without autograd; it may share memory with the original."""
    tensor = tensor.detach() if tensor.requires_grad else tensor
    return tensor if tensor.is_cpu else tensor.to("cpu")  # `to` takes its time where there is nothing to do


def copied(tensor: Tensor) -> Tensor:
    """A contiguous copy on the tensor's own device, which keeps no batch alive and nobody else can change."""
    tensor = tensor.detach() if tensor.requires_grad else tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def contiguous_copy(tensor: Tensor) -> Tensor:
    """A contiguous copy on the CPU, independent of the batch that it was a part of."""
    return copied(on_cpu(tensor))


def compact(tensor: Tensor) -> Tensor:
    """The tensor itself, so that layers can share one mask, or a copy where its memory holds more."""
    tensor = on_cpu(tensor)
    return tensor if tensor.untyped_storage().nbytes() <= tensor.nbytes else tensor.clone()


def version(tensor: Tensor) -> int:
    """How often a tensor was changed in place; 0 for an inference tensor, which has no count."""
    return 0 if tensor.is_inference() else tensor._version


def array(tensor: Tensor) -> np.ndarray:
    """The tensor as a read-only array; half precision becomes float32, which is exact."""
    if tensor.dtype in HALF:
        tensor = tensor.float()
    array = tensor.numpy().view()
    array.setflags(write=False)
    return array
