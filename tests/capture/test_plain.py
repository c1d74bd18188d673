"""A plain layer is known again by where its numbers lie; wherever that is not so, it is looked for anew."""

import pytest
import torch
from torch import nn

from mha_core.attention.score_rule import ScoreRule
from mha_core.capture import learned, wiring
from mha_core.capture.leaves import Leaf
from mha_core.capture.plain import plain

D_MODEL, N_HEADS, N_KV, D_K, L = 11, 6, 2, 5, 7
COUNTS = (N_HEADS, N_KV, N_KV)


def cut(leaf: Leaf, count: int) -> torch.Tensor:
    return leaf.y.unflatten(-1, (count, D_K)).transpose(-3, -2)


def used(module: nn.Module, x: torch.Tensor) -> Leaf:
    return Leaf.of(module, x, module(x))


@pytest.fixture
def layer():
    """An attention module that was found to be plain, its three matrices and their input."""
    torch.manual_seed(5)
    attention = nn.Module()
    matrices = [nn.Linear(D_MODEL, count * D_K).requires_grad_(False) for count in COUNTS]
    x = torch.randn(1, L, D_MODEL)
    leaves = [used(matrix, x) for matrix in matrices]
    found = wiring.find(*map(cut, leaves, COUNTS), leaves, None)
    learned.learn(attention, found.ways, matrices, wiring.plain(found))
    return attention, matrices, x


def called(attention, leaves, wanted):
    return plain(attention, *wanted, ScoreRule(), leaves)


def test_what_is_kept_of_a_plain_layer_are_copies_of_what_flowed(layer):
    attention, matrices, x = layer
    leaves = [used(matrix, x) for matrix in matrices]
    wanted = list(map(cut, leaves, COUNTS))
    call = called(attention, leaves[::-1], wanted).finished({id(attention): "a"})
    assert (call.name, call.module, call.looks_outside) == ("a", attention, False)
    for kept, tensor in zip((call.q, call.k, call.v, call.tensors["x"]), (*wanted, x[0]), strict=True):
        assert torch.equal(kept, tensor)
        assert kept.untyped_storage().data_ptr() != tensor.untyped_storage().data_ptr()
        assert kept.is_contiguous()
    p = call.projections
    shown = ((p.w_q, p.b_q), (p.w_k, p.b_k), (p.w_v, p.b_v))
    for (weight, bias), matrix in zip(shown, matrices, strict=True):
        assert torch.equal(weight, matrix.weight.mT)
        assert torch.equal(bias, matrix.bias)


def test_another_attention_is_not_plain_by_this_one(layer):
    _, matrices, x = layer
    leaves = [used(matrix, x) for matrix in matrices]
    wanted = list(map(cut, leaves, COUNTS))
    assert called(nn.Module(), leaves, wanted) is None
    assert called(None, leaves, wanted) is None


@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize(
    "spoiled",
    [
        "written over",
        "x written over",
        "another text",
        "another place",
        "cut otherwise",
        "cut into others",
        "a part",
        "other numbers by the same bits",
        "for several texts",
        "for each head apart",
        "in another order",
        "not used",
        "by another matrix",
        "a batch",
    ],
)
def test_what_is_not_as_it_was_is_not_plain(layer, spoiled, which):
    attention, matrices, x = layer
    if spoiled == "a batch":
        x = torch.randn(2, L, D_MODEL)
    leaves = [used(matrix, x) for matrix in matrices]
    wanted, count = list(map(cut, leaves, COUNTS)), COUNTS[which]
    leaf = leaves[which]
    if spoiled == "written over":
        leaf.y.mul_(1.0)  # who knows by what
    elif spoiled == "x written over":
        x.add_(0.0)
    elif spoiled == "another text":
        leaves[which] = used(leaf.module, x.clone())
        wanted[which] = cut(leaves[which], count)
    elif spoiled == "another place":
        wanted[which] = wanted[which].clone()
    elif spoiled == "cut otherwise":
        wanted[which] = leaf.y.unflatten(2, (D_K, count)).permute(0, 3, 1, 2)
    elif spoiled == "cut into others":
        wanted[which] = leaf.y.unflatten(2, (1, count * D_K)).transpose(1, 2)[..., :D_K]  # the first alone
    elif spoiled == "a part":
        wanted[which] = wanted[which][:, :, :-1]
    elif spoiled == "other numbers by the same bits":
        leaves[which] = leaf._replace(y=leaf.y.view(torch.int32))
    elif spoiled == "for several texts":
        wanted[which] = wanted[which].expand(2, -1, -1, -1)
    elif spoiled == "for each head apart":
        leaves[which] = leaf._replace(y=leaf.y.view(1, L * count, D_K))
    elif spoiled == "in another order":
        leaves[which] = leaf._replace(y=leaf.y.as_strided(leaf.y.shape, (L * count * D_K, 1, L)))
    elif spoiled == "not used":
        leaves.remove(leaf)
    elif spoiled == "by another matrix":
        leaves[which] = Leaf.of(nn.Linear(D_MODEL, 2), leaf.x, leaf.y)
    assert called(attention, leaves, wanted) is None


def test_only_three_matrices_that_torch_multiplies_with_are_plain():
    class Own(nn.Linear):
        def forward(self, x):
            return super().forward(x)

    torch.manual_seed(6)
    x = torch.randn(1, L, D_MODEL)
    for kind in (nn.Linear, Own):
        leaves = [used(kind(D_MODEL, count * D_K).requires_grad_(False), x) for count in COUNTS]
        found = wiring.find(*map(cut, leaves, COUNTS), leaves, None)
        assert found.projections.w_q is not None
        assert (wiring.plain(found) is None) == (kind is Own)


def test_queries_that_were_scaled_before_attention_are_not_plain():
    torch.manual_seed(6)
    x = torch.randn(1, L, D_MODEL)
    leaves = [used(nn.Linear(D_MODEL, count * D_K).requires_grad_(False), x) for count in COUNTS]
    q, k, v = map(cut, leaves, COUNTS)
    found = wiring.find(q * 0.25, k, v, leaves, None)
    assert found.projections.w_q is not None
    assert wiring.plain(found) is None


def test_the_matrices_are_those_that_lie_there_when_the_pass_is_over(layer):
    attention, matrices, x = layer
    matrices[1].weight = nn.Parameter(torch.randn_like(matrices[1].weight), requires_grad=False)
    leaves = [used(matrix, x) for matrix in matrices]
    call = called(attention, leaves, list(map(cut, leaves, COUNTS))).finished({id(attention): "a"})
    asked = x[0] @ call.projections.w_k + call.projections.b_k
    torch.testing.assert_close(asked.unflatten(1, (N_KV, D_K)).transpose(0, 1), call.k[0])
