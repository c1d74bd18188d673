"""Which modules of a recorded model mix tokens beside its attention, seen by what they do.

A copy of each module runs again on a copy of its input with one token changed. Where another token of its
output moves, and nothing that is known to mix tokens inside explains it, the module is named. Parts whose
attention was recorded, and parts that were named, give in the copy what they gave in the run.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mha_core.capture.gap import CLOSE, gap
from mha_core.errors import Phrase

MIXES = Phrase("mixes tokens by what it computes, which is not shown")
UNCHECKED = Phrase("could not be checked for mixing tokens")
BESIDE = Phrase("was not checked for mixing tokens beside its attention")
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Run(NamedTuple):
    """A run of a module: what it was given, and how much its parts had returned before."""

    module: nn.Module
    given: tuple[tuple, dict] | None  # None where it could not be copied
    before: dict[nn.Module, int]


class TokenMixing:
    """Checks the modules of a model while they run; `findings` says what was found, by their names.

    `names` has all modules of the model, `lengths` the numbers of tokens of its texts: an axis as long counts
    tokens. `attends` tells of a module whether attention was seen in its own code. `unseen()` is a block that
    no mode sees. While this is entered the modules have hooks; the model computes what it would without them.
    """

    def __init__(
        self,
        names: dict[nn.Module, str],
        lengths: Sequence[int],
        attends: Callable[[nn.Module], bool],
        unseen: Callable[[], AbstractContextManager],
    ):
        self.names, self.lengths, self.attends, self.unseen = names, lengths, attends, unseen
        self.findings: dict[str, str] = {}
        self._hooks: list = []
        self._running: list[Run] = []
        # What the parts that mix tokens have returned since the outermost module began.
        self._outputs: dict[nn.Module, list[object]] = {}

    def __enter__(self) -> "TokenMixing":
        for module in self.names:
            if not isinstance(module, torch.jit.ScriptModule):
                self._hooks.append(module.register_forward_pre_hook(self._begin, with_kwargs=True))
                self._hooks.append(module.register_forward_hook(self._end))
        return self

    def __exit__(self, *error) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._running.clear()
        self._outputs.clear()

    def _begin(self, module: nn.Module, args: tuple, kwargs: dict) -> None:
        try:
            with torch.no_grad(), torch._C.DisableTorchFunction():
                given = _copied(args), _copied(kwargs)
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
                if type(module) is not nn.MultiheadAttention:  # whose code does nothing beside
                    self._find(module, BESIDE)
            else:
                mixes = self._mixes(run, output)
        if not self._running:
            self._outputs.clear()
        elif mixes:
            self._outputs.setdefault(module, []).append(output)

    def _find(self, module: nn.Module, reason: str) -> None:
        self.findings.setdefault(self.names[module] or type(module).__name__, reason)

    def _mixes(self, run: Run, output: object) -> bool:
        """Does one token that a module was given move another one of its output? Such a module is named."""
        if run.given is None:
            self._find(run.module, UNCHECKED)
            return False
        given, made = next(_tensors(run.given), None), next(_tensors(output), None)
        axis = None if given is None or made is None else self._token_axis(given, made)
        if axis is None:  # it reads or makes no tokens
            return False
        try:
            moved = any(self._moves(run, axis, token) for token in {0, made.shape[axis] // 2})
        except Exception:  # of somebody else's code: what cannot be copied may not run
            self._find(run.module, UNCHECKED)
            return False
        if moved:
            self._find(run.module, MIXES)
        return moved

    def _token_axis(self, given: Tensor, made: Tensor) -> int | None:
        """The axis that counts tokens in both; of several the one after the texts."""
        axes = [
            axis
            for axis in range(min(given.dim(), made.dim()))
            if given.shape[axis] == made.shape[axis] and given.shape[axis] in self.lengths
        ]
        return min(axes, key=lambda axis: abs(axis - 1), default=None) if made.dim() > 1 else None

    def _moves(self, run: Run, axis: int, token: int) -> bool:
        one, other = (self._again(run, axis, at) for at in (None, token))
        rest = torch.tensor([at for at in range(one.shape[axis]) if at != token], device=one.device)
        apart = gap(other.index_select(axis, rest), one.index_select(axis, rest))
        return apart > CLOSE.get(one.dtype, 0.0) / 10

    def _again(self, run: Run, axis: int, token: int | None) -> Tensor:
        """What a copy of a module makes of its input with another `token`, if any."""
        module = run.module
        shared: dict[int, object] = {id(parameter): parameter for parameter in module.parameters()}
        hooks = (getattr(part, name) for part in module.modules() for name in HOOKS)
        other = copy.deepcopy(module, shared | {id(each): type(each)() for each in hooks})
        for name, part in module.named_modules():
            if name and part in self._outputs:
                outputs = iter(self._outputs[part][run.before.get(part, 0) :])
                other.get_submodule(name).forward = lambda *_, outputs=outputs, **__: next(outputs)
        args, kwargs = _copied(run.given[0]), _copied(run.given[1])
        if token is not None:
            _change(next(_tensors((args, kwargs))), axis, token)
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(0)  # one dropout for both
            return next(_tensors(other(*args, **kwargs)))


def _change(given: Tensor, axis: int, token: int) -> None:
    """Another vector, or the id of another token, in the place of one."""
    row = given.select(axis, token)
    if given.is_floating_point():
        row.add_(1 + row.float().abs().mean().to(row.dtype)).neg_()
    else:
        row.copy_(given.select(axis, token - 1 if token else 1).clone())


def _tensors(value: object) -> Iterator[Tensor]:
    """The tensors with numbers in what a module was given or has made, in their order."""
    if isinstance(value, Tensor):
        if not (value.is_nested or value.is_meta):
            yield value
    elif isinstance(value, tuple | list | dict) or hasattr(value, "to_tuple"):
        for part in value.values() if hasattr(value, "values") else value:
            yield from _tensors(part)


def _copied(value: object) -> object:
    """A copy of what a module was given, since it may write into it."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {name: _copied(part) for name, part in value.items()}
    return type(value)(map(_copied, value)) if type(value) in (tuple, list) else copy.deepcopy(value)
