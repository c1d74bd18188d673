"""What the pictures of a scene look at, and how they are drawn."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from mha_core.errors import Phrase, listed
from mha_core.scene.link import nearest, outside
from mha_core.scene.token_names import names

if TYPE_CHECKING:
    from mha_core.traces.trace import AttentionTrace

MAX_WORDS = 10_000  # characters of a field of the focus
MAX_NUMBER = 10**8 - 1  # of a layer or a head in a link; beyond those that there are it is the last one
LEAST = {"layer": 1, "head": 1, "sentence": 1, "lines": 0, "hop1": 0, "hop2": 0}
# The values of those fields of the focus that have a few names; the first is the default.
CHOICES = {
    "drawing": ("lines", "text", "arcs", "matrix"),
    "side": ("query", "key"),
    "specials": ("shown", "hidden"),
    "words": ("pieces", "whole"),
    "scale": ("full", "fitted"),
    "matrix": ("none", "q", "k", "v", "scores", "weights", "output"),
}


@dataclass(frozen=True)
class Focus:
    """What the pictures of a page look at and how they are drawn: one value in link, server and browser.

    A token is its word, the second "the" is ``the~2``; a number counts from 1. "" chooses nothing, or leaves
    the choice to the picture. `token` looks, and `key_token` is looked at where those are two texts; `pins`
    are further tokens, with spaces between them. They look, or are looked at with the `side` "key". `heads`
    are drawn, the chosen one where it is "", none where it is "0". `hop1` and `hop2` are the two heads that
    words pass through, the best ones where they are "". Colours and lines of weights go from 0 to 1; on the
    `scale` "fitted" they end at the largest weight in sight. `matrix` is the one of the six that is large,
    and `number` the row and the column in it, ``9,3``, whose number is explained.
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
    scale: str = "full"
    matrix: str = "none"
    number: str = ""
    hop1: str = ""
    hop2: str = ""

    @classmethod
    def of_link(cls, values: Mapping[str, object]) -> "Focus":
        """The focus that a link names; of a number that cannot be the nearest, other values are left out."""
        given = {name: _taken(name, value) for name, value in strings(values).items()}
        numbers = {name for name in given if isinstance(getattr(Focus, name), int)}
        texts = {name: value for name, value in given.items() if name not in numbers}
        return cls(**texts, **{name: int(given[name]) for name in numbers if given[name]})

    def link(self) -> dict[str, str]:
        """Every field as it stands in a link."""
        return {name: str(value) for name, value in vars(self).items()}


def focus_on(
    trace: "AttentionTrace", layer: int, head: int, token: int | None, heads: Sequence[int]
) -> Focus:
    """The focus on a layer, a head and a token of a trace, with the heads that are drawn, all from 0."""
    return Focus(
        layer=layer + 1,
        head=head + 1,
        token="" if token is None else names(trace.sides.queries)[token],
        heads="" if [*heads] == [head] else ",".join(str(one + 1) for one in heads),
    )


def strings(values: Mapping[str, object]) -> dict[str, str]:
    """What a link says of the fields of a focus."""
    return {field.name: str(values[field.name]) for field in fields(Focus) if field.name in values}


def refusal(name: str, value: str) -> str | None:
    """The rule that a value of a field breaks, None where it can be; "" leaves it to the picture."""
    if name in LEAST:
        return outside(name, value, LEAST[name], MAX_NUMBER)
    if name in CHOICES:
        rule = Phrase("{name} is {names}", name=name, names=listed(CHOICES[name], "or"))
        return None if value in ("", *CHOICES[name]) else rule
    if len(value) > MAX_WORDS:
        return Phrase("{name} has at most {limit:,} characters", name=name, limit=MAX_WORDS)
    if name == "threshold":
        return None if not value or _is_share(value) else Phrase("threshold is a number from 0")
    if name == "heads":
        wrong = value and any(not one or outside(name, one, 0, MAX_NUMBER) for one in value.split(","))
        rule = Phrase(
            "heads are whole numbers from 0 to {limit:,}, with commas between them", limit=MAX_NUMBER
        )
        return rule if wrong else None
    if name == "number":
        places = value.split(",")
        wrong = value and (
            len(places) != 2 or any(not at or outside(name, at, 1, MAX_NUMBER) for at in places)
        )
        return Phrase("number is a row and a column from 1, as in 9,3") if wrong else None
    return None


def _taken(name: str, value: str) -> str:
    """The value that a field has where a link says this one."""
    if refusal(name, value) is None:
        return value
    number = nearest(value, LEAST[name], MAX_NUMBER) if name in LEAST else None
    return str(getattr(Focus, name) if number is None else number)


def _is_share(text: str) -> bool:
    try:
        return 0 <= float(text) < math.inf
    except ValueError:
        return False
