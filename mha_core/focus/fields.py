"""The kinds of fields of a link: the rule of each, how a value is read, and what replaces an invalid one."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mha_core.errors import Phrase, listed
from mha_core.focus.token_names import as_number

MAX_CHARACTERS = 10_000  # characters of a value of a focus or of a page
CHARACTERS = "characters"  # the longest text among a server's limits
Limits = Mapping[str, int]  # a server's own largest values, by the names of the fields
NO_LIMITS: Limits = {}


@dataclass(frozen=True)
class Field:
    """A text of at most `most` characters, or of as many as a server allows. The other kinds accept less."""

    most: int | None = None

    def rule(self, name: str, value: str, limits: Limits = NO_LIMITS) -> str | None:
        """The rule that a value breaks; None for a valid one."""
        most = limits.get(CHARACTERS) if self.most is None else self.most
        if most is None or len(value) <= most:
            return None
        return Phrase("{name} has at most {limit:,} characters", name=name, limit=most)

    def read(self, value: str, default: Any) -> Any:
        """The meaning of a valid value; `default` is that of a link without the field."""
        return value or (None if default is None else "")

    def replacement(self, name: str, value: str, default: Any, limits: Limits) -> Any:
        """The value used in place of an invalid one."""
        return default


@dataclass(frozen=True, kw_only=True)
class Form(Field):
    """A text of one form, such as ``9,3``, or "". `fits` tells which ones have it; `wrong` is the rule."""

    fits: Callable[[str], bool]
    wrong: Phrase

    def rule(self, name: str, value: str, limits: Limits = NO_LIMITS) -> str | None:
        wrong = self.wrong if value and not self.fits(value) else super().rule(name, value, limits)
        return super().rule(name, value) or wrong  # a limit of its own comes before the form


@dataclass(frozen=True, kw_only=True)
class Choice(Field):
    """One of several names; "" too if it is `optional`."""

    names: tuple[str, ...]
    optional: bool = False

    def rule(self, name: str, value: str, limits: Limits = NO_LIMITS) -> str | None:
        is_valid = value in self.names or (self.optional and not value)
        return None if is_valid else Phrase("{name} is {names}", name=name, names=listed(self.names, "or"))


class Switch(Field):
    """True or false."""

    def rule(self, name: str, value: str, limits: Limits = NO_LIMITS) -> str | None:
        return None if value.lower() in ("true", "false") else Phrase("{name} is true or false", name=name)

    def read(self, value: str, default: Any) -> bool:
        return value.lower() == "true"


@dataclass(frozen=True)
class Number(Field):
    """A whole number from `least` to `most`, or "" for the default. It stays a text if the default is one."""

    most: int
    least: int = 0

    def rule(self, name: str, value: str, limits: Limits = NO_LIMITS) -> str | None:
        number, most = as_number(value), limits.get(name, self.most)
        if not value or (number is not None and self.least <= number <= most):
            return None
        return Phrase("{name} is a whole number from {low} to {high:,}", name=name, low=self.least, high=most)

    def read(self, value: str, default: Any) -> Any:
        return value if isinstance(default, str) else int(value) if value else default

    def replacement(self, name: str, value: str, default: Any, limits: Limits) -> Any:
        """The nearest valid number to a whole number; the default for any other text."""
        sign, digits = value.startswith("-"), value.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal()):
            return default
        number, most = as_number(digits.lstrip("0") or "0"), limits.get(name, self.most)
        near = self.least if sign else most if number is None else min(max(number, self.least), most)
        return str(near) if isinstance(default, str) else near


def read_all(
    kinds: Mapping[str, Field], values: Mapping[str, str], owner: type, limits: Limits = NO_LIMITS
) -> tuple[dict[str, Any], dict[str, tuple[str, str]]]:
    """The meaning of a link's values for the fields of `owner`, and the rules that the invalid ones break."""
    found, wrong = {}, {}
    for name, default in ((field.name, field.default) for field in dataclasses.fields(owner)):
        if name not in kinds or (value := values.get(name)) is None:
            continue
        if rule := kinds[name].rule(name, value, limits):
            wrong[name] = value, rule
            found[name] = kinds[name].replacement(name, value, default, limits)
        else:
            found[name] = kinds[name].read(value, default)
    return found, wrong
