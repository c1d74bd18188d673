"""The one error that a person can cause, its sentences, and the checks that raise it for one value."""

from collections.abc import Callable, Iterable
from itertools import islice

MAX_SHOWN = 80  # characters of a value in a message
SEPARATORS = {"comma": ", ", "semicolon": "; ", "space": " "}


class Phrase(str):
    """An English text that keeps what it was made of, so that it can be said in another language.

    `template` has a named place for each of the `fields`, which may be phrases themselves. Without fields
    it is the text as it stands.
    """

    def __new__(cls, template: str, /, **fields: object):
        phrase = super().__new__(cls, template.format(**fields) if fields else template)
        phrase.template, phrase.fields = template, fields
        return phrase

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict]:
        return (self.template,), self.fields


class Listed(str):
    """Values in one text, as ``1, 2 or 3``; it keeps them and what joins them, as a `Phrase` does."""

    def __new__(cls, values: Iterable, word: str):
        values = tuple(values)
        if word in SEPARATORS:
            text = SEPARATORS[word].join(map(str, values))
        else:
            *most, last = map(str, values)
            text = f"{', '.join(most)} {word} {last}" if most else last
        listed = super().__new__(cls, text)
        listed.values, listed.word = values, word
        return listed

    def __getnewargs__(self) -> tuple[tuple, str]:
        return self.values, self.word


class MhaError(ValueError):
    """A request that cannot be met, told so that the reader knows what to do next.

    The message says what was asked, the rule, and the nearest values that work.
    `fixes` holds those values again for programs: each entry maps parameter names to
    values that would have been accepted, for example ``({"d_model": 28}, {"d_model": 32})``.
    `phrase` is the message with its template and fields, for readers of another language.
    """

    def __init__(self, template: str, /, *, fixes: tuple[dict, ...] = (), **fields: object):
        super().__init__(template if isinstance(template, Phrase | Listed) else Phrase(template, **fields))
        self.fixes = fixes

    @property
    def phrase(self) -> Phrase | Listed:
        return self.args[0]


def in_range(name: str, value: object, low: int, high: int, *, fits: Callable = lambda n: True) -> int:
    """Return `value` if it is a whole number from `low` to `high`; raise `MhaError` naming the range.

    The fix proposed is the nearest number in the range that also `fits` what else was asked.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise MhaError(
            "{name} must be a whole number from {low} to {high}; got {value}.",
            name=name,
            low=low,
            high=high,
            value=shown(value),
        )
    if not low <= value <= high:
        inward = range(low, high + 1) if value < low else range(high, low - 1, -1)
        raise MhaError(
            "{name} {value} is out of range; {low} to {high} work.",
            name=name,
            value=shown(value),
            low=low,
            high=high,
            fixes=tuple({name: n} for n in islice(filter(fits, inward), 1)),
        )
    return value


def at_least_1(name: str, value: object, unit: str) -> int:
    """Return `value` if it is a whole number from 1; raise `MhaError` that says what it is a number of."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise MhaError(
            "{name} is a number of {unit}, at least 1; got {value}.", name=name, unit=unit, value=shown(value)
        )
    return value


def one_of(kind: str, value: str, names: Iterable[str], *, parameter: str | None = None) -> str:
    """Return `value` if it is one of the names; raise `MhaError` listing them.

    `parameter` is what the caller calls it, where that is not the kind itself.
    """
    names = list(names)
    if not isinstance(value, str) or value not in names:
        raise MhaError(
            "There is no {kind} called {value}; {names} can be used.",
            kind=kind,
            value=shown(value),
            names=listed(names, "or"),
            fixes=tuple({parameter or kind: name} for name in names),
        )
    return value


def shown(value: object) -> str:
    """A value as messages repeat it, the beginning of a long one."""
    try:
        text = repr(value)
    except ValueError:  # a whole number with more digits than Python writes
        return Phrase("a whole number of thousands of digits")
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def named_type(value: object) -> str:
    """``None`` or ``a list``, as messages name a value of the wrong type."""
    return "None" if value is None else Phrase("a {type}", type=type(value).__name__)


def listed(values: Iterable, word: str) -> Listed:
    """``[1, 2, 3]`` and "or" as ``1, 2 or 3``; a name of `SEPARATORS` as ``1, 2, 3``."""
    return Listed(values, word)
