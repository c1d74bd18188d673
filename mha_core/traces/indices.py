"""Indices as in numpy: negative ones count from the end, booleans and slices select."""

import re
from collections.abc import Sequence
from operator import index as whole_number

import numpy as np

from mha_core.errors import MhaError, Phrase, shown

LAYER = Phrase("This layer")  # the layer's name in messages

Picked = slice | int | Sequence[int] | np.ndarray | None


def index(what: str, at: int, count: int, *, of: str) -> int:
    """The index `at` among `count` heads, layers, rows …, counted from 0; ``-1`` is the last one.

    Raises `MhaError` for an index out of range, with the range of `of`, and for anything but a whole number.
    """
    number = whole(what, at)
    if not count:
        raise MhaError(
            "{name} has no {what}s; {what} {number} was asked for.", name=of, what=what, number=shown(number)
        )
    if not -count <= number < count:
        raise MhaError(
            "{name} has {what}s 0 to {last}; {what} {number} was asked for.",
            name=of,
            what=what,
            last=count - 1,
            number=shown(number),
            fixes=({what: 0 if number < 0 else count - 1},),
        )
    return number % count


def by_number(name: str) -> list[tuple[int, str]]:
    """The key by which numbered names are sorted: head 2 comes before head 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def whole(what: str, at: int) -> int:
    """The index as a whole number, before the count is known. Raises `MhaError` for anything else."""
    try:
        number = whole_number(at)
    except TypeError:
        number = None
    if number is None or isinstance(at, bool):
        raise MhaError("{what} is a whole number; got {at}.", what=what, at=shown(at))
    return number


def indices(what: str, picked: Picked, count: int) -> slice | list[int]:
    """The selected positions out of a layer's `count`, from 0; None selects all.

    `picked` may be a single number. As in numpy, a slice may extend beyond the ends, and an array of `count`
    booleans selects the positions that are True. Raises `MhaError` for positions out of range.
    """
    if picked is None:
        return slice(None)
    if isinstance(picked, slice):
        return picked if (picked.step or 1) > 0 else list(range(count))[picked]
    numbers = np.atleast_1d(np.asarray(picked))
    if numbers.dtype == bool and numbers.shape == (count,):
        return np.flatnonzero(numbers).tolist()
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise MhaError(
            "{what}s are a slice, a whole number or a list of them; got {picked}.",
            what=what,
            picked=shown(picked),
        )
    if not numbers.size:
        return []
    for edge in (numbers.min(), numbers.max()):
        index(what, edge, count, of=LAYER)
    return (numbers % count).tolist()
