"""Where the pictures of a scene look, and how they are drawn."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mha_core.errors import Phrase
from mha_core.focus.fields import MAX_CHARACTERS, Choice, Field, Form, Number, read_all
from mha_core.focus.token_names import names, position
from mha_core.traces.matrices import VIEWED
from mha_core.traces.tokens import Tokens
from mha_core.traces.trace import AttentionTrace

MAX_NUMBER = 10**8 - 1  # of a layer or a head in a link; beyond the last one it means the last one


def _is_share(text: str) -> bool:
    try:
        return 0 <= float(text) < math.inf
    except ValueError:
        return False


def _are_numbers(texts: Sequence[str], field: Number) -> bool:
    return all(text and field.rule("", text) is None for text in texts)


FROM_0, FROM_1 = Number(MAX_NUMBER), Number(MAX_NUMBER, least=1)
# The kind of each field; the first name of a choice is the default.
FIELDS: Mapping[str, Field] = {
    **dict.fromkeys(("layer", "head", "sentence"), FROM_1),
    **dict.fromkeys(("lines", "hop1", "hop2"), FROM_0),
    **dict.fromkeys(("token", "key_token", "pins"), Field(MAX_CHARACTERS)),
    "drawing": Choice(names=("lines", "text", "arcs", "matrix"), optional=True),
    "side": Choice(names=("query", "key"), optional=True),
    "specials": Choice(names=("shown", "hidden"), optional=True),
    "words": Choice(names=("pieces", "whole"), optional=True),
    "scale": Choice(names=("full", "fitted"), optional=True),
    "matrix": Choice(names=("none", *VIEWED), optional=True),
    "threshold": Form(MAX_CHARACTERS, fits=_is_share, wrong=Phrase("threshold is a number from 0")),
    "heads": Form(
        MAX_CHARACTERS,
        fits=lambda value: _are_numbers(value.split(","), FROM_0),
        wrong=Phrase(
            "heads are whole numbers from 0 to {limit:,}, with commas between them", limit=MAX_NUMBER
        ),
    ),
    "number": Form(
        MAX_CHARACTERS,
        fits=lambda value: value.count(",") == 1 and _are_numbers(value.split(","), FROM_1),
        wrong=Phrase("number is a row and a column from 1, as in 9,3"),
    ),
}
CHOICES = {name: field.names for name, field in FIELDS.items() if isinstance(field, Choice)}


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
        return cls(**read_all(FIELDS, strings(values), cls)[0])

    def link(self) -> dict[str, str]:
        """Every field as it is written in a link."""
        return {name: str(value) for name, value in vars(self).items()}


def focus_on(
    trace: AttentionTrace, layer: int, head: int, token: int | None, heads: Sequence[int] | None
) -> Focus:
    """The focus on a layer, a head and a token of a trace, with the heads that are drawn, all from 0.

    Without `heads` the picture chooses them.
    """
    return Focus(
        layer=layer + 1,
        head=head + 1,
        token="" if token is None else names(trace.sides.queries)[token],
        heads="" if heads is None else ",".join(str(one + 1) for one in heads),
    )


def is_unset(focus: Focus, tokens: Tokens) -> bool:
    """Whether a focus is that of a link without one: the first head, and a word that is not in the text."""
    at_first = (focus.layer, focus.head, focus.sentence) == (Focus.layer, Focus.head, Focus.sentence)
    return at_first and bool(focus.token) and position(tokens, focus.token) is None


def strings(values: Mapping[str, object]) -> dict[str, str]:
    """A link's values for the fields of a focus."""
    return {name: str(values[name]) for name in FIELDS if name in values}
