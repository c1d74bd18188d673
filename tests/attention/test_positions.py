"""Position encodings follow their published formulas, equally exact at all distances."""

import math

import pytest
import torch

import mha_core as mha
from mha_core.attention import positions
from tests.conftest import assert_close


@pytest.mark.parametrize("width", [1, 3, 10, 11])  # an odd width ends on a sine
def test_sinusoidal_entries_by_the_formula(width):
    code = positions.sinusoidal(13, width)
    assert code.shape == (13, width)
    for position in range(13):
        for column in range(width):
            angle = position / 10000 ** ((column - column % 2) / width)
            expected = math.cos(angle) if column % 2 else math.sin(angle)
            assert code[position, column].item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("d_k", [2, 6, 26])
def test_rotated_products_depend_only_on_distance(d_k, normal):
    q, k = normal(1, d_k, dtype=torch.float64), normal(1, d_k, seed=1, dtype=torch.float64)
    scores = positions.rotate(q.expand(17, -1)) @ positions.rotate(k.expand(17, -1)).mT
    for distance in range(-16, 17):
        met = scores.diagonal(distance)
        torch.testing.assert_close(met, met[:1].expand_as(met), atol=1e-12, rtol=0)
    assert (scores[0, 1:] - scores[0, 0]).abs().min() > 1e-6


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float16, 2e-3), (torch.bfloat16, 2e-2)], ids=str
)
def test_a_far_position_is_as_exact_as_a_near_one(dtype, tolerance):
    x = torch.ones(4096, 6, dtype=dtype)
    assert_close(positions.rotate(x).double(), positions.rotate(x.double()), tolerance)
    assert_close(positions.sinusoidal(4096, 10)[4095, :2], [math.sin(4095), math.cos(4095)], 1e-7)


@pytest.mark.parametrize(("d_k", "works"), [(1, "2"), (3, "2 or 4"), (13, "12 or 14")])
def test_an_odd_d_k_cannot_be_turned(d_k, works, normal, refused):
    message = (
        f"Rotary positions turn pairs of dimensions, so d_k must be even; got {d_k}, {works} would work."
    )
    assert str(refused(positions.rotate, normal(3, d_k))) == message
    assert str(refused(mha.trace, "a b", h=3, d_model=11, d_k=d_k, position="rotary")) == message


def slopes(n_heads):
    """The slope of each head, read off the table."""
    return [-row[2] for row in positions.alibi(n_heads, 2, 2).tolist()]


@pytest.mark.parametrize(
    ("n_heads", "published"),
    [
        (8, [0.5**i for i in range(1, 9)]),
        (12, [0.5**i for i in range(1, 9)] + [0.5**0.5, 0.5**1.5, 0.5**2.5, 0.5**3.5]),
        (1, [2**-8]),
        (2, [2**-4, 2**-8]),
        (3, [2**-4, 2**-8, 2**-2]),
    ],
)
def test_alibi_slopes_are_the_published_ones(n_heads, published):
    assert slopes(n_heads) == pytest.approx(published, abs=1e-7)


def test_the_alibi_table_is_laid_out_by_distance():
    table = positions.alibi(3, 5, 7)
    assert table.shape == (3, 11)
    slope = slopes(3)
    for head in range(3):
        for query in range(5):
            for key in range(7):
                bias = table[head, key - query + 4].item()
                assert bias == pytest.approx(-slope[head] * abs(key - query), abs=1e-7)
