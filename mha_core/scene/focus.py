"""What the pictures of a scene look at, and how they are drawn."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

MAX_WORDS = 10_000  # characters of a field of the focus
# The values of those fields of the focus that have a few names; the first is the default.
CHOICES = {
    "drawing": ("lines", "text", "arcs", "matrix"),
    "side": ("query", "key"),
    "specials": ("shown", "hidden"),
    "words": ("pieces", "whole"),
}


@dataclass(frozen=True)
class Focus:
    """What the pictures of a page look at and how they are drawn: one value in link, server and browser.

    A token is its word, the second "the" is ``the~2``; a number counts from 1. "" chooses nothing, or leaves
    the choice to the picture. `token` looks, and `key_token` is looked at where those are two texts; `pins`
    are further tokens, with spaces between them. They look, or are looked at with the `side` "key". `heads`
    are drawn, the chosen one where it is "", none where it is "0". `hop1` and `hop2` are the two heads that
    words pass through, the best ones where they are "".
    """

    layer: int = 2
    head: int = 1
    token: str = "it"
    key_token: str = ""
    sentence: int = 1
    side: str = "query"
    pins: str = ""
    heads: str = ""
    drawing: str = "lines"
    threshold: str = ""
    lines: str = ""
    specials: str = "shown"
    words: str = "pieces"
    hop1: str = ""
    hop2: str = ""

    @classmethod
    def of_link(cls, values: Mapping[str, object]) -> "Focus":
        """The focus that a link names; a value that makes no sense is left out."""
        return cls(
            **{name: value for name, value in map(_read, strings(values).items()) if value is not None}
        )

    def link(self) -> dict[str, str]:
        """Every field as it stands in a link."""
        return {name: str(value) for name, value in vars(self).items()}


def strings(values: Mapping[str, object]) -> dict[str, str]:
    """What a link says of the fields of a focus."""
    return {field.name: str(values[field.name]) for field in fields(Focus) if field.name in values}


def _read(field: tuple[str, str]) -> tuple[str, int | str | None]:
    """A field of a link with its value; None where that is no number, or too long for anything."""
    name, value = field
    if not isinstance(getattr(Focus, name), int):
        return name, value if len(value) <= MAX_WORDS else None
    number = int(value) if value.isascii() and value.isdecimal() and len(value) < 9 else 0
    return name, number or None
