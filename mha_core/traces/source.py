"""Where the numbers of a trace come from: a small frozen value, of one type for each kind of source."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType, UnionType
from typing import ClassVar, get_args, get_origin

from mha_core.errors import MhaError

Plain = str | int | float | None


@dataclass(frozen=True)
class Source:
    """What every source has: a name, and what it has to say in sentences about its numbers.

    `skipped` are parts that could not be shown, each with its reason; `notes` is what else one should know.
    `kind` is the source's own name in files, `CAPTION` are the facts of it that the caption of a figure says.
    """

    kind: ClassVar[str]
    CAPTION: ClassVar[tuple[str, ...]] = ("name",)
    name: ClassVar[str]
    skipped = ()  # fields of those sources that have something to say
    notes = ()

    @property
    def origin(self) -> "Source":
        """What computed the numbers: of a file what made it, else the source itself."""
        return self

    def said(self) -> dict[str, object]:
        """The facts that a caption says, by their names."""
        return {name: getattr(self, name) for name in self.CAPTION}

    def plain(self) -> list:
        """The kind and all facts, in values that JSON has; `read` makes the source of them again."""
        return [self.kind, {one.name: _plain(getattr(self, one.name)) for one in fields(self)}]

    def __reduce__(self):
        return read, (self.plain(),)


@dataclass(frozen=True)
class RandomSource(Source):
    """Weights that are drawn from a seed; `mask` is "drawn" where it is a person's own."""

    kind: ClassVar[str] = "random"
    CAPTION: ClassVar[tuple[str, ...]] = ("name", "seed", "mask", "position")
    name: ClassVar[str] = "random"
    seed: int
    position: str
    mask: str
    device: str
    torch: str


@dataclass(frozen=True)
class TrainedSource(Source):
    """A small model of ours, by the plan that it was trained by.

    `step` of `steps` of its training were done; at 0 its weights are those that it began with. `device` and
    `torch` are those of the pass, empty where there was none.
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


@dataclass(frozen=True)
class MiniSource(TrainedSource):
    """A small model that comes with the library."""

    kind: ClassVar[str] = "mini"
    name: ClassVar[str] = "mini"


@dataclass(frozen=True)
class RunSource(TrainedSource):
    """A small model that a person trained, by the name of that training."""

    kind: ClassVar[str] = "run"
    name: str


@dataclass(frozen=True)
class ModelSource(Source):
    """A transformers model, by its id or folder, its class (`architecture`) and its model type (`family`).

    `route` says how its attention is seen, and `difference` how far that is from what it computes itself.
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


@dataclass(frozen=True)
class ArraySource(Source):
    """Arrays that somebody has: a name for them, and what else is told about them, text and numbers."""

    kind: ClassVar[str] = "arrays"
    name: str = "arrays"
    facts: Mapping[str, Plain] = field(default_factory=dict)

    def __post_init__(self):
        if not isinstance(self.name, str) or not all(isinstance(one, Plain) for one in self.facts.values()):
            raise MhaError("source is a name, or a mapping with a 'name' and plain values: text and numbers.")
        object.__setattr__(self, "facts", MappingProxyType(dict(self.facts)))

    def said(self) -> dict[str, object]:
        return {"name": self.name, **self.facts}


@dataclass(frozen=True)
class RecordedSource(ArraySource):
    """Attention that was recorded while a person's own code ran."""

    kind: ClassVar[str] = "recording"
    name: str = "recorded"
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileSource(Source):
    """A saved trace that was opened from a file, and the source that made it."""

    kind: ClassVar[str] = "file"
    file: str
    saved: Source

    @property
    def origin(self) -> Source:
        return self.saved.origin

    @property
    def name(self) -> str:
        return self.saved.name

    @property
    def skipped(self) -> tuple[str, ...]:
        return self.saved.skipped

    @property
    def notes(self) -> tuple[str, ...]:
        return self.saved.notes

    def said(self) -> dict[str, object]:
        return self.saved.said() | {"name": f"{self.name} (file)"}


Described = str | Mapping[str, Plain] | ArraySource
KINDS = {
    one.kind: one
    for one in (RandomSource, MiniSource, RunSource, ModelSource, ArraySource, RecordedSource, FileSource)
}
WORDS = ("name", "architecture")  # what a caption says without saying what it is


def described(given: Described, kind: type[ArraySource] = ArraySource) -> ArraySource:
    """A name, or a mapping of plain values with one, as a source of that kind; one of that kind as it is.

    Raises `MhaError` for anything else.
    """
    if isinstance(given, kind):
        return given
    facts = {"name": given} if isinstance(given, str) else dict(given) if isinstance(given, Mapping) else {}
    return kind(name=facts.pop("name", None), facts=facts)


def caption(said: Mapping[str, object]) -> str:
    """Facts in one line: ``mini, glass-box, h=4, d_model=64``."""
    words = [str(said[name]) for name in WORDS if said.get(name)]
    return ", ".join([*words, *(f"{k}={v}" for k, v in said.items() if k not in WORDS and v is not None)])


def read(given: object) -> Source:
    """A source as `plain` wrote it, or as files had it before sources had kinds.

    Raises `KeyError`, `TypeError` or `ValueError` for anything else.
    """
    if isinstance(given, Mapping):
        return _read_flat(given)
    kind, values = given
    return _made(KINDS[kind], values)


def _made(kind: type[Source], values: Mapping[str, object]) -> Source:
    """A source with these values, each of the type that its field has."""
    found = {}
    for one in fields(kind):
        if one.name not in values:
            continue
        value = values[one.name]
        if one.type is Source:
            value = read(value)
        elif get_origin(one.type) is tuple:
            value = tuple(value)
        if not _fits(value, one.type):
            raise ValueError(f"{one.name} of a source is {value!r}")
        found[one.name] = value
    return kind(**found)


def _fits(value: object, kind: object) -> bool:
    if get_origin(kind) is tuple:
        return all(isinstance(one, get_args(kind)[0]) for one in value)
    if not isinstance(kind, type | UnionType):
        return isinstance(value, get_origin(kind))
    return isinstance(value, (kind, int) if kind is float else kind)


def _read_flat(values: Mapping[str, object]) -> Source:
    """A source of a file in which it was a mapping alone: it is told by what it says."""
    name = values.get("name")
    kind = ModelSource if "route" in values else {"random": RandomSource, "mini": MiniSource}.get(name)
    try:
        return _made(kind, values) if kind else _recorded(values)
    except (TypeError, ValueError):  # it only has the name of one
        return _recorded(values)


def _recorded(values: Mapping[str, object]) -> Source:
    facts = {key: value for key, value in values.items() if key != "name" and isinstance(value, Plain)}
    name, skipped = str(values.get("name", "unknown")), values.get("skipped")
    if name == RecordedSource.name or skipped:
        return _made(RecordedSource, {"name": name, "facts": facts, "skipped": skipped or ()})
    return ArraySource(name, facts)


def _plain(value: object) -> object:
    if isinstance(value, Source):
        return value.plain()
    return dict(value) if isinstance(value, Mapping) else value
