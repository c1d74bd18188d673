"""A difference in a notebook: its sentences, and both matrices of the head that differs most."""

import html
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mha_core.differences.traces import Difference

SIDE, CELL = 32, 5  # cells on a side, and pixels of a cell
COLOURS = {1: "#d6761e", -1: "#3b6fb6"}  # of positive and negative numbers


def difference_html(found: "Difference") -> str:
    """The sentences, and my matrix, theirs, and mine − theirs as small pictures."""
    said = "".join(f"<div>{html.escape(sentence)}</div>" for sentence in found.sentences())
    mine, theirs, where = found.mine, found.theirs, ""
    if mine is None or theirs is None or mine.shape != theirs.shape:
        return said
    gap = np.nan_to_num(mine - theirs)
    if gap.ndim == 3:
        head = int(np.abs(gap).max((1, 2)).argmax())
        mine, theirs, gap, where = mine[head], theirs[head], gap[head], f", head {head + 1}"
    named = {"mine": mine, "theirs": theirs, "mine − theirs": gap}
    pictures = "".join(_picture(matrix, f"{name}{where}") for name, matrix in named.items())
    return f'{said}<div style="display:flex;flex-wrap:wrap;gap:12px;margin:6px 0">{pictures}</div>'


def _picture(matrix: np.ndarray, title: str) -> str:
    """A matrix, darker for larger sizes; of a large one the number of the largest size in each cell."""
    values = np.where(np.isfinite(matrix), matrix, 0.0)
    rows, columns = (np.linspace(0, size, min(size, SIDE) + 1).astype(int) for size in values.shape)
    blocks = [[values[a:b, c:d] for c, d in pairwise(columns)] for a, b in pairwise(rows)]
    cells = np.array([[one.flat[np.abs(one).argmax()] for one in row] for row in blocks])
    end = np.abs(cells).max() or 1.0
    squares = "".join(
        f'<path d="M{column} {row}h1v1h-1z" fill="{COLOURS[int(np.sign(cells[row, column]))]}" '
        f'fill-opacity="{abs(cells[row, column]) / end:.2f}"/>'
        for row, column in zip(*np.nonzero(cells), strict=True)
    )
    height, width = cells.shape
    return (
        f'<figure style="margin:0"><svg role="img" viewBox="0 0 {width} {height}" width="{CELL * width}" '
        f'height="{CELL * height}" style="background:#fff;border:1px solid #8888">{squares}</svg>'
        f"<figcaption>{html.escape(title)}, to {end:.3g}</figcaption></figure>"
    )
