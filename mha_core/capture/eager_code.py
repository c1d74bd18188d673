"""Attention in a model's own code, followed while it runs: products, what becomes of them, softmax, values.

A `TorchFunctionMode` sees what its thread computes and changes nothing. What it cannot follow it leaves
alone; whether all was followed is for those to ask who are told (`sources.recorder`, `sources.huggingface`).
"""

import sys
import warnings
import weakref
from collections import Counter, deque
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mha_core.attention.module import Attended
from mha_core.capture.collector import Collector
from mha_core.capture.eager_scores import (
    CLOSE,
    Followed,
    Log,
    Scores,
    Shared,
    Times,
    Weights,
    as_product,
    changed,
    finished,
    heads,
    number,
    same,
    seen_as,
    times,
    version,
)
from mha_core.capture.rotary import recovered
from mha_core.capture.sdpa import place
from mha_core.errors import MhaError

PRODUCTS = {"matmul", "bmm", "mm", "einsum", "baddbmm"}
CASTS = {"float", "double", "half", "bfloat16", "to", "type", "type_as", "contiguous", "clone", "detach"}
VIEWS = {"view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "view_as", "reshape_as"}
MOVES = {
    "transpose",
    "permute",
    "expand",
    "expand_as",
    "repeat",
    "chunk",
    "split",
    "getitem",
    "swapaxes",
    "t",
}
TURNED = {"T", "mT", "data"}  # attributes
# May leave all numbers as they are; then nothing has happened.
PERHAPS = {"dropout", "clamp", "clip", "max", "maximum", "min", "minimum", "nan_to_num", "masked_fill", "mul"}
SIMPLE = {"add", "sub", "mul", "div", "masked_fill", "where", "tanh"}
BY_HAND = {"logsumexp", "exp"}  # a softmax in two steps
ALIASES = {"true_divide": "div", "multiply": "mul", "subtract": "sub", "divide": "div", "clamp_min": "clamp"}
LATEST = 4  # matrices among which are those of the queries and keys
TINY = 1e-6  # what is divided by less, or multiplied with more than its inverse, is not divided again
MATRICES = {"linear", "addmm"}  # what a rotary code may turn afterwards
# Arguments by position, as far as they matter here: who names them says the same.
ARGUMENTS = {
    **dict.fromkeys(("add", "sub", "mul", "div", "matmul"), ("input", "other")),
    **dict.fromkeys(("bmm", "mm"), ("input", "mat2")),
    "baddbmm": ("input", "batch1", "batch2"),
    "einsum": ("equation", "operands"),
    "masked_fill": ("input", "mask", "value"),
    "where": ("condition", "input", "other"),
    "softmax": ("input", "dim"),
    "dropout": ("input", "p", "training"),
}
OPTIONAL = {"dropout"}  # may be called with the first of them alone
FOLLOWED = PRODUCTS | MATRICES | CASTS | VIEWS | MOVES | PERHAPS | SIMPLE | BY_HAND | {"softmax", "get"}


class EagerMode(TorchFunctionMode):
    """Tells of each attention that runs in this thread and could be followed from end to end.

    `tell` is given what was seen and the output (…, query, d_v) that the model computed, of which the axes
    before the last two are heads; how far that is from what was seen says `Followed.gap`. `every_row`
    compares all of it. `softmaxes` counts by their (query, key) those that ran: with fewer calls, some was
    not understood.
    """

    def __init__(self, tell: Callable[[Followed, Tensor], None], *, every_row: bool):
        super().__init__()
        self.tell, self.every_row = tell, every_row
        self.softmaxes: Counter[tuple[int, int]] = Counter()
        self.outputs: deque[Tensor] = deque(maxlen=LATEST)  # of matrices
        self.error: Exception | None = None
        self.shared = Shared()
        # By the id of a tensor: the tensor, its version, and what it is known to be.
        self._known: dict[int, tuple[weakref.ref, int, Scores | Weights | Times | Log]] = {}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "").strip("_")
        if name == "get":  # an attribute
            name = "T" if getattr(func.__self__, "__name__", "") in TURNED else ""
        name = ALIASES.get(name, name)
        if name not in FOLLOWED and name != "T":
            return func(*args, **kwargs)
        given = _by_position(name, args, kwargs)
        before = [self._of(arg) for arg in given]  # in place, a version ends with the call
        result = func(*args, **kwargs)
        if given and isinstance(result, Tensor | tuple | list) and _is_plain((*given, result)):
            try:  # what we compute is for nobody to watch
                with torch.no_grad(), torch._C.DisableTorchFunction():
                    self._saw(name, given, kwargs, before, result)
            except MhaError:  # the rule has no place for it: it is followed no further
                pass
            except Exception as error:  # ours: the model shall not notice, but who asks what was seen is told
                self.error = self.error or error
        return result

    def warn(self) -> None:
        """Warn of the first error of ours, if there was one: an attention may be missing because of it."""
        if self.error is not None:
            warnings.warn(
                f"Some attention was not followed, by an error of ours: {self.error!r}", stacklevel=3
            )

    def _of(self, tensor: object) -> Scores | Weights | Times | Log | None:
        """What is known of a tensor, unless it was changed since."""
        if not isinstance(tensor, Tensor):
            return None
        there, then, known = self._known.get(id(tensor), (None, 0, None))
        return known if there is not None and there() is tensor and then == version(tensor) else None

    def _note(self, tensor: Tensor, known: Scores | Weights | Times | Log | None) -> None:
        if known is not None:
            gone = weakref.ref(tensor, lambda _, key=id(tensor): self._known.pop(key, None))
            self._known[id(tensor)] = (gone, version(tensor), known)

    def _saw(self, name: str, args: tuple, kwargs: dict, before: list, result: object) -> None:
        if name in PRODUCTS:
            self._product(name, args, kwargs, before, result)
            return
        if name in MATRICES:
            self.outputs.append(result)
            return
        if name == "softmax":
            self._softmax(args, before[0], result)
            return
        if name in BY_HAND or (name == "sub" and isinstance(before[1], Log)):
            self._softmax_by_hand(name, args, kwargs, before, result)
            return
        at = next((n for n, known in enumerate(before) if isinstance(known, Scores | Weights)), None)
        if at is None:
            self._numbers(name, args, kwargs, before, result)
            return
        known, given = before[at], args[at]
        if not isinstance(result, Tensor):
            return
        if name in VIEWS:
            self._note(result, seen_as(known, result.shape))
        elif result.shape != given.shape:
            return
        elif name in CASTS:
            self._note(result, known)
        else:
            found = changed(name, at, known, args, kwargs) if isinstance(known, Scores) else None
            if found is None and name in PERHAPS:
                found = known if _unchanged(name, result, given, args) else None
            self._note(result, found)

    def _numbers(self, name: str, args: tuple, kwargs: dict, before: list, result: object) -> None:
        """A tensor times a number, and the same in another order."""
        if name in ("mul", "div") and isinstance(result, Tensor) and result.dim() > 1:
            for tensor, factor in ((args[0], args[1]), (args[1], args[0]))[: 2 if name == "mul" else 1]:
                value = number(factor) or 0.0
                if TINY < abs(value) < 1 / TINY and getattr(tensor, "shape", ()) == result.shape:
                    value = value if name == "mul" else 1 / value
                    self._note(result, Times(times(before) * value))
                    return
        elif isinstance(before[0], Times) and name in CASTS | VIEWS | MOVES | {"T", "dropout"}:
            for part in result if isinstance(result, tuple | list) else (result,):
                if name != "dropout" or part is args[0]:
                    self._note(part, before[0])

    def _softmax(self, args: tuple, known: object, result: Tensor) -> None:
        if args[1] not in (-1, result.dim() - 1) or result.dim() < 3:
            return
        self.softmaxes[tuple(result.shape[-2:])] += 1
        if isinstance(known, Scores):
            self._note(result, Weights(known))

    def _softmax_by_hand(self, name: str, args: tuple, kwargs: dict, before: list, result: Tensor) -> None:
        """``exp(s − logsumexp(s))``"""
        known = before[0]
        if name == "logsumexp" and isinstance(known, Scores):
            self._note(result, Log(known) if result.shape == (*args[0].shape[:-1], 1) else None)
        elif name == "sub" and before[1].scores is known and not kwargs:
            self._note(result, Log(known, of_weights=True))
        elif name == "exp" and isinstance(known, Log) and known.of_weights:
            self.softmaxes[tuple(result.shape[-2:])] += 1
            self._note(result, Weights(known.scores))

    def _product(self, name: str, args: tuple, kwargs: dict, before: list, result: Tensor) -> None:
        if name == "baddbmm":
            self._with_addend(args, kwargs, result)
            return
        ends, (left, right, made) = args[:2], (*args[:2], result)
        if name == "einsum":
            equation, ends = args[0], args[1] if isinstance(args[1], list | tuple) else args[1:]
            product = as_product(equation, ends, result)
            if product is None:
                return
            ends, (left, right, made) = product
        known = [self._of(end) for end in ends]
        if isinstance(known[0], Weights):
            self._values(known[0].scores, left, right, made)
        elif made is result and min(left.dim(), right.dim()) > 1 and left.is_floating_point():
            self._note(result, self._scores(left, right, result, known))

    def _with_addend(self, args: tuple, kwargs: dict, result: Tensor) -> None:
        added, left, right = args
        scores = self._scores(left, right, result, [self._of(left), self._of(right)])
        scores = scores.times(float(kwargs.get("alpha", 1.0)))
        if scores is not None and (beta := float(kwargs.get("beta", 1.0))):
            scores = scores.plus(added, beta)
        self._note(result, scores)

    def _scores(self, left: Tensor, right: Tensor, result: Tensor, before: list) -> Scores:
        factor = times(before)
        q, k = heads(left, result.shape[:-2]), heads(right.mT, result.shape[:-2])
        if q.shape[1] == 1:
            q = q.expand(1, max(1, result.shape[:-2].numel()), -1, -1)
        for n, known in enumerate(before):  # shown as they were before, as the formula has them
            if isinstance(known, Times):
                q, k = (q / known.factor, k) if n == 0 else (q, k / known.factor)
        return Scores(q, k, result.shape, factor)

    def _values(self, scores: Scores, weights: Tensor, v: Tensor, output: Tensor) -> None:
        lead = output.shape[:-2]
        if lead.numel() != scores.q.shape[1]:  # the same weights for several values
            return
        parts = (heads(weights, lead), heads(v, lead), heads(output, lead))
        seen = finished(scores, *parts, self.shared, every_row=self.every_row)
        if seen is not None:
            self.tell(seen, output)


