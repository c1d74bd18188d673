"""Rows in blocks: nothing that has a cell for each pair of tokens is ever whole when it is long."""

import ctypes
import sys
from functools import cache

CELLS = 1 << 20  # at a time: so few that what is computed with them stays in the processor's cache


def row_blocks(n_rows: int, cells_per_row: int, *, least: int = 1) -> list[slice]:
    """Neighbouring rows, together all of them, with at most `CELLS` cells in a block or the `least` rows.

    ``row_blocks(5, CELLS // 2)`` is ``[slice(0, 2), slice(2, 4), slice(4, 5)]``.
    """
    if 0 < n_rows * cells_per_row <= CELLS:
        return [slice(0, n_rows)]
    step = max(least, CELLS // max(1, cells_per_row))
    return [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]


def give_back(blocks: list[slice]) -> None:
    """Hand memory that nobody holds any more back to the system, after several blocks; one leaves little.

    The GNU C library keeps what was freed between two things that live on: a tenth of what a long trace
    takes. It takes about 10 ms. Other systems' libraries do it by themselves.
    """
    trim = _trim()
    if len(blocks) > 1 and trim is not None:
        trim(0)


@cache
def _trim():
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
