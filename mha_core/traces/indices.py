"""Positions as numpy counts them: from 0, from the end where they are negative, and never outside."""

from collections.abc import Sequence
from operator import index as whole_number

import numpy as np

from mha_core.errors import MhaError

Picked = slice | int | Sequence[int] | np.ndarray | None


def index(what: str, at: int, count: int, *, of: str) -> int:
    """The position from 0 that `at` means among `count` heads, layers, rows …; ``-1`` is the last one.

    Raises `MhaError` for one that is not there, saying which ones `of` has, and for what is no whole number.
    """
    try:
        number = whole_number(at)
    except TypeError:
        number = None
    if number is None or isinstance(at, bool):
        raise MhaError(f"{what} is a whole number; got {at!r}.")
    if not count:
        raise MhaError(f"{of} has no {what}s; {what} {number} was asked for.")
    if not -count <= number < count:
        raise MhaError(
            f"{of} has {what}s 0 to {count - 1}; {what} {number} was asked for.",
            fixes=({what: 0 if number < 0 else count - 1},),
        )
    return number % count


def indices(what: str, picked: Picked, count: int, *, of: str) -> slice | list[int] | None:
    """The positions that are picked out of `count`, from 0; None for all. One number picks one of them.

    A slice is cut off at the ends, as in numpy; an array of booleans says of each position whether it is
    picked. Raises `MhaError` for positions that are not there.
    """
    if picked is None:
        return None
    if isinstance(picked, slice):
        return picked if (picked.step or 1) > 0 else list(range(count))[picked]
    numbers = np.atleast_1d(np.asarray(picked))
    if numbers.dtype == bool and numbers.shape == (count,):
        return np.flatnonzero(numbers).tolist()
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise MhaError(f"{what}s are a slice, a whole number or a list of them; got {picked!r}.")
    if not numbers.size:
        return []
    for edge in (numbers.min(), numbers.max()):
        index(what, edge, count, of=of)
    return (numbers % count).tolist()
