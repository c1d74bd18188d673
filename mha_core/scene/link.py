"""The fields of a scene in its link, ``text=…&h=4``, besides those of its focus."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mha_core.attention.initialization import MAX_SEED
from mha_core.attention.masks import MASKS
from mha_core.attention.module import MAX_D_MODEL, MAX_HEADS
from mha_core.attention.positions import POSITIONS
from mha_core.errors import Phrase, listed
from mha_core.focus.fields import Choice, Field, Form, Number, Switch
from mha_core.focus.token_names import as_number
from mha_core.sources.huggingface.files import is_revision
from mha_core.sources.huggingface.model import DTYPES
from mha_core.sources.random_weights import MAX_LAYERS
from mha_core.traces.layer import KINDS
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
UNTRAINED, TWIN, HEAD, MODEL, FILE = "untrained", "twin", "head", "model", "file"
COMPARED = (UNTRAINED, HEAD, "h", "mask", "position", "architecture", TWIN, MODEL, FILE)  # sides of Compare
SIZES = ("d_model", "h", "n_kv_heads", "d_k", "d_v")  # they have to fit together
OF_HEADS = ("layer", "head", "heads", "hop1", "hop2")  # fields that are a layer or heads
WITH_HEADS = ("edits", "against")  # fields that can name heads
WEIGHTS = "weights"  # the field for the edition of the trained weights

FIELDS: Mapping[str, Field] = {
    **dict.fromkeys(("text", "twin", "run", "file", "model", "target", "edits"), Field()),
    **dict.fromkeys(("h", "n_kv_heads"), Number(MAX_HEADS, least=1)),
    **dict.fromkeys(("d_model", "d_k", "d_v"), Number(MAX_D_MODEL, least=1)),
    **dict.fromkeys(("ask_model", "bias"), Switch()),
    "layers": Number(MAX_LAYERS, least=1),
    "seed": Number(MAX_SEED),
    "step": Number(MAX_STEPS),
    "source": Choice(names=tuple(SETTINGS)),
    "architecture": Choice(names=tuple(ARCHITECTURES)),
    "position": Choice(names=tuple(POSITIONS)),
    "mask": Choice(names=tuple(MASKS)),
    "dtype": Choice(names=tuple(DTYPES)),
    "kind": Form(
        fits=KINDS.__contains__, wrong=Phrase("{name} is {names}", name="kind", names=listed(KINDS, "or"))
    ),
    "revision": Form(fits=is_revision, wrong=Phrase("revision is a branch, tag or commit of the hub")),
    "against": Form(
        fits=lambda value: value.partition(":")[0] in COMPARED,
        wrong=Phrase("against is {kinds}, with a value as in h:1", kinds=listed(COMPARED, "or")),
    ),
}
NUMBERS = {name: field for name, field in FIELDS.items() if isinstance(field, Number)}
CHOICES = {name: field.names for name, field in FIELDS.items() if isinstance(field, Choice)}


class Refused(NamedTuple):
    """A value of a link that is not valid: the rule that it breaks, and what is used instead."""

    name: str
    value: str
    reason: str
    replacement: object


def names_heads(values: Mapping[str, str]) -> bool:
    """Whether a link with these values names a layer or a head."""
    return not values.keys().isdisjoint(OF_HEADS) or any(
        "head" in values.get(name, "") for name in WITH_HEADS
    )


def is_older(weights: str) -> bool:
    """Whether a link names an earlier edition of the trained weights than the one here."""
    number = as_number(weights)
    return number is not None and number < checkpoints.edition()


class Other(NamedTuple):
    """The other side of Compare, ``h:1`` in a link: what differs there, and its value, "" for no choice."""

    kind: str
    value: str = ""

    def link(self) -> str:
        return self.kind + (f":{self.value}" if self.value else "")

    @classmethod
    def of_link(cls, link: str, offered: Mapping[str, Sequence[str]]) -> tuple["Other | None", bool]:
        """The side that a link names, or the first offer, and whether what it names is not `offered`.

        A second sentence is never that first offer, since its text field is shown only if a link names it.
        """
        kind, _, value = link.partition(":")
        if value in offered.get(kind, ()):
            return cls(kind, value), False
        first = kind if kind in offered else next((name for name in offered if name != TWIN), None)
        near = None if first is None else cls(first, offered[first][0])
        return near, bool(value or (link and kind not in offered))
