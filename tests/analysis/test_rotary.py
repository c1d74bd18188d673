"""How a rotary code turns pairs: what is shown before, turned by the angle that is told, is what was used."""

import numpy as np
import pytest
import torch

from mha_core.analysis.rotary import pairs, rotated_pairs
from mha_core.capture.rotary import RotaryCode
from mha_core.traces.facts import Facts
from mha_core.traces.layer import LayerTrace

TOKENS, HEADS, KV, WIDTH, D_K = 11, 4, 2, 6, 7


def layer(form: str, start: int = 0) -> LayerTrace:
    draw = torch.Generator().manual_seed(3)
    theta = torch.tensor([1.0, 0.21, 0.013])
    angle = torch.arange(TOKENS)[:, None] * theta
    spread = torch.cat([angle, angle], 1) if form == "half" else angle.repeat_interleave(2, 1)
    rotary = RotaryCode(form, spread.cos(), spread.sin(), start)
    q, k = (torch.randn(n, TOKENS, D_K, generator=draw) for n in (HEADS, KV))
    tensors = {"q": rotary.rotate(q), "k": rotary.rotate(k), "v": k, "q_raw": q, "k_raw": k}
    tensors |= {"cos": rotary.cos, "sin": rotary.sin}
    return LayerTrace(tensors, about=Facts(rotary=rotary.fact))


@pytest.mark.parametrize(("form", "start"), [("half", 0), ("pairs", 1)])
@pytest.mark.parametrize(("name", "token"), [("q", 0), ("q", 9), ("k", 1)])
def test_a_pair_turned_by_its_angle_is_what_was_used(form, name, token, start):
    found = rotated_pairs(layer(form, start), token, head=3, name=name)
    assert sorted([*found["first"], *found["second"]]) == list(range(start, start + WIDTH))
    np.testing.assert_allclose(found["angle"], token * found["theta"], atol=1e-6)
    np.testing.assert_allclose(found["theta"], [1.0, 0.21, 0.013], atol=1e-5)
    before = found["x"] + 1j * found["y"]
    after = found["x_after"] + 1j * found["y_after"]
    np.testing.assert_allclose(before * np.exp(1j * found["angle"]), after, atol=1e-5)
    own = layer(form, start).tensors[f"{name}_raw"][3 if name == "q" else 1, token].numpy()
    np.testing.assert_array_equal(found["x"], own[found["first"]])
    np.testing.assert_array_equal(found["y"], own[found["second"]])


def test_pairs_are_halves_or_neighbours():
    assert [list(side) for side in pairs("half", 6)] == [[0, 1, 2], [3, 4, 5]]
    assert [list(side) for side in pairs("pairs", 6)] == [[0, 2, 4], [1, 3, 5]]


def test_an_angle_that_is_no_multiple_is_not_told():
    given = layer("half")
    tensors = dict(given.tensors)
    tensors["cos"], tensors["sin"] = tensors["cos"].clone(), tensors["sin"].clone()
    tensors["cos"][5], tensors["sin"][5] = torch.cos(torch.full((6,), 0.5)), torch.sin(torch.full((6,), 0.5))
    assert rotated_pairs(LayerTrace(tensors, about=given.about), 5, head=0)["angle"].isna().all()
    assert rotated_pairs(LayerTrace(tensors, about=given.about), 6, head=0)["angle"].notna().all()


def test_what_is_not_there_is_refused(refused):
    given = layer("half")
    assert "token 11" in str(refused(rotated_pairs, given, 11, head=0))
    assert "head 4" in str(refused(rotated_pairs, given, 0, head=4))
    assert "rotation" in str(refused(rotated_pairs, LayerTrace(given.tensors), 0, head=0))
    assert "vector" in str(refused(rotated_pairs, given, 0, head=0, name="v"))
