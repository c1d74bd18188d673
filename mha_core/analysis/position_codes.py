"""Position encodings as tables: what each adds or rotates at a position, and its effect on scores."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from mha_core.analysis import pytorch
from mha_core.attention import positions
from mha_core.errors import MhaError


@dataclass(frozen=True, eq=False)
class PositionCode:
    """A position encoding: its `table`, and its `effect` on the product of each query and key.

    `table` is (position, dimension), for ALiBi (head, distance); `effect` is (query, key). Positions,
    dimensions and heads count from 1. `formula` is the encoding in LaTeX, `code` in torch: it changes x
    (token, d_model), q and k (head, token, d_k) or the scores (head, query, key).
    """

    table: pd.DataFrame
    effect: pd.DataFrame
    formula: str = ""
    code: str = ""


SINUSOIDAL = r"""\begin{gathered}
    \text{PE}_{p,\,2i} = \sin\frac{p}{10000^{2i/d}} \\[4pt]
    \text{PE}_{p,\,2i+1} = \cos\frac{p}{10000^{2i/d}} \\[4pt] X = E + \text{PE}
    \end{gathered}"""
LEARNED = r"X_p = E_p + P_p"
ROTARY = r"""\begin{gathered}
    q'_{m,\,i} = q_{m,\,i} \cos m\theta_i - q_{m,\,i+d/2} \sin m\theta_i \\
    q'_{m,\,i+d/2} = q_{m,\,i+d/2} \cos m\theta_i + q_{m,\,i} \sin m\theta_i \\
    \theta_i = 10000^{-2i/d}
    \end{gathered}"""
ALIBI = r"""\begin{gathered}
    s^{(j)}_{mn} \;\to\; s^{(j)}_{mn} - r_j \, |m - n| \\[4pt] r_j = %s
    \end{gathered}"""
RATES = "2^{-8j/h}"
# For a number of heads that is not a power of two: the rates of the power below, and some of the one above.
FILLED = r"\begin{cases} 2^{-8j/%d} & j \le %d \\ 2^{-8(2(j - %d) - 1)/%d} & j > %d \end{cases}"


def sinusoidal(n_positions: int, width: int) -> PositionCode:
    """The encoding that is added to word vectors, and the products ``PE[m] · PE[n]``, largest at m = n.

    ``PE[p, 2i] = sin(p / 10000^(2i/width))``, ``PE[p, 2i+1] = cos(…)``: their product is ``Σ_i cos((m − n) /
    10000^(2i/width))``, which depends on the distance alone. Source: Vaswani et al. 2017, section 3.5.
    """
    code = of_vectors(positions.sinusoidal(n_positions, width).numpy())
    return replace(code, formula=SINUSOIDAL, code=pytorch.sinusoidal(n_positions, width))


def of_vectors(vectors: np.ndarray) -> PositionCode:
    """The encoding by one learned vector for each position, and the products of every two of them."""
    at, dimension = _counted(len(vectors), "position"), _counted(vectors.shape[1], "dimension")
    table = pd.DataFrame(vectors, at, dimension)
    return PositionCode(table, _effect(vectors @ vectors.T), LEARNED, pytorch.learned())


def rotary(n_positions: int, width: int) -> PositionCode:
    """The cosine of the angle by which each pair of dimensions is rotated, and its effect on one q and k.

    Query and key are the same vector, of length 1 and with equal pairs: at positions m and n their product is
    ``(2 / width) Σ_i cos((m − n) θ_i)`` with ``θ_i = 10000^(−2i/width)``. Raises `MhaError` for an odd width.
    Source: Su et al. 2021 (RoFormer).
    """
    if width % 2:
        raise MhaError(
            "Rotary positions turn pairs of dimensions, so the width must be even; got {width}.",
            width=width,
            fixes=({"width": width - 1}, {"width": width + 1}),
        )
    cos, sin = (table[:, : width // 2].numpy() for table in positions.rotary_angles(n_positions, width))
    rotated = np.concatenate([cos - sin, sin + cos], axis=1) * width**-0.5  # of a pair (a, a)
    table = pd.DataFrame(cos, _counted(n_positions, "position"), _counted(width // 2, "dimensions"))
    return PositionCode(table, _effect(rotated @ rotated.T), ROTARY, pytorch.rotary(n_positions, width))


def alibi(n_positions: int, n_heads: int, head: int) -> PositionCode:
    """The bias that every head adds to a score at each distance, and that of `head` (from 0) for all scores.

    ``−slope_h · |m − n|``, with the slopes of `attention.positions.alibi`. Source: Press et al. 2022 (Train
    Short, Test Long), section 3.
    """
    by_distance = positions.alibi(n_heads, n_positions, n_positions)[:, n_positions - 1 :].numpy()
    distances = pd.Index([str(distance) for distance in range(n_positions)], name="distance")
    at = np.arange(n_positions)
    bias = by_distance[head, np.abs(at[:, None] - at)]
    table = pd.DataFrame(by_distance, _counted(n_heads, "head"), distances)
    power = 1 << n_heads.bit_length() - 1
    rates = RATES if n_heads == power else FILLED % (power, power, power, 2 * power, power)
    return PositionCode(table, _effect(bias), ALIBI % rates, pytorch.alibi(n_positions, n_heads))


def _counted(count: int, name: str) -> pd.RangeIndex:
    return pd.RangeIndex(1, count + 1, name=name)


def _effect(products: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(products, _counted(len(products), "query"), _counted(len(products), "key"))
