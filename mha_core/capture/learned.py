"""What was learned of a model's modules when it was tried, before anybody shared it; it never changes again.

It is kept for as long as the module lives, and not on the module, of which nothing is ours.
"""

from collections.abc import Iterable
from weakref import WeakKeyDictionary, WeakSet

from torch import nn
from torch.utils.hooks import RemovableHandle

from mha_core.capture.wiring import Ways

_ways: WeakKeyDictionary[nn.Module, Ways] = WeakKeyDictionary()
_plain: WeakKeyDictionary[nn.Module, tuple[int, ...]] = WeakKeyDictionary()
_used: WeakSet[nn.Module] = WeakSet()
_hooks: WeakKeyDictionary[nn.Module, RemovableHandle] = WeakKeyDictionary()


def ways(attention: nn.Module | None) -> Ways | None:
    """Which modules made q, k and v the first time that this one attended; None before that."""
    return None if attention is None else _ways.get(attention)


def matrices(attention: nn.Module | None) -> tuple[int, ...] | None:
    """The ids of the three matrices that are all of a plain attention's ways; None of any other."""
    return None if attention is None else _plain.get(attention)


def learn(
    attention: nn.Module | None, found: Ways, used: Iterable[nn.Module], plain: tuple[int, ...] | None
) -> None:
    """Keep what was found the first time that a module attended, and which modules that took."""
    if attention is not None:
        _ways.setdefault(attention, found)
        if plain is not None:
            _plain.setdefault(attention, plain)
    _used.update(used)


def is_new(module: nn.Module) -> bool:
    """Has nothing been found out about a module yet?"""
    return module not in _used


def use(*modules: nn.Module) -> None:
    """Keep that modules are of use."""
    for module in modules:
        if module not in _used:
            _used.add(module)


def hooked(module: nn.Module, hook: RemovableHandle) -> None:
    """Remember how to take the hook off that sees what this module makes, or what it is handed."""
    _hooks[module] = hook


def unhook(model: nn.Module) -> None:
    """Take the hooks off all modules of a model that were of no use when it was tried: each costs time."""
    for module in model.modules():
        if module not in _used and (hook := _hooks.pop(module, None)) is not None:
            hook.remove()
