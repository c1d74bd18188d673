"""Reads calls of torch's own attention functions: q, k, v and the score rule of one text of a batch.

`F.scaled_dot_product_attention`, `F.multi_head_attention_forward` and `flex_attention` run unchanged, and
their results are read. The second one is run again up to the q, k and v of its heads.
"""

import inspect
import re
import sys
from collections.abc import Callable, Sequence
from threading import Lock
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket
from torch.nn import functional as F
from torch.nn.attention.bias import CausalBias, CausalVariant
from torch.overrides import TorchFunctionMode

from mha_core.attention.functional import HALF, mix, raw_scores
from mha_core.attention.module import Attended, Projections
from mha_core.attention.score_rule import HIDDEN, ScoreRule
from mha_core.capture.axes import inner_axes, item_index, of_item, text_axis, unrepeated
from mha_core.capture.gap import CLOSE, gap
from mha_core.errors import MhaError
from mha_core.traces.facts import Facts

ROWS = 8  # of each head of a call that are computed again
FLEX = "torch.nn.attention.flex_attention"
COMPILING = {"torch._dynamo", FLEX}
KERNEL = re.compile(r"attention|attn", re.IGNORECASE)  # in the names of operators
PRIVATE = re.compile(r"_scaled_dot_product|_native_multi_head|_transformer_encoder")  # of torch
# Torch's own functions, also where other code has replaced them.
SDPA, FORWARD = torch._C._nn.scaled_dot_product_attention, F.multi_head_attention_forward
OPERATOR = torch.ops.aten.scaled_dot_product_attention.default  # as programs of torch.export call it


class SdpaMode(TorchFunctionMode):
    """Passes each call of an attention function to `show`; calls inside of such a call are not seen.

    `show` gets the function, its positional and named arguments, and its result.
    """

    def __init__(self, show: Callable[[Callable, tuple, dict, object], None]):
        super().__init__()
        self.show = show

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func is OPERATOR:
            func = SDPA
        if func is SDPA or func is FORWARD or is_flex_attention(func) or is_kernel(func):
            self.show(func, args, kwargs, result)
        return result


def is_kernel(func: object) -> bool:
    """Whether it is an attention operator that the code calls directly, such as one of flash_attn."""
    if isinstance(func, OpOverload | OpOverloadPacket):
        return KERNEL.search(str(func)) is not None
    return PRIVATE.match(getattr(func, "__name__", "")) is not None


def is_flex_attention(func: object) -> bool:
    """Whether it is the operator behind `torch.nn.attention.flex_attention`."""
    return type(func).__name__ == "FlexAttentionHOP"


def flex_arguments(
    q: Tensor, k: Tensor, v: Tensor, score_mod: Callable, block_mask: Any, scale: float, *_: object
) -> dict:
    """The arguments of `scaled_dot_product_attention` that compute the same as a call of flex_attention.

    The function of a block mask is evaluated for every cell. Raises `MhaError` where a function changes the
    scores: it may contain any code.
    """
    if not _is_default(score_mod, "_identity"):
        raise MhaError("flex_attention with score_mod= is not followed: it may be any function of scores.")
    mask, mask_mod = None, block_mask[-1]
    if not _is_default(mask_mod, "noop_mask"):
        sizes = (*q.shape[:2], q.shape[2], k.shape[2])
        mask = sys.modules[FLEX].create_mask(mask_mod, *sizes, device=q.device)
    grouped = q.shape[1] != k.shape[1]
    return {"query": q, "key": k, "value": v, "attn_mask": mask, "scale": scale, "enable_gqa": grouped}


def _is_default(function: Callable, name: str) -> bool:
    """Whether it is torch's default, which changes nothing."""
    return getattr(function, "__name__", "") == name and function.__module__.startswith("torch.")


class _HeadsReached(Exception):
    """Ends `multi_head_attention_forward` at its attention, with the arguments of that call."""


def _stop(*args: object) -> None:
    raise _HeadsReached(*args)


# Torch's own code of the function, which ends when the heads are ready and is not seen by modes.
_UNTIL_HEADS = FunctionType(
    FORWARD.__code__,
    vars(F) | {"scaled_dot_product_attention": _stop, "has_torch_function": lambda tensors: False},
    argdefs=FORWARD.__defaults__,
)
SIGNATURE = inspect.signature(FORWARD)


