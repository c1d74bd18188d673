"""Which modules of a model mix tokens beside its attention, seen by what they do.

A copy of each module runs again on a copy of its input with one token changed. Where another token of its
output moves, and nothing that is known to mix tokens inside explains it, the module is named. Parts whose
attention was recorded, and parts that were named, give in the copy what they gave in the run. Of a module
that computes attention itself the results of attention are held, and its queries, keys and values are
compared, too.
"""

import math
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import BaseTorchFunctionMode, TorchFunctionMode

from mha_core.attention.score_rule import ScoreRule
from mha_core.capture.collector import Collector, collecting
from mha_core.capture.gap import CLOSE, gap
from mha_core.capture.module_copy import Given, Prepare, copied, drawing_alike, is_mask, prepared, tensors
from mha_core.errors import Listed, Phrase, listed

MIXES = Phrase("mixes tokens by what it computes, which is not shown")
UNCHECKED = Phrase("could not be checked for mixing tokens")
BESIDE = Phrase("was not checked for mixing tokens beside its attention")
MIXES_BEHIND = Phrase("mixes tokens behind its attention, which is not shown")


def before(names: Listed) -> Phrase:
    """The reason to name a module whose attention has queries, keys or values that mix tokens."""
    return Phrase("mixes tokens before its attention, in its {names}, which is not shown", names=names)


class Run(NamedTuple):
    """A run of a module: what it was given, and how much its parts had returned before."""

    module: nn.Module
    given: Given | None  # None where it could not be copied
    before: dict[nn.Module, int]


class Axes(NamedTuple):
    """The first and the last of the axes that count tokens: one, or the rows and columns of a picture."""

    first: int
    last: int

    def count(self, tensor: Tensor) -> int:
        """How many tokens a tensor has."""
        return math.prod(tensor.shape[self.first : self.last + 1])

    def token(self, tensor: Tensor, at: int) -> Tensor:
        """A view of one token."""
        if self.first == self.last:
            return tensor.select(self.first, at)
        row, column = divmod(at, tensor.shape[self.last])
        return tensor.select(self.last, column).select(self.first, row)


ROWS = Axes(-2, -2)  # of queries, keys and values


def mixing(
    names: dict[nn.Module, str],
    given: Collection[nn.Module],
    run: Callable[[], object],
    length: int,
    *,
    has_own_softmax: bool,
) -> dict[str, str]:
    """The modules that mix tokens while a model reads a text with all attention blocked, and the reason.

    In that `run` each of `length` tokens looks only at itself, so what moves another token is no attention.
    `given` are modules whose mixing is shown or named. With `has_own_softmax` the model's own code computes
    the attention, otherwise our function does.
    """
    check = TokenMixing(names, [length], given.__contains__, nullcontext, beside=False)
    with OwnKeys(length) if has_own_softmax else collecting(Collector({}, _own_values)), check:
        run()
    return {name: reason for name, reason in check.findings.items() if reason in (MIXES, UNCHECKED)}


