"""Word vectors as tables: a map, the neighbours of a word, and whether pairs differ in one direction.

The vectors are a frame with one row for each word, ``(word, d_model)``.
"""

from collections.abc import Iterable, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import pandas as pd

# Pairs of words with one relation, by language. Those of gender and of tense are known to agree in vectors
# learned from large texts. Source: Mikolov, Yih and Zweig 2013 (Linguistic Regularities in Continuous Space
# Word Representations).
RELATIONS = {
    "en": {
        "possession": (("he", "his"), ("she", "her"), ("they", "their")),
        "gender": (("man", "woman"), ("king", "queen"), ("boy", "girl")),
        "tense": (("walking", "walked"), ("swimming", "swam")),
    },
    "zh": {
        "gender": (("男人", "女人"), ("国王", "女王"), ("男孩", "女孩")),
        "number": (("我", "我们"), ("你", "你们"), ("他", "他们"), ("她", "她们")),
    },
}
NEIGHBOURS = 10  # words nearest to a word
FLAT = 1e-9  # relative to the largest number: a smaller axis is rounding


class Map(NamedTuple):
    """The positions of words on a few axes, and the share of the variance that each axis explains."""

    points: pd.DataFrame  # (word, axis)
    shares: np.ndarray  # (axis,)

    @property
    def percents(self) -> np.ndarray:
        """The shares in per cent with one digit, so rounded that they sum to their rounded total. (axis,)"""
        return np.diff((100 * self.shares).cumsum().round(1), prepend=0)


class Chance(NamedTuple):
    """Cosines expected of random directions: of the nearest of many, and the limit for 95 % of pairs."""

    nearest: float
    pair: float


def table(words: Sequence[str], matrix: np.ndarray) -> pd.DataFrame:
    """Words and their vectors as one frame. (word, d_model)"""
    columns = pd.RangeIndex(1, matrix.shape[1] + 1, name="d_model")
    return pd.DataFrame(matrix, index=pd.Index(words, name="word"), columns=columns, dtype=np.float64)


def project(vectors: pd.DataFrame, *, axes: int, along: Iterable[str] | None = None) -> Map:
    """Principal components: ``(E − mean) V`` with ``E − mean = U S Vᵀ``; (word, d_model) → (word, axis).

    The axes are fitted to the words `along` (all by default), and the share of axis a is ``S²[a] / Σ S²`` of
    these words; all other words are projected on the same axes. Each axis has the sign that makes its largest
    loading positive. Axes beyond the rank of the words are 0.
    """
    basis = vectors if along is None else vectors.loc[list(along)]
    centre = basis.to_numpy().mean(0)
    _, sizes, components = np.linalg.svd(basis.to_numpy() - centre, full_matrices=False)
    sizes = sizes[sizes > FLAT * np.abs(vectors.to_numpy()).max(initial=0)]
    components = components[: min(axes, len(sizes))]
    loadings = np.take_along_axis(components, np.abs(components).argmax(1)[:, None], 1)
    directions, shares = np.zeros((axes, vectors.shape[1])), np.zeros(axes)
    directions[: len(components)] = components * np.sign(loadings)
    shares[: len(components)] = sizes[: len(components)] ** 2 / (sizes**2).sum()
    points = (vectors.to_numpy() - centre) @ directions.T
    return Map(pd.DataFrame(points, vectors.index, pd.RangeIndex(1, axes + 1, name="axis")), shares)


def nearest(vectors: pd.DataFrame, word: str) -> pd.Series:
    """The words with the largest ``cos(a, b) = a·b / (|a| |b|)`` to a word, itself left out. (word,)"""
    units = _units(vectors.to_numpy())
    cosines = pd.Series(units @ units[vectors.index.get_loc(word)], vectors.index, name="cosine")
    return cosines.drop(word).sort_values(ascending=False, kind="stable").head(NEIGHBOURS)


def agreement(vectors: pd.DataFrame, pairs: Iterable[tuple[str, str]]) -> pd.DataFrame:
    """The cosine between every two differences ``b − a``; pairs with a word that has no vector are left out.

    (pair, pair), rows and columns named “a→b”.
    """
    at = {word: row for row, word in enumerate(vectors.index)}
    present = [(a, b) for a, b in pairs if {a, b} <= at.keys()]
    values = vectors.to_numpy()
    units = _units(values[[at[b] for _, b in present]] - values[[at[a] for a, _ in present]])
    names = [f"{a}→{b}" for a, b in present]
    return pd.DataFrame(units @ units.T, pd.Index(names, name="pair"), pd.Index(names, name="pair"))


def chance(n_words: int, width: int) -> Chance:
    """The cosines to expect of random directions: about N(0, 1/width).

    The nearest of n words: the median of the largest of n − 1, ``Φ⁻¹(0.5^(1/(n−1))) / √width``.
    Two differences: 95 % lie within ``± 1.96 / √width``.
    """
    normal, others = NormalDist(0, width**-0.5), max(1, n_words - 1)
    return Chance(min(1.0, normal.inv_cdf(0.5 ** (1 / others))), min(1.0, normal.inv_cdf(0.975)))


def kept(vectors: np.ndarray, matrix: np.ndarray) -> float:
    """The share of the variance of vectors (token, d_model) that a projection (d_model, d_k) can depend on.

    ``Σ|(x − mean) B|² / Σ|x − mean|²``, where B is an orthonormal basis of the columns of the matrix: what is
    at right angles to all columns does not reach the product. 1 for vectors that are all alike.
    """
    centred = np.asarray(vectors, np.float64) - np.mean(vectors, axis=0, dtype=np.float64)
    basis, sizes, _ = np.linalg.svd(np.asarray(matrix, np.float64), full_matrices=False)
    whole = float((centred**2).sum())
    return float(((centred @ basis[:, sizes > FLAT * sizes.max()]) ** 2).sum()) / whole if whole else 1.0


def verdict(cosines: Sequence[float], limit: float) -> str:
    """Whether differences agree more than by chance: "all" of them, "some" (on average), or "none".

    `limit` is the largest of 95 % of cosines of random directions; for a mean of m of them it is ``limit /
    √m``.
    """
    if min(cosines) > limit:
        return "all"
    return "some" if np.mean(cosines) > limit / len(cosines) ** 0.5 else "none"


def _units(rows: np.ndarray) -> np.ndarray:
    """Rows of length 1; a row of zeros, which has no direction, stays 0."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
