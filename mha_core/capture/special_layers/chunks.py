"""Attention whose queries and keys are sorted by hashing and cut into chunks (Reformer).

Such a layer returns weights in the order of its chunks. Its output is a weighted sum of its values, so its
own code with unit vectors in place of the values gives the weights (query, key). In our copy of the model
(its twin) a layer returns these instead.

Source: Kitaev, Kaiser and Levskaya 2020, "Reformer: The Efficient Transformer", section 2.
"""

import copy
import inspect
from typing import Any

import torch
from torch import Tensor, nn

from mha_core.capture.gap import CLOSE, gap


def on_leaving(module: nn.Module, args: tuple, kwargs: dict, output: Any) -> tuple | None:
    """The same output with weights (query, key), if it has weights and they can be read."""
    if not isinstance(getattr(output, "attention_probs", None), Tensor):  # no weights were requested
        return None
    with torch.no_grad(), torch._C.DisableTorchFunction():
        weights = _read(module, args, kwargs, output)
    return None if weights is None else output._replace(attention_probs=weights)


def _read(module: Any, args: tuple, kwargs: dict, output: Any) -> Tensor | None:
    """The weights (1, head, query, key); None for a text in one chunk, or if they do not give the output."""
    arguments = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    hidden, heads = arguments["hidden_states"], (module.num_attention_heads, module.attention_head_size)
    if len(hidden) != 1 or hidden.shape[1] <= module.chunk_length:
        return None
    if getattr(output, "buckets", None) is not None:
        arguments["buckets"] = output.buckets  # the same buckets: they may be drawn at random
    n, width = hidden.shape[1], heads[1]
    other, units, columns = copy.copy(module), hidden.new_zeros(1, n, *heads), []
    other._modules = {**module._modules, "value": lambda _hidden: units.flatten(2)}
    for start in range(0, n, width):
        at = torch.arange(start, min(start + width, n), device=hidden.device)
        units.zero_()[:, at, :, at - start] = 1.0
        mixed = other.forward(**arguments).hidden_states.unflatten(-1, heads)
        columns.append(mixed[..., : len(at)].transpose(1, 2))
    weights = torch.cat(columns, dim=-1)
    values = module.value.forward(hidden).unflatten(-1, heads).transpose(1, 2)
    own = output.hidden_states.unflatten(-1, heads).transpose(1, 2)
    return weights if gap(weights @ values, own) <= CLOSE[hidden.dtype] else None
