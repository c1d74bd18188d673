"""Edits as they stand in a link: ``cut,layer=2,from=9,to=3;off,layer=1,head=2``. All counts are from 1."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from mha_core import MhaError, edits
from mha_core.attention.edits import MAX_EDITS, Edit


class Kind(NamedTuple):
    """A kind of edit that the page offers: its type, the places that it takes, and what is fixed."""

    edit: type[Edit]
    places: tuple[str, ...]
    fixed: Mapping[str, float] = MappingProxyType({})


PLACES = {"layer": "layer", "head": "heads", "from": "rows", "to": "keys"}
KINDS = {
    "cut": Kind(edits.Hide, ("layer", "head", "from", "to")),
    "off": Kind(edits.Output, ("layer", "head")),
    "even": Kind(edits.Weights, ("layer", "head", "from")),
    "unscaled": Kind(edits.Scale, ("layer",), {"factor": 1.0}),
    "temperature": Kind(edits.Temperature, ("layer", "by")),
}


class Change(NamedTuple):
    """An edit as its reader chooses it: its kind, and its places from 1, of which None is all."""

    kind: str
    layer: int | None = None
    head: int | None = None
    query: int | None = None
    key: int | None = None
    by: float | None = None

    @property
    def values(self) -> dict[str, float]:
        """The places and the number that are set, by their names in a link."""
        named = dict(zip(("layer", "head", "from", "to", "by"), self[1:], strict=True))
        return {
            name: value
            for name, value in named.items()
            if value is not None and name in KINDS[self.kind].places
        }

    def edit(self) -> Edit:
        """The edit. Raises `MhaError` for one that makes no sense."""
        kind = KINDS[self.kind]
        places = {PLACES[name]: value - 1 for name, value in self.values.items() if name != "by"}
        number = {"temperature": self.by} if "by" in kind.places else {}
        return kind.edit(**places, **number, **kind.fixed)

    def text(self) -> str:
        return ",".join([self.kind, *(f"{name}={value:g}" for name, value in self.values.items())])


def write(changes: Iterable[Change]) -> str:
    return ";".join(change.text() for change in changes)


def read(text: str) -> tuple[tuple[Change, ...], tuple[str, ...]]:
    """The changes of a link, and the parts of it that are none."""
    changes, refused = [], []
    for part in filter(None, text.split(";")):
        change = _change(part)
        if change is None or len(changes) == MAX_EDITS:
            refused.append(part)
        elif change not in changes:
            changes.append(change)
    return tuple(changes), tuple(refused)


def _change(part: str) -> Change | None:
    kind, *pairs = part.split(",")
    values = dict(pair.partition("=")[::2] for pair in pairs)
    if kind not in KINDS or not values.keys() <= set(KINDS[kind].places):
        return None
    try:
        numbers = {name: float(value) if name == "by" else _count(value) for name, value in values.items()}
        change = Change(kind, *(numbers.get(name) for name in ("layer", "head", "from", "to", "by")))
        change.edit()
    except (MhaError, ValueError):
        return None
    return change


def _count(text: str) -> int:
    """A whole number from 1. Raises `ValueError` for anything else."""
    if not (text.isascii() and text.isdecimal() and len(text) < 9 and int(text)):
        raise ValueError(text)
    return int(text)
