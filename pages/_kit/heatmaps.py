"""Matrices as heatmaps, drawn with our scripts; the reader can enlarge one."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
import streamlit as st

from mha_core import AttentionTrace
from mha_core.analysis.derivation import PRIMES
from mha_core.analysis.explanation import EXPLAINED
from mha_core.analysis.frames import Origin, Picture
from mha_core.export import head_view as views
from mha_core.traces.matrices import TOKEN_AXES
from pages._kit import cell_path, charts, components, state
from pages._kit.text import language, t, template

# How the names of those texts of the head view begin that matrix_gallery.js uses, too.
SHARED_TEXTS = (
    "colours_",
    "matrices_",
    "matrix_alt",
    "pixels",
    "scale",
    "sentence",
    "two_sentences",
    "zoom_",
)
# The kind of thing that is pointed at on an axis of tokens, heads or layers (scene/highlight.js).
POINTED = {name: name for name in ("query", "key", "token", "head", "layer")} | {"to": "query", "from": "key"}
POINTED["part"] = "key"  # what each token gives
ROW, MIN_TALL, MAX_TALL, NAMES_ABOVE = 22, 170, 360, 84  # pixels of a row, of all rows, of the columns' names
AROUND = 60  # pixels of the words above a picture and of the gap below it
_heatmaps = components.component(
    "heatmaps",
    "pictures/page_matrices.js",
    "pictures/print.css",
    "pictures/matrix_gallery.css",
    "pictures/cell_path.css",
)


class MatrixCell(NamedTuple):
    """Where a number of a layer is: its matrix, its head if that has heads, its row and column, from 0."""

    matrix: str
    head: int | None
    row: int
    column: int


class Cells(NamedTuple):
    """Identifies the numbers of a drawn matrix, so that a late click is not applied to another."""

    subject: tuple[str, Origin, MatrixCell | None]
    first: tuple[int, int]
    shape: tuple[int, int]


class Asked(NamedTuple):
    """A request to explain a number of the matrix of that name; row and column as in the trace."""

    id: int
    name: str
    subject: tuple[str, Origin, MatrixCell | None]
    row: int
    column: int


def scale_end(scale: str, largest: float) -> float:
    """The weight at which the colours end: 1, or the `largest` in sight if the focus has a fitted scale."""
    return largest if scale == "fitted" and largest > 0 else 1.0


@dataclass(frozen=True, eq=False)
class Heatmap:
    """A matrix as it is drawn, and what a click on it does. Positions are (row, column), from 0."""

    name: str  # unique among the matrices that are drawn together
    symbol: str  # on screen, such as S₁
    meaning: str  # the symbol in words
    frame: pd.DataFrame  # its numbers, with labels of rows and columns
    kind: Literal["weights", "signed"]  # colours run from 0 to `limit`, or from -limit to limit
    limit: float | None = None  # by default 1 for weights, and the largest absolute value for signed numbers
    hidden: np.ndarray | None = None  # True for cells without a colour of the scale
    hidden_text: str | None = None  # why they are hidden, if not by the mask
    framed: tuple[int, int] | None = None  # frames these columns, the second one excluded
    row: int | None = None  # frames this row
    origin: Origin = Origin()  # where the numbers come from, for captions
    # The tokens of the first row and column, if a click on a cell chooses tokens; None for other axes.
    start: tuple[int | None, int | None] | None = None
    # For axes of another text: for each of its tokens, the position that a click chooses.
    partners: tuple[Sequence[int] | None, Sequence[int] | None] = (None, None)
    result: bool = False  # marked with an arrow, as the result of the matrices before it
    span: int = 1  # width in columns of the grid
    first: tuple[int, int] = (0, 0)  # the position of its first cell in the trace's matrix
    # The trace's cell behind a drawn one, by its drawn position plus `first`; None if none is known.
    cell: Callable[[int, int], MatrixCell] | None = None
    paints: bool = False  # a drag over cells reports them; where a click explains, once the pen is taken

    @cached_property
    def values(self) -> np.ndarray:
        return np.ascontiguousarray(self.frame.to_numpy(dtype=np.float32))

    @cached_property
    def end(self) -> float:
        """The value at which the colours end."""
        if self.limit is not None or self.kind == "weights":
            return float(self.limit or 1.0)
        visible = np.isfinite(self.values) & (True if self.hidden is None else ~self.hidden)
        return float(np.abs(self.values).max(initial=0.0, where=visible)) or 1.0

    @property
    def cells(self) -> Cells:
        source = None if self.cell is None else self.cell(0, 0)
        subject = self.symbol, replace(self.origin, spans=()), source
        return Cells(subject, self.first, self.frame.shape)

    @cached_property
    def description(self) -> dict:
        """Everything but its numbers, for page_matrices.js."""
        frame = self.frame
        numbered = isinstance(frame.columns, pd.RangeIndex) and frame.columns.start == frame.columns.step == 1
        meta = charts.described(self.name, "", self.origin)
        return {
            "name": self.name,
            "symbol": self.symbol,
            "meaning": self.meaning,
            "rows": [str(name) for name in frame.index],
            "columns": len(frame.columns) if numbered else [str(name) for name in frame.columns],
            "signed": self.kind == "signed",
            "end": self.end,
            "masked": None if self.hidden is None else self.hidden_text or t("matrix.hidden"),
            "hatched": t("matrix.hatched", what=self.hidden_text) if self.hidden_text else None,
            "framed": self.framed,
            "row": self.row,
            "result": self.result,
            "axes": t("heatmap.axes", rows=axis(frame.index), columns=axis(frame.columns)),
            "span": self.span,
            "cell_text": _cell_text(frame),
            "start": self.start,
            "partners": self.partners,
            "paints": self.paints,
            "kinds": [POINTED.get(index.name) for index in (frame.index, frame.columns)],
            "saved": {"caption": meta["caption"], "file": meta["file"]},
        }


def to_heatmap(picture: Picture, name: str, *, limit: float, query: int, result: bool = False) -> Heatmap:
    """Turn the picture of a matrix into a heatmap of that name.

    Weights are coloured up to `limit`, other numbers up to their largest absolute value. Where rows are
    queries, the row of the token `query` is framed. `result` marks the matrix as the result of a step with an
    arrow. A click on a cell chooses its tokens.
    """
    frame, (first_row, first_column) = picture.frame, picture.start
    rows_are_queries = frame.index.name == "query" and picture.framed is None
    # A click on a row chooses the query, unless the rows are keys of another text. A column chooses the key
    # only if keys are of another text; otherwise the key follows from the query.
    two_texts = not picture.sides.same
    columns_chosen = two_texts and frame.columns.name in TOKEN_AXES
    clickable = frame.index.name in TOKEN_AXES and not (two_texts and frame.index.name == "key")
    # Its numbers are the trace's own: not of an earlier stage, and not of all heads at once.
    whole = picture.framed is None or picture.name == "concat"
    has_own_numbers = picture.name in EXPLAINED and whole and not set(picture.symbol) & set(PRIMES)
    return Heatmap(
        name,
        symbol(picture.symbol),
        t(f"matrix.{picture.name}"),
        frame,
        picture.kind,
        limit=limit if picture.kind == "weights" else None,
        hidden=picture.hidden,
        framed=picture.framed,
        row=query - first_row if rows_are_queries else None,
        origin=picture.origin,
        start=(first_row, first_column if columns_chosen else None) if clickable else None,
        result=result,
        first=picture.start,
        cell=partial(MatrixCell, picture.name, picture.origin.head) if has_own_numbers else None,
    )


def symbol(written: str) -> str:
    """A symbol in the reader's language: "S₁ masked" contains a word, "head_i" an index."""
    scores, is_masked, _ = written.partition(" masked")
    if is_masked:
        return t("matrix.masked_symbol", scores=scores)
    return written.replace("head_i", "headᵢ")


