"""Texts beside a heatmap stand on its rows."""

import pandas as pd
import pytest

from mha_core.figures.annotated import annotated
from mha_core.figures.heatmap import heatmap


@pytest.fixture
def drawn():
    frame = pd.DataFrame([[1.0, -1.0], [2.0, 0.5]], index=["<s>", "b"], columns=[1, 2])
    figure = heatmap(frame, kind="signed", rows="key", columns="dimension")
    return annotated(figure, [["1", "<2>"], ["3", "4"]], ["q · k", "<w>"])


def test_numbers_stand_on_the_rows_of_the_heatmap(drawn):
    matrix, *columns = drawn.data
    assert [list(column.text) for column in columns] == [["1", "3"], ["&lt;2&gt;", "4"]]
    for place, column in enumerate(columns):
        assert list(column.y) == list(matrix.y) == ["&lt;s&gt;", "b"]
        assert list(column.x) == [place] * 2
        assert (column.mode, column.xaxis) == ("text", "x2")


def test_numbers_do_not_lie_on_the_heatmap_and_have_headers(drawn):
    layout = drawn.layout
    assert layout.xaxis.domain[1] < layout.xaxis2.domain[0]
    assert list(layout.xaxis2.ticktext) == ["q · k", "&lt;w&gt;"]
    assert layout.xaxis2.side == "top"
