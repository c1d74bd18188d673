"""The source of a trace's numbers: a small frozen value, with one type for each kind of source."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from math import isfinite
from pathlib import PurePath
from types import MappingProxyType, UnionType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, get_args, get_origin

from mha_core.attention.edits import Edit
from mha_core.attention.edits import read as read_edit
from mha_core.errors import Listed, MhaError, Phrase, listed, text_from_json, text_to_json

DECODER = "decoder"  # how the names of causal small models begin
FactValue = str | int | float | None


@dataclass(frozen=True)
class Source:
    """The base of all sources: a name, and sentences about the numbers.

    `skipped` are sentences about the parts that could not be traced, each with its reason; `notes` are
    further remarks. `kind` is the name of the type in files, `CAPTION` are the facts in the caption of a
    figure.
    """

    kind: ClassVar[str]
    CAPTION: ClassVar[tuple[str, ...]] = ("name",)

    if TYPE_CHECKING:  # in some types they are fields, whose default would be the property

        @property
        def name(self) -> str: ...
        @property
        def skipped(self) -> tuple[str, ...]: ...
        @property
        def notes(self) -> tuple[str, ...]: ...
        @property
        def edits(self) -> tuple[Edit, ...]: ...
    else:
        skipped = notes = edits = ()

    @property
    def origin(self) -> "Source":
        """The source that computed the numbers: for a file the saved one, else the source itself."""
        return self

    def caption_facts(self) -> dict[str, object]:
        """The facts for a caption, by their names."""
        return {name: getattr(self, name) for name in self.CAPTION}

    def to_json(self) -> list:
        """The kind and all facts, as JSON values; `read` is the inverse."""
        return [self.kind, {field.name: _json_value(getattr(self, field.name)) for field in fields(self)}]

    def __reduce__(self) -> tuple:
        return read, (self.to_json(),)


DRAWN = "drawn"  # the mask of a source whose mask was given as a tensor


@dataclass(frozen=True)
class RandomSource(Source):
    """Weights drawn at random from a seed; `mask` is `DRAWN` for a mask that the user drew."""

    kind: ClassVar[str] = "random"
    CAPTION: ClassVar[tuple[str, ...]] = ("name", "seed", "mask", "position")
    name: ClassVar[str] = Phrase("random weights")
    seed: int
    position: str
    mask: str
    device: str
    torch: str


@dataclass(frozen=True)
class TrainedSource(Source):
    """A small model trained by this library, with the plan of its training.

    It was trained for `step` of `steps` steps; at step 0 it has its initial weights. `device` and `torch`
    are those of the forward pass, empty where there was none. `questions` has for each head of the last
    layer the questions that read its output, separated by spaces: ``("noun", "doer decider", …)``.
    """

    CAPTION: ClassVar[tuple[str, ...]] = ("name", "architecture", "h", "d_model", "seed", "step")
    architecture: str
    language: str
    h: int
    d_model: int
    seed: int
    step: int
    steps: int
    device: str = ""
    torch: str = ""
    questions: tuple[str, ...] = ()

    @property
    def is_decoder(self) -> bool:
        """Whether a word sees only earlier ones, and the model answers with the next word."""
        return self.architecture.startswith(DECODER)

    def caption_facts(self) -> dict[str, object]:
        steps = Phrase("{value} training steps", value=f"{self.step:,}")
        return super().caption_facts() | {"step": steps if self.step else Phrase("before training")}


@dataclass(frozen=True)
class MiniSource(TrainedSource):
    """A small model that comes with the library."""

    kind: ClassVar[str] = "mini"
    name: ClassVar[str] = Phrase("small trained model")


@dataclass(frozen=True)
class RunSource(TrainedSource):
    """A small model that the user trained; `name` is the name of the training run."""

    kind: ClassVar[str] = "run"
    name: str = field(kw_only=True)


@dataclass(frozen=True)
class ModelSource(Source):
    """A transformers model: its id or folder, its class (`architecture`) and its model type (`family`).

    `route` is the way its attention was captured; `difference` is the largest difference to the model's own
    weights and outputs. `input_ids`, `attention_mask`, `token_type_ids` and `position_ids` are what the
    model read, as far as it was given.
    """

    kind: ClassVar[str] = "model"
    CAPTION: ClassVar[tuple[str, ...]] = ("name", "architecture")
    name: str
    revision: str | None
    architecture: str
    family: str
    route: str
    difference: float
    dtype: str
    device: str
    torch: str
    transformers: str
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    input_ids: tuple[int, ...] = field(default=(), repr=False)
    attention_mask: tuple[int, ...] = field(default=(), repr=False)
    token_type_ids: tuple[int, ...] = field(default=(), repr=False)
    position_ids: tuple[int, ...] = field(default=(), repr=False)

    def caption_facts(self) -> dict[str, object]:
        """The facts for a caption; of a folder the last part of its path."""
        folder = PurePath(self.name)
        is_path = folder.is_absolute() or self.name.startswith((".", "~"))
        return super().caption_facts() | ({"name": folder.name} if is_path else {})


@dataclass(frozen=True)
class ArraySource(Source):
    """Arrays of the caller: a name for them, and further facts, text and numbers."""

    kind: ClassVar[str] = "arrays"
    name: str = "arrays"
    facts: Mapping[str, FactValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = {type(name) for name in (self.name, *self.facts)}
        if names != {str} or not all(map(_is_simple, self.facts.values())):
            raise MhaError(
                "source is a name, or a mapping with a 'name' and simple values: text, None, finite numbers "
                "and whole numbers up to 2^64."
            )
        object.__setattr__(self, "facts", MappingProxyType(dict(self.facts)))

    def caption_facts(self) -> dict[str, object]:
        return {"name": self.name, **self.facts}


@dataclass(frozen=True)
class RecordedSource(ArraySource):
    """Attention that was recorded while the user's own code ran."""

    kind: ClassVar[str] = "recording"
    name: str = "recorded"
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class DerivedSource(Source):
    """A source whose numbers, name and remarks come from another source, `base`."""

    @property
    @abstractmethod
    def base(self) -> Source:
        """The source that the numbers come from."""

    @property
    def origin(self) -> Source:
        return self.base.origin

    @property
    def name(self) -> str:
        return self.base.name

    @property
    def skipped(self) -> tuple[str, ...]:
        return self.base.skipped

    @property
    def notes(self) -> tuple[str, ...]:
        return self.base.notes


