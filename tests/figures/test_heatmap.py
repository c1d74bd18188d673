"""Heatmaps: the numbers of the frame, a cell for each token, and a meaningful scale."""

import html
import re

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from mha_core.figures import heatmap as module
from mha_core.figures.heatmap import heatmap

WORDS = {"rows": "query: word looking", "columns": "key: word looked at"}


def framed(values, rows=None, columns=None) -> pd.DataFrame:
    """A frame as `AttentionTrace.frame` makes it: words on token axes, dimensions counted from 1."""
    values = np.asarray(values, dtype=np.float32)
    n_rows, n_columns = values.shape
    return pd.DataFrame(
        values,
        index=[f"word{i}" for i in range(n_rows)] if rows is None else rows,
        columns=pd.RangeIndex(1, n_columns + 1) if columns is None else columns,
    )


def draw(values, *, rows=None, columns=None, kind="signed", **options) -> go.Figure:
    return heatmap(framed(values, rows, columns), kind=kind, **WORDS, **options)


@pytest.fixture
def normal():
    return lambda *shape: np.random.default_rng(7).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(1, 7), (40, 64)])
def test_the_cells_are_the_numbers_of_the_frame(normal, shape):
    values = normal(*shape)
    figure = draw(values, hidden=np.zeros(shape, bool))
    [cells] = figure.data
    assert (cells.type, figure.layout.shapes) == ("heatmap", ())  # nothing is hatched
    np.testing.assert_array_equal(cells.z, values)
    assert cells.z.dtype == np.float32
    assert [*cells.x] == [*range(1, shape[1] + 1)]
    assert [*cells.y] == [f"word{i}" for i in range(shape[0])]


# Colours


@pytest.mark.parametrize(
    ("kind", "values", "hidden", "ends"),
    [
        ("weights", [[0.2, 0.8]], None, (0, 1)),
        ("signed", [[-3.0, 1.0]], None, (-3, 3)),
        ("signed", [[0.0, 0.0]], None, (-1, 1)),
        ("signed", [[-np.inf, np.nan, 2.0]], None, (-2, 2)),
        ("signed", [[-np.inf, -np.inf]], None, (-1, 1)),
        ("signed", [[100.0, 2.0]], [[True, False]], (-2, 2)),
    ],
)
def test_weights_are_coloured_from_0_to_1_and_signed_numbers_evenly_around_0(kind, values, hidden, ends):
    cells = draw(values, kind=kind, hidden=None if hidden is None else np.array(hidden)).data[0]
    assert (cells.zmin, cells.zmax) == pytest.approx(ends)
    assert (cells.autocolorscale, cells.colorscale) == (True, None)  # the theme has the colours


# Hidden cells


def hatching(figure) -> list[tuple[float, float, float, float]]:
    """The slanted lines over hidden cells: x and y of both their ends."""
    [path] = [shape.path for shape in figure.layout.shapes if shape.type == "path"]
    return [tuple(map(float, re.split("[ L]", line))) for line in path.split("M")[1:]]


def hatched(figure) -> set[tuple[int, int]]:
    """The cells (row, column) with a slanted line through their middle."""
    left = figure.data[0].x[0]
    first = 0 if isinstance(left, str) else left
    return {
        (round(y - 0.5 - nth), round(x - first + 0.5 + nth))
        for x, y, to_x, _ in hatching(figure)
        if to_x - x >= 1
        for nth in range(round(to_x - x))
    }


def test_hidden_cells_have_no_colour_of_the_scale_but_are_grey_and_hatched(normal):
    hidden = np.array([[False, True, True], [False, False, True]])
    values = normal(2, 3)
    values[0, 2] = np.inf  # hidden as those are that have no finite number
    frame = framed(values, columns=["a", "b", "c"])
    before = frame.copy()
    figure = heatmap(frame, kind="signed", hidden=hidden & np.isfinite(values), **WORDS)
    pd.testing.assert_frame_equal(frame, before)
    cells, grey = figure.data
    np.testing.assert_array_equal(cells.z, np.where(hidden, np.nan, frame))
    np.testing.assert_array_equal(~np.isnan(grey.z), hidden)
    assert {colour for _, colour in grey.colorscale} == {module.HIDDEN_COLOUR}
    assert grey.showscale is False
    assert module.HIDDEN_TEXT in grey.hovertemplate
    assert (grey.showlegend, grey.name) == (True, module.HIDDEN_TEXT)  # what the hatching means
    assert hatched(figure) == {(0, 1), (0, 2), (1, 2)}
    assert len(hatching(figure)) == 3 + 2 * 3  # in large cells two lines more
    numbered = draw(frame, hidden=hidden, columns=pd.RangeIndex(1, 4))
    assert [x for x, *_ in hatching(numbered)] == [x + 1 for x, *_ in hatching(figure)]


