"""Copies and read-only arrays of the tensors that a trace keeps."""

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


def version(tensor: Tensor) -> int:
    """The number of changes of a tensor in place; 0 for an inference tensor, which does not count them."""
    return 0 if tensor.is_inference() else tensor._version


def array(tensor: Tensor) -> np.ndarray:
    """The tensor as a read-only array; half precision becomes float32, which is exact."""
    if tensor.dtype in HALF:
        tensor = tensor.float()
    array = tensor.numpy().view()
    array.setflags(write=False)
    return array
