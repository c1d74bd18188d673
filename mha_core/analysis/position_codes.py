"""Position codes as tables: what is added or rotated at each position, and how two of them meet."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from mha_core.attention import positions
from mha_core.errors import MhaError, in_range

MAX_POSITIONS = 256
MAX_WIDTH = 1024


@dataclass(frozen=True, eq=False)
class PositionCode:
    """A position code: its `table`, and what a query at each position meets at each key by it, `meeting`.

    `table` is (position, dimension), of ALiBi (head, distance); `meeting` is (query, key). Positions,
    dimensions and heads count from 1.
    """

    table: pd.DataFrame
    meeting: pd.DataFrame


def sinusoidal(n_positions: int, width: int) -> PositionCode:
    """The code that is added to word vectors, and the products ``PE[m] · PE[n]``, largest at m = n.

    ``PE[p, 2i] = sin(p / 10000^(2i/width))``, ``PE[p, 2i+1] = cos(…)``: their product is
    ``Σ_i cos((m − n) / 10000^(2i/width))``, which depends on the distance alone.
    Raises `MhaError` for sizes out of range. Source: Vaswani et al. 2017, section 3.5.
    """
    _check(n_positions, width)
    return of_vectors(positions.sinusoidal(n_positions, width).numpy())


def of_vectors(vectors: np.ndarray) -> PositionCode:
    """A code of one vector for each position, as models learn it, and the products of every two of them."""
    at, dimension = _counted(len(vectors), "position"), _counted(vectors.shape[1], "dimension")
    table = pd.DataFrame(vectors, at, dimension)
    return PositionCode(table, _meeting(vectors @ vectors.T))


def rotary(n_positions: int, width: int) -> PositionCode:
    """The cosine of the angle by which each pair of dimensions is rotated, and what that does to one q and k.

    The query and the key are the same vector, of length 1 and alike in every pair: at positions m and n their
    product is ``(2 / width) Σ_i cos((m − n) θ_i)`` with ``θ_i = 10000^(−2i/width)``.
    Raises `MhaError` for sizes out of range, and for an odd width. Source: Su et al. 2021 (RoFormer).
    """
    _check(n_positions, width)
    if width % 2:
        raise MhaError(
            f"Rotary positions turn pairs of dimensions, so the width must be even; got {width}.",
            fixes=({"width": width - 1}, {"width": width + 1}),
        )
    cos, sin = (table[:, : width // 2].numpy() for table in positions.rotary_angles(n_positions, width))
    rotated = np.concatenate([cos - sin, sin + cos], axis=1) * width**-0.5  # of a pair (a, a)
    table = pd.DataFrame(cos, _counted(n_positions, "position"), _counted(width // 2, "dimensions"))
    return PositionCode(table, _meeting(rotated @ rotated.T))


def alibi(n_positions: int, n_heads: int, head: int) -> PositionCode:
    """What every head adds to a score at each distance, and what head `head`, from 0, adds to all scores.

    ``−slope_h · |m − n|``; `slopes` are those of `attention.positions.alibi`.
    Raises `MhaError` for sizes out of range. Source: Press et al. 2022 (Train Short, Test Long), section 3.
    """
    _check(n_positions, 1)
    in_range("h", n_heads, 1, MAX_WIDTH)
    in_range("head", head, 0, n_heads - 1)
    by_distance = positions.alibi(n_heads, n_positions, n_positions)[:, n_positions - 1 :].numpy()
    distances = pd.Index([str(distance) for distance in range(n_positions)], name="distance")
    at = np.arange(n_positions)
    bias = by_distance[head, np.abs(at[:, None] - at)]
    return PositionCode(pd.DataFrame(by_distance, _counted(n_heads, "head"), distances), _meeting(bias))


def _check(n_positions: int, width: int) -> None:
    in_range("positions", n_positions, 1, MAX_POSITIONS)
    in_range("width", width, 1, MAX_WIDTH)


def _counted(count: int, name: str) -> pd.RangeIndex:
    return pd.RangeIndex(1, count + 1, name=name)


def _meeting(products: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(products, _counted(len(products), "query"), _counted(len(products), "key"))
