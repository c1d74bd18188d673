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


def test_each_line_has_the_numbers_of_its_column_a_dash_of_its_own_and_its_name_at_the_end():
    figure = draw()
    assert [trace.name for trace in figure.data] == ["first", "second"]
    names = written(figure)
    assert [name.split()[-1] for name in names] == ["first", "second"]
    for trace, column, name in zip(figure.data, "ab", names.values(), strict=True):
        np.testing.assert_array_equal(trace.x, [1, 2, 8])
        np.testing.assert_array_equal(trace.y, TABLE[column])
        assert (name.x, name.y) == (pytest.approx(np.log10(8)), TABLE[column][8])
    assert len({trace.line.dash for trace in figure.data}) == 2
    assert {trace.line.color for trace in figure.data} == {None}  # the template has the colours
    marks = [name.rsplit(" ", 1)[0] for name in written(draw(names={"a": "x", "b": "y", "c": "z"}))]
    assert len(set(marks)) == 3


def test_axes_are_named_and_figures_with_the_same_ticks_align():
    one, other = draw().layout, draw(TABLE.iloc[:2], {"b": "a much longer name"}).layout
    for layout in (one, other):
        assert (layout.xaxis.title.text, layout.yaxis.title.text) == ("h, heads", "share")
        assert layout.yaxis.range == (0, 1)
        assert (layout.xaxis.type, [*layout.xaxis.tickvals]) == ("log", [*TICKS])
    assert one.xaxis.range[0] < 0 < np.log10(32) < one.xaxis.range[1]
    assert (one.xaxis.range, one.margin, one.height) == (other.xaxis.range, other.margin, other.height)


def test_a_level_is_drawn_and_named_and_names_that_look_like_tags_are_shown_as_typed():
    figure = draw(names={"a": "<b>"}, level=(0.5, "a coin"))
    [line] = figure.layout.shapes
    assert (line.y0, line.y1, written(figure)["a coin"].y) == (0.5, 0.5, 0.5)
    assert figure.data[0].name == "&lt;b&gt;"
    assert next(iter(written(figure))).endswith("&lt;b&gt;")
    empty = draw(TABLE.iloc[:0])
    assert not written(empty)
    assert len(empty.data[0].x) == 0


@pytest.mark.parametrize(
    ("ends", "places"),
    [
        ([1.0, 0.5, 0.0], [200, 100, 0]),
        ([1.0, 1.0, 0.99], [200, 200 - NAME_HEIGHT, 200 - 2 * NAME_HEIGHT]),
        ([0.99, 1.0], [200 - NAME_HEIGHT, 200]),  # the higher line has the higher name
    ],
)
def test_names_far_apart_stay_at_their_lines_and_near_ones_make_room(ends, places):
    moved = apart(ends, limits=(0, 1), room=200)
    assert [end * 200 + move for end, move in zip(ends, moved, strict=True)] == pytest.approx(places)