class StepMatrices(NamedTuple):
    """The matrices that a step draws, those among them that it computes, and how many stand in a row."""

    matrices: Sequence[str]
    results: Sequence[str]
    across: int


def draw(
    matrices: Sequence[Heatmap],
    *,
    key: str,
    across: int | None = None,
    tall: int | None = None,
    stacked: bool = False,
    steps: Mapping[str, StepMatrices] | None = None,
    traces: Mapping[str, AttentionTrace] | None = None,
    names: Sequence[str] | None = None,
    with_cell: Mapping[str, int] | None = None,
    painted: Callable[[str, range, range], None] | None = None,
) -> None:
    """Draw matrices, `across` in a row and `tall` pixels high; `key` is their element key.

    On a phone they are swiped sideways, or `stacked` below each other. With `steps`, only those of the step
    in focus are drawn (scene/step.js). `traces` are the traces behind the matrices of these names; a click on
    a cell then explains its number. With the `names` of all tokens of the text, the frame around a row
    follows the focus without the server. A click on a cell also sets the fields `with_cell` of the focus.
    `painted` gets the name, rows and columns of a drag.
    """
    traces = traces or {}
    across = len(matrices) if across is None else across
    if tall is None:
        rows = max(len(matrix.frame) for matrix in matrices)
        tall = NAMES_ABOVE + min(max(rows * ROW, MIN_TALL), MAX_TALL)
    explained = f"{key}_explained"  # in the session: the number that was asked about
    blob = _packed(matrices)
    hint = _hint(key, explains=bool(traces), chooses=any(one.start for one in matrices))
    explanation = _explanation(st.session_state.get(explained), matrices, traces)
    data = {
        "name": key,
        "digest": components.digest(blob),
        # The texts of a path are half of all; only an explanation uses them.
        "texts": _texts(hint, language()) | (cell_path.texts(language()) if explanation else {}),
        "tall": tall,
        "across": across,
        "stacked": stacked,
        "names": names,
        "matrices": [
            matrix.description | {"explains": matrix.cell is not None and matrix.name in traces}
            for matrix in matrices
        ],
        "explanation": explanation,
        "steps": None if steps is None else {name: step._asdict() for name, step in steps.items()},
    }

    # A session keeps these functions; one that held a trace would also keep all its results in memory.
    explains = {one.name: one.cells for one in matrices if one.cell is not None and one.name in traces}

    def picked() -> None:
        cell = st.session_state[key].picked
        state.receive(cell.get("moved"))
        positions = {"token": cell["row"], "key_token": cell["column"]} | dict(with_cell or {})
        # The browser sent these numbers; the controls clamp them to the tokens that exist.
        state.go(**{key: at + 1 for key, at in positions.items() if isinstance(at, int) and at >= 0})
        if cell.get("explained"):
            st.session_state[explained] = _asked(explains, **cell["explained"])

    cells = {one.name: one.cells for one in matrices if one.paints}

    def paint() -> None:
        order = st.session_state[key].painted
        state.receive(order.get("moved"))
        if painted is not None and (area := _area(cells, **order)) is not None:
            painted(*area)

    _heatmaps(
        key=key,
        data=data,
        height=(1 if steps else math.ceil(len(matrices) / across)) * (tall + AROUND),  # until they are drawn
        on_picked_change=picked,
        on_painted_change=paint,
    )
    components.send(key, blob)