@dataclass(frozen=True)
class FileSource(DerivedSource):
    """A file that a trace was opened from, and the source of that trace."""

    kind: ClassVar[str] = "file"
    file: str
    saved: Source

    @property
    def base(self) -> Source:
        return self.saved

    @property
    def edits(self) -> tuple[Edit, ...]:
        return self.saved.edits

    def caption_facts(self) -> dict[str, object]:
        return self.saved.caption_facts() | {"name": Phrase("{name} (file)", name=self.name)}


@dataclass(frozen=True)
class EditedSource(DerivedSource):
    """A source whose attention was changed by `edits` while it computed the numbers."""

    kind: ClassVar[str] = "edited"
    unedited: Source
    edits: tuple[Edit, ...]

    @property
    def base(self) -> Source:
        return self.unedited

    def caption_facts(self) -> dict[str, object]:
        edits = listed((edit.describe() for edit in self.edits), "semicolon")
        return self.unedited.caption_facts() | {"edited": Phrase("({edits})", edits=edits)}


SourceValue = str | Mapping[str, FactValue] | ArraySource
Arrays = TypeVar("Arrays", bound=ArraySource)
TYPES: Mapping[str, type[Source]] = {
    source.kind: source
    for source in (
        *(RandomSource, MiniSource, RunSource, ModelSource, ArraySource, RecordedSource),
        *(FileSource, EditedSource),
    )
}
WORDS = ("name", "architecture")  # facts whose names a caption leaves out
# What settings are called in a caption, in the language of its reader.
CALLED = {
    str(phrase): phrase
    for phrase in (
        *(Phrase("standard"), Phrase("one-layer")),
        *(Phrase("grouped-query"), Phrase("multi-query"), Phrase("latent"), Phrase("decoder")),
        *(Phrase("decoder-grouped-query"), Phrase("decoder-multi-query"), Phrase("decoder-latent")),
        *(Phrase("full"), Phrase("causal"), Phrase("window"), Phrase("prefix"), Phrase("padding")),
        *(Phrase("drawn"), Phrase("none"), Phrase("sinusoidal"), Phrase("learned"), Phrase("rotary")),
    )
} | {"glass-box": Phrase("readable")}
READ: Mapping[type, Callable[[Any], object]] = {  # the entries of a tuple from a file
    Edit: read_edit,
    str: text_from_json,
    int: int,
}


