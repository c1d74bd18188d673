"""The page that shows a scene, the fields that only this page has, and the parts of a link to it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode

from mha_core.errors import MhaError, Phrase, listed, named_type, one_of
from mha_core.focus.fields import MAX_CHARACTERS

HOME = "heads"  # the page of an address without a path
# The pages by their names in an address, with the names of their own fields.
PAGES: Mapping[str, tuple[str, ...]] = {
    HOME: (),
    "token": ("component", "ledger", "ledger_word", "ledger_other", "ledger_part"),
    "compare": (),
    "steps": (
        *("steps_view", "operation", "row", "code"),
        *("positions_length", "positions_width", "positions_h", "positions_head"),
    ),
    "what-if": (),
    "embeddings": ("axes", "word", "classes"),
    "cost": (
        *("cost_tokens", "cost_d_model", "cost_h", "cost_d_k", "cost_d_v", "cost_kv_rank", "cost_n_kv_heads"),
        *("cost_q_rank", "cost_rotary_width", "cost_batch", "cost_dtype"),
    ),
    "train": (
        *("train_view", "train_h", "train_d_model", "train_architecture", "train_language", "train_seed"),
        "width",
    ),
    "lessons": ("lesson", "screen", "answers", "like", "projector", "worksheet", "lesson_file"),
    "cases": (),
    "model": ("place", "mixer_head"),
    "atlas": ("atlas", "atlas_x", "atlas_y", "atlas_heads", "atlas_measure", "atlas_decile", "atlas_text"),
}
OF_APP = ("lang", "embed", "embed_options", "case", "room", "desk", "scene")  # further fields, of no scene
SEVERAL = ("classes",)  # fields with several values; an address repeats their name for each
SEPARATOR = ","  # between the values of a field with several
# Pages of older links: the page that now has each as a view, and the field that opens it.
MOVED: Mapping[str, tuple[str, str, str]] = {
    "hops": ("steps", "steps_view", "layers"),
    "positions": ("steps", "steps_view", "order"),
    "sweep": ("train", "train_view", "heads"),
}


def moved(name: str, values: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    """The page and values of a link, updated if the link is an older one."""
    if name not in MOVED:
        return name, values
    page, field, view = MOVED[name]
    return page, {**values, field: view}


@dataclass(frozen=True)
class Page:
    """A page by its `name` in an address, the heading where it opens, and its own fields with their values.

    The values are texts, as in a link; each page checks its own. Raises `MhaError` for an unknown page, and
    for a field that the page does not have.
    """

    name: str = HOME
    section: str = ""
    fields: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        one_of("page", self.name, PAGES)
        for field, _ in self.fields:
            if field not in PAGES[self.name]:
                own = listed(PAGES[self.name], "and") if PAGES[self.name] else Phrase("none")
                raise MhaError(
                    "The page {name} has no field {field!r}; its own fields are {own}.",
                    name=self.name,
                    field=field,
                    own=own,
                )

    @classmethod
    def of(cls, name: str, section: str, values: Mapping[str, str]) -> "Page":
        """The page of that name, with its own values that are not empty."""
        own = ((field, values[field]) for field in PAGES[name] if values.get(field))
        return cls(
            name, section, tuple((field, value) for field, value in own if len(value) <= MAX_CHARACTERS)
        )


class LinkParts(NamedTuple):
    """The parts of a link: its page, its values by name, and the heading on the page, "" for none."""

    page: str
    values: Mapping[str, str]
    section: str = ""


def parts(link: str) -> LinkParts:
    """The parts of a link: of an address, ``http://…/cost?…#sharing``, or of what follows its "?".

    The values of a field with several are joined by commas. Raises `MhaError` if the link is not a text.
    """
    if not isinstance(link, str):
        raise MhaError("A link is a text, as in 'text=How are you?&h=4'; got {type}.", type=named_type(link))
    address, _, section = link.strip().partition("#")
    before, mark, query = address.partition("?")
    page = ""
    if "=" in before or not (mark or "://" in before):  # a "?" after the first "=" belongs to a text
        query = address
    else:  # an app may have a path of its own on its server
        _, has_server, behind = before.partition("://")
        page = (behind.partition("/")[2] if has_server else before).rpartition("/")[2]
    values: dict[str, list[str]] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        values.setdefault(name, []).append(value)
    joined = {name: SEPARATOR.join(several) for name, several in values.items()}
    return LinkParts(page or HOME, joined, unquote(section))


def compose(parts: LinkParts) -> str:
    """The link of these parts, ``cost?…#sharing``, as an address relative to that of the home page."""
    page = "" if parts.page == HOME else quote(parts.page, safe="%")
    several = {name: parts.values[name].split(SEPARATOR) for name in parts.values.keys() & SEVERAL}
    query = urlencode({**parts.values, **several}, doseq=True)
    return f"{page}?{query}" + (f"#{quote(parts.section)}" if parts.section else "")
