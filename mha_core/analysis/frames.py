"""A trace as tables, for pages and figures, without colours or layout."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from mha_core.attention.functional import row_blocks
from mha_core.traces.layer import LayerTrace
from mha_core.traces.matrices import MATRICES, TOKEN_AXES
from mha_core.traces.source import Source
from mha_core.traces.tokens import Sides
from mha_core.traces.trace import AttentionTrace

MAX_ALL_PAIRS = 256  # tokens of a text of which a page draws all pairs, for every head
WINDOW = 128  # most rows and columns of tokens in one large figure
# The beginning of a formula in a spreadsheet, also after white space and line breaks, and full-width signs.
FORMULA = re.compile(r"[\t\r\n]|[\s\u200b\ufeff]*[=+\-@＝＋－＠]")


class Span(NamedTuple):
    """The tokens of a long text on an axis: from position `start`, from 0, to before `stop`, of `count`."""

    axis: str
    start: int
    stop: int
    count: int  # type: ignore[assignment]  # in place of tuple.count, which nobody calls


@dataclass(frozen=True)
class Origin:
    """Where the numbers of a figure come from: source and sizes, sentence, layer and head from 0.

    Facts that do not apply to a figure are None; `note` is any other remark; `spans` are the tokens on each
    axis that shows only a part.
    """

    source: Source | None = None
    text: str | None = None
    layer: int | None = None
    head: int | None = None
    note: str = ""
    h: int | None = None
    d_model: int | None = None
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, eq=False)
class Picture:
    """One matrix to draw: its symbol, its frame, the meaning of its colours, and its marked cells.

    `sides` are the tokens of its layer. `start` is the position of its first row and first column, from 0, if
    only a part is drawn.
    """

    name: str
    symbol: str
    frame: pd.DataFrame
    kind: Literal["weights", "signed"]
    origin: Origin
    sides: Sides
    hidden: np.ndarray | None = None
    framed: tuple[int, int] | None = None
    start: tuple[int, int] = (0, 0)


class Crop(NamedTuple):
    """The query tokens and the key tokens to draw, each with a start and a stop; None for all."""

    queries: slice | None = None
    keys: slice | None = None

    def of(self, axis: str) -> slice | None:
        return self.keys if axis == "key" else self.queries

    def spans(self, sides: Sides, axes: Iterable[str] = ("query", "key")) -> tuple[Span, ...]:
        """A `Span` for each of these axes that is cropped."""
        spans = []
        for axis in axes:
            if (part := self.of(axis)) is not None:
                count = len(sides.keys if axis == "key" else sides.queries)
                start, stop, _ = part.indices(count)
                spans.append(Span(axis, start, stop, count))
        return tuple(spans)


def picture(trace: AttentionTrace, name: str, *, layer: int, head: int, part: Crop = Crop()) -> Picture:
    """One named matrix of one head, ready to draw. Heads count from 0 here, from 1 in the symbol.

    `part` limits each axis of tokens to these tokens. The matrices are then computed for these rows only, so
    that a long text never needs a matrix of tokens × tokens.
    """
    matrix, layer_trace, layer = MATRICES[name], trace.layer(layer), trace.layer_index(layer)
    hidden = None
    if name in ("masked", "weights"):
        allowed = layer_trace.allowed(head, rows=part.queries, keys=part.keys)
        hidden = None if allowed.all() else ~allowed
    token_axes = [axis for axis in matrix.axes if axis in TOKEN_AXES]
    first_row, first_column = (
        cut.start if axis in token_axes and (cut := part.of(axis)) else 0 for axis in matrix.axes
    )
    return Picture(
        name,
        matrix.written(layer_trace, head),
        trace.frame(name, layer=layer, head=head, rows=part.queries, keys=part.keys),
        matrix.kind,
        replace(
            origin(trace, layer=layer, head=layer_trace.head_index(head)),
            spans=part.spans(layer_trace.sides, token_axes),
        ),
        layer_trace.sides,
        hidden,
        start=(first_row, first_column),
    )


def around(trace: AttentionTrace, query: int, *, layer: int, head: int, size: int = WINDOW) -> Crop:
    """The part of a long text around a query; of a second text, the part around its strongest key."""
    sides = trace.layers[layer].sides
    rows = window(len(sides.queries), query, size)
    if sides.same:
        return Crop(rows, rows)
    if len(sides.keys) <= size:
        return Crop(rows, None)
    strongest = int(trace.layers[layer].weights(head, rows=[query])[0].argmax())
    return Crop(rows, window(len(sides.keys), strongest, size))


def largest_weight(layer: LayerTrace, *, part: Crop = Crop()) -> float:
    """The largest weight of all heads of a layer, or in a `part` of a long text; from 0 to 1."""
    return float(layer.weights(rows=part.queries, keys=part.keys).max())


def window(length: int, around: int, size: int = WINDOW) -> slice | None:
    """At most `size` of `length` positions, with `around` as near their middle as possible; None for all.

    ``window(1000, 500, 128)`` is ``slice(436, 564)``; at the ends of a text the part has the same length.
    """
    if length <= size:
        return None
    start = min(max(around - size // 2, 0), length - size)
    return slice(start, start + size)


def origin(trace: AttentionTrace, *, layer: int | None = None, head: int | None = None) -> Origin:
    """The source of a trace's numbers, with its h and d_model."""
    first = trace.layers[0]
    return Origin(trace.source, trace.title, layer, head, h=first.n_heads, d_model=first.d_model)