def _own_values(q: Tensor, _k: Tensor, v: Tensor, _rule: ScoreRule) -> Tensor:
    if q.shape[-2] != v.shape[-2]:
        return v.new_zeros(*q.shape[:-1], v.shape[-1])
    return v.repeat_interleave(q.shape[-3] // v.shape[-3], dim=-3)


class OwnKeys(TorchFunctionMode):
    """In a model's own softmaxes of `length` queries and keys, each query looks only at its own position."""

    def __init__(self, length: int):
        super().__init__()
        self.length = length

    def __torch_function__(
        self, function: Callable, _types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        result = function(*args, **(kwargs or {}))
        if getattr(function, "__name__", "") != "softmax" or result.shape[-2:] != (self.length, self.length):
            return result
        return torch.eye(self.length).to(result).expand_as(result).contiguous()


class TokenMixing:
    """Checks the modules of a model while they run; `findings` says what was found, by their names.

    `names` has all modules of the model, `lengths` the numbers of tokens of its texts: an axis as long counts
    tokens. `attends` tells of a module whether attention was seen in its own code; `beside` asks what it does
    beside that, too. `unseen()` is a block that no mode sees. While this is entered the modules have hooks;
    the model computes what it would without them. When the outermost module has run, `on_end` gets what makes
    a copy of it that runs again, and what it was given, None where that could not be copied.
    """

    def __init__(
        self,
        names: dict[nn.Module, str],
        lengths: Collection[int],
        attends: Callable[[nn.Module], bool],
        unseen: Callable[[], AbstractContextManager],
        *,
        beside: bool,
        on_end: Callable[[Callable[[Prepare, Tensor | None], Callable[[], object]], Given | None], None]
        | None = None,
    ):
        self.beside, self.on_end = beside, on_end
        self.names, self.lengths, self.attends, self.unseen = names, lengths, attends, unseen
        self.findings: dict[str, str] = {}
        self._hooks: list = []
        self._running: list[Run] = []
        # What the parts that mix tokens have returned since the outermost module began.
        self._outputs: dict[nn.Module, list[object]] = {}
        self._shifting: set[nn.Module] = set()  # of those that mix, what brings tokens into another order

    def __enter__(self) -> "TokenMixing":
        for module in self.names:
            if not isinstance(module, torch.jit.ScriptModule):
                self._hooks.append(module.register_forward_pre_hook(self._begin, with_kwargs=True))
                self._hooks.append(module.register_forward_hook(self._end))
        return self

    def __exit__(self, *error: object) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._running.clear()
        self._outputs.clear()

    def _begin(self, module: nn.Module, args: tuple, kwargs: dict) -> None:
        try:
            with torch.no_grad(), torch._C.DisableTorchFunction():
                given = copied(args), copied(kwargs)
        except Exception:  # of somebody else's object: it is said that the module was not checked
            given = None
        before = {part: len(outputs) for part, outputs in self._outputs.items()}
        self._running.append(Run(module, given, before))

    def _end(self, module: nn.Module, args: tuple, output: object) -> None:
        began = [run.module for run in self._running]
        if module not in began:  # it ran already when the recording began
            return
        at = len(began) - 1 - began[::-1].index(module)
        run = self._running[at]
        del self._running[at:]  # also those inside of it that failed, and so have no end
        mixes = False
        with self.unseen():
            if self.attends(module):
                mixes = True
                if self.beside and type(module) is not nn.MultiheadAttention:  # whose code does nothing else
                    self._check_beside(run, output)
            else:
                mixes = self._mixes(run, output)
            if not self._running and self.on_end is not None:
                self.on_end(lambda prepare, chosen: self._unmixed(run, prepare, chosen), run.given)
        if not self._running:
            self._outputs.clear()
            self._shifting.clear()
        elif mixes:
            self._outputs.setdefault(module, []).append(output)

    def _find(self, module: nn.Module, reason: str) -> None:
        self.findings.setdefault(self.names[module] or type(module).__name__, reason)

    def _check_beside(self, run: Run, output: object) -> None:
        """Name a module with attention in its own code that mixes tokens before or behind that."""
        try:
            reason = self._beside(run, output)
        except Exception:  # as in `_mixes`
            reason = BESIDE
        if reason:
            self._find(run.module, reason)

    def _beside(self, run: Run, output: object) -> str:
        """How one token moves another one beside the attention of a module, if it does.

        It is changed in what the module was given and in the result of its attention, which is held.
        """
        from mha_core.capture.own_code.rerun import NAMES, rerun  # only recordings ask for it

        if not (pairs := self._shared_axes(run, output)):
            return BESIDE
        number, made_number, axes = pairs[0]
        calm = rerun(self._again(run))
        if not calm.is_followed or not calm.heads:
            return BESIDE
        of_tokens = [part.shape[-2] in self.lengths for heads in calm.heads for part in heads[:3]]
        if not all(of_tokens):
            return BESIDE
        made = _numbered(calm.output, made_number)
        for token in {0, axes.count(made) // 2}:
            held = copied(calm.results)
            for heads in calm.heads:
                result = next(tensors(held[heads.number]))
                _change(result, Axes(heads.axis, heads.axis), token)
            other = rerun(self._again(run, (number, axes, token)), held)
            mixed: dict[str, None] = {}
            for one, moved in zip(calm.heads, other.heads, strict=True):
                for at, name in NAMES.items():
                    itself, others = _moved(getattr(one, at), getattr(moved, at), ROWS, token)
                    if not itself:  # it is made of something else, which was not changed
                        return BESIDE
                    mixed |= dict.fromkeys([name] if others else ())
            if mixed:
                return before(listed(mixed, "and"))
            if _moved(made, _numbered(other.output, made_number), axes, token)[1]:
                return MIXES_BEHIND
        return ""

    def _mixes(self, run: Run, output: object) -> bool:
        """Does one token that a module was given move another one of its output? Such a module is named."""
        if run.given is None:
            self._find(run.module, UNCHECKED)
            return False
        pairs = self._shared_axes(run, output)
        if not pairs:  # it reads or makes no tokens
            return False
        places: list[Tensor] = []
        try:
            calm = self._made(run)
            moved = False
            for number, axes in dict.fromkeys((number, axes) for number, _, axes in pairs):
                shared = [made for at, made, own in pairs if (at, own) == (number, axes)]
                for token in {0, axes.count(_numbered(calm, shared[0])) // 2}:
                    again = self._made(run, (number, axes, token))
                    for at in shared:
                        one, other = _numbered(calm, at), _numbered(again, at)
                        moved |= _moved(one, other, axes, token)[1]
                        places.append(_differ(one, other, axes))
        except Exception:  # of somebody else's code: what cannot be copied may not run
            self._find(run.module, UNCHECKED)
            return False
        if moved:
            self._find(run.module, MIXES)
            if all(rows.sum() == 1 for rows in places):
                self._shifting.add(run.module)
        return moved

    def _shared_axes(self, run: Run, output: object) -> list[tuple[int, int, Axes]]:
        """The numbers of a tensor given to a module and of one made by it, with the axes of tokens in both.

        Masks and numbers beside ids, such as positions, have no tokens.
        """
        return [
            (number, at, axes)
            for number, given in enumerate(tensors(run.given))
            if given.is_floating_point() or not number
            for at, made in enumerate(tensors(output))
            if (axes := self._token_axes(given, made)) is not None and not is_mask(given)
        ]

    def _token_axes(self, given: Tensor, made: Tensor) -> Axes | None:
        """The axis that counts tokens in both, of several the one after the texts; of pictures two axes."""
        sizes = list(zip(given.shape, made.shape, strict=False))
        same = [axis for axis, (size, other) in enumerate(sizes) if size == other]
        if pictures := [
            Axes(axis, axis + 1)
            for axis in range(1, given.dim() - 1)
            if given.dim() > 3 and given.shape[axis] * given.shape[axis + 1] in self.lengths
        ]:  # which may have as many channels
            square = min(pictures, key=lambda each: abs(given.shape[each.first] - given.shape[each.last]))
            return square if made.dim() > 3 and {*square} <= {*same} else None
        axes = [Axes(axis, axis) for axis in same if given.shape[axis] in self.lengths]
        return min(axes, key=lambda each: abs(each.first - 1), default=None) if made.dim() > 1 else None

    def _made(self, run: Run, token: "tuple[int, Axes, int] | None" = None) -> object:
        """The output of a copy of a module; a mode keeps torch from its fused path, which skips parts."""
        from mha_core.capture.own_code.rerun import unseen  # as above

        again = self._again(run, token)
        with drawing_alike(), unseen(), BaseTorchFunctionMode():
            return again()

    def _held(self, run: Run, left: Callable[[nn.Module], bool], chosen: Tensor | None = None) -> Prepare:
        """A preparation that makes the token-mixing parts of a copy return their outputs of the run.

        Those that are `left` run. With `chosen` tokens these are changed in the outputs.
        """
        parts = {
            name: part
            for name, part in run.module.named_modules()
            if name and part in self._outputs and not left(part)
        }

        def prepare(other: nn.Module, args: tuple, kwargs: dict) -> None:
            for name, part in parts.items():
                outputs = iter(
                    each if chosen is None else self._changed(each, chosen)
                    for each in self._outputs[part][run.before.get(part, 0) :]
                )
                other.get_submodule(name).forward = lambda *_, outputs=outputs, **__: next(outputs)

        return prepare

    def _changed(self, output: object, chosen: Tensor) -> object:
        """An output of a part that mixes tokens, with the chosen tokens changed."""
        from mha_core.capture.own_code.order import Start  # as above

        output = copied(output)
        for made in tensors(output):
            if (axes := self._token_axes(made, made)) is not None and axes.count(made) == len(chosen):
                start = Start("", 0, made.shape, tuple(range(axes.first, axes.last + 1)), None)
                made.copy_(start.changed(made, chosen, 0))
        return output

    def _again(self, run: Run, token: "tuple[int, Axes, int] | None" = None) -> Callable[[], object]:
        """A function that runs a copy of a module on its input, with a token of a tensor changed if given."""
        held = self._held(run, lambda part: False)

        def prepare(other: nn.Module, args: tuple, kwargs: dict) -> None:
            held(other, args, kwargs)
            if token is not None:
                number, axes, at = token
                _change(_numbered((args, kwargs), number), axes, at)

        assert run.given is not None  # without it there are no axes of tokens
        return prepared(run.module, run.given, prepare)

    def _unmixed(self, run: Run, prepare: Prepare, chosen: Tensor | None) -> Callable[[], object]:
        """A function that runs a copy of a module, with what mixes tokens in it held, but for its attention.

        With `chosen` tokens also what brings them into another order is held, and they are changed in it.
        """

        def left(part: nn.Module) -> bool:
            return any(map(self.attends, part.modules())) or (chosen is None and part in self._shifting)

        held = self._held(run, left, chosen)

        def both(*copies: Any) -> None:
            held(*copies)
            prepare(*copies)

        assert run.given is not None  # as `on_end` has checked
        return prepared(run.module, run.given, both)


def _numbered(value: object, number: int) -> Tensor:
    """A tensor of what a module was given or has made, by its number."""
    return next(islice(tensors(value), number, None))


def _differ(one: Tensor, other: Tensor, axes: Axes) -> Tensor:
    """Which tokens are other ones in the second tensor."""
    rows = (one != other).flatten(*axes).movedim(axes.first, 0)
    return rows.flatten(1).any(1) if rows.dim() > 1 else rows


def _moved(one: Tensor, other: Tensor, axes: Axes, token: int) -> tuple[bool, bool]:
    """Is one token of a tensor another one in the second, and is anything else?"""
    one, other, axis = one.flatten(*axes), other.flatten(*axes), axes.first
    at = torch.arange(one.shape[axis], device=one.device)
    parts = (at[at == token], at[at != token])
    gaps = (gap(other.index_select(axis, part), one.index_select(axis, part)) for part in parts)
    itself, others = (apart > CLOSE.get(one.dtype, 0.0) / 10 for apart in gaps)
    return itself, others


def _change(given: Tensor, axes: Axes, token: int) -> None:
    """Another vector, or the id of another token, in the place of one."""
    row = axes.token(given, token)
    if given.is_floating_point():
        row.add_(1 + row.float().abs().mean().to(row.dtype)).neg_()
    else:
        row.copy_(axes.token(given, token - 1 if token else 1).clone())
