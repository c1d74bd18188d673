"""The shape of one attention layer, checked once so that nothing later has to."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

from mha_core.errors import MhaError

MAX_D_MODEL = 4096
MAX_HEADS = 128


@dataclass(frozen=True)
class AttentionSpec:
    """The sizes of one multi-head attention layer.

    ``d_k = d_model / n_heads`` unless given, ``d_v = d_k`` unless given, ``n_kv_heads = n_heads``
    unless given (fewer is grouped-query attention, one is multi-query attention).
    Sizes are counts of numbers; `bias` adds a learned vector after each projection.

    Raises `MhaError` when the sizes do not fit together.
    Source: Vaswani et al. 2017, section 3.2.2; Ainslie et al. 2023 for `n_kv_heads`.
    """

    d_model: int
    n_heads: int
    n_kv_heads: int | None = None
    d_k: int | None = None
    d_v: int | None = None
    bias: bool = True

    def __post_init__(self):
        shared = self.d_k is None  # d_model is shared out among the heads
        whole("d_model", self.d_model, 1, MAX_D_MODEL, fits=lambda n: not shared or _divides(self.n_heads, n))
        whole("h", self.n_heads, 1, MAX_HEADS, fits=lambda n: not shared or _divides(n, self.d_model))
        if self.d_k is None:
            object.__setattr__(self, "d_k", _split(self.d_model, self.n_heads))
        if self.d_v is None:
            object.__setattr__(self, "d_v", self.d_k)
        if self.n_kv_heads is None:
            object.__setattr__(self, "n_kv_heads", self.n_heads)
        whole("d_k", self.d_k, 1, MAX_D_MODEL)
        whole("d_v", self.d_v, 1, MAX_D_MODEL)
        whole("n_kv_heads", self.n_kv_heads, 1, MAX_HEADS)
        if self.n_heads % self.n_kv_heads:
            fits = [n for n in range(1, self.n_heads + 1) if self.n_heads % n == 0]
            raise MhaError(
                f"{self.n_heads} query heads cannot share {self.n_kv_heads} key/value heads evenly; "
                f"{listed(fits, 'or')} can.",
                fixes=tuple({"n_kv_heads": n} for n in fits),
            )


def whole(name: str, value: object, low: int, high: int, *, fits: Callable = lambda n: True) -> int:
    """Return `value` if it is a whole number from `low` to `high`; raise `MhaError` naming the range.

    The fix proposed is the nearest number in the range that also `fits` what else was asked.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise MhaError(f"{name} must be a whole number from {low} to {high}; got {value!r}.")
    if not low <= value <= high:
        inward = range(low, high + 1) if value < low else range(high, low - 1, -1)
        fixes = tuple({name: n} for n in islice(filter(fits, inward), 1))
        raise MhaError(f"{name} {value} is out of range; {low} to {high} work.", fixes=fixes)
    return value


def known(kind: str, value: str, names: Iterable[str], *, parameter: str | None = None) -> str:
    """Return `value` if it is one of the names; raise `MhaError` listing them.

    `parameter` is what the caller calls it, where that is not the kind itself.
    """
    names = list(names)
    if value not in names:
        raise MhaError(
            f"There is no {kind} called {value!r}; {listed(names, 'or')} can be used.",
            fixes=tuple({parameter or kind: name} for name in names),
        )
    return value


def listed(values: Iterable, word: str) -> str:
    """``[1, 2, 3]`` and "or" as ``1, 2 or 3``."""
    *most, last = map(str, values)
    return f"{', '.join(most)} {word} {last}" if most else last


def _split(d_model: int, n_heads: int) -> int:
    if d_model % n_heads == 0:
        return d_model // n_heads
    below = d_model - d_model % n_heads
    near = [n for n in (below, below + n_heads) if 1 <= n <= MAX_D_MODEL]
    heads = _nearest_divisors(d_model, n_heads)
    raise MhaError(
        f"d_model {d_model} cannot be split into {n_heads} heads; {listed(near, 'or')} can. "
        f"With d_model {d_model}, {listed(heads, 'or')} {'head works' if heads == [1] else 'heads work'}.",
        fixes=tuple({"d_model": n} for n in near) + tuple({"h": n} for n in heads),
    )


def _divides(divisor: object, number: int) -> bool:
    """Whether it does; a divisor that is no size at all is complained about elsewhere."""
    return not isinstance(divisor, int) or divisor < 1 or number % divisor == 0


def _nearest_divisors(d_model: int, n_heads: int) -> list[int]:
    """The largest head count below `n_heads` and the smallest above that divide `d_model`."""
    fits = [n for n in range(1, min(d_model, MAX_HEADS) + 1) if d_model % n == 0]
    return [n for n in fits if n < n_heads][-1:] + [n for n in fits if n > n_heads][:1]
