"""Torch's own attention functions, watched: each call shown before it happens, and followed to its heads."""

import inspect
import sys
from collections.abc import Callable
from threading import Lock
from types import FunctionType

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from mha_core.attention import Projections

SDPA, FORWARD = F.scaled_dot_product_attention, F.multi_head_attention_forward


class Watch(TorchFunctionMode):
    """Shows each call of the two before it happens; what a call calls in turn is not seen.

    `show` is given the function, its arguments and its named arguments.
    """

    def __init__(self, show: Callable[[Callable, tuple, dict], None]):
        super().__init__()
        self.show = show

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is SDPA or func is FORWARD:
            self.show(func, args, kwargs)
        return func(*args, **kwargs)


class Reached(Exception):
    """What `multi_head_attention_forward` was about to ask `scaled_dot_product_attention`."""


def _reached(*args):
    raise Reached(*args)


# Torch's own function, from its own code, but it ends where the heads are ready and is not seen by modes.
until_heads = FunctionType(
    FORWARD.__code__,
    vars(F) | {"scaled_dot_product_attention": _reached, "has_torch_function": lambda tensors: False},
    argdefs=FORWARD.__defaults__,
)
SIGNATURE = inspect.signature(FORWARD)


def projections(given: dict) -> Projections:
    """Copies of the matrices of a call, turned to stand as in the formula: they may be trained further."""
    if given.get("use_separate_proj_weight"):
        matrices = [given[f"{name}_proj_weight"] for name in "qkv"]
    else:
        matrices = given["in_proj_weight"].chunk(3)
    bias = given["in_proj_bias"]
    parts = [*matrices, given["out_proj_weight"]]
    biases = [*((None,) * 3 if bias is None else bias.chunk(3)), given["out_proj_bias"]]
    return Projections(
        *(part.detach().clone().mT for part in parts),
        *(None if part is None else part.detach().clone() for part in biases),
    )


class _Uncompiled:
    """Compiled functions run uncompiled while any thread records: a mode sees nothing inside of them.

    Torch has one switch for all threads, so the first recorder turns it and the last one turns it back.
    """

    def __init__(self):
        self.lock, self.count, self.stance = Lock(), 0, None

    def __enter__(self) -> None:
        with self.lock:
            self.count += 1
            # Nothing has been compiled before this module was loaded, and loading it takes seconds.
            if self.stance is None and "torch._dynamo" in sys.modules:
                self.stance = torch.compiler.set_stance("force_eager")

    def __exit__(self, *error) -> None:
        with self.lock:
            self.count -= 1
            if not self.count and self.stance is not None:
                self.stance.__exit__(*error)
                self.stance = None


uncompiled = _Uncompiled()
