"""Which modules of a model mix tokens besides its attention: change one token, and see which others change.

A reference run is compared with a run in which one token is changed in the output of every module, while
attention is held at its results or blocked. A module is named if other tokens change in its output but not
in its input. Its output then gets those tokens from the reference run, so that the next module is judged by
itself.
"""

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mha_core.attention.score_rule import ScoreRule
from mha_core.capture.collector import Collector
from mha_core.capture.gap import CLOSE
from mha_core.capture.module_copy import copied, drawing_alike, is_mask, tensors
from mha_core.errors import Phrase

MIXES = Phrase("mixes tokens by what it computes, which is not shown")
UNCHECKED = Phrase("could not be checked for mixing tokens")
BESIDE = Phrase("was not checked for mixing tokens beside its attention")
BEHIND = Phrase("mixes tokens behind its attention, which is not shown")


def mixing(
    names: dict[nn.Module, str],
    given: Collection[nn.Module],
    run: Callable[[], object],
    length: int,
    *,
    has_own_softmax: bool,
) -> dict[str, str]:
    """The modules that mix tokens while a model reads a text with all attention blocked, and the reason.

    In that `run` each of `length` tokens looks only at itself, so whatever changes another token is not
    attention. `given` are modules whose mixing is shown or named. With `has_own_softmax` the model's own code
    computes the attention, otherwise our function does.
    """
    shown = {names[part] for part in given if part in names}
    mixers = Mixers([length], lambda name: "" if name in shown else MIXES)
    with OwnKeys(length) if has_own_softmax else Collector({}, _own_values):
        for token in (None, 0, length // 2):
            with mixers.watch(names, token), drawing_alike():
                run()
    return mixers.findings


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


class Tokens(NamedTuple):
    """The axes that count tokens in a tensor, one after the other, and their sizes."""

    axes: tuple[int, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, x: Tensor, lengths: Collection[int]) -> "Tokens | None":
        """The axes of a tensor, of several the one after the texts; two of a picture, if any do.

        Weights and masks, which have an axis of queries and one of keys, have none.
        """
        shape = x.shape
        pictures: list[tuple[int, ...]] = [
            (at, at + 1) for at in range(1, x.dim() - 1) if shape[at] * shape[at + 1] in lengths
        ]
        has_width = x.is_floating_point() and x.dim() not in (1, 3)  # the last axis counts numbers
        ways: list[tuple[int, ...]] = [(at,) for at in range(x.dim() - has_width) if shape[at] in lengths]
        if x.dim() > 3:
            ways = pictures or ([] if sum(size in lengths for size in shape) > 1 else ways)
        elif x.dim() == 3 and shape[-1] in lengths and bool((x >= 0).all() & (x.sum(-1) < 1.001).all()):
            return None
        if not ways:
            return None
        axes = min(ways, key=lambda way: abs(shape[way[0]] - shape[way[-1]]) or abs(way[0] - 1))
        return cls(axes, tuple(shape[axis] for axis in axes))

    @property
    def total(self) -> int:
        return torch.Size(self.sizes).numel()

    def moved(self, one: Tensor, other: Tensor) -> Tensor:
        """Which tokens differ in the second tensor."""
        rounding = CLOSE.get(one.dtype, 0.0) / 10
        one, other = one.float(), other.float()
        same = (one == other) | (one.isnan() & other.isnan())
        apart = (one - other).abs().masked_fill(same, 0.0).nan_to_num(nan=torch.inf)
        close = rounding * max(1.0, one.abs().nan_to_num(posinf=0.0).max().item())
        rows = (apart > close).movedim(self.axes, tuple(range(len(self.axes))))
        return rows.reshape(self.total, -1).any(1).cpu()


class Call(NamedTuple):
    """The inputs and outputs of a module in the reference run."""

    given: list[Tensor]
    made: list[Tensor]


class Mixers:
    """Finds the modules through which one token moves others; `findings` are the reasons to name them.

    An axis of one of these `lengths` counts tokens. `reason` gives the reason to name a module by its name,
    or "" where its mixing is shown or named. `shifting` says of each that mixes whether each token
    moves one other.
    """

    def __init__(self, lengths: Collection[int], reason: Callable[[str], str]):
        self.lengths, self.reason = lengths, reason
        self.findings: dict[str, str] = {}
        self.shifting: dict[str, bool] = {}
        self._calls: dict[str, list[Call]] = {}

    def watch(self, names: Mapping[nn.Module, str], token: int | None) -> ExitStack:
        """Hooks for a run with a token changed in every output; without a `token` it is the reference run."""
        running: list[tuple[Call, set[tuple[int, int]]]] = []
        calls = {name: iter(made) for name, made in self._calls.items()}

        def begin(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
            with torch._C.DisableTorchFunction():  # not an operation of the model
                given = list(tensors((args, kwargs)))
                if token is None:
                    running.append((Call(copied(given), []), set()))
                    self._calls.setdefault(names[module], []).append(running[-1][0])
                    return None
                call = next(calls.get(names[module], iter(())), Call([], []))
                running.append((call, self._moved(call.given, given)))
                if len(running) > 1:
                    return None
                # What is given twice stays one tensor.
                others = {id(x): self._changed(x, token) for x in given}
                return _replaced((args, kwargs), (others[id(x)] for x in given))

        def end(module: nn.Module, args: tuple, output: object) -> object:
            with torch._C.DisableTorchFunction():
                call, inside = running.pop()
                if token is not None:
                    return self._compared(module, names[module], token, call, inside, output)
                call.made.extend(copied(list(tensors(output))))
                return None

        hooks = ExitStack()
        for module in names:
            if not isinstance(module, torch.jit.ScriptModule):
                hooks.enter_context(module.register_forward_pre_hook(begin, with_kwargs=True))
                hooks.enter_context(module.register_forward_hook(end))
        return hooks

    def hold(
        self, names: Mapping[nn.Module, str], is_left: Callable[[str], bool], chosen: Tensor | None
    ) -> None:
        """Hold the modules that mix tokens, unless they are `left`, at their outputs of the reference run.

        With `chosen` tokens these are changed in it, and what brings tokens into another order is held, too.
        """
        for module, name in names.items():
            if name not in self.shifting or is_left(name) or (self.shifting[name] and chosen is None):
                continue
            calls = iter(self._calls[name])

            def held(module: nn.Module, args: tuple, output: object, calls: Iterator[Call] = calls) -> object:
                with torch._C.DisableTorchFunction():  # not an operation of the model
                    made = copied(next(calls).made)
                    return _replaced(output, (self._changed(each, chosen) for each in made))

            module.register_forward_hook(held)

    def _changed(self, x: Tensor, chosen: Tensor | int | None) -> Tensor:
        """The tensor with one token, or all chosen ones, changed; a tensor without tokens stays as it is."""
        tokens = Tokens.of(x, self.lengths)
        if chosen is None or tokens is None or is_mask(x):
            return x
        rows = torch.arange(tokens.total) == chosen if isinstance(chosen, int) else chosen
        return changed(x, laid(rows, tokens.axes, x)) if tokens.total == len(rows) else x

    def _moved(self, one: Collection[Tensor], other: Collection[Tensor]) -> set[tuple[int, int]]:
        """The tokens that differ in the second tensors, each with the total number of tokens."""
        found = set()
        for before, now in zip(one, other, strict=False):
            if before.shape == now.shape and (tokens := Tokens.of(before, self.lengths)) is not None:
                rows = tokens.moved(before, now).nonzero()[:, 0]
                found |= {(tokens.total, row) for row in rows.tolist()}
        return found

    def _compared(
        self,
        module: nn.Module,
        name: str,
        token: int,
        call: Call,
        inside: set[tuple[int, int]],
        output: object,
    ) -> object:
        """The output of a module with that token changed, and others if its input had them changed."""
        made, new, mixes, reason = list(tensors(output)), [], False, self.reason(name)
        if [x.shape for x in made] != [x.shape for x in call.made]:
            return None
        if not reason:
            return _replaced(output, (self._changed(x, token) for x in copied(call.made)))
        reads = [Tokens.of(x, self.lengths) for x in call.given]
        for one, other in zip(call.made, made, strict=True):
            tokens = Tokens.of(one, self.lengths)
            if tokens is None:
                new.append(other)
                continue
            own = torch.arange(tokens.total) == token
            rows = tokens.moved(one, other)
            kept = own | torch.tensor([(tokens.total, row) in inside for row in range(tokens.total)])
            if tokens in reads and (rows & ~kept).any():
                mixes = True
                self.shifting[name] = self.shifting.get(name, True) and int(rows.sum()) == 1
                other = torch.where(laid(kept, tokens.axes, other), other, one)
            new.append(self._changed(other, token) if other.is_floating_point() else other)
        if mixes:
            self.findings.setdefault(name or type(module).__name__, reason)
        return _replaced(output, iter(new))


def laid(rows: Tensor, axes: Sequence[int], x: Tensor) -> Tensor:
    """A number for each token, along the axes of a tensor that count tokens."""
    return rows.reshape([size if axis in axes else 1 for axis, size in enumerate(x.shape)]).to(x.device)


def changed(x: Tensor, rows: Tensor, size: float = 1.0) -> Tensor:
    """Other numbers in the place of some, or other ids of those that are there."""
    if not x.is_floating_point():
        ids = x.unique()
        other = ids[(torch.searchsorted(ids, x) + 1) % len(ids)] if len(ids) > 1 else (x - 1).abs()
        return torch.where(rows, other, x)
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(0)).to(x)
    return x + rows.to(x) * noise * (1 + x.abs().mean()) * size


def _replaced(value: Any, new: Iterator[Tensor]) -> Any:
    """The output of a module with other tensors in it."""
    if isinstance(value, Tensor):
        return value if value.is_nested or value.is_meta else next(new)
    if isinstance(value, tuple | list):
        parts = [_replaced(part, new) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict) or hasattr(value, "to_tuple"):
        value = copy.copy(value)
        for key in value:
            value[key] = _replaced(value[key], new)
    return value
