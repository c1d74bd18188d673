"""Positions work as in numpy, and one that does not exist is refused by name."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mha_core.traces.indices import index, indices


@given(count=st.integers(1, 9), at=st.integers(-9, 9))
def test_a_position_is_that_of_numpy_or_refused(count, at, refused):
    if -count <= at < count:
        assert index("head", at, count, of="This layer") == np.arange(count)[at]
        return
    error = refused(index, "head", at, count, of="This layer")
    assert str(error) == f"This layer has heads 0 to {count - 1}; head {at} was asked for."
    assert error.fixes == ({"head": 0 if at < 0 else count - 1},)


@pytest.mark.parametrize(
    "picked",
    [
        *(slice(None), slice(2, 5), slice(-3, None), slice(None, 99), slice(5, 2), slice(None, None, -2)),
        *([0, 6], [-1, 2, -7], (3,), range(2, 6), [], np.array([4, -2]), np.arange(7) % 2 == 0, [True] * 7),
        *(3, -4, np.int64(3)),  # one is a list of one
    ],
    ids=str,
)
def test_several_positions_are_those_of_numpy(picked):
    ours, numbers = indices("row", picked, 7), np.arange(7)
    if not isinstance(picked, slice):
        picked = np.atleast_1d(picked) if np.size(picked) else np.array([], int)
    np.testing.assert_array_equal(numbers[ours], numbers[picked])
    if isinstance(ours, slice):
        assert (ours.step or 1) > 0  # tensors know no others


one = partial(index, of="This layer")
WHOLE = "rows are a slice, a whole number or a list of them"


@pytest.mark.parametrize(
    ("pick", "picked", "count", "message"),
    [
        *((one, at, 7, f"row is a whole number; got {at!r}.") for at in ([0, 1], "a", 1.0, None, True)),
        (one, np.array([1, 2]), 7, "row is a whole number; got array([1, 2])."),
        (one, -1, 0, "This layer has no rows; row -1 was asked for."),
        (indices, 7, 7, "This layer has rows 0 to 6; row 7 was asked for."),
        (indices, [0, -8], 7, "This layer has rows 0 to 6; row -8 was asked for."),
        (indices, np.array([1, 9]), 7, "This layer has rows 0 to 6; row 9 was asked for."),
        *((indices, at, 7, f"{WHOLE}; got {at!r}.") for at in ("ab", [1.5], [[1]], [True, False])),
    ],
)
def test_invalid_positions_are_refused_by_name(pick, picked, count, message, refused):
    assert str(refused(pick, "row", picked, count)) == message
