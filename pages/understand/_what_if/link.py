"""Edits as they stand in a link: ``cut,layer=2,from=9,to=3;off,layer=1,head=2``. All counts are from 1."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from mha_core import MhaError, edits
from mha_core.attention.edits import MAX_EDITS, Edit


class Kind(NamedTuple):
    """A kind of edit that the page offers: its type, the names in a link that it takes, and what is fixed."""

    edit: type[Edit]
    names: tuple[str, ...]
    fixed: Mapping[str, float] = MappingProxyType({})


FIELDS = {"layer": "layer", "head": "heads", "from": "rows", "to": "keys", "by": "temperature"}
KINDS = {
    "cut": Kind(edits.Hide, ("layer", "head", "from", "to")),
    "off": Kind(edits.Output, ("layer", "head")),
    "even": Kind(edits.Weights, ("layer", "head", "from")),
    "unscaled": Kind(edits.Scale, ("layer",), {"factor": 1.0}),
    "temperature": Kind(edits.Temperature, ("layer", "by")),
    "concatenated": Kind(edits.Concatenation, ("layer",)),
    "unordered": Kind(edits.Position, (), {"code": "none"}),
}
OF_OWN_MODULES = ("concatenated", "unordered")  # kinds that no third-party model can take


def edit_of(kind: str, values: Mapping[str, float | None]) -> Edit:
    """The edit of a kind; None and what is left out are all. Raises `MhaError` for one without sense."""
    chosen = {name: values.get(name) for name in KINDS[kind].names}
    arguments = {
        FIELDS[name]: value if name == "by" else value - 1
        for name, value in chosen.items()
        if value is not None
    }
    return KINDS[kind].edit(**arguments, **KINDS[kind].fixed)


def kind_of(edit: Edit) -> str:
    return next(name for name, kind in KINDS.items() if type(edit) is kind.edit)


def values_of(edit: Edit) -> dict[str, float]:
    """What an edit of this page names, by the names in a link; what stands for all is left out."""
    values = {name: getattr(edit, FIELDS[name]) for name in KINDS[kind_of(edit)].names}
    alone = {name: value[0] if isinstance(value, tuple) else value for name, value in values.items()}
    return {name: value + (name != "by") for name, value in alone.items() if value is not None}


def text(edit: Edit) -> str:
    return ",".join([kind_of(edit), *(f"{name}={value:.10g}" for name, value in values_of(edit).items())])


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
        return edit_of(
            kind, {name: float(value) if name == "by" else _count(value) for name, value in values.items()}
        )
    except (MhaError, TypeError, ValueError):  # a temperature without its number is a TypeError
        return None


def _count(value: str) -> int:
    """A whole number from 1. Raises `ValueError` for anything else."""
    if not (value.isascii() and value.isdecimal() and len(value) < 9 and int(value)):
        raise ValueError(value)
    return int(value)
