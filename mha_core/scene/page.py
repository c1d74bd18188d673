"""The page that shows a scene, and the fields that only this page has."""

from collections.abc import Mapping
from dataclasses import dataclass

from mha_core.errors import MhaError, Phrase, listed, one_of
from mha_core.focus.fields import MAX_CHARACTERS

HOME = "heads"  # the page of an address without a path
COST = (
    "tokens",
    "d_model",
    "h",
    "d_k",
    "d_v",
    "kv_rank",
    "n_kv_heads",
    "q_rank",
    "rotary_width",
    "batch",
    "dtype",
)
ORDER = ("length", "width", "h", "head")
ATLAS = ("x", "y", "heads", "measure", "decile", "text")
TRAINING = ("h", "d_model", "architecture", "language", "seed")
# The pages by their names in an address, with the names of their own fields.
PAGES: Mapping[str, tuple[str, ...]] = {
    HOME: (),
    "token": ("component",),
    "compare": (),
    "steps": ("steps_view", "operation", "code", *(f"positions_{size}" for size in ORDER)),
    "what-if": (),
    "embeddings": ("axes", "word", "classes"),
    "cost": tuple(f"cost_{name}" for name in COST),
    "train": ("train_view", *(f"train_{name}" for name in TRAINING), "width"),
    "lessons": ("lesson", "screen", "answers", "like", "projector", "lesson_file"),
    "cases": (),
    "model": ("place", "mixer_head"),
    "atlas": ("atlas", *(f"atlas_{name}" for name in ATLAS)),
}
SEVERAL = ("classes",)  # fields with several values; an address repeats their name for each
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