def _by_position(name: str, args: tuple, kwargs: dict) -> tuple:
    """The arguments that matter, in their order; none where some are missing.

    ``scores.where(mask, other)`` has the mask behind what ``torch.where(mask, scores, other)`` has it before.
    """
    names = ARGUMENTS.get(name, ("input",))
    for parameter in names[len(args) :]:
        if parameter not in kwargs:
            break
        args = (*args, kwargs[parameter])
    if len(args) < (1 if name in OPTIONAL else len(names)):
        return ()
    if name == "where" and isinstance(args[1], Tensor) and args[1].dtype == torch.bool:
        known = isinstance(args[0], Tensor) and args[0].dtype == torch.bool
        return args if known else (args[1], args[0], *args[2:])
    return args


def _is_plain(value: object) -> bool:
    """Do the numbers of a tensor, or of all tensors in a list, lie in memory in the usual way?"""
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    if not isinstance(value, Tensor):
        return True
    usual = value.layout is torch.strided
    return usual and not (value.is_meta or value.is_nested or value.is_quantized)


def _unchanged(name: str, result: Tensor, given: Tensor, args: tuple) -> bool:
    """Are all numbers what they were, but for those that hide a cell?"""
    if result is given:  # in place there is nothing left to compare with, but such a dropout can be asked
        p, training = (*args[1:3], *(0.5, True)[max(0, len(args) - 1) :])
        return name == "dropout" and not (p and training)
    return same(result, given)


