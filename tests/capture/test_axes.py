"""Finding the axis of texts: by size, by memory layout or by torch's documentation."""

import pytest
import torch

from mha_core.capture.axes import inner_axes, text_axis


@pytest.mark.parametrize(
    ("lead", "batch", "inside", "documented", "axis"),
    [
        ((), None, (), False, None),
        ((1, 1), None, (), False, None),
        ((1, 3), None, (), False, None),
        ((2, 3), 2, (), False, 0),
        ((3, 2), 2, (), False, 1),
        ((4, 1), 1, (), False, None),
        ((4, 1), 4, (), False, 0),
        ((3,), 3, (), False, 0),
        ((2, 2), 2, (1,), False, 0),
        ((2, 2), 2, (0,), False, 1),
        ((2, 3), None, (1,), False, 0),
        ((2, 3), None, (), True, 0),
        ((2, 2), 2, (), True, 0),
        ((3, 2), 2, (), True, 1),
        ((4, 3), 1, (), True, 0),  # parts of one text
        ((4, 3), 1, (1,), False, 0),
        ((4, 3), 1, (), False, None),
        ((4, 3), 1, (0, 1), False, None),
    ],
)
def test_the_axis_of_texts_is_found(lead, batch, inside, documented, axis):
    assert text_axis(lead, batch, inside, documented=documented) == axis


@pytest.mark.parametrize(
    ("lead", "batch", "inside", "documented"),
    [((4, 3), 2, (), False), ((6, 1), 2, (), True), ((2, 3), None, (0, 1), False)],
)
def test_an_ambiguous_axis_is_refused(lead, batch, inside, documented, refused):
    message = str(refused(text_axis, lead, batch, inside, documented=documented))
    assert " × ".join(map(str, lead)) in message
    assert ("give batch=" in message) == (batch is None)


def test_of_one_text_heads_and_parts_cannot_be_distinguished(refused):
    message = str(refused(text_axis, (4, 3), None, alone=True))
    assert "4 × 3 heads, or parts in which the text is read" in message
    assert "batch=1 says that all are heads" in message


def test_axes_within_a_token_lie_there_in_memory():
    x = torch.randn(2, 7, 3, 5)
    assert inner_axes(x.transpose(1, 2)) == (1,)
    assert inner_axes(x.permute(2, 0, 1, 3)) == (0,)
    assert inner_axes(x.transpose(1, 2).contiguous()) == ()
    assert inner_axes(x[:, :1].transpose(1, 2)) == ()
    assert inner_axes(x[:1].transpose(1, 2).expand(2, -1, -1, -1)) == (1,)
