"""The one error that a person can cause, and the checks that raise it for one value."""

from collections.abc import Callable, Iterable
from itertools import islice

MAX_SHOWN = 80  # characters of a value in a message


class MhaError(ValueError):
    """A request that cannot be met, told so that the reader knows what to do next.

    The message says what was asked, the rule, and the nearest values that work.
    `fixes` holds those values again for programs: each entry maps parameter names to
    values that would have been accepted, for example ``({"d_model": 28}, {"d_model": 32})``.
    """

    def __init__(self, message: str, *, fixes: tuple[dict, ...] = ()):
        super().__init__(message)
        self.fixes = fixes


def in_range(name: str, value: object, low: int, high: int, *, fits: Callable = lambda n: True) -> int:
    """Return `value` if it is a whole number from `low` to `high`; raise `MhaError` naming the range.

    The fix proposed is the nearest number in the range that also `fits` what else was asked.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise MhaError(f"{name} must be a whole number from {low} to {high}; got {shown(value)}.")
    if not low <= value <= high:
        inward = range(low, high + 1) if value < low else range(high, low - 1, -1)
        fixes = tuple({name: n} for n in islice(filter(fits, inward), 1))
        raise MhaError(f"{name} {shown(value)} is out of range; {low} to {high} work.", fixes=fixes)
    return value


def at_least_1(name: str, value: object, unit: str) -> int:
    """Return `value` if it is a whole number from 1; raise `MhaError` that says what it is a number of."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise MhaError(f"{name} is a number of {unit}, at least 1; got {shown(value)}.")
    return value


def one_of(kind: str, value: str, names: Iterable[str], *, parameter: str | None = None) -> str:
    """Return `value` if it is one of the names; raise `MhaError` listing them.

    `parameter` is what the caller calls it, where that is not the kind itself.
    """
    names = list(names)
    if not isinstance(value, str) or value not in names:
        raise MhaError(
            f"There is no {kind} called {shown(value)}; {listed(names, 'or')} can be used.",
            fixes=tuple({parameter or kind: name} for name in names),
        )
    return value


def shown(value: object) -> str:
    """A value as messages repeat it, the beginning of a long one."""
    try:
        text = repr(value)
    except ValueError:  # a whole number with more digits than Python writes
        text = "a whole number of thousands of digits"
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def named_type(value: object) -> str:
    """``None`` or ``a list``, as messages name a value of the wrong type."""
    return "None" if value is None else f"a {type(value).__name__}"


def listed(values: Iterable, word: str) -> str:
    """``[1, 2, 3]`` and "or" as ``1, 2 or 3``."""
    *most, last = map(str, values)
    return f"{', '.join(most)} {word} {last}" if most else last
