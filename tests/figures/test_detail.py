"""What a large heatmap adds: one marked cell, a crosshair, and dimensions in an order of their own."""

import numpy as np
import pandas as pd
import pytest

from mha_core.figures.heatmap import CELL_COLOURS, heatmap

WORDS = {"rows": "query", "columns": "key", "kind": "signed"}


def draw(columns, **options):
    frame = pd.DataFrame(np.arange(3 * len(columns)).reshape(3, -1), list("abc"), columns)
    return heatmap(frame, **WORDS, **options)


@pytest.mark.parametrize(
    ("columns", "left"), [(pd.RangeIndex(1, 5), 2.5), (list("wxyz"), 1.5), ([4, 2, 1, 3], 1.5)]
)
def test_the_marked_cell_is_framed_alone_and_in_two_colours(columns, left):
    shapes = draw(columns, cell=(1, 2)).layout.shapes
    assert {(s.x0, s.x1, s.y0, s.y1) for s in shapes} == {(left, left + 1, 0.5, 1.5)}
    assert tuple(shape.line.color for shape in shapes) == CELL_COLOURS  # one of them stands out on any cell
    assert [shape.fillcolor for shape in shapes] == [None, None]


def test_the_cell_lies_over_the_frame_of_its_row():
    frame, *cell = draw(list("wxyz"), row=1, cell=(1, 0)).layout.shapes
    assert frame.x1 - frame.x0 == 4
    assert [shape.x1 - shape.x0 for shape in cell] == [1, 1]


@pytest.mark.parametrize("columns", [[3, 1, 2], [3, 2, 1], [1, 3, 5]])
def test_dimensions_that_do_not_follow_each_other_stand_as_they_come_under_their_own_numbers(columns):
    figure = draw(columns)
    assert [*figure.data[0].x] == [str(number) for number in columns]
    assert figure.layout.xaxis.type == "category"
    assert figure.layout.xaxis.tickangle == 0
    np.testing.assert_array_equal(figure.data[0].z, np.arange(9).reshape(3, 3))


def test_a_part_of_the_dimensions_stays_on_an_axis_of_numbers():
    figure = draw([5, 6, 7])
    assert [*figure.data[0].x] == [5, 6, 7]
    assert figure.layout.xaxis.type == "linear"


def test_lines_lead_from_the_cell_under_the_finger_to_both_axes():
    layout = draw(list("wxyz")).layout
    for axis in (layout.xaxis, layout.yaxis):
        assert axis.showspikes is True
        assert axis.spikemode == "across"
        assert axis.spikesnap == "hovered data"
