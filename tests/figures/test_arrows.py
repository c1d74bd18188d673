"""Arrows show pairs where they are, before and after, in planes that keep angles as they are."""

import numpy as np
import pandas as pd

from mha_core.figures.arrows import arrows

TABLE = pd.DataFrame(
    {
        "x": [1.0, 0.0],
        "y": [0.0, 2.0],
        "x_after": [0.0, -2.0],
        "y_after": [1.0, 0.0],
        "angle": [np.pi / 2] * 2,
    }
)


def test_each_pair_has_two_arrows_from_the_middle():
    figure = arrows(TABLE, titles=["<b>1", "2"], words=("before", "after"))
    drawn = [trace for trace in figure.data if trace.name]
    assert [tuple(trace.x) for trace in drawn] == [(0, 1), (0, 0), (0, 0), (0, -2)]
    assert [tuple(trace.y) for trace in drawn] == [(0, 0), (0, 1), (0, 2), (0, 0)]
    assert [trace.line.dash for trace in drawn] == ["dot", "solid"] * 2
    assert sum(bool(trace.showlegend) for trace in drawn) == 2
    assert figure.layout.annotations[0].text == "&lt;b&gt;1"


def test_planes_are_square_and_hold_both_arrows():
    figure = arrows(TABLE, titles=["1", "2"], words=("before", "after"))
    assert (figure.layout.yaxis.scaleanchor, figure.layout.yaxis2.scaleanchor) == ("x", "x2")
    assert figure.layout.xaxis2.range[1] > 2


def test_the_way_goes_from_one_arrow_to_the_other():
    way = arrows(TABLE, titles=["1", "2"], words=("before", "after")).data[0]
    start, end = (np.arctan2(way.y[at], way.x[at]) for at in (0, -1))
    np.testing.assert_allclose([start, end], [0, np.pi / 2], atol=1e-9)


def test_an_unknown_angle_goes_the_way_of_the_arrows():
    table = TABLE.assign(angle=np.nan)
    way = arrows(table, titles=["1", "2"], words=("before", "after")).data[0]
    np.testing.assert_allclose(np.arctan2(way.y[-1], way.x[-1]), np.pi / 2)
