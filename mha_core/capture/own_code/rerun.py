"""The attention of a module that runs again in a copy; no recording sees it, and its results may be held."""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, _pop_mode, _push_mode

from mha_core.capture import sdpa
from mha_core.capture.module_copy import Given, copied, drawing_alike
from mha_core.capture.own_code.following import EagerMode, is_exact
from mha_core.capture.own_code.scores import FollowedAttention

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Heads(NamedTuple):
    """Queries, keys and values (…, token, width) of an attention, and which operation of the run ended it.

    `axis` counts the queries in the result of that operation.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    number: int
    axis: int


class Reached(BaseException):  # no `Exception`: a model may catch these
    """The attention that a run was to stop at."""


class Rerun(TorchFunctionMode):
    """The attention of a run in `heads`, and the result of each, by the number of its operation.

    `held` are results that the code gets in the place of some.
    """

    def __init__(self, held: Mapping[int, object], is_last: Callable[[Heads], bool]):
        super().__init__()
        self.held, self.is_last = held, is_last
        self.number = 0
        self.heads: list[Heads] = []
        self.results: dict[int, object] = {}

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        self.number += 1
        if (reached := _arguments(func, args, kwargs)) is not None:
            self._add(*reached, axis=0 if func is sdpa.FORWARD else -2)
        result = func(*args, **kwargs)
        if self.heads and self.heads[-1].number == self.number:
            self.results[self.number] = result
            return copied(self.held.get(self.number, result))
        return result

    def add_followed(self, followed: FollowedAttention, output: Tensor, result: Tensor) -> bool:
        """An attention in the code itself, in the operation that runs now. False if it was not exact."""
        if not is_exact(followed):
            return False
        n_heads = followed.q.shape[1]
        k, v = (part.repeat_interleave(n_heads // part.shape[1], dim=1) for part in (followed.k, followed.v))
        axes = list(zip(result.shape, result.stride(), strict=True))
        self._add(followed.q, k, v, axes.index((output.shape[-2], output.stride(-2))))
        return True

    def _add(self, q: Tensor, k: Tensor, v: Tensor, axis: int) -> None:
        self.heads.append(Heads(q, k, v, self.number, axis))
        if self.is_last(self.heads[-1]):
            raise Reached


def _arguments(func: Callable, args: tuple, kwargs: dict) -> tuple[Tensor, Tensor, Tensor] | None:
    """The queries, keys and values of a call of one of torch's own functions."""
    if sdpa.is_flex_attention(func):
        return args[:3]
    if func is sdpa.SDPA or func is sdpa.OPERATOR:
        names = ("query", "key", "value")
        q, k, v = (args[at] if at < len(args) else kwargs[name] for at, name in enumerate(names))
        return q, k, v
    if func is sdpa.FORWARD:
        with torch._C.DisableTorchFunction():
            return sdpa.inner_arguments(sdpa.SIGNATURE.bind(*args, **kwargs).arguments)[:3]
    return None


def rerun(
    module: nn.Module,
    given: Given,
    prepare: Callable[[nn.Module, tuple, dict], None] = lambda *_: None,
    held: Mapping[int, object] = MappingProxyType({}),
    is_last: Callable[[Heads], bool] = lambda heads: False,
) -> Rerun:
    """Run a copy of a module on a copy of what it was given, up to the attention that `is_last`.

    The copy has the parameters of the module and no hooks; `prepare` may change both copies. `held` are
    results of attention that its code gets in the place of those that it computes.
    """
    shared: dict[int, object] = {id(parameter): parameter for parameter in module.parameters()}
    hooks = (getattr(part, name) for part in module.modules() for name in HOOKS)
    other = copy.deepcopy(module, shared | {id(each): type(each)() for each in hooks})
    args, kwargs = copied(given)
    prepare(other, args, kwargs)
    operations = Rerun(held, is_last)
    eager = EagerMode(operations.add_followed, every_row=False)
    # The last mode sees what the model asks for, and nothing that the one before does.
    with drawing_alike(), _unseen(), suppress(Reached), eager, operations:
        other(*args, **kwargs)
    return operations


@contextmanager
def _unseen() -> Iterator[None]:
    """In this block this thread records nothing, except by modes entered inside it; other modes go on."""
    modes = [_pop_mode() for _ in range(torch._C._len_torch_function_stack())][::-1]
    others = [mode for mode in modes if not isinstance(mode, EagerMode | sdpa.SdpaMode | Rerun)]
    try:
        for mode in others:
            _push_mode(mode)
        with torch._C._EnableTorchFunction():
            yield
    finally:
        for _ in others:
            _pop_mode()
        for mode in modes:
            _push_mode(mode)