def long_table(
    trace: AttentionTrace, name: str, *, layer: int, heads: Iterable[int], part: Crop = Crop()
) -> pd.DataFrame:
    """A matrix of several heads in long form, one row for each number: layer, head, row, column, value.

    Layers, heads and positions count from 1, as on screen; each token axis has its position and its word.
    `part` limits the axes of tokens.
    """
    row_axis, column_axis = MATRICES[name].axes
    parts = []
    for head in heads:
        frame = trace.frame(name, layer=layer, head=head, rows=part.queries, keys=part.keys)
        n_rows, n_columns = frame.shape
        parts.append(
            pd.DataFrame(
                {
                    "layer": trace.layer_index(layer) + 1,
                    "head": head + 1,
                    **_axis_columns(row_axis, frame.index, np.repeat(np.arange(n_rows), n_columns), part),
                    **_axis_columns(column_axis, frame.columns, np.tile(np.arange(n_columns), n_rows), part),
                    name: frame.to_numpy().ravel(),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def long_tables(trace: AttentionTrace, name: str, *, layer: int) -> Iterator[pd.DataFrame]:
    """`long_table` of all heads, in parts: of a long text the whole would not fit into memory."""
    one = trace.layer(layer)
    for head, rows in product(range(one.n_heads), row_blocks(one.n_query, one.n_key)):
        yield long_table(trace, name, layer=layer, heads=[head], part=Crop(rows))


def csv(table: pd.DataFrame) -> bytes:
    """A CSV file for spreadsheets: UTF-8 with a byte order mark, no cell a formula."""
    return without_formulas(table).to_csv(index=False).encode("utf-8-sig")


def without_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """A copy for spreadsheets, with an apostrophe before each cell and header that is a formula there."""
    safe = table.copy()
    for column in safe.select_dtypes(exclude="number"):
        safe[column] = safe[column].map(_literal, na_action="ignore")
    return safe.rename(columns=_literal)


def _literal(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and FORMULA.match(cell) else cell


def _axis_columns(axis: str, labels: pd.Index, positions: np.ndarray, part: Crop) -> dict:
    """The columns of an axis, of which `labels` has the `part`."""
    if axis not in TOKEN_AXES:
        return {axis: positions + 1}
    first = (part.of(axis) or slice(0)).start or 0
    return {f"{axis}_position": positions + first + 1, axis: labels.to_numpy()[positions]}
