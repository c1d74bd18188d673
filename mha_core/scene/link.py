"""The grammar of a scene's link: its fields by name, ``text=…&h=4&token=it``, and the values of each."""

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode

from mha_core.errors import MhaError, Phrase, listed, named_type
from mha_core.focus.fields import nearest, range_rule
from mha_core.focus.token_names import as_number
from mha_core.scene.other import KINDS
from mha_core.scene.page import HOME, SEVERAL
from mha_core.scene.source_settings import SETTINGS

LEAST = {"h": 1, "d_model": 1, "d_k": 1, "d_v": 1, "n_kv_heads": 1, "layers": 1, "seed": 0, "step": 0}
SIZES = ("d_model", "h", "n_kv_heads", "d_k", "d_v")  # they have to fit together
SWITCHES = ("ask_model", "bias")
CHARACTERS = "characters"  # the key of the longest text among the limits
OF_HEADS = ("layer", "head", "heads", "hop1", "hop2")  # fields that are a layer or heads
WITH_HEADS = ("edits", "against")  # fields that can name heads
WEIGHTS = "weights"  # the field for the edition of the trained weights
SEPARATOR = ","  # between the values of a field with several


class Refused(NamedTuple):
    """A value of a link that is not valid: the rule that it breaks, and what is used instead."""

    name: str
    value: str
    reason: str
    replacement: object


class LinkParts(NamedTuple):
    """The parts of a link: its page, its values by name, and the heading on the page, "" for none."""

    page: str
    values: Mapping[str, str]
    section: str = ""


def parts(link: str) -> LinkParts:
    """The parts of a link: of an address, ``http://…/cost?…#sharing``, or of what follows its "?".

    The values of a field with several are joined by commas. Raises `MhaError` if the link is not a text.
    """
    values: dict[str, list[str]] = {}
    for name, value in parse_qsl(_query(link), keep_blank_values=True):
        values.setdefault(name, []).append(value)
    joined = {name: SEPARATOR.join(several) for name, several in values.items()}
    return LinkParts(_page(link) or HOME, joined, unquote(link.strip().partition("#")[2]))


def compose(parts: LinkParts) -> str:
    """The link of these parts, ``cost?…#sharing``, as an address relative to that of the home page."""
    page = "" if parts.page == HOME else quote(parts.page, safe="%")
    several = {name: parts.values[name].split(SEPARATOR) for name in parts.values.keys() & SEVERAL}
    query = urlencode({**parts.values, **several}, doseq=True)
    return f"{page}?{query}" + (f"#{quote(parts.section)}" if parts.section else "")


def _query(link: str) -> str:
    if not isinstance(link, str):
        raise MhaError("A link is a text, as in 'text=How are you?&h=4'; got {type}.", type=named_type(link))
    link = link.strip().partition("#")[0]
    return link.partition("?")[2] if _is_address(link) else link


def _page(link: str) -> str:
    """The last part of an address's path, "" without one; an app may have a path of its own on its server."""
    before, _, _ = link.strip().partition("#")[0].partition("?")
    _, has_server, behind = before.partition("://")
    path = behind.partition("/")[2] if has_server else before
    return path.rpartition("/")[2] if _is_address(link) else ""


def _is_address(link: str) -> bool:
    """Whether it is an address, or "?" with what follows. A "?" after the first "=" belongs to a text."""
    before, _, _ = link.partition("?")
    return "=" not in before and (before != link or "://" in link)


def refusal(name: str, value: str, limits: Mapping[str, int] | None = None) -> str | None:
    """The rule that a value of a scene's field breaks; None for a valid value.

    `limits` are the largest numbers by name, and the most "characters" of a text; by default those of the
    library.
    """
    limits = library_limits() if limits is None else limits
    if names := choices().get(name):
        return None if value in names else Phrase("{name} is {names}", name=name, names=listed(names, "or"))
    if name in SWITCHES:
        return None if value.lower() in ("true", "false") else Phrase("{name} is true or false", name=name)
    if name == "revision":
        return (
            None
            if not value or _is_revision(value)
            else Phrase("revision is a branch, tag or commit of the hub")
        )
    if name in LEAST:
        return range_rule(name, value, LEAST[name], limits[name])
    if name == "against" and value and value.partition(":")[0] not in KINDS:
        return Phrase("against is {kinds}, with a value as in h:1", kinds=listed(KINDS, "or"))
    if CHARACTERS in limits and len(value) > limits[CHARACTERS]:
        return Phrase("{name} has at most {limit:,} characters", name=name, limit=limits[CHARACTERS])
    return None


def replacement(name: str, value: str, default: object, limits: Mapping[str, int] | None = None) -> Any:
    """What is used in place of a refused value: the nearest valid number, or the default."""
    limits = library_limits() if limits is None else limits
    number = nearest(value, LEAST[name], limits[name]) if name in LEAST else None
    return default if number is None else number


def names_heads(values: Mapping[str, str]) -> bool:
    """Whether a link with these values names a layer or a head."""
    return not values.keys().isdisjoint(OF_HEADS) or any(
        "head" in values.get(name, "") for name in WITH_HEADS
    )


def is_older(weights: str) -> bool:
    """Whether a link names an earlier edition of the trained weights than the one here."""
    number = as_number(weights)
    return number is not None and number < edition()


def read(name: str, value: str, default: object) -> Any:
    """The value of a scene's field, read from a valid value of a link."""
    if name in LEAST:
        return int(value) if value else default
    if name in SWITCHES:
        return value.lower() == "true"
    return value or (None if default is None else "")


# Values that other rooms define; those rooms are loaded with the first link.


@cache
def choices() -> dict[str, tuple[str, ...]]:
    """The names that a field can have, for the fields with a fixed set of names."""
    from mha_core.attention.masks import MASKS
    from mha_core.attention.positions import POSITIONS
    from mha_core.sources.huggingface.model import DTYPES
    from mha_core.training.model import ARCHITECTURES

    names = {"source": SETTINGS, "architecture": ARCHITECTURES, "position": POSITIONS, "mask": MASKS}
    return {name: tuple(of_name) for name, of_name in (names | {"dtype": DTYPES}).items()}


@cache
def library_limits() -> dict[str, int]:
    """The largest numbers that the library accepts."""
    from mha_core.attention.initialization import MAX_SEED
    from mha_core.attention.module import MAX_D_MODEL, MAX_HEADS
    from mha_core.sources.random_weights import MAX_LAYERS
    from mha_core.training.fit import MAX_STEPS

    widths, heads = ("d_model", "d_k", "d_v"), ("h", "n_kv_heads")
    others = {"layers": MAX_LAYERS, "seed": MAX_SEED, "step": MAX_STEPS}
    return dict.fromkeys(widths, MAX_D_MODEL) | dict.fromkeys(heads, MAX_HEADS) | others


def edition() -> int:
    """The edition of the trained weights here."""
    from mha_core.training import checkpoints

    return checkpoints.edition()


def _is_revision(name: str) -> bool:
    from mha_core.sources.huggingface.files import is_revision

    return is_revision(name)