def inner_arguments(arguments: dict, *, is_causal: bool = False) -> tuple:
    """The q, k, v, mask, dropout and causality with which `multi_head_attention_forward` attends."""
    try:
        _UNTIL_HEADS(**arguments | {"training": False, "need_weights": False, "is_causal": is_causal})
    except _HeadsReached as reached:
        return reached.args
    raise RuntimeError("multi_head_attention_forward ended without attention")


def projections(arguments: dict) -> Projections:
    """The matrices of a call, in the orientation of the formula x W."""
    if arguments.get("use_separate_proj_weight"):
        matrices = [arguments[f"{name}_proj_weight"] for name in "qkv"]
    else:
        matrices = arguments["in_proj_weight"].chunk(3)
    bias = arguments["in_proj_bias"]
    parts = [*matrices, arguments["out_proj_weight"]]
    biases = [*((None,) * 3 if bias is None else bias.chunk(3)), arguments["out_proj_bias"]]
    return Projections(*(part.mT for part in parts), *biases)


class _Uncompiled:
    """While any thread records, compiled functions run uncompiled: a mode sees nothing inside of them.

    Torch has one switch for all threads: the first recorder sets it and the last one sets it back.
    """

    def __init__(self) -> None:
        self.lock, self.count, self.stance = Lock(), 0, None

    def __enter__(self) -> None:
        with self.lock:
            self.count += 1
            # Until one of these modules is loaded nothing is compiled; loading the compiler takes seconds.
            if self.stance is None and not COMPILING.isdisjoint(sys.modules):
                self.stance = torch.compiler.set_stance("force_eager")

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.count -= 1
            if not self.count and self.stance is not None:
                self.stance.__exit__(*error)
                self.stance = None


uncompiled = _Uncompiled()


def lead(
    batch: int | None, query: Tensor, key: Tensor, value: Tensor, *, alone: bool = False, told: bool = False
) -> tuple[tuple[int, ...], int | None]:
    """The axes of these tensors before (token, width), and which of them counts texts, or parts of one.

    `batch` is the number of texts, None where it is not known: then the first of four axes counts them,
    as torch documents it. `alone` and `told` are those of `text_axis`. Raises `MhaError` where heads and
    texts cannot be told apart, and for tensors without numbers.
    """
    parts = (query, key, value)
    for part in parts:
        _check_numbers(part)
    axes = torch.broadcast_shapes(*(part.shape[:-3] for part in parts)) if query.dim() > 3 else ()
    heads = max(part.shape[-3] for part in parts) if query.dim() > 2 else None
    axes = (*axes, heads) if heads else ()
    documented = query.dim() == 4
    return axes, text_axis(axes, batch, inner_axes(query), documented=documented, alone=alone, told=told)


class SdpaReader:
    """Reads the calls of one recording; layers of equal size share one causal mask."""

    def __init__(self) -> None:
        self._causal: dict[tuple[int, int], Tensor] = {}

    def attended(
        self, lead: Sequence[int], axis: int | None, item: int, query: Tensor, key: Tensor, value: Tensor,
        attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
        scale: float | None = None, enable_gqa: bool = False,
    ) -> tuple[Attended, Facts]:  # fmt: skip
        """One `item` of a call with these arguments, as a batch of one, and its facts.

        `lead` and `axis` are the result of `lead`. Raises `MhaError` for an item that is not there.
        """
        q, k, v = (of_item(part, axis, item) for part in (query, key, value))
        if not enable_gqa:  # one head may be given for all heads
            heads = max(part.shape[0] for part in (q, k, v))
            q = q.expand(heads, -1, -1)
            if {k.shape[0], v.shape[0]} <= {1, heads}:
                k, v = (part[0] for part in unrepeated(k[None], v[None], heads))
        q, k, v = (_as_computed_with(part) for part in (q, k, v))
        mask, bias = _mask(attn_mask, lead, axis, item)
        if is_causal:
            size = q.shape[1], k.shape[1]
            if size not in self._causal:
                self._causal[size] = torch.ones(size, dtype=torch.bool).tril()
            mask = self._causal[size]
        rule = ScoreRule(scale=scale, mask=mask, bias=bias)
        q, k, v = q[None], k[None], v[None]
        attended = Attended(None, q, k, v, rule)  # type: ignore[arg-type]  # nobody asks for the output
        return attended, Facts(dropout=dropout_p)


