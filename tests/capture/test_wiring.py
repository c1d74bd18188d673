"""Which matrices made q, k and v: found only where their inputs are those that a layer of this kind has."""

import pytest
import torch
from torch import nn

from mha_core.attention.score_rule import ScoreRule
from mha_core.capture import wiring
from mha_core.capture.call import Call
from mha_core.capture.leaves import Leaf

N_HEADS, D_K, D_MODEL = 3, 5, 7


def used(x: torch.Tensor, width: int = N_HEADS * D_K) -> Leaf:
    """A matrix that was multiplied with x."""
    module = nn.Linear(x.shape[-1], width).requires_grad_(False)
    return Leaf.of(module, x, module(x))


def cut(leaf: Leaf) -> torch.Tensor:
    return leaf.y.unflatten(2, (N_HEADS, D_K)).transpose(1, 2)


@pytest.fixture
def texts() -> list[torch.Tensor]:
    torch.manual_seed(3)
    return [torch.randn(1, 4, D_MODEL) for _ in range(3)]


@pytest.mark.parametrize(
    ("inputs", "outside", "known"),
    [
        ((0, 0, 0), False, True),
        ((0, 0, 0), True, True),
        ((0, 1, 1), True, True),
        ((0, 1, 1), False, False),
        ((0, 1, 2), True, False),
        ((0, 0, 1), False, False),
        ((0, 1, 0), False, False),
    ],
)
def test_matrices_are_known_where_the_inputs_are_those_of_such_a_layer(texts, inputs, outside, known):
    leaves = [used(texts[at]) for at in inputs]
    found = wiring.find(*map(cut, leaves), leaves, None, outside=outside)
    p = found.projections
    assert [m is not None for m in (p.w_q, p.w_k, p.w_v)] == [known] * 3
    if known:
        assert torch.equal(p.w_k, leaves[1].module.weight.mT)
        assert torch.equal(found.x, texts[0][0])
        assert (found.x_v is not None) == (inputs[0] != inputs[2])
        assert found.x_v is None or torch.equal(found.x_v, texts[1][0])


def test_a_call_that_looks_outside_but_not_at_the_text_has_no_other_text(texts):
    leaves = [used(texts[at]) for at in (0, 1, 1)]
    found = wiring.find(*map(cut, leaves), leaves, None, outside=True)
    call = Call("a", None, *map(cut, leaves), ScoreRule(), True, projections=found.projections)
    call.tensors = {"x": texts[0][0], "x_v": texts[1][0]}
    cross, own = (call.layer(kind, {}) for kind in ("cross", "self"))
    assert cross.knows("x_v")
    assert cross.projections.w_v is not None
    assert not own.knows("x_v")
    assert own.projections.w_v is None


@pytest.mark.parametrize("spoiled", [None, "written over", "another text", "another place", "cut otherwise"])
def test_what_is_known_of_a_module_is_asked_again(texts, spoiled):
    leaves = [used(texts[0]) for _ in range(3)]
    ways = wiring.find(*map(cut, leaves), leaves, None).ways
    wanted = [cut(leaf) for leaf in leaves]
    if spoiled == "written over":
        leaves[1].y.mul_(2.0)
    elif spoiled == "another text":
        module = leaves[2].module
        leaves[2] = Leaf.of(module, texts[1], module(texts[1]))
        wanted[2] = cut(leaves[2])
    elif spoiled == "another place":
        wanted[0] = wanted[0] * 1.5
        wanted[1] = torch.randn_like(wanted[1])
    elif spoiled == "cut otherwise":
        wanted = [leaf.y.unflatten(2, (D_K, N_HEADS)).permute(0, 3, 1, 2) for leaf in leaves]
    found = wiring.find(*wanted, leaves, None, ways=ways).projections
    assert [matrix is not None for matrix in (found.w_q, found.w_k, found.w_v)] == [spoiled is None] * 3


def test_a_part_of_a_packed_matrix_is_not_copied(texts):
    packed = used(texts[0], 3 * N_HEADS * D_K)
    q, k, v = (part.unflatten(2, (N_HEADS, D_K)).transpose(1, 2) for part in packed.y.chunk(3, dim=2))
    p = wiring.find(q, k, v, [packed], None).projections
    place = packed.module.weight.untyped_storage().data_ptr()
    assert {w.untyped_storage().data_ptr() for w in (p.w_q, p.w_k, p.w_v)} == {place}
    torch.testing.assert_close(texts[0][0] @ p.w_v + p.b_v, v[0].transpose(0, 1).flatten(1))