def test_of_a_long_text_hidden_cells_on_a_diagonal_have_one_line():
    n = 61
    causal, drawn = np.triu(np.ones((n, n), bool), 1), np.random.default_rng(0).random((n, n)) < 0.3
    for hidden in (causal, drawn):
        figure = draw(np.zeros((n, n)), hidden=hidden)
        assert hatched(figure) == set(map(tuple, np.argwhere(hidden).tolist()))
    assert len(hatching(draw(np.zeros((n, n)), hidden=causal))) == 2 * n - 3


# Names


@pytest.mark.parametrize(
    ("words", "starts"),
    [
        (["the", "cat", "the", "the"], ["the", "cat", "the", "the"]),
        (
            ["internationalisation", "internationalism", "internationals", "international…", "short"],
            ["international…", "international…", "internationals", "international…", "short"],
        ),
    ],
)
def test_words_that_are_equal_or_start_alike_keep_a_place_of_their_own(words, starts):
    [cells] = draw(np.zeros((len(words),) * 2), rows=words, columns=words).data
    for names in (cells.x, cells.y):
        assert len(set(names)) == len(words)
        assert [name.split("\u2009")[0][:14] for name in names] == starts


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("<b>x</b> and more", "<b>x</b> and …"),
        *((word, word) for word in ("a" * 14, "<b>x</b>", "&lt;", '"', "小猫")),
    ],
)
def test_a_word_is_shortened_first_and_then_made_plain_text(word, shown):
    [cells] = draw([[0.0]], rows=[word], columns=[word]).data
    [name] = {*cells.x, *cells.y}
    assert "<" not in name
    assert html.unescape(name) == shown


@pytest.mark.parametrize(
    ("columns", "shown", "kind"),
    [
        (["2", "1"], ["2", "1"], "category"),  # words that are numbers stay words
        ([5, 6, 7], [5, 6, 7], "linear"),
        ([3, 2, 1], ["3", "2", "1"], "category"),
        ([1, 3, 5], ["1", "3", "5"], "category"),
    ],
)
def test_dimensions_are_an_axis_of_numbers_unless_they_have_an_order_of_their_own(columns, shown, kind):
    values = np.arange(2 * len(columns)).reshape(2, -1)
    figure = draw(values, rows=["10", "9"], columns=columns)
    np.testing.assert_array_equal(figure.data[0].z, values)
    assert [*figure.data[0].x] == shown
    assert (figure.layout.xaxis.type, figure.layout.yaxis.type) == (kind, "category")
    assert kind == "linear" or isinstance(columns[0], str) or figure.layout.xaxis.tickangle == 0


def test_the_axes_say_what_they_are_as_plain_text():
    figure = heatmap(framed([[0.0]]), kind="signed", rows="<who> looks", columns="at & whom")
    x, y = figure.layout.xaxis, figure.layout.yaxis
    assert (x.title.text, y.title.text) == ("at &amp; whom", "&lt;who&gt; looks")
    assert y.autorange == "reversed"  # rows run from top to bottom
    for axis in (x, y):  # lines lead from the hovered cell to both
        assert (axis.showspikes, axis.spikemode, axis.spikesnap) == (True, "across", "hovered data")
    hover = figure.data[0].hovertemplate
    for said in ("&lt;who&gt; looks <b>%{y}</b>", "at &amp; whom <b>%{x}</b>", "%{z:.4~g}"):
        assert said in hover


@pytest.mark.parametrize("n_rows", [1, 25, 57, 58, 2000])
def test_the_height_stays_within_bounds_and_rows_with_names_have_room_for_them(n_rows):
    layout = draw(np.zeros((n_rows, 2))).layout
    assert module.MIN_HEIGHT <= layout.height <= module.MAX_HEIGHT
    if layout.yaxis.dtick == 1:  # every row has its name
        assert layout.height / n_rows > layout.yaxis.tickfont.size
    assert (layout.yaxis.dtick == 1) == (n_rows <= 57)


def test_a_number_in_a_cell_is_a_dot_where_it_would_be_0_00():
    [written] = draw(np.array([[0.0, -0.004, 0.006, 0.5, -1.25, np.nan]])).data[0].text
    assert [*written] == ["·", "·", "0.01", "0.50", "-1.25", ""]