def check_result(
    attended: Attended, output: Tensor, project: Callable[[Tensor], Tensor] | None = None
) -> None:
    """Raises `MhaError` where some rows of a call's result are not what its arguments give.

    `output` is the output of the heads, (head, query, d_v), or with `project` that function's result for the
    concatenated outputs (query, h · d_v).
    """
    n_query, n_key = output.shape[-2], attended.k.shape[-2]
    rows = torch.linspace(0, n_query - 1, min(ROWS, n_query)).round().long().to(output.device)
    rule = attended.rule.mapped(lambda table: table.to(output.device))
    rule = rule.at(slice(None), rows, n_query=n_query, n_key=n_key)
    factor = rule.factor(attended.q.shape[-1])
    scores = rule.masked(raw_scores(attended.q[:, :, rows], attended.k).mul_(factor))
    theirs = output.reshape(-1, *output.shape[-2:])[:, rows]
    sees = (scores > HIDDEN).any(-1)[0]  # kernels differ in rows without visible keys
    sees = sees.expand(theirs.shape[:-1]) if project is None else sees.all(0, keepdim=True)

    def outputs(scores: Tensor) -> Tensor:
        heads = mix(rule.weights(scores), attended.v.to(scores.dtype))[0]
        if project is not None:
            heads = project(heads.transpose(0, 1).flatten(1).to(output.dtype))[None]
        return heads[sees]

    if not sees.any():
        return
    again, largest = outputs(scores), CLOSE.get(output.dtype, 0.0)
    apart = gap(again, theirs[sees])
    if apart > largest and output.dtype in HALF:  # some kernels round the scores to this precision
        largest += 4 * gap(outputs(scores.to(output.dtype).to(scores.dtype)), again)
    if apart > largest:
        raise MhaError(
            "it is not shown: the result of this call is not what its queries, keys, values and mask "
            "give (a difference of {difference:.2g} where the largest number is 1). Its function was "
            "replaced, or one of its arguments is a tensor whose numbers mean something else.",
            difference=apart,
        )


def _mask(
    mask: Tensor | None, lead: Sequence[int], axis: int | None, item: int
) -> tuple[Tensor | None, Tensor | None]:
    """The mask and the bias of a call. ([head,] query, key), or None"""
    if mask is None:
        return None, None
    if isinstance(mask, CausalBias):  # it has a shape and no numbers
        laid = torch.ones(mask.seq_len_q, mask.seq_len_kv, dtype=torch.bool, device=mask.device)
        is_lower = mask.variant == CausalVariant.LOWER_RIGHT
        mask = laid.tril(mask.seq_len_kv - mask.seq_len_q if is_lower else 0)
    if mask.dim() > 2:
        mask = mask.reshape((1,) * (len(lead) + 2 - mask.dim()) + tuple(mask.shape))
        if axis is not None:
            mask = mask.select(axis, item_index(item, mask.shape[axis]))
            lead = (*lead[:axis], *lead[axis + 1 :])
        if mask.shape[:-2].numel() > 1:
            mask = mask.expand(*lead, -1, -1)
        mask = mask.reshape(-1, *mask.shape[-2:])
    if mask.dtype == torch.bool:
        return mask, None
    # The lowest number hides a cell, unless the whole row has it.
    hidden = mask <= torch.finfo(mask.dtype).min
    hidden &= (mask == HIDDEN) | ~hidden.all(-1, keepdim=True)
    bias = mask.masked_fill(hidden, 0.0)
    return ~hidden if hidden.any() else None, bias if bias.any() else None


def unpacked(tensor: Tensor, count: int) -> Tensor:
    """Queries, a mask or a result (text, kv_head, count, width), its rows turned into heads of one token."""
    if count == 1 or tensor.dim() < 4 or tensor.shape[2] == 1:
        return tensor
    return tensor.reshape(tensor.shape[0], -1, 1, tensor.shape[3])


def _check_numbers(part: Tensor) -> None:
    """Raises `MhaError` for a tensor whose numbers cannot be read one text at a time."""
    if part.is_meta:
        raise MhaError("Its tensors have no numbers (device “meta”); what runs on them cannot be recorded.")
    if part.is_nested or torch._C._functorch.is_batchedtensor(part):
        raise MhaError(
            "It has nested tensors, of which it cannot be told what is a head and what is a text."
            if part.is_nested
            else "It has tensors of torch.vmap, of which it cannot be told what is a head and what is a text."
        )


def _as_computed_with(part: Tensor) -> Tensor:
    """The tensor in the dtype that torch computes with: autocast changes all but float64."""
    device = part.device.type
    if part.dtype == torch.float64 or not torch.is_autocast_enabled(device):
        return part
    return part.to(torch.get_autocast_dtype(device))
