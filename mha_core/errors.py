"""The error that a user can cause, its texts and their parts, and the checks that raise it for one value."""

import re
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Self

MAX_SHOWN = 80  # characters of a value in a message
SEPARATORS = {"comma": ", ", "semicolon": "; ", "space": " "}
CONJUNCTIONS = ("and", "or")

# What a template from a file may hold: {name}, {name!r}, {name:,} or {name:.3g}, and escaped braces.
PLACE = re.compile(r"\{[^\W\d]\w*(?:![rs])?(?::[+,]?(?:\.\d{1,3})?[a-z]?)?\}|\{\{|\}\}")
MAX_PLACES = 16
MAX_LENGTH = 20_000  # characters of a phrase from a file
MAX_DEPTH = 8  # phrases inside each other
MAX_NUMBER = 2**64  # of a field in a file, as in the rest of its header


class Phrase(str):
    """An English text that keeps its template and fields, so that it can be translated.

    `template` has a placeholder for each of the `fields`, which may be phrases themselves. Without fields it
    is the text itself.
    """

    template: str
    fields: dict[str, Any]

    def __new__(cls, template: str, /, **fields: object) -> Self:
        phrase = super().__new__(cls, template.format(**fields) if fields else template)
        phrase.template, phrase.fields = template, fields
        return phrase

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict]:
        return (self.template,), self.fields


class Listed(str):
    """Values in one text, as ``1, 2 or 3``, with the values and the joining word, as in a `Phrase`."""

    values: tuple[Any, ...]
    word: str

    def __new__(cls, values: Iterable, word: str) -> Self:
        values = tuple(values)
        if word in SEPARATORS:
            text = SEPARATORS[word].join(map(str, values))
        else:
            *most, last = map(str, values)
            text = f"{', '.join(most)} {word} {last}" if most else last
        listed = super().__new__(cls, text)
        listed.values, listed.word = values, word
        return listed

    def __getnewargs_ex__(self) -> tuple[tuple[tuple, str], dict]:
        return (self.values, self.word), {}


class MhaError(ValueError):
    """A request that cannot be met, with what the reader can do instead.

    The message contains what was asked, the rule, and the nearest values that work. `fixes` are those values
    for programs: each entry maps parameter names to values that would have been accepted, for example
    ``({"d_model": 28}, {"d_model": 32})``. `phrase` is the message with its template and fields, for
    translation.
    """

    def __init__(self, template: str, /, *, fixes: tuple[dict, ...] = (), **fields: object):
        super().__init__(template if isinstance(template, Phrase | Listed) else Phrase(template, **fields))
        self.fixes = fixes

    @property
    def phrase(self) -> Phrase | Listed:
        return self.args[0]


def in_range(name: str, value: object, low: int, high: int, *, fits: Callable = lambda n: True) -> int:
    """Return `value` if it is a whole number from `low` to `high`; raise `MhaError` naming the range.

    The proposed fix is the nearest number in the range that also `fits` the other parameters.
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
    """Return `value` if it is a whole number from 1; raise `MhaError` with the `unit` that it counts."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise MhaError(
            "{name} is a number of {unit}, at least 1; got {value}.", name=name, unit=unit, value=shown(value)
        )
    return value


def one_of(kind: str, value: str, names: Iterable[str], *, parameter: str | None = None) -> str:
    """Return `value` if it is one of the names; raise `MhaError` listing them.

    `parameter` is the name of the caller's parameter, by default the kind.
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
    """A value as written in messages, shortened if it is long."""
    try:
        text = repr(value)
    except ValueError:  # a whole number with more digits than Python prints
        return Phrase("a whole number of thousands of digits")
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def named_type(value: object) -> str:
    """``None`` or ``a list``: a value of the wrong type, as named in messages."""
    return "None" if value is None else Phrase("a {type}", type=type(value).__name__)


def count_of(count: int, noun: str) -> str:
    """So many of what a regular noun names, such as ``1 head`` and ``12 heads``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def listed(values: Iterable, word: str) -> Listed:
    """``[1, 2, 3]`` and "or" as ``1, 2 or 3``, or with a word of `SEPARATORS` as ``1, 2, 3``."""
    return Listed(values, word)


def text_to_json(text: str) -> str | dict:
    """A text as JSON: a phrase or a list with its parts, so that a file can be read in another language.

    `text_from_json` is the inverse. A phrase whose fields have no place in JSON becomes its English text.
    """
    values = _to_json(text)
    try:
        is_same = text_from_json(values) == text
    except (KeyError, TypeError, ValueError):
        is_same = False
    return values if is_same else str(text)


def _to_json(value: object) -> Any:
    match value:
        case Phrase():
            fields = {name: _to_json(field) for name, field in value.fields.items()}
            return {"template": value.template, "fields": fields}
        case Listed():
            return {"values": list(map(_to_json, value.values)), "word": value.word}
        case str():
            return str(value)
        case _:
            is_number = isinstance(value, int | float) and abs(value) <= MAX_NUMBER
            return value if value is None or is_number else str(value)


def text_from_json(values: object, *, depth: int = MAX_DEPTH) -> str:
    """The text that `text_to_json` wrote.

    The file may come from a stranger: a template can name its fields and nothing else, and what it makes is
    limited in size. Raises `KeyError`, `TypeError` or `ValueError` for anything else.
    """
    text: Phrase | Listed
    match values:
        case str():
            return values
        case {"template": str(template), "fields": dict(fields), **more} if depth and not more:
            rest, n_places = PLACE.subn("", template)
            if fields and (n_places > MAX_PLACES or "{" in rest or "}" in rest):
                raise ValueError(f"a template is {template[:MAX_SHOWN]!r}")
            fields = {name: _field_from_json(field, depth - 1) for name, field in fields.items()}
            text = Phrase(template, **fields)
        case {"values": list(entries), "word": str(word), **more} if depth and not more:
            if word not in (*SEPARATORS, *CONJUNCTIONS):
                raise ValueError(f"a list is joined by {word[:MAX_SHOWN]!r}")
            text = Listed([_field_from_json(entry, depth - 1) for entry in entries], word)
        case _:
            raise ValueError(f"a text is {str(values)[:MAX_SHOWN]}")
    if len(text) > MAX_LENGTH:
        raise ValueError(f"a text has {len(text):,} characters")
    return text


def _field_from_json(value: object, depth: int) -> object:
    is_number = value is None or isinstance(value, int | float)
    return value if is_number else text_from_json(value, depth=depth)
