"""Edits as they stand in a link: ``cut,layer=2,from=9,to=3-5;off,layer=1,head=2``. All counts are from 1."""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from mha_core import MhaError, edits
from mha_core.attention.edits import MAX_EDITS, Edit


class Kind(NamedTuple):
    """A kind of edit that the page offers: its type, and its fields by their names in a link.

    "layer", "head", "from" and "to" are places, "by" is a number, "mask" and "code" are names.
    """

    edit: type[Edit]
    names: Mapping[str, str]


PLACES = {"layer": "layer", "head": "heads", "from": "rows", "to": "keys"}
WORDS = ("mask", "code")  # of which a value is a name
KINDS = {
    "cut": Kind(edits.Hide, PLACES),
    "off": Kind(edits.Output, {"layer": "layer", "head": "heads"}),
    "even": Kind(edits.Weights, {"layer": "layer", "head": "heads", "from": "rows"}),
    "mask": Kind(edits.Mask, {"layer": "layer", "head": "heads", "mask": "mask"}),
    "position": Kind(edits.Position, {"code": "code"}),
    "divisor": Kind(edits.Scale, {"layer": "layer", "by": "factor"}),
    "temperature": Kind(edits.Temperature, {"layer": "layer", "by": "temperature"}),
    "concatenated": Kind(edits.Concatenation, {"layer": "layer"}),
}
OF_OWN_MODULES = ("concatenated", "position")  # kinds that no third-party model can take
OLD = {"unordered": "position,code=none"}  # as links had it
MAX_RANGE = 10_000  # positions of a range in a link
Value = int | float | str | range | None  # a range counts from 1, too


def edit_of(kind: str, values: Mapping[str, Value]) -> Edit:
    """The edit of a kind; None and what is left out are all. Raises `MhaError` for one without sense."""
    arguments = {}
    for name, field in KINDS[kind].names.items():
        value = values.get(name)
        if value is None:
            continue
        if isinstance(value, range):
            arguments[field] = [at - 1 for at in value]
        elif name == "by":
            arguments[field] = 1 / value if kind == "divisor" else value
        else:
            arguments[field] = value if name in WORDS else value - 1
    return KINDS[kind].edit(**arguments)


def kind_of(edit: Edit) -> str:
    return next(name for name, kind in KINDS.items() if type(edit) is kind.edit)


def values_of(edit: Edit) -> dict[str, Value]:
    """What an edit of this page names, by the names in a link; what stands for all is left out."""
    kind, values = kind_of(edit), {}
    for name, field in KINDS[kind].names.items():
        value = getattr(edit, field)
        if name == "by":
            values[name] = 1 / value if kind == "divisor" else value
        elif name in WORDS:
            values[name] = value
        elif value is not None:
            first, last = (value, value) if isinstance(value, int) else (value[0], value[-1])
            values[name] = first + 1 if first == last else range(first + 1, last + 2)
    return values


def text(edit: Edit) -> str:
    written = [f"{name}={_written(value)}" for name, value in values_of(edit).items()]
    return ",".join([kind_of(edit), *written])


def _written(value: Value) -> str:
    if isinstance(value, range):
        return f"{value.start}-{value.stop - 1}"
    return value if isinstance(value, str) else f"{value:.10g}"


def write(chosen: Iterable[Edit]) -> str:
    return ";".join(map(text, chosen))


def read(link: str) -> tuple[tuple[Edit, ...], tuple[str, ...]]:
    """The edits of a link, and the parts of it that are none."""
    chosen, refused = {}, []
    for part in filter(None, link.split(";")):
        edit = _edit(part)
        if edit is None or len(chosen) == MAX_EDITS:
            refused.append(part)
        else:
            chosen[edit] = None  # each once
    return tuple(chosen), tuple(refused)


def _edit(part: str) -> Edit | None:
    kind, *pairs = OLD.get(part, part).split(",")
    values = dict(pair.partition("=")[::2] for pair in pairs)
    if kind not in KINDS or not values.keys() <= KINDS[kind].names.keys():
        return None
    try:
        return edit_of(kind, {name: _value(name, value) for name, value in values.items()})
    except (MhaError, TypeError, ValueError):  # a temperature without its number is a TypeError
        return None


def _value(name: str, text: str) -> Value:
    if name in WORDS:
        return text
    if name == "by":
        if not 0 < (number := float(text)) < math.inf:
            raise ValueError(text)
        return number
    first, dash, last = text.partition("-")
    if not dash or name == "layer":
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
