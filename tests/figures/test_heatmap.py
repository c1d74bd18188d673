"""Heatmaps: the numbers of the frame, a cell for each token, and a meaningful scale."""

import html
import json
import re

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import plotly.io
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


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (5, 3), (40, 64)])
def test_the_cells_are_the_numbers_of_the_frame(normal, shape):
    values = normal(*shape)
    [cells] = draw(values).data
    assert cells.type == "heatmap"
    np.testing.assert_array_equal(cells.z, values)
    assert cells.z.dtype == np.float32
    assert [*cells.x] == [*range(1, shape[1] + 1)]
    assert [*cells.y] == [f"word{i}" for i in range(shape[0])]


def test_the_frame_that_was_given_stays_as_it_was(normal):
    frame = framed(normal(3, 3))
    before = frame.copy()
    hidden = np.eye(3, dtype=bool)
    heatmap(frame, kind="signed", hidden=hidden, **WORDS)
    pd.testing.assert_frame_equal(frame, before)
    assert hidden.sum() == 3


# Colours


def test_weights_are_coloured_from_zero_to_one():
    [cells] = draw([[0.2, 0.8]], kind="weights").data
    assert (cells.zmin, cells.zmax) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("values", "end"),
    [
        ([[-3.0, 1.0]], 3.0),
        ([[0.5, 2.0]], 2.0),
        ([[-0.5, -2.0]], 2.0),
        ([[1.5, 1.5], [1.5, 1.5]], 1.5),
        ([[-1.5, -1.5]], 1.5),
        ([[0.0, 0.0]], 1.0),
        ([[1e-30, 0.0]], 1e-30),
        ([[-np.inf, 2.0]], 2.0),
        ([[np.nan, 2.0]], 2.0),
        ([[-np.inf, -np.inf]], 1.0),
    ],
)
def test_signed_numbers_are_coloured_evenly_around_zero(values, end):
    cells = draw(values).data[0]
    assert cells.zmax == pytest.approx(end)
    assert cells.zmin == -cells.zmax


def test_a_hidden_cell_does_not_stretch_the_colours():
    cells = draw([[100.0, 2.0]], hidden=np.array([[True, False]])).data[0]
    assert (cells.zmin, cells.zmax) == (-2.0, 2.0)


@pytest.mark.parametrize("kind", ["weights", "signed"])
def test_the_figure_names_no_colour_of_the_scale_itself(kind):
    [cells] = draw([[0.25, 0.75]], kind=kind).data
    assert cells.autocolorscale is True
    assert cells.colorscale is None


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
    figure = draw(values, hidden=hidden, columns=["a", "b", "c"])
    cells, grey = figure.data
    np.testing.assert_array_equal(cells.z, np.where(hidden, np.nan, values))
    np.testing.assert_array_equal(~np.isnan(grey.z), hidden)
    assert {colour for _, colour in grey.colorscale} == {module.HIDDEN_COLOUR}
    assert grey.showscale is False
    assert module.HIDDEN_TEXT in grey.hovertemplate
    assert (grey.showlegend, grey.name) == (True, module.HIDDEN_TEXT)  # what the hatching means
    assert hatched(figure) == {(0, 1), (0, 2), (1, 2)}
    assert len(hatching(figure)) == 3 + 2 * 3  # in large cells two lines more
    numbered = draw(values, hidden=hidden, columns=pd.RangeIndex(1, 4))
    assert [x for x, *_ in hatching(numbered)] == [x + 1 for x, *_ in hatching(figure)]


def test_cells_without_a_finite_number_are_hidden_without_being_named(normal):
    values = normal(3, 3)
    values[0, 1], values[1, 2], values[2, 0] = -np.inf, np.inf, np.nan
    cells, grey = draw(values).data
    np.testing.assert_array_equal(np.isnan(cells.z), ~np.isfinite(values))
    np.testing.assert_array_equal(~np.isnan(grey.z), ~np.isfinite(values))


def test_a_matrix_without_hidden_cells_has_one_layer_and_no_hatching(normal):
    for figure in (draw(normal(3, 3)), draw(normal(3, 3), hidden=np.zeros((3, 3), bool))):
        assert len(figure.data) == 1
        assert not figure.layout.shapes


@pytest.mark.parametrize("mask", ["causal", "any"])
def test_of_a_long_text_hidden_cells_on_a_diagonal_have_one_line(mask):
    n = 61
    hidden = np.triu(np.ones((n, n), bool), 1)
    if mask == "any":
        hidden = np.random.default_rng(0).random((n, n)) < 0.3
    figure = draw(np.zeros((n, n)), hidden=hidden)
    assert hatched(figure) == set(map(tuple, np.argwhere(hidden).tolist()))
    if mask == "causal":
        assert len(hatching(figure)) == 2 * n - 3


def test_a_matrix_that_is_hidden_altogether_is_hatched():
    figure = draw(np.full((2, 2), -np.inf), kind="weights")
    cells, grey = figure.data
    assert np.isnan(cells.z).all()
    assert (grey.z == 0).all()
    assert hatched(figure) == {(0, 0), (0, 1), (1, 0), (1, 1)}


# Names


def test_equal_words_keep_a_place_of_their_own():
    words = ["the", "cat", "the", "the"]
    [cells] = draw(np.zeros((4, 4)), rows=words, columns=words).data
    for names in (cells.x, cells.y):
        assert len(set(names)) == 4
        assert [name.split("\u2009")[0] for name in names] == words


