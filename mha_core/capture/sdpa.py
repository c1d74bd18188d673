"""Torch's own attention functions, seen as they are called: q, k, v and rule of one text of a batch.

`F.scaled_dot_product_attention` and `F.multi_head_attention_forward` are shown before they run and run
untouched; the latter is followed to where its heads have their q, k and v.
"""

import inspect
import sys
from collections.abc import Callable
from threading import Lock
from types import FunctionType

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from mha_core.attention.module import Attended, Projections
from mha_core.attention.score_rule import HIDDEN, ScoreRule
from mha_core.errors import MhaError
from mha_core.traces.facts import Facts

SDPA, FORWARD = F.scaled_dot_product_attention, F.multi_head_attention_forward


class SdpaMode(TorchFunctionMode):
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


class HeadsReached(Exception):
    """What `multi_head_attention_forward` was about to ask `scaled_dot_product_attention`."""


def _stop(*args):
    raise HeadsReached(*args)


# Torch's own function, from its own code, but it ends where the heads are ready and is not seen by modes.
until_heads = FunctionType(
    FORWARD.__code__,
    vars(F) | {"scaled_dot_product_attention": _stop, "has_torch_function": lambda tensors: False},
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


class SdpaReader:
    """Reads the calls of one recording: `item` of each batch, with one causal mask for layers of a size."""

    def __init__(self, item: int):
        self.item = item
        self._causal: dict[tuple[int, int], Tensor] = {}

    def attended(
        self, number: int, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
        enable_gqa=False,
    ) -> tuple[Attended, Facts]:  # fmt: skip
        """Call `number` with these arguments, a batch of one, and what else there is to know about it.

        What it computed is not kept. Raises `MhaError` for tensors of which it cannot be told what is a head,
        and for an item that is not there.
        """
        q, k, v = (self._one(part, number) for part in (query, key, value))
        if not enable_gqa:  # heads may be told once for all
            heads = max(part.shape[0] for part in (q, k, v))
            q = q.expand(heads, -1, -1)
            if k.shape[0] != v.shape[0]:
                k, v = (part.expand(heads, -1, -1) for part in (k, v))
        q, k, v = (_as_computed_with(part) for part in (q, k, v))
        mask, bias = self._mask(attn_mask, query.dim())
        if is_causal:
            mask = self._below(q.shape[1], k.shape[1])
        rule = ScoreRule(scale=scale, mask=mask, bias=bias)
        return Attended(None, q[None], k[None], v[None], rule), Facts(dropout=dropout_p)

    def _one(self, part: Tensor, number: int) -> Tensor:
        """One item of a batch, (head, position, width)."""
        if part.is_meta:
            raise MhaError(
                f"Call {number} of scaled_dot_product_attention has tensors without numbers (device “meta”); "
                f"what runs on them cannot be recorded."
            )
        if part.is_nested or (part.dim() not in (2, 4) and not (part.dim() == 3 and part.shape[0] == 1)):
            raise MhaError(
                f"Call {number} of scaled_dot_product_attention has tensors of shape "
                f"{'a nested tensor' if part.is_nested else tuple(part.shape)}, of which it cannot be told "
                f"what is a head and what is a text; (batch, head, position, d_k) can be recorded."
            )
        if part.dim() < 4:
            return part.reshape(1, *part.shape[-2:])
        return part[place(self.item, part.shape[0])]

    def _mask(self, given: Tensor | None, axes: int) -> tuple[Tensor | None, Tensor | None]:
        """What hides cells, and what is added to scores; ([head,] query, key) or None."""
        if given is None:
            return None, None
        if axes == 3 and given.dim() == 3:
            given = given[None]  # its first axis is the batch, as that of the queries
        if given.dim() == 4:
            given = given[place(self.item, given.shape[0])]
        if given.dtype == torch.bool:
            return given, None
        # The lowest number is meant to hide, and does where a row has anything else.
        hidden = given <= torch.finfo(given.dtype).min
        hidden &= (given == HIDDEN) | ~hidden.all(-1, keepdim=True)
        bias = given.masked_fill(hidden, 0.0)
        return ~hidden if hidden.any() else None, bias if bias.any() else None

    def _below(self, n_query: int, n_key: int) -> Tensor:
        """The causal mask of that size."""
        if (n_query, n_key) not in self._causal:
            self._causal[n_query, n_key] = torch.ones(n_query, n_key, dtype=torch.bool).tril()
        return self._causal[n_query, n_key]


def _as_computed_with(part: Tensor) -> Tensor:
    """The tensor in the dtype that torch computes with: autocast changes all but float64."""
    device = part.device.type
    if part.dtype == torch.float64 or not torch.is_autocast_enabled(device):
        return part
    return part.to(torch.get_autocast_dtype(device))


def place(item: int, n_items: int) -> int:
    """Where an item of a batch stands; what there is one of belongs to all."""
    if n_items == 1:
        return 0
    if not 0 <= item < n_items:
        raise MhaError(f"The batch has items 0 to {n_items - 1}; item {item} was asked for.")
    return item
