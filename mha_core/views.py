"""A trace as tables: what pages and figures need, and nothing about how it looks."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from mha_core.layer import LayerTrace
from mha_core.trace import MATRICES, TOKEN_AXES, AttentionTrace

KIND = {name: "weights" if name == "weights" else "signed" for name in MATRICES}


# How each matrix is written; {} is the head, counted from 1 as in the papers.
SUBSCRIPT = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
SYMBOLS = {
    "x": "X",
    "x_v": "E",
    "q": "Q{}",
    "k": "K{}",
    "v": "V{}",
    "scores": "S{}",
    "scaled": "S{} / √d_k",
    "masked": "S{} masked",
    "weights": "A{}",
    "output": "head{}",
    "concat": "concat",
    "contribution": "head{0} · Wᴼ{0}",
    "result": "Z",
}


@dataclass(frozen=True, eq=False)
class Picture:
    """One matrix to draw: its symbol, its frame, its colour meaning and what is special in it."""

    name: str
    symbol: str
    frame: pd.DataFrame
    kind: Literal["weights", "signed"]
    hidden: np.ndarray | None = None
    framed: tuple[int, int] | None = None
    faint: np.ndarray | None = None  # rows that were never trained to mean anything


def picture(trace: AttentionTrace, name: str, *, layer: int, head: int) -> Picture:
    """One named matrix of one head, ready to draw. Heads count from 0 here, from 1 in the symbol."""
    hidden = None
    if name in ("masked", "weights"):
        allowed = trace.layers[layer].allowed(head)
        hidden = None if allowed.all() else ~allowed
    frame = trace.frame(name, layer=layer, head=head)
    return Picture(
        name,
        symbol(trace.layers[layer], name, head),
        frame,
        KIND[name],
        hidden,
        faint=untrained_rows(trace, layer) if MATRICES[name][0] == "query" else None,
    )


def untrained_rows(trace: AttentionTrace, layer: int) -> np.ndarray | None:
    """True for each query whose row in the last layer no answer was ever asked of; None for no such layer.

    A trained model is asked at pronouns and hidden words alone; its earlier layers serve those rows.
    """
    if not trace.answers or layer < len(trace.layers) - 1:
        return None
    return np.array([answer is None for answer in trace.answers])


def symbol(layer: LayerTrace, name: str, head: int) -> str:
    """How the matrix of a head is written, ``Q₃`` for head 2; K and V go by their own head."""
    owner = layer.kv_head(head) if name in ("k", "v") else head
    return SYMBOLS[name].format(str(owner + 1).translate(SUBSCRIPT))


def long_table(trace: AttentionTrace, name: str, *, layer: int, heads: Iterable[int]) -> pd.DataFrame:
    """A matrix of several heads, one line for each number: head, row, column, value.

    Heads and positions count from 1; each token axis has its position and its word.
    """
    row_axis, column_axis = MATRICES[name]
    parts = []
    for head in heads:
        frame = trace.frame(name, layer=layer, head=head)
        n_rows, n_columns = frame.shape
        parts.append(
            pd.DataFrame(
                {
                    "head": head + 1,
                    **_axis_columns(row_axis, frame.index, np.repeat(np.arange(n_rows), n_columns)),
                    **_axis_columns(column_axis, frame.columns, np.tile(np.arange(n_columns), n_rows)),
                    name: frame.to_numpy().ravel(),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def _axis_columns(axis: str, labels: pd.Index, positions: np.ndarray) -> dict:
    if axis not in TOKEN_AXES:
        return {axis: positions + 1}
    return {f"{axis}_position": positions + 1, axis: labels.to_numpy()[positions]}
