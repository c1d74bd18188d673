"""Attention whose queries and keys are sorted by hashing and cut into chunks (Reformer).

The weights that such a layer returns are in that order. Its values only pass through weighted sums, so its
own code with unit vectors in their place returns the weights of token to token.

Source: Kitaev, Kaiser and Levskaya 2020, "Reformer: The Efficient Transformer", section 2.
"""

import copy
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

from mha_core.capture.gap import CLOSE, gap

CLASSES = ("LSHSelfAttention", "LocalSelfAttention")

_weights: ContextVar[list[Tensor | None] | None] = ContextVar("headscope_chunks", default=None)


@contextmanager
def reading() -> Iterator[list[Tensor | None]]:
    """While entered, the weights (1, head, query, key) of each layer in chunks that runs in this thread.

    None for a layer whose text fits into one chunk, and where the weights do not make its output.
    """
    weights: list[Tensor | None] = []
    token = _weights.set(weights)
    try:
        yield weights
    finally:
        _weights.reset(token)


def in_chunks(module: nn.Module) -> bool:
    """Does a module look at chunks of a text?"""
    return type(module).__name__ in CLASSES


def on_leaving(module: nn.Module, args: tuple, kwargs: dict, output: object) -> None:
    """The hook of such a module."""
    if (weights := _weights.get()) is not None:
        with torch.no_grad(), torch._C.DisableTorchFunction():
            weights.append(_read(module, args, kwargs, output))


def _read(module: nn.Module, args: tuple, kwargs: dict, output: object) -> Tensor | None:
    arguments = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    hidden, heads = arguments["hidden_states"], (module.num_attention_heads, module.attention_head_size)
    if len(hidden) != 1 or hidden.shape[1] <= module.chunk_length:
        return None
    if getattr(output, "buckets", None) is not None:
        arguments["buckets"] = output.buckets  # the same ones: they may be drawn at random
    n, width = hidden.shape[1], heads[1]
    units, other = _Units(), copy.copy(module)
    other._modules = {**module._modules, "value": units}
    columns = []
    for start in range(0, n, width):
        at = torch.arange(start, min(start + width, n), device=hidden.device)
        values = hidden.new_zeros(1, n, *heads)
        values[:, at, :, at - start] = 1.0
        units.values = values.flatten(2)
        mixed = other.forward(**arguments).hidden_states.unflatten(-1, heads)
        columns.append(mixed[..., : len(at)].transpose(1, 2))
    weights = torch.cat(columns, dim=-1)
    values = module.value.forward(hidden).unflatten(-1, heads).transpose(1, 2)
    own = output.hidden_states.unflatten(-1, heads).transpose(1, 2)
    return weights if gap(weights @ values, own) <= CLOSE[hidden.dtype] else None


class _Units(nn.Module):
    """Stands in the place of the matrix of the values."""

    values: Tensor

    def forward(self, _hidden: Tensor) -> Tensor:
        return self.values