def array_source(value: SourceValue, kind: type[Arrays]) -> Arrays:
    """The source of type `kind` for a name, or for a mapping of simple values with a "name".

    A source of that type is returned unchanged. Raises `MhaError` for anything else.
    """
    if isinstance(value, kind):
        return value
    facts: dict[str, Any] = {}
    facts |= {"name": value} if isinstance(value, str) else value if isinstance(value, Mapping) else {}
    return kind(name=facts.pop("name", None), facts=facts)


def caption(facts: Mapping[str, object]) -> Listed:
    """Facts in one line: ``small trained model, readable, h 4, d_model 64``."""
    words = dict.fromkeys(_called(name, facts[name]) for name in WORDS if facts.get(name))  # equal ones once
    named = (_named(name, value) for name, value in facts.items() if name not in WORDS and value is not None)
    return listed([*words, *named], "comma")


def _named(name: str, value: object) -> str:
    """A fact with its name, as ``seed 0``."""
    match name:
        case "seed":
            return Phrase("seed {value}", value=value)
        case "mask":
            return Phrase("mask: {value}", value=_called(name, value))
        case "position":
            return Phrase("positions: {value}", value=_called(name, value))
        case "step" if isinstance(value, Phrase):
            return value
        case "edited":
            return Phrase("changed: {value}", value=value)
        case "h" | "d_model":
            return f"{name} {value}"
    return f"{name}={value}"


def _called(name: str, value: object) -> object:
    """The word for a setting in a caption; a mask may have its size after its name, as in window:2."""
    if name == "name":
        return value
    kind, _, size = str(value).partition(":")
    if kind not in CALLED:
        return value
    return Phrase("{word}:{size}", word=CALLED[kind], size=size) if size else CALLED[kind]


def read(value: Any) -> Source:
    """The source that `to_json` wrote; raises `KeyError`, `TypeError` or `ValueError` for anything else."""
    name, values = value
    kind = TYPES[name]
    arguments: dict[str, Any] = {}
    for entry in fields(kind):
        if entry.name not in values:
            continue
        value = values[entry.name]
        if entry.type is Source:
            value = read(value)
        elif get_origin(entry.type) is tuple:
            value = tuple(map(READ[get_args(entry.type)[0]], value))
        if not _has_type(value, entry.type):
            raise ValueError(f"{entry.name} of a source is {value!r}")
        arguments[entry.name] = value
    return kind(**arguments)


def _has_type(value: Any, kind: Any) -> bool:
    if get_origin(kind) is tuple:
        return all(isinstance(item, get_args(kind)[0]) for item in value)
    if not isinstance(kind, type | UnionType):
        return isinstance(value, get_origin(kind))
    return isinstance(value, (kind, int) if kind is float else kind)


def _is_simple(value: object) -> bool:
    """Whether a file can hold the value and give it back."""
    if isinstance(value, int):
        return abs(value) <= 2**64
    return isfinite(value) if isinstance(value, float) else isinstance(value, FactValue)


def _json_value(value: object) -> object:
    if isinstance(value, Source | Edit):
        return value.to_json()
    if isinstance(value, tuple):
        return [text_to_json(entry) if isinstance(entry, str) else _json_value(entry) for entry in value]
    return dict(value) if isinstance(value, Mapping) else value