def test_long_words_that_start_alike_keep_a_place_of_their_own():
    words = ["internationalisation", "internationalism", "internationals", "international…", "short"]
    [cells] = draw(np.zeros((5, 1)), rows=words).data
    assert len(set(cells.y)) == 5
    assert [name[:14] for name in cells.y[:4]] == [
        "international…",
        "international…",
        "internationals",
        "international…",
    ]
    assert cells.y[4] == "short"


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("a" * 14, "a" * 14),
        ("a" * 15, "a" * 13 + "…"),
        ("<b>x</b> and more", "<b>x</b> and …"),
        ("<a href='x'>y</a>", "<a href='x'>y…"),
        *((word, word) for word in ("<s>", "</s>", "<b>x</b>", "<br>", "&lt;", "R&D", '"', "小猫")),
    ],
)
def test_a_word_is_shortened_first_and_then_made_plain_text(word, shown):
    [cells] = draw([[0.0]], rows=[word], columns=[word]).data
    [name] = {*cells.x, *cells.y}
    assert "<" not in name
    assert html.unescape(name) == shown


def test_words_that_are_numbers_stay_words():
    figure = draw(np.zeros((3, 2)), rows=["10", "9", "8"], columns=["2", "1"])
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "category"
    assert [*figure.data[0].x] == ["2", "1"]


def test_dimensions_stay_numbers():
    figure = draw(np.zeros((1, 3)))
    assert figure.layout.xaxis.type == "linear"
    assert figure.layout.yaxis.type == "category"


def test_rows_run_from_top_to_bottom():
    assert draw(np.zeros((2, 2))).layout.yaxis.autorange == "reversed"


def test_the_axes_say_what_they_are_as_plain_text():
    figure = heatmap(framed([[0.0]]), kind="signed", rows="<who> looks", columns="at & whom")
    assert figure.layout.yaxis.title.text == "&lt;who&gt; looks"
    assert figure.layout.xaxis.title.text == "at &amp; whom"
    hover = figure.data[0].hovertemplate
    assert "&lt;who&gt; looks <b>%{y}</b>" in hover
    assert "at &amp; whom <b>%{x}</b>" in hover
    assert "%{z:.4~g}" in hover


@pytest.mark.parametrize("n_rows", [1, 2, 24, 25, 51, 57, 58, 200, 2000])
def test_the_height_stays_within_bounds_and_rows_with_names_have_room_for_them(n_rows):
    layout = draw(np.zeros((n_rows, 2))).layout
    assert module.MIN_HEIGHT <= layout.height <= module.MAX_HEIGHT
    if layout.yaxis.dtick == 1:  # every row has its name
        assert layout.height / n_rows > layout.yaxis.tickfont.size
    assert (layout.yaxis.dtick == 1) == (n_rows <= 57)


def test_a_number_in_a_cell_is_a_dot_where_it_would_be_0_00():
    [written] = draw(np.array([[0.0, -0.004, 0.006, 0.5, -1.25, np.nan]])).data[0].text
    assert [*written] == ["·", "·", "0.01", "0.50", "-1.25", ""]


# The lines under the finger, dimensions in an order of their own


def numbered(n_columns):
    return np.arange(3 * n_columns).reshape(3, n_columns)


@pytest.mark.parametrize("columns", [[3, 1, 2], [3, 2, 1], [1, 3, 5]])
def test_nonconsecutive_dimensions_keep_their_order_and_numbers(columns):
    figure = draw(numbered(len(columns)), columns=columns)
    assert [*figure.data[0].x] == [str(number) for number in columns]
    assert figure.layout.xaxis.type == "category"
    assert figure.layout.xaxis.tickangle == 0
    np.testing.assert_array_equal(figure.data[0].z, np.arange(9).reshape(3, 3))


def test_a_part_of_the_dimensions_stays_on_an_axis_of_numbers():
    figure = draw(numbered(3), columns=[5, 6, 7])
    assert [*figure.data[0].x] == [5, 6, 7]
    assert figure.layout.xaxis.type == "linear"


def test_lines_lead_from_the_hovered_cell_to_both_axes():
    layout = draw(numbered(4)).layout
    for axis in (layout.xaxis, layout.yaxis):
        assert axis.showspikes is True
        assert axis.spikemode == "across"
        assert axis.spikesnap == "hovered data"


# As a whole


def test_a_figure_is_equal_after_serialization(normal):
    words = ["<s>", "the", "the", "internationalisation"]
    hidden = np.triu(np.ones((4, 4), bool), 1)
    options = {"hidden": hidden, "kind": "weights"}
    figure = draw(np.abs(normal(4, 4)), rows=words, columns=words, **options)
    sent = figure.to_json()
    assert "NaN" not in sent
    assert "Infinity" not in sent
    back = plotly.io.from_json(sent)
    assert json.loads(back.to_json()) == json.loads(sent)
    assert back.layout.yaxis.autorange == "reversed"


def test_missing_numbers_are_blank_besides_hidden_cells():
    figure = draw([[1.0, np.inf], [np.nan, -2.0]], hidden=np.array([[True, False], [False, False]]))
    np.testing.assert_array_equal(np.isnan(figure.data[0].z), [[True, True], [True, False]])
    assert (figure.data[0].zmin, figure.data[0].zmax) == (-2.0, 2.0)
