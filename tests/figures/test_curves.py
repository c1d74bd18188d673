"""Curves of a training: the loss on the left, shares on the right, a line at the marked step."""

import numpy as np
import pandas as pd

from mha_core.figures.curves import curves

TABLE = pd.DataFrame(
    {"loss": [3.0, 1.5, 0.5], "answer": [0.5, 0.75, 1.0], "right": [0.25, 0.5, 0.875]}, index=[0, 40, 80]
)
NAMES = {"loss": "Loss", "answer": "answers", "right": "weight on the right noun"}


def test_every_column_is_a_line_and_only_the_loss_is_on_the_left():
    for table in (TABLE, TABLE.iloc[:0]):
        figure = curves(table, names=NAMES, step="steps")
        assert [line.name for line in figure.data] == [*NAMES.values()]
        for line, column in zip(figure.data, table, strict=True):
            np.testing.assert_array_equal(line.x, table.index)
            np.testing.assert_array_equal(line.y, table[column])
        assert [line.xaxis for line in figure.data] == ["x", "x2", "x2"]
        assert [bool(line.showlegend) for line in figure.data] == [False, True, True]  # the loss has a title
        assert not figure.layout.shapes


def test_shares_keep_their_axis_and_the_loss_begins_at_zero_beside_or_above_them():
    wide = curves(TABLE, names=NAMES, step="steps").layout
    small = curves(TABLE / 4, names=NAMES, step="steps").layout
    narrow = curves(TABLE, names=NAMES, step="steps", marked=40, narrow=True).layout
    for layout in (wide, small, narrow):
        assert layout.yaxis2.range == wide.yaxis2.range
        assert layout.yaxis.rangemode == "tozero"
        assert {layout.xaxis.title.text, layout.xaxis2.title.text} == {"steps"}
    assert wide.yaxis2.range[0] == 0 < 1 < wide.yaxis2.range[1]
    assert narrow.yaxis.domain[0] > narrow.yaxis2.domain[1]  # on a narrow page they are below
    assert narrow.xaxis.domain == narrow.xaxis2.domain
    assert [(mark.xref, mark.x0, mark.x1) for mark in narrow.shapes] == [("x", 40, 40), ("x2", 40, 40)]


def test_an_event_has_a_line_in_both_panels_and_its_name_beside_the_loss():
    layout = curves(TABLE, names=NAMES, step="steps", events={40: "all join", 80: "the end"}).layout
    assert [(mark.xref, mark.x0, mark.x1) for mark in layout.shapes] == [("x", 40, 40), ("x2", 40, 40)]
    named = [(note.text, note.x, note.xref) for note in layout.annotations if note.x == 40]
    assert named == [("all join", 40, "x")]  # what happens at the edge of the curves explains nothing in them