def is_exact(seen: Followed) -> bool:
    """Is what was followed what was computed, but for rounding?"""
    return seen.gap <= CLOSE.get(seen.v.dtype, 0.0)


def attended(seen: Followed, lead: torch.Size, item: int) -> Attended:
    """One text of what was followed, as a batch of one.

    `lead` are the axes of the output before query and width: (batch, …, head), one, or none. Raises
    `MhaError` where one axis could be either, and for an item that the batch does not have.
    """
    if len(lead) == 1 and lead[0] > 1:
        raise MhaError(
            f"A softmax of the model's own has {lead[0]} heads, or {lead[0]} texts, in one axis: it cannot "
            f"be told which. Record one text at a time, with heads in an axis of their own, or give what was "
            f"computed to mha.from_tensors(q=, k=, v=, tokens=)."
        )
    n_items = lead[0] if len(lead) > 1 else 1
    n_heads = seen.q.shape[1] // n_items
    first = place(item, n_items) * n_heads
    own = slice(first, first + n_heads)
    k, v = (_own(part, seen.q.shape[1], n_items, own) for part in (seen.k, seen.v))
    return Attended(None, seen.q[:, own], k, v, seen.rule.mapped(lambda table: _of(table, own)))


def _own(part: Tensor, n_heads: int, n_items: int, own: slice) -> Tensor:
    """The keys or values of some heads, (1, kv_head, key, width): as few as they share."""
    n_kv = part.shape[1]
    if n_kv % n_items:
        return part.repeat_interleave(n_heads // n_kv, dim=1)[:, own]
    first = own.start * n_kv // n_heads
    return part[:, first : first + n_kv // n_items]


def _of(table: Tensor, own: slice) -> Tensor:
    """Some heads of a mask or bias (1, head or 1, query, key), or a table of distances (head, distance)."""
    if table.dim() == 2:
        return table[own]
    return table if table.shape[1] == 1 else table[:, own]


class CollectingMode(EagerMode):
    """Hands a collector each call that is no further than `close` from what ran; `gap` is the largest."""

    def __init__(self, collector: Collector, close: float, *, every_row: bool):
        super().__init__(self._collect, every_row=every_row)
        self.collector, self.close, self.gap = collector, close, 0.0

    def _collect(self, seen: Followed, output: Tensor) -> None:
        if seen.gap > self.close:
            return
        self.gap = max(self.gap, seen.gap)
        # Cosines and sines that the attention module was not handed, so that its matrices are found.
        if not self.collector.knows_codes and (codes := recovered(seen.k, self.outputs)) is not None:
            self.collector.turned_by(codes)
        self.outputs.clear()
        joined = heads(output, output.shape[:-2]).transpose(1, 2).contiguous()
        self.collector.add(_running(), seen.q, seen.k, seen.v, seen.rule, joined)


def _running() -> nn.Module | None:
    """The innermost module that is running now and holds others: a product may be a module of its own."""
    frame, found = sys._getframe(1), None
    while frame is not None:
        part = frame.f_locals.get("self")
        if isinstance(part, nn.Module):
            found = part if found is None else found
            if next(part.children(), None) is not None:
                return part
        frame = frame.f_back
    return found
