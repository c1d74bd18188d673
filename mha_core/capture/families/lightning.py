"""Lightning attention (MiniMax): a linear attention computed in the module's own code.

Source: Qin et al. 2024, "Lightning Attention-2: A Free Lunch for Handling Unlimited Sequence Lengths in Large
Language Models".
"""

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from mha_core.capture.families.mixing import Kernel, current, float_copy
from mha_core.errors import Phrase

LIGHTNING = Kernel(Phrase("lightning attention"), tokens=2, heads=1)


def watch(place: str, part: Any) -> bool:
    """Record the output of a layer's projection (q, k and v) and the input of its norm."""
    forward = inspect.unwrap(type(part).forward)
    projected: ContextVar[Tensor | None] = ContextVar(f"headscope_lightning {place}", default=None)

    def on_projected(_module: nn.Module, _args: tuple, result: Tensor) -> None:
        if current() is not None:
            projected.set(result)

    def on_norm(_module: nn.Module, args: tuple) -> None:
        recorder, result = current(), projected.get()
        if recorder is None or result is None:
            return
        shape = (*result.shape[:2], part.num_attention_heads, -1)
        q, k, v = result.view(*shape).transpose(1, 2).split(part.head_dim, dim=3)
        own = partial(_lightning, forward, _stand_in(part))
        output = args[0].view(*shape).transpose(1, 2)
        recorder.add(place, LIGHTNING, own, {"query": q, "key": k, "value": v}, output)

    part.act_fn.register_forward_hook(on_projected)
    part.norm.register_forward_pre_hook(on_norm)
    return True


def _stand_in(part: nn.Module) -> SimpleNamespace:
    """A module for lightning attention's `forward` that leaves out the steps before and after the mixing."""
    values = {name: float_copy(buffer) for name, buffer in part.named_buffers(recurse=False)}
    values |= {name: value for name, value in vars(part).items() if isinstance(value, int | float)}
    same = dict.fromkeys(("act_fn", "qkv_proj", "norm", "out_proj"), _same)
    return SimpleNamespace(**values, **same, output_gate=lambda _: torch.tensor(torch.inf))


def _lightning(
    forward: Callable, stand_in: SimpleNamespace, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    joined = torch.cat([query, key, value], dim=3).transpose(1, 2).flatten(2)
    output = forward(stand_in, joined, None, None)[0]
    return output.unflatten(2, (value.shape[1], -1)).transpose(1, 2)


def _same(x: Tensor) -> Tensor:
    return x
