"""Bars: ranked values, each written out."""

import numpy as np
import pandas as pd

from mha_core.figures.bars import bars


def table(*names: str) -> pd.DataFrame:
    values = [0.5, 0.25, 0.0000123456][: len(names)]
    return pd.DataFrame({"value": values, "place": [4, 0, -1][: len(names)]}, index=list(names))


def test_each_bar_has_its_value_name_and_place():
    figure = bars(table("cat", "sat", "mat"), words="weight")
    [bar], layout = figure.data, figure.layout
    assert list(bar.y) == ["cat", "sat", "mat"]
    np.testing.assert_array_equal(bar.x, [0.5, 0.25, 0.0000123456])
    np.testing.assert_array_equal(bar.customdata, [4, 0, -1])
    assert list(bar.text) == ["0.5", "0.25", "1.235e-05"]
    assert (bar.orientation, layout.yaxis.autorange) == ("h", "reversed")  # the first row is on top
    assert layout.xaxis.range[0] == 0
    assert layout.xaxis.range[1] > 0.5 * 1.1  # room for the number of the longest bar
    zeros = pd.DataFrame({"value": [0.0], "place": [0]}, index=["a"])
    assert bars(zeros, words="").layout.xaxis.range[1] > 0


def test_only_the_bar_of_several_values_is_hatched_and_colours_are_those_of_the_theme():
    for names, together, shapes in (
        (["cat", "sat", "9 others"], True, ["", "", "/"]),
        (["cat", "sat", "mat"], False, ["", "", ""]),
    ):
        bar = bars(table(*names), words="weight", together=together).data[0]
        assert list(bar.marker.pattern.shape) == shapes
    colours = [bars(table("cat"), words="", hue=hue).data[0].marker.color for hue in range(11)]
    assert colours[:2] == ["#000001", "#000002"]
    assert (colours[9], colours[10]) == ("#000010", colours[0])


def test_names_are_escaped_and_bars_of_equal_short_names_are_kept_apart():
    long = "internationalization"
    names = bars(table("<b>x</b>", long + "1", long + "2"), words="<i>").data[0].y
    assert names[0] == "&lt;b&gt;x&lt;/b&gt;"
    assert len(set(names)) == 3
    assert "&lt;i&gt;" in bars(table("x"), words="<i>").data[0].hovertemplate


def test_bars_are_equally_thick_whatever_their_number():
    def height(n: int) -> int:
        table = pd.DataFrame({"value": [1.0] * n, "place": range(n)}, index=[str(i) for i in range(n)])
        return bars(table, words="").layout.height

    assert height(15) - height(14) == height(2) - height(1) > 0
    assert height(1) < 2 * (height(2) - height(1))
