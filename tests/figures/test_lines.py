"""Lines: columns of a table over h, on one axis for all figures, each labelled at its end."""

import numpy as np
import pandas as pd
import pytest

from mha_core.figures.lines import NAME_HEIGHT, apart, lines

TABLE = pd.DataFrame({"a": [0.5, 0.9, 1.0], "b": [0.25, 0.8, 0.99], "c": [0, 0, 0]}, index=[1, 2, 8])
TICKS = (1, 2, 4, 8, 16, 32)


def draw(table=TABLE, names=None, **options):
    return lines(
        table,
        names=names or {"a": "first", "b": "second"},
        across="h, heads",
        up="share",
        ticks=TICKS,
        limits=(0, 1),
        **options,
    )


def written(figure) -> dict:
    return {annotation.text: annotation for annotation in figure.layout.annotations}


def test_each_line_has_the_numbers_of_its_column():
    figure = draw()
    assert [trace.name for trace in figure.data] == ["first", "second"]
    for trace, column in zip(figure.data, "ab", strict=True):
        np.testing.assert_array_equal(trace.x, [1, 2, 8])
        np.testing.assert_array_equal(trace.y, TABLE[column])


def test_lines_are_distinguished_by_more_than_their_colour_and_take_the_templates():
    figure = draw()
    assert len({trace.line.dash for trace in figure.data}) == 2
    assert {trace.line.color for trace in figure.data} == {None}


def test_heads_are_on_a_logarithmic_axis_with_the_ticks_that_were_given():
    axis = draw().layout.xaxis
    assert axis.type == "log"
    assert [*axis.tickvals] == [*TICKS]
    assert axis.range[0] < 0 < np.log10(32) < axis.range[1]


def test_figures_with_the_same_ticks_align():
    one, other = draw().layout, draw(TABLE.iloc[:2], {"b": "a much longer name"}).layout
    assert one.xaxis.range == other.xaxis.range
    assert one.margin == other.margin
    assert one.height == other.height


def test_axes_are_named():
    layout = draw().layout
    assert (layout.xaxis.title.text, layout.yaxis.title.text) == ("h, heads", "share")
    assert layout.yaxis.range == (0, 1)


def test_each_line_is_named_where_it_ends():
    names = written(draw())
    assert [name.split()[-1] for name in names] == ["first", "second"]
    for annotation, end in zip(names.values(), (1.0, 0.99), strict=True):
        assert annotation.x == pytest.approx(np.log10(8))
        assert annotation.y == end


def test_names_look_like_their_lines():
    marks = [name.rsplit(" ", 1)[0] for name in written(draw(names={"a": "x", "b": "y", "c": "z"}))]
    assert len(set(marks)) == 3


def test_names_that_look_like_tags_are_shown_as_typed():
    figure = draw(names={"a": "<b>"})
    assert next(iter(written(figure))).endswith("&lt;b&gt;")
    assert figure.data[0].name == "&lt;b&gt;"


def test_a_level_is_drawn_and_named():
    figure = draw(level=(0.5, "a coin"))
    [line] = figure.layout.shapes
    assert (line.y0, line.y1) == (0.5, 0.5)
    assert written(figure)["a coin"].y == 0.5


def test_a_table_without_rows_is_an_empty_figure():
    figure = draw(TABLE.iloc[:0])
    assert not written(figure)
    assert len(figure.data[0].x) == 0


def test_names_far_apart_stay_at_their_lines_and_near_ones_make_room():
    assert apart([1.0, 0.5, 0.0], limits=(0, 1), room=200) == [0, 0, 0]
    moved = apart([1.0, 1.0, 0.99], limits=(0, 1), room=200)
    places = [value * 200 + move for value, move in zip([1.0, 1.0, 0.99], moved, strict=True)]
    assert places == [200, 200 - NAME_HEIGHT, 200 - 2 * NAME_HEIGHT]


def test_the_higher_line_has_the_higher_name_whatever_the_order():
    moved = apart([0.98, 1.0], limits=(0, 1), room=100)
    assert moved[1] == 0
    assert 0.98 * 100 + moved[0] == pytest.approx(100 - NAME_HEIGHT)
