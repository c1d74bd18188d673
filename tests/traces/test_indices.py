"""Positions work as in numpy, and one that does not exist is refused by name."""

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


@pytest.mark.parametrize("at", [[0, 1], "a", 1.0, None, True, np.array([1, 2])])
def test_a_position_that_is_not_a_whole_number_is_refused(at, refused):
    assert str(refused(index, "head", at, 3, of="This layer")) == f"head is a whole number; got {at!r}."


def test_an_empty_axis_has_no_positions(refused):
    assert str(refused(index, "layer", -1, 0, of="This trace")) == (
        "This trace has no layers; layer -1 was asked for."
    )


@pytest.mark.parametrize(
    "picked",
    [
        *(slice(None), slice(2, 5), slice(-3, None), slice(None, 99), slice(5, 2), slice(None, None, -2)),
        *([0, 6], [-1, 2, -7], (3,), range(2, 6), [], np.array([4, -2]), np.arange(7) % 2 == 0, [True] * 7),
    ],
    ids=str,
)
def test_several_positions_are_those_of_numpy(picked):
    ours, numbers = indices("row", picked, 7, of="This layer"), np.arange(7)
    as_numpy_reads_it = (
        picked if isinstance(picked, slice) else np.array(picked, None if len(picked) else int)
    )
    expected = numbers[as_numpy_reads_it]
    np.testing.assert_array_equal(numbers[ours], expected)
    if isinstance(ours, slice):
        assert (ours.step or 1) > 0  # tensors know no others


@pytest.mark.parametrize("one", [3, -4, np.int64(3)])
def test_one_position_is_a_list_of_one(one):
    assert indices("row", one, 7, of="This layer") == [3]


@pytest.mark.parametrize(
    ("picked", "message"),
    [
        (7, "This layer has rows 0 to 6; row 7 was asked for."),
        ([0, -8], "This layer has rows 0 to 6; row -8 was asked for."),
        (np.array([1, 9]), "This layer has rows 0 to 6; row 9 was asked for."),
        ("ab", "rows are a slice, a whole number or a list of them; got 'ab'."),
        ([1.5], "rows are a slice, a whole number or a list of them; got [1.5]."),
        ([[1]], "rows are a slice, a whole number or a list of them; got [[1]]."),
        ([True, False], "rows are a slice, a whole number or a list of them; got [True, False]."),
    ],
    ids=str,
)
def test_invalid_positions_are_refused_by_name(picked, message, refused):
    assert str(refused(indices, "row", picked, 7, of="This layer")) == message
