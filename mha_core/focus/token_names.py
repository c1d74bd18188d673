"""How a scene names a token: ``it``, ``the~2`` for the second "the", or its number from 1."""

import unicodedata
from collections import Counter
from functools import lru_cache

from mha_core.errors import MhaError
from mha_core.traces.tokens import MARKS, Tokens


def as_number(text: str) -> int | None:
    """The number that a value of a link is; None for any other text, and for more than 18 digits."""
    return int(text) if _is_number(text) and len(text) < 19 else None  # Python reads 4,300 digits at most


def numbered(tokens: Tokens, name: str) -> int | None:
    """The position from 0 that a number from 1 names, the last one for a larger number; None for a word."""
    if not _is_number(name):
        return None
    number = as_number(name)
    return len(tokens) - 1 if number is None else min(number, len(tokens)) - 1 if number else None


def position(tokens: Tokens, name: str) -> int | None:
    """The position from 0 of the token with this name, a word or a number from 1; None if there is none.

    A word that was split into pieces, or that occurs several times, names the first one.
    """
    if not name or _is_number(name):
        return numbered(tokens, name)
    try:
        return tokens.index(name)
    except MhaError as error:
        return error.fixes[0]["token"] if error.fixes else None


@lru_cache(maxsize=16)
def names(tokens: Tokens) -> tuple[str, ...]:
    """The name of each token: its word, ``the~2`` for the second "the", or its number from 1.

    It is a number if no word would lead back to the token. No name contains white space.
    """
    forms = [unicodedata.normalize("NFC", piece).lstrip(MARKS) for piece in tokens.pieces]
    alone = {form: _word(tokens, form) for form in set(forms)}
    count: Counter[str] = Counter()
    found: list[str] = []
    for at, form in enumerate(forms):
        count[form] += 1
        nth = f"{form}~{count[form]}"
        word = form if alone[form] == at else nth if _word(tokens, nth) == at else None
        found.append(word or str(at + 1))
    return tuple(found)


def _word(tokens: Tokens, name: str) -> int | None:
    """The position of the token that a word names; None for a text that no word can be."""
    if not name or name.isdecimal() or any(map(str.isspace, name)):
        return None
    try:
        return tokens.index(name)
    except MhaError:
        return None


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal()
