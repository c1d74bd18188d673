"""Where the pictures of a scene look, and how they are drawn."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from mha_core.errors import Phrase, listed
from mha_core.focus.fields import MAX_CHARACTERS, nearest, range_rule
from mha_core.focus.token_names import names, position
from mha_core.traces.tokens import Tokens
from mha_core.traces.trace import AttentionTrace

MAX_NUMBER = 10**8 - 1  # of a layer or a head in a link; beyond the last one it means the last one
LEAST = {"layer": 1, "head": 1, "sentence": 1, "lines": 0, "hop1": 0, "hop2": 0}
# The names that some fields can have; the first is the default.
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
    """Where the pictures of a page look and how they are drawn: one value in link, server and browser.

    A token is named by its word, the second "the" by ``the~2``; numbers count from 1. "" chooses nothing, or
    leaves the choice to the picture. `token` is the query; `key_token` is the key if that belongs to another
    text; `pins` are further tokens, separated by spaces: queries, or keys with the `side` "key". `heads` are
    the drawn heads: the chosen one for "", none for "0". `hop1` and `hop2` are the two heads of a two-step
    path, the best ones for "". Colours and lines of weights go from 0 to 1, or with the `scale` "fitted" to
    the largest visible weight. `matrix` is the one of the six matrices that is large, and `number` the row
    and column in it, ``9,3``, of the number that is explained.
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
        """The focus that a link names. An invalid number is replaced by the nearest valid one.

        Other invalid values are left out.
        """
        given = {name: _accepted(name, value) for name, value in strings(values).items()}
        numbers = {name for name in given if isinstance(getattr(Focus, name), int)}
        read: dict[str, Any] = {name: value for name, value in given.items() if name not in numbers}
        return cls(**read | {name: int(given[name]) for name in numbers if given[name]})

    def link(self) -> dict[str, str]:
        """Every field as it is written in a link."""
        return {name: str(value) for name, value in vars(self).items()}


def focus_on(trace: AttentionTrace, layer: int, head: int, token: int | None, heads: Sequence[int]) -> Focus:
    """The focus on a layer, a head and a token of a trace, with the heads that are drawn, all from 0."""
    return Focus(
        layer=layer + 1,
        head=head + 1,
        token="" if token is None else names(trace.sides.queries)[token],
        heads="" if [*heads] == [head] else ",".join(str(one + 1) for one in heads),
    )


def is_unset(focus: Focus, tokens: Tokens) -> bool:
    """Whether a focus is that of a link without one: the first head, and a word that is not in the text."""
    at_first = (focus.layer, focus.head, focus.sentence) == (Focus.layer, Focus.head, Focus.sentence)
    return at_first and bool(focus.token) and position(tokens, focus.token) is None


def strings(values: Mapping[str, object]) -> dict[str, str]:
    """A link's values for the fields of a focus."""
    return {field.name: str(values[field.name]) for field in fields(Focus) if field.name in values}


def refusal(name: str, value: str) -> str | None:
    """The rule that a value of a field breaks, None for a valid one; "" leaves it to the picture."""
    if name in LEAST:
        return range_rule(name, value, LEAST[name], MAX_NUMBER)
    if name in CHOICES:
        rule = Phrase("{name} is {names}", name=name, names=listed(CHOICES[name], "or"))
        return None if value in ("", *CHOICES[name]) else rule
    if len(value) > MAX_CHARACTERS:
        return Phrase("{name} has at most {limit:,} characters", name=name, limit=MAX_CHARACTERS)
    if name == "threshold":
        return None if not value or _is_share(value) else Phrase("threshold is a number from 0")
    if name == "heads":
        wrong = value and any(not one or range_rule(name, one, 0, MAX_NUMBER) for one in value.split(","))
        rule = Phrase(
            "heads are whole numbers from 0 to {limit:,}, with commas between them", limit=MAX_NUMBER
        )
        return rule if wrong else None
    if name == "number":
        places = value.split(",")
        wrong = value and (
            len(places) != 2 or any(not at or range_rule(name, at, 1, MAX_NUMBER) for at in places)
        )
        return Phrase("number is a row and a column from 1, as in 9,3") if wrong else None
    return None


def _accepted(name: str, value: str) -> str:
    """The value that a field gets for this value in a link."""
    if refusal(name, value) is None:
        return value
    number = nearest(value, LEAST[name], MAX_NUMBER) if name in LEAST else None
    return str(getattr(Focus, name) if number is None else number)


def _is_share(text: str) -> bool:
    try:
        return 0 <= float(text) < math.inf
    except ValueError:
        return False
