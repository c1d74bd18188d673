"""What is known about a layer besides its tensors: small values, which are saved with its trace."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import ClassVar


@dataclass(frozen=True)
class Rotary:
    """A rotary position code: it turns `width` dimensions of each head of Q and K, from `start` on.

    `form` says which two turn together: i and i + width/2 ("half"), or 2i and 2i + 1 ("pairs").
    Source: Su et al. 2021, "RoFormer".
    """

    name: ClassVar[str] = "rotary"
    form: str
    width: int
    start: int = 0


@dataclass(frozen=True)
class Norm:
    """A norm: `kind` is RMSNorm or LayerNorm, `over` "head" or "all", whose numbers it takes together.

    Sources: Zhang and Sennrich 2019 (RMSNorm), Ba, Kiros and Hinton 2016 (LayerNorm).
    """

    name: ClassVar[str] = "norm"
    kind: str
    over: str


@dataclass(frozen=True)
class Scale:
    """A multiplication of all numbers with one."""

    name: ClassVar[str] = "scale"
    by: float


@dataclass(frozen=True)
class Clip:
    """A limit: larger numbers become `at`, smaller ones than −`at` become −`at`."""

    name: ClassVar[str] = "clip"
    at: float


Adjustment = Norm | Scale | Clip | Rotary
ADJUSTMENTS = {kind.name: kind for kind in (Norm, Scale, Clip, Rotary)}


@dataclass(frozen=True)
class Adjustments:
    """What a model does with the products X W^Q, X W^K and X W^V before they are Q, K and V, in order."""

    q: tuple[Adjustment, ...] = ()
    k: tuple[Adjustment, ...] = ()
    v: tuple[Adjustment, ...] = ()

    def items(self) -> tuple[tuple[str, tuple[Adjustment, ...]], ...]:
        """q, k and v by name."""
        return ("q", self.q), ("k", self.k), ("v", self.v)

    def __bool__(self) -> bool:
        return bool(self.q or self.k or self.v)


@dataclass(frozen=True)
class LatentProjection:
    """Latent attention (MLA): keys and values are made of a short vector of `kv_rank` numbers a token.

    Queries may be, of one of `q_rank`; of each head's queries and keys `rotary_width` dimensions are turned
    by a rotary code and `plain_width` are not. None where the model does not say it.
    Source: DeepSeek-AI 2024, "DeepSeek-V2", section 2.1.
    """

    kv_rank: int
    q_rank: int | None = None
    rotary_width: int | None = None
    plain_width: int | None = None
    value_width: int | None = None


@dataclass(frozen=True)
class Facts:
    """All that is known about a layer besides its tensors; what is not known, or is not so, is empty.

    `bias` says why what is added to the scores holds for this text alone, `missing` why queries and keys are
    not known. Of a layer that was recorded, `call` counts from 1 which call of attention it was, `by_hand`
    says that the code computed it without torch's function, and `dropout` is the share of weights that the
    call would have dropped in training.
    """

    rotary: Rotary | None = None
    adjustments: Adjustments | None = None
    latent: LatentProjection | None = None
    bias: str = ""
    missing: str = ""
    call: int | None = None
    by_hand: bool = False
    dropout: float = 0.0

    def plain(self) -> dict[str, object]:
        """The facts that are known, in values that JSON has, by the names of our files; `of` reads them."""
        known = {field.name: getattr(self, field.name) for field in fields(self)}
        plain = {
            field.name: known[field.name] for field in fields(self) if known[field.name] != field.default
        }
        for name in plain.keys() & {"rotary", "latent"}:
            plain[name] = {size: n for size, n in asdict(plain[name]).items() if n is not None}
        if (adjustments := plain.pop("adjustments", None)) is not None:
            plain["between"] = {
                name: [_written(step) for step in steps] for name, steps in adjustments.items()
            }
        return plain

    @classmethod
    def of(cls, plain: Mapping) -> "Facts":
        """Facts from the values that `plain` made of them; `TypeError` or `KeyError` if they do not fit."""
        known = dict(plain)
        if "rotary" in known:
            known["rotary"] = Rotary(**known["rotary"])
        if "latent" in known:
            known["latent"] = LatentProjection(**known["latent"])
        if (between := known.pop("between", None)) is not None:
            rotary = known.get("rotary")
            steps = {name: tuple(_read(rotary, **step) for step in each) for name, each in between.items()}
            known["adjustments"] = Adjustments(**steps)
        return cls(**known)


def _written(step: Adjustment) -> dict[str, object]:
    """A rotation is the one that the layer's `rotary` describes."""
    return {"step": step.name} if isinstance(step, Rotary) else {"step": step.name, **asdict(step)}


def _read(rotary: Rotary | None, *, step: str, **numbers: object) -> Adjustment:
    return rotary if step == Rotary.name and rotary is not None else ADJUSTMENTS[step](**numbers)