def _asked(explains: Mapping[str, Cells], *, id: int, name: str, row: int, column: int) -> Asked | None:
    """The request to explain the number of a cell; None if the cell is gone."""
    cells = explains.get(name)
    if cells is None or not (0 <= row < cells.shape[0] and 0 <= column < cells.shape[1]):
        return None
    return Asked(id, name, cells.subject, cells.first[0] + row, cells.first[1] + column)


def _area(
    painted: Mapping[str, Cells], *, name: str, rows: object, columns: object, **_: object
) -> tuple[str, range, range] | None:
    """The rows and columns that the browser reports as painted; None if the matrix does not have them."""
    cells = painted.get(name)
    if cells is None:
        return None
    ranges = []
    for ends, first, count in zip((rows, columns), cells.first, cells.shape, strict=True):
        if not (isinstance(ends, list) and len(ends) == 2 and all(type(end) is int for end in ends)):
            return None
        if not 0 <= ends[0] <= ends[1] < count:
            return None
        ranges.append(range(first + ends[0], first + ends[1] + 1))
    painted_rows, painted_columns = ranges
    return name, painted_rows, painted_columns


def _explanation(
    asked: Asked | None, matrices: Sequence[Heatmap], traces: Mapping[str, AttentionTrace]
) -> dict | None:
    """The explanation that was asked for, as long as the matrix with its number is drawn."""
    if asked is None or asked.name not in traces:
        return None
    matrix = next(
        (one for one in matrices if one.name == asked.name and one.cells.subject == asked.subject), None
    )
    if matrix is None or matrix.cell is None or matrix.origin.layer is None:
        return None
    name, head, row, column = matrix.cell(asked.row, asked.column)
    where = {"layer": matrix.origin.layer, "row": row, "column": column}
    return cell_path.describe_cell(traces[asked.name], name, symbol=matrix.symbol, head=head, **where) | {
        "id": asked.id
    }


def axis(index: pd.Index) -> str:
    """The name of an axis, in words."""
    return t(f"axis.{index.name or 'packed'}")


def _hint(key: str, *, explains: bool, chooses: bool) -> str:
    """The name of the text on what a click does; "" if pictures above have said all of it.

    A fragment that runs alone repeats what it said when the whole page ran.
    """
    hints = st.session_state.setdefault(state.HINTS, {})
    if key not in hints:
        says = {"point"} | ({"explains"} if explains else set()) | ({"chooses"} if chooses else set())
        is_new = not says <= set().union(*hints.values())
        hints[key] = says if is_new else set()
    if not hints[key]:
        return ""
    return ("explained" if chooses else "explains") if explains else ("how" if chooses else "point")


@cache
def _texts(hint: str, language: str) -> dict[str, str]:
    """The texts of a board; `unexplained` stands below a step none of whose matrices explains its numbers."""
    texts = {name: text for name, text in views.texts(language).items() if name.startswith(SHARED_TEXTS)}
    texts |= {name: template(f"heatmap.{name}") for name in ("pen", "paint")}
    hints = {"how": hint, "unexplained": {"explained": "how", "explains": "point"}.get(hint, hint)}
    for name, says in hints.items():
        for touch in ("", "_touch"):
            texts[name + touch] = template(f"heatmap.{says}{touch}") if says else ""
    return texts


def _cell_text(frame: pd.DataFrame) -> str:
    if frame.columns.dtype.kind in "iu":
        return template("heatmap.cell_number")
    if frame.index.name == frame.columns.name:  # both axes have the same kind of thing (tokens × tokens)
        return template("heatmap.cell_pair")
    return template("heatmap.cell")


def _packed(matrices: Sequence[Heatmap]) -> bytes:
    """All numbers as float32, row by row, then a byte for each cell of the matrices with hidden cells."""
    numbers = [matrix.values.tobytes() for matrix in matrices]
    hidden = [np.uint8(matrix.hidden).tobytes() for matrix in matrices if matrix.hidden is not None]
    return b"".join([*numbers, *hidden])
