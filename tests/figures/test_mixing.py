"""A signed matrix with the sum of each row: the numbers, the hidden cells and the words."""

import numpy as np
import pandas as pd

from mha_core.figures.mixing import mixing

LABELS = ["the", "cat", "the<b>"]


def test_the_matrix_and_its_sums_are_what_is_drawn():
    values = np.array([[0.5, 0.0, 0.0], [-2.0, 1.0, 0.0], [0.25, -0.5, 0.75]])
    frame = pd.DataFrame(values, LABELS, LABELS)
    later = ~np.tri(3, dtype=bool)
    figure = mixing(frame, values.sum(1), rows="to", columns="from", words="sum", hidden=later, row=1)
    heat, *_, bars = figure.data
    np.testing.assert_array_equal(np.nan_to_num(heat.z), values.astype(np.float32))
    assert np.isnan(heat.z[later]).all()
    assert (heat.zmin, heat.zmax) == (-2.0, 2.0)
    np.testing.assert_array_equal(bars.x, values.sum(1))
    assert list(bars.y) == list(heat.y)
    assert (bars.orientation, bars.xaxis) == ("h", "x2")
    assert (figure.layout.yaxis.title.text, figure.layout.xaxis.title.text) == ("to", "from")
    assert figure.layout.xaxis2.title.text == "sum"
    assert figure.layout.xaxis.domain[1] < figure.layout.xaxis2.domain[0]


def test_a_matrix_that_looks_both_ways_hides_nothing():
    frame = pd.DataFrame(np.ones((3, 3)), LABELS, LABELS)
    figure = mixing(frame, np.full(3, 3.0), rows="to", columns="from", words="sum")
    assert len(figure.data) == 2
