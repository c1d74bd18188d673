"""Edits as they stand in a link: ``cut,layer=2,from=9,to=3-5;off,layer=1,head=2``. All counts are from 1."""

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from mha_core import MhaError, edits
from mha_core.attention.edits import MAX_EDITS, Edit


class Kind(NamedTuple):
    """A kind of edit that the page offers: its type, the names in a link that it takes, and what is fixed.

    `number` is the argument that the name "by" stands for.
    """

    edit: type[Edit]
    names: tuple[str, ...]
    fixed: Mapping[str, float] = MappingProxyType({})
    number: str = ""


PLACES = {"layer": "layer", "head": "heads", "from": "rows", "to": "keys"}
KINDS = {
    "cut": Kind(edits.Hide, ("layer", "head", "from", "to")),
    "off": Kind(edits.Output, ("layer", "head")),
    "even": Kind(edits.Weights, ("layer", "head", "from")),
    "mask": Kind(edits.Mask, ("layer", "head", "mask")),
    "divisor": Kind(edits.Scale, ("layer", "by"), number="factor"),
    "temperature": Kind(edits.Temperature, ("layer", "by"), number="temperature"),
    "concatenated": Kind(edits.Concatenation, ("layer",)),
    "unordered": Kind(edits.Position, (), {"code": "none"}),
}
OF_OWN_MODULES = ("concatenated", "unordered")  # kinds that no third-party model can take
MAX_RANGE = 10_000  # positions of a range in a link
Value = int | float | str | range | None  # a range counts from 1, too


def edit_of(kind: str, values: Mapping[str, Value]) -> Edit:
    """The edit of a kind; None and what is left out are all. Raises `MhaError` for one without sense."""
    of_kind = KINDS[kind]
    arguments = dict(of_kind.fixed)
    for name in of_kind.names:
        value = values.get(name)
        if value is None:
            continue
        if name == "by":
            arguments[of_kind.number] = 1 / value if kind == "divisor" else value
        elif name == "mask":
            arguments["mask"] = value
        else:
            arguments[PLACES[name]] = [at - 1 for at in value] if isinstance(value, range) else value - 1
    return of_kind.edit(**arguments)


def kind_of(edit: Edit) -> str:
    return next(name for name, kind in KINDS.items() if type(edit) is kind.edit)


def values_of(edit: Edit) -> dict[str, Value]:
    """What an edit of this page names, by the names in a link; what stands for all is left out."""
    kind, values = kind_of(edit), {}
    for name in KINDS[kind].names:
        if name == "by":
            number = getattr(edit, KINDS[kind].number)
            values[name] = 1 / number if kind == "divisor" else number
        elif name == "mask":
            values[name] = edit.mask
        elif (at := getattr(edit, PLACES[name])) is not None:
            ends = (at, at) if isinstance(at, int) else (at[0], at[-1])
            values[name] = ends[0] + 1 if ends[0] == ends[1] else range(ends[0] + 1, ends[1] + 2)
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
    kind, *pairs = part.split(",")
    values = dict(pair.partition("=")[::2] for pair in pairs)
    if kind not in KINDS or not values.keys() <= set(KINDS[kind].names):
        return None
    try:
        return edit_of(kind, {name: _value(name, value) for name, value in values.items()})
    except (MhaError, TypeError, ValueError):  # a temperature without its number is a TypeError
        return None


def _value(name: str, text: str) -> Value:
    if name == "mask":
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
