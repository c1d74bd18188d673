"""Rotary codes: what turns, turns back; how they were handed on, or what they did, tells which one it was."""

import pytest
import torch

from mha_core.capture.rotary import RotaryCode, candidates, rotation_codes
from mha_core.traces.facts import Rotary

TOKENS, HEADS, WIDTH = 5, 3, 6


def angles() -> torch.Tensor:
    return torch.arange(float(TOKENS))[:, None] * torch.tensor([1.0, 0.2, 0.03])


def code(form: str, start: int = 0) -> RotaryCode:
    spread = torch.cat([angles()] * 2, 1) if form == "half" else angles().repeat_interleave(2, 1)
    return RotaryCode(form, spread.cos(), spread.sin(), start)


def heads(width: int = WIDTH) -> torch.Tensor:
    return torch.randn(1, HEADS, TOKENS, width, generator=torch.Generator().manual_seed(1))


def as_numbers(x: torch.Tensor, form: str) -> torch.Tensor:
    """The pairs that turn together as complex numbers."""
    first, second = x.chunk(2, -1) if form == "half" else (x[..., ::2], x[..., 1::2])
    return torch.complex(first, second)


@pytest.mark.parametrize("form", ["half", "pairs"])
@pytest.mark.parametrize("start", [0, 2])
def test_each_pair_turns_by_its_angle_and_back_and_the_rest_stays(form, start):
    x, turning = heads(WIDTH + 3), code(form, start)
    turned = turning.rotate(x)
    part = slice(start, start + WIDTH)
    by_hand = as_numbers(x[..., part], form) * torch.polar(torch.ones_like(angles()), angles())
    torch.testing.assert_close(as_numbers(turned[..., part], form), by_hand)
    assert torch.equal(turned[..., :start], x[..., :start])
    assert torch.equal(turned[..., start + WIDTH :], x[..., start + WIDTH :])
    torch.testing.assert_close(turning.unrotate(turned), x)
    torch.testing.assert_close(turning.last.rotate(x[:, :, -1:]), turned[:, :, -1:])
    assert turning.fact == Rotary(form, WIDTH, start)


def test_a_code_that_stretches_is_taken_back_whole():
    turning = code("half")._replace(cos=1.5 * code("half").cos, sin=1.5 * code("half").sin)
    torch.testing.assert_close(turning.unrotate(turning.rotate(heads())), heads())


@pytest.mark.parametrize("form", ["half", "pairs"])
@pytest.mark.parametrize("handed", ["whole", "once for each pair", "complex", "the other way round"])
def test_the_code_that_was_used_is_among_the_candidates(form, handed):
    turning = code(form)
    cos, sin = turning.cos[None], turning.sin[None]
    if handed in ("once for each pair", "complex"):
        cos, sin = angles().cos()[None], angles().sin()[None]
    codes = torch.complex(cos, sin) if handed == "complex" else (cos, -sin if "other" in handed else sin)
    turned = [candidate.rotate(heads()) for candidate in candidates(codes, heads().shape)]
    assert any(torch.allclose(one, turning.rotate(heads()), atol=1e-6) for one in turned)


def test_codes_that_do_not_fit_turn_nothing():
    cos, sin = code("half").cos[None], code("half").sin[None]
    assert candidates(None, heads().shape) == []
    assert candidates((cos[:, 1:], sin[:, 1:]), heads().shape) == []
    assert candidates((cos, sin), heads(WIDTH - 1).shape) == []
    assert candidates((cos.long(), sin.long()), heads().shape) == []


@pytest.mark.parametrize("form", ["half", "pairs"])
def test_a_code_that_is_not_passed_on_is_recovered_from_what_it_did(form):
    raw, turning = heads(), code(form)
    output = raw.transpose(1, 2).flatten(2)
    cos, sin = rotation_codes(turning.rotate(raw), [torch.randn(1, TOKENS, 7), output])
    torch.testing.assert_close(cos[0], turning.cos, atol=1e-5, rtol=0)
    torch.testing.assert_close(sin[0], turning.sin, atol=1e-5, rtol=0)


def test_other_operations_are_not_mistaken_for_a_rotation():
    raw = heads()
    output = raw.transpose(1, 2).flatten(2)
    assert rotation_codes(raw, [output]) is None
    assert rotation_codes(raw.flip(-1) * 1.1, [output]) is None
    assert rotation_codes(raw.tanh(), [output]) is None
