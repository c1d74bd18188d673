"""Random weights depend only on seed, name and shape, and are the same on every machine."""

import numpy as np
import pytest
import torch

from mha_core.attention import initialization


def test_a_draw_depends_on_seed_and_name_and_on_nothing_else():
    first = initialization.normal((5, 7), seed=3, name="a")
    torch.manual_seed(1)
    np.random.seed(1)
    initialization.normal((11,), seed=3, name="b")
    assert torch.equal(initialization.normal((5, 7), seed=3, name="a"), first)
    assert not torch.isclose(initialization.normal((5, 7), seed=4, name="a"), first).any()
    assert not torch.isclose(initialization.normal((5, 7), seed=3, name="b"), first).any()
    assert first.dtype == torch.float32
    one, other = (initialization.normal((5,), seed=s, name=n) for s, n in ((1, "1 a"), (11, " a")))
    assert not torch.equal(one, other)  # seed and name are not run together


def test_the_numbers_are_these_on_every_machine():
    pinned = [-0.635543406, -0.494429052, -0.002065615, 0.550652444]
    found = initialization.normal((2, 2), seed=0, name="pin").flatten().tolist()
    assert found == pytest.approx(pinned, abs=1e-7)


def test_a_draw_is_normal_with_the_deviation_asked_for():
    numbers = initialization.normal((99991,), seed=5, name="many", std=0.3)
    assert numbers.mean().item() == pytest.approx(0, abs=0.01)
    assert numbers.std().item() == pytest.approx(0.3, rel=0.02)
    within = (numbers.abs() < 0.3).float().mean().item()
    assert within == pytest.approx(0.6827, abs=0.01)
