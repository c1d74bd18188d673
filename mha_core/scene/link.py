"""The fields of a scene's link, ``text=…&h=4&token=it``: what each can have, and the rule that it breaks."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mha_core.attention.initialization import MAX_SEED
from mha_core.attention.masks import MASKS
from mha_core.attention.module import MAX_D_MODEL, MAX_HEADS
from mha_core.attention.positions import POSITIONS
from mha_core.errors import Phrase, listed
from mha_core.focus.fields import nearest, range_rule
from mha_core.focus.token_names import as_number
from mha_core.sources.huggingface.files import is_revision
from mha_core.sources.huggingface.model import DTYPES
from mha_core.sources.random_weights import MAX_LAYERS
from mha_core.training import checkpoints
from mha_core.training.fit import MAX_STEPS
from mha_core.training.model import ARCHITECTURES

# The settings that each source of a scene has, besides the text.
SETTINGS = {
    "mini": ("h", "d_model", "architecture"),
    "random": ("h", "d_model", "seed", "layers", "d_k", "d_v", "n_kv_heads", "position", "mask", "bias"),
    "run": ("run", "step"),
    "file": ("file", "kind"),
    "model": ("model", "revision", "dtype", "target", "kind"),
}
WITH_CLS = ("mini", "run")  # sources whose sentences begin with [CLS]
APP_ONLY = ("run", "file")  # sources that exist only in the app that trained the model or opened the file
UNTRAINED, TWIN, HEAD, MODEL = "untrained", "twin", "head", "model"
COMPARED = (UNTRAINED, HEAD, "h", "mask", "position", "architecture", TWIN, MODEL)  # sides of Compare
LEAST = {"h": 1, "d_model": 1, "d_k": 1, "d_v": 1, "n_kv_heads": 1, "layers": 1, "seed": 0, "step": 0}
SIZES = ("d_model", "h", "n_kv_heads", "d_k", "d_v")  # they have to fit together
SWITCHES = ("ask_model", "bias")
CHARACTERS = "characters"  # the key of the longest text among the limits
OF_HEADS = ("layer", "head", "heads", "hop1", "hop2")  # fields that are a layer or heads
WITH_HEADS = ("edits", "against")  # fields that can name heads
WEIGHTS = "weights"  # the field for the edition of the trained weights


class Refused(NamedTuple):
    """A value of a link that is not valid: the rule that it breaks, and what is used instead."""

    name: str
    value: str
    reason: str
    replacement: object


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
            if not value or is_revision(value)
            else Phrase("revision is a branch, tag or commit of the hub")
        )
    if name in LEAST:
        return range_rule(name, value, LEAST[name], limits[name])
    if name == "against" and value and value.partition(":")[0] not in COMPARED:
        return Phrase("against is {kinds}, with a value as in h:1", kinds=listed(COMPARED, "or"))
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
    return number is not None and number < checkpoints.edition()


def read(name: str, value: str, default: object) -> Any:
    """The value of a scene's field, read from a valid value of a link."""
    if name in LEAST:
        return int(value) if value else default
    if name in SWITCHES:
        return value.lower() == "true"
    return value or (None if default is None else "")


def choices() -> dict[str, tuple[str, ...]]:
    """The names that a field can have, for the fields with a fixed set of names."""
    names = {"source": SETTINGS, "architecture": ARCHITECTURES, "position": POSITIONS, "mask": MASKS}
    return {name: tuple(of_name) for name, of_name in (names | {"dtype": DTYPES}).items()}


def library_limits() -> dict[str, int]:
    """The largest numbers that the library accepts."""
    widths, heads = ("d_model", "d_k", "d_v"), ("h", "n_kv_heads")
    others = {"layers": MAX_LAYERS, "seed": MAX_SEED, "step": MAX_STEPS}
    return dict.fromkeys(widths, MAX_D_MODEL) | dict.fromkeys(heads, MAX_HEADS) | others


class Other(NamedTuple):
    """The other side of Compare, ``h:1`` in a link: what differs there, and its value, "" for no choice."""

    kind: str
    value: str = ""

    def link(self) -> str:
        return self.kind + (f":{self.value}" if self.value else "")

    @classmethod
    def of_link(cls, link: str, offered: Mapping[str, Sequence[str]]) -> tuple["Other | None", bool]:
        """What a link names, and whether it is missing from what is `offered`: the first offer is used then.

        A second sentence is never that first offer, since its text field is shown only if a link names it.
        """
        kind, _, value = link.partition(":")
        if value in offered.get(kind, ()):
            return cls(kind, value), False
        first = kind if kind in offered else next((name for name in offered if name != TWIN), None)
        near = None if first is None else cls(first, offered[first][0])
        return near, bool(value or (link and kind not in offered))
