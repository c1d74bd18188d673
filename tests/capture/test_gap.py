"""The difference between two ways to compute the same numbers."""

import math

import pytest
import torch

from mha_core.capture.gap import gap

INFINITE, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("given", "asked", "apart"),
    [
        ([0.5, 1.0], [0.5, 0.75], 0.25),
        ([8.0, 2.0], [8.0, 4.0], 0.25),  # in units of the largest
        ([NAN, INFINITE, -INFINITE], [NAN, INFINITE, -INFINITE], 0.0),
        ([NAN, 1.0], [1.0, 1.0], INFINITE),
        ([INFINITE, 1.0], [INFINITE, 3.0], 2 / 3),
        ([-INFINITE, 1.0], [INFINITE, 1.0], INFINITE),
        ([1.0], [1.0, 1.0], INFINITE),
    ],
)
def test_the_difference_of_two_tensors(given, asked, apart):
    found = gap(torch.tensor(given), torch.tensor(asked))
    if math.isinf(apart):
        assert found > 1e30
    else:
        assert found == pytest.approx(apart)
