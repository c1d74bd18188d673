"""The rules of a link's fields."""

from mha_core.errors import Phrase
from mha_core.focus.token_names import as_number

MAX_CHARACTERS = 10_000  # characters of a value


def range_rule(name: str, value: str, least: int, most: int) -> str | None:
    """The rule that a value breaks that is not a whole number in this range; None for a valid one and ""."""
    number = as_number(value)
    can_be = not value or (number is not None and least <= number <= most)
    return (
        None
        if can_be
        else Phrase("{name} is a whole number from {low} to {high:,}", name=name, low=least, high=most)
    )


def nearest(value: str, least: int, most: int) -> int | None:
    """The number from `least` to `most` that is nearest to a whole number; None for any other text."""
    sign, digits = value.startswith("-"), value.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()):
        return None
    number = as_number(digits.lstrip("0") or "0")
    return least if sign else most if number is None else min(max(number, least), most)
