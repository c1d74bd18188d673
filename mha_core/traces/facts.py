"""Facts about a layer besides its tensors: small frozen values, saved with the trace."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from math import inf
from typing import Any, ClassVar, TypeVar

from mha_core.errors import text_from_json, text_to_json

Fact = TypeVar("Fact", bound="Adjustment | LatentProjection | OutputGate | Facts")


@dataclass(frozen=True)
class Rotary:
    """A rotary position encoding, which rotates `width` dimensions of each head of Q and K, from `start` on.

    `form` says which two dimensions are a pair: i and i + width/2 ("half"), or 2i and 2i + 1 ("pairs").
    Source: Su et al. 2021, "RoFormer".
    """

    name: ClassVar[str] = "rotary"
    form: str
    width: int
    start: int = 0


@dataclass(frozen=True)
class Norm:
    """A norm: `kind` is RMSNorm or LayerNorm, over the numbers of each head ("head") or of all heads ("all").

    `epsilon` is the number added to the variance, if it is known; equality of norms ignores it.
    Sources: Zhang and Sennrich 2019 (RMSNorm), Ba, Kiros and Hinton 2016 (LayerNorm).
    """

    name: ClassVar[str] = "norm"
    kind: str
    over: str
    epsilon: float = field(default=0.0, compare=False)

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < inf:
            raise ValueError(f"epsilon of a norm is {self.epsilon!r}")


@dataclass(frozen=True)
class Factor:
    """A multiplication of all numbers by the factor `by`."""

    name: ClassVar[str] = "scale"
    by: float


@dataclass(frozen=True)
class Clip:
    """A limit: numbers above `at` become `at`, numbers below −`at` become −`at`."""

    name: ClassVar[str] = "clip"
    at: float


Adjustment = Norm | Factor | Clip | Rotary
ADJUSTMENTS: Mapping[str, type[Adjustment]] = {kind.name: kind for kind in (Norm, Factor, Clip, Rotary)}


@dataclass(frozen=True)
class Adjustments:
    """The steps, in order, from the products X W^Q, X W^K and X W^V to Q, K and V."""

    q: tuple[Adjustment, ...] = ()
    k: tuple[Adjustment, ...] = ()
    v: tuple[Adjustment, ...] = ()

    def items(self) -> tuple[tuple[str, tuple[Adjustment, ...]], ...]:
        """q, k and v by name."""
        return ("q", self.q), ("k", self.k), ("v", self.v)

    def __bool__(self) -> bool:
        return bool(self.q or self.k or self.v)


@dataclass(frozen=True)
class OutputGate:
    """A gate on the heads' outputs before W^O: a matrix of x behind an `activation`, sigmoid in most models.

    It has one value for each "number" of a head's output, or one for each "head".
    Source: Qiu et al. 2025, "Gated Attention for Large Language Models".
    """

    activation: str
    over: str


@dataclass(frozen=True)
class LatentProjection:
    """Latent attention (MLA): keys and values come from a latent vector of `kv_rank` numbers per token.

    Queries may come from a latent vector of `q_rank` numbers. A rotary code rotates `rotary_width` dimensions
    of each head's queries and keys; the other `plain_width` dimensions have no position. A size is None if
    the model does not state it. Source: DeepSeek-AI 2024, "DeepSeek-V2", section 2.1.
    """

    kv_rank: int
    q_rank: int | None = None
    rotary_width: int | None = None
    plain_width: int | None = None
    value_width: int | None = None


REASONS = ("bias", "missing")  # facts that are sentences
TYPES = {
    "rotary": Rotary,
    "latent": LatentProjection,
    "gate": OutputGate,
    "output_rotary": Rotary,
}  # facts of several values


@dataclass(frozen=True)
class Facts:
    """All facts about a layer besides its tensors; a fact that is unknown or does not apply is empty.

    `gate` acts on the heads' outputs before W^O. `output_rotary` is the rotary code that rotates these
    outputs back, in models that rotate values like keys. `bias` is the reason why the bias on the scores is
    valid for this text only, `missing` the reason why queries and keys are not known. For a recorded layer,
    `call` is the number of the attention call, from 1; `by_hand` is True if the code computed attention
    without torch's function; `dropout` is the share of weights that the call drops in training. `index_block`
    is the number of keys that a learned index chooses together, None without an index.
    """

    rotary: Rotary | None = None
    adjustments: Adjustments | None = None
    latent: LatentProjection | None = None
    gate: OutputGate | None = None
    output_rotary: Rotary | None = None
    bias: str = ""
    missing: str = ""
    call: int | None = None
    by_hand: bool = False
    dropout: float = 0.0
    index_block: int | None = None

    def to_json(self) -> dict[str, object]:
        """The facts that are not empty, as JSON values under their names in files; `of` is the inverse."""
        entries = _stated(self)
        for name in entries.keys() & TYPES.keys():
            entries[name] = {size: n for size, n in asdict(entries[name]).items() if n is not None}
        entries |= {name: text_to_json(entries[name]) for name in REASONS if name in entries}
        if (adjustments := entries.pop("adjustments", None)) is not None:
            entries["between"] = {
                name: [_step_to_json(step) for step in steps] for name, steps in adjustments.items()
            }
        return entries

    @classmethod
    def of(cls, entries: Mapping) -> "Facts":
        """The facts that `to_json` wrote. Raises `TypeError`, `KeyError` or `ValueError` for other values."""
        values = dict(entries)
        for name in values.keys() & TYPES.keys():
            values[name] = _checked(TYPES[name](**values[name]))
        values |= {name: text_from_json(values[name]) for name in REASONS if name in values}
        if (adjustments := values.pop("between", None)) is not None:
            rotary = values.get("rotary")
            values["adjustments"] = Adjustments(
                **{
                    name: tuple(_step_from_json(rotary, **step) for step in steps)
                    for name, steps in adjustments.items()
                }
            )
        return _checked(cls(**values))


def _step_to_json(step: Adjustment) -> dict[str, object]:
    """A step as JSON values; a rotation has only its name, since it is the layer's `rotary`."""
    if isinstance(step, Rotary):
        return {"step": step.name}
    return {"step": step.name, **_stated(step)}


def _stated(fact: Fact) -> dict[str, Any]:
    """The values of a fact that are not its defaults, by the names of their fields."""
    values = ((field, getattr(fact, field.name)) for field in fields(fact))
    return {field.name: value for field, value in values if value != field.default}


def _step_from_json(rotary: Rotary | None, *, step: str, **numbers: Any) -> Adjustment:
    if step == Rotary.name and rotary is not None:
        return rotary
    return _checked(ADJUSTMENTS[step](**numbers))


def _checked(fact: Fact) -> Fact:
    """The fact itself. Raises `ValueError` for a value of another type than its field, or a count below 0."""
    for entry in fields(fact):
        value = getattr(fact, entry.name)
        kind: Any = float | int if entry.type is float else entry.type
        is_count = isinstance(value, int) and entry.type is not float
        is_flag = isinstance(value, bool) and entry.type is not bool
        if not isinstance(value, kind) or is_flag or (is_count and value < 0):
            raise ValueError(f"{entry.name} of {type(fact).__name__} is {value!r}")
    return fact
