"""How a scene names a token: ``it``, ``the~2`` for the second "the", or its number from 1."""

from mha_core.errors import MhaError
from mha_core.traces.tokens import MARKS, Tokens


def as_number(text: str) -> int | None:
    """The number that a value of a link is, however many digits it has; None for anything else."""
    is_number = text.isascii() and text.isdecimal() and len(text) < 19  # Python reads 4,300 digits at most
    return int(text) if is_number else None


def numbered(tokens: Tokens, name: str) -> int | None:
    """The position from 0 that a number from 1 means, the last one beyond the end; None for a word."""
    number = as_number(name)
    return min(number, len(tokens)) - 1 if number else None


def position(tokens: Tokens, name: str) -> int | None:
    """The position from 0 of the token of this name, a word or a number from 1; None where there is none.

    Of a word that was cut into pieces, or that stands several times, it is the first.
    """
    number = numbered(tokens, name)
    if number is not None or not name:
        return number
    try:
        return tokens.index(name)
    except MhaError as error:
        return error.fixes[0]["token"] if error.fixes else None


def name_of(tokens: Tokens, at: int) -> str:
    """The name of a token in a focus: its word, or its number where the word would not lead back to it."""
    forms = [label.partition("\u2009")[0].lstrip(MARKS) for label in tokens.labels[: at + 1]]
    names = (forms[at], f"{forms[at]}~{forms.count(forms[at])}")
    words = (name for name in names if name and " " not in name and not name.isdecimal())
    return next((name for name in words if _leads_to(tokens, name, at)), str(at + 1))


def _leads_to(tokens: Tokens, name: str, at: int) -> bool:
    try:
        return tokens.index(name) == at
    except MhaError:
        return False
