"""The changes of What if, as a link writes them: ``cut,layer=2,from=9,to=3-5;swap,from=3,to=7``.

A change is an edit of attention or a swap of two words of the text. All numbers count from 1.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from mha_core.attention import edits
from mha_core.attention.edits import MAX_EDITS, Edit
from mha_core.errors import MhaError, Phrase, listed
from mha_core.scene.swaps import Swap
from mha_core.traces.tokens import Sides

Change = Edit | Swap


class ChangeKind(NamedTuple):
    """A kind of change: its type, and its fields by their names in a link.

    "layer", "head", "from" and "to" are places, "by" is a number, "mask" and "code" are names, "weights" are
    numbers with spaces between them; "since" is the row in which a cache changes.
    """

    type: type[Change]
    names: Mapping[str, str]


PLACES = {"layer": "layer", "head": "heads", "from": "rows", "to": "keys"}
WORDS = ("mask", "code")  # fields whose value is a name
KINDS = {
    "cut": ChangeKind(edits.Hide, PLACES),
    "off": ChangeKind(edits.Output, {"layer": "layer", "head": "heads"}),
    "even": ChangeKind(edits.Weights, {"layer": "layer", "head": "heads", "from": "rows"}),
    "row": ChangeKind(
        edits.Weights, {"layer": "layer", "head": "heads", "from": "rows", "weights": "values"}
    ),
    "mask": ChangeKind(edits.Mask, {"layer": "layer", "head": "heads", "mask": "mask"}),
    "position": ChangeKind(edits.Position, {"code": "code"}),
    "divisor": ChangeKind(edits.Scale, {"layer": "layer", "by": "factor"}),
    "temperature": ChangeKind(edits.Temperature, {"layer": "layer", "by": "temperature"}),
    "concatenated": ChangeKind(edits.Concatenation, {"layer": "layer"}),
    "same": ChangeKind(edits.SameHeads, {"layer": "layer"}),
    "swap": ChangeKind(Swap, {"from": "one", "to": "other"}),
    "evict": ChangeKind(edits.Evict, {"to": "keys", "since": "since"}),
    "exchange": ChangeKind(edits.Exchange, {"from": "one", "to": "other", "since": "since"}),
}
NAMED = {  # the fields that name words, each with the texts of them
    "rows": ("queries",),
    "keys": ("keys",),
    **dict.fromkeys(("one", "other", "since"), ("queries", "keys")),
}
OF_CACHE = ("evict", "exchange")  # kinds that change what a cache holds, on Steps
OLD = {"unordered": "position,code=none"}  # older spellings
RULE = Phrase(
    "a change is {kinds}, with its places as in cut,layer=2,from=9,to=3; at most {limit}",
    kinds=listed(KINDS, "or"),
    limit=MAX_EDITS,
)
MAX_RANGE = 10_000  # positions of a range in a link
DIGITS = 4  # of a weight in a link
Value = int | float | str | range | tuple[float, ...] | None  # a range counts from 1, too


def change_of(kind: str, values: Mapping[str, Value]) -> Change:
    """The change of a kind with these values. A value that is None or left out means all.

    Raises `MhaError` for values that do not make a change.
    """
    arguments: dict[str, Any] = {}
    for name, field in KINDS[kind].names.items():
        value = values.get(name)
        if value is None:
            continue
        if isinstance(value, range):
            arguments[field] = [at - 1 for at in value]
        elif isinstance(value, str | tuple):  # a name, or weights
            arguments[field] = value
        elif name == "by":
            arguments[field] = 1 / value if kind == "divisor" else value
        else:
            arguments[field] = value - 1
    return KINDS[kind].type(**arguments)


def kind_of(change: Change) -> str:
    if isinstance(change, edits.Weights) and change.values is not None:
        return "row"
    return next(name for name, kind in KINDS.items() if type(change) is kind.type)


def has_link(change: Change) -> bool:
    """Whether a link can express the change, and reads back as the same one."""
    if type(change) not in {kind.type for kind in KINDS.values()}:
        return False
    try:
        return read(text(change)) == ((change,), ())
    except TypeError:  # from places that are not positions
        return False


def values_of(change: Change) -> dict[str, Any]:
    """The values of a change, by their names in a link; a value that means all is left out."""
    kind, values = kind_of(change), {}
    for name, field in KINDS[kind].names.items():
        value = getattr(change, field)
        if name == "by":
            values[name] = 1 / value if kind == "divisor" else value
        elif name in (*WORDS, "weights"):
            values[name] = value
        elif value is not None:
            first, last = (value, value) if isinstance(value, int) else (value[0], value[-1])
            values[name] = first + 1 if first == last else range(first + 1, last + 2)
    return values


def text(change: Change) -> str:
    written = [f"{name}={_written(value)}" for name, value in values_of(change).items()]
    return ",".join([kind_of(change), *written])


def _written(value: Value) -> str:
    if isinstance(value, range):
        return f"{value.start}-{value.stop - 1}"
    if isinstance(value, tuple):
        return " ".join(f"{round(number, DIGITS):g}" for number in value)
    return value if isinstance(value, str) else f"{value:.10g}"


def edits_of(chosen: Iterable[Change]) -> tuple[Edit, ...]:
    """The changes that act in the attention itself."""
    return tuple(change for change in chosen if isinstance(change, Edit))


def swaps_of(chosen: Iterable[Change]) -> tuple[Swap, ...]:
    """The changes that act in the text."""
    return tuple(change for change in chosen if isinstance(change, Swap))


def fitting(chosen: Iterable[Change], before: Sides, after: Sides) -> tuple[Change, ...]:
    """The changes without those that name words which another text does not have at the same positions."""

    def fits(change: Change) -> bool:
        if kind_of(change) == "row" and before.keys.pieces != after.keys.pieces:
            return False  # it has a weight for each of them
        for field, sides in NAMED.items():
            picked = getattr(change, field, None)
            places = (picked,) if isinstance(picked, int) else picked or ()
            for was, now in ((getattr(before, side).pieces, getattr(after, side).pieces) for side in sides):
                if any(was[at : at + 1] != now[at : at + 1] for at in places):
                    return False
        return True

    return tuple(filter(fits, chosen))


def write(chosen: Iterable[Change]) -> str:
    return ";".join(map(text, chosen))


def read(link: str) -> tuple[tuple[Change, ...], tuple[str, ...]]:
    """The changes of a link, and the parts of it that are not changes."""
    chosen: dict[Change, None] = {}  # each once
    refused: list[str] = []
    for part in filter(None, link.split(";")):
        change = _change(part)
        if change is None or len(chosen) == MAX_EDITS:
            refused.append(part)
        else:
            chosen[change] = None
    return tuple(chosen), tuple(refused)


def _change(part: str) -> Change | None:
    kind, *pairs = OLD.get(part, part).split(",")
    values = dict(pair.partition("=")[::2] for pair in pairs)
    if kind not in KINDS or not values.keys() <= KINDS[kind].names.keys():
        return None
    try:
        return change_of(kind, {name: _value(name, value) for name, value in values.items()})
    except (MhaError, TypeError, ValueError):  # a temperature without its number is a TypeError
        return None


def _value(name: str, text: str) -> Value:
    if name in WORDS:
        return text
    if name == "weights":
        return tuple(map(float, text.split(" ")))
    if name == "by":
        if not 0 < (number := float(text)) < math.inf:
            raise ValueError(text)
        return number
    first, dash, last = text.partition("-")
    if not dash or name in ("layer", "since"):
        return _count(text)
    places = range(_count(first), _count(last) + 1)
    if len(places) > MAX_RANGE:
        raise ValueError(text)
    return places


def _count(text: str) -> int:
    """A whole number from 1. Raises `ValueError` for anything else."""
    if not (text.isascii() and text.isdecimal() and len(text) < 9 and int(text)):
        raise ValueError(text)
    return int(text)
