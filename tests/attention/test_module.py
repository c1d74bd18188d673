"""One matrix for Q, K and V: which products it makes, and that files and names know nothing of it."""

import copy

import pytest
import torch

from mha_core import AttentionSpec, MultiHeadAttention
from mha_core.attention.module import project_packed, project_per_head

SPECS = {
    "all alike": AttentionSpec(12, 3),
    "no bias": AttentionSpec(12, 3, bias=False),
    "shared key heads": AttentionSpec(12, 4, n_kv_heads=2),
    "all widths apart": AttentionSpec(11, 6, n_kv_heads=3, d_k=5, d_v=13),
    "one of each": AttentionSpec(1, 1),
}


@pytest.fixture(params=SPECS.values(), ids=SPECS)
def module(request, normal):
    made = MultiHeadAttention(request.param).requires_grad_(False).eval()
    for index, part in enumerate(made.state_dict().values()):
        part.copy_(normal(*part.shape, seed=index) / 3)
    return made


@pytest.fixture
def inputs(module, normal):
    """x, a context and an input for V."""
    width = module.spec.d_model
    return normal(2, 5, width), normal(2, 7, width, seed=1), normal(2, 7, width, seed=2)


def part(module, kind, n_heads, *names):
    """Some of the matrices beside each other, as the formula has them, with biases and number of heads."""
    own = module.projections()
    weight = torch.cat([getattr(own, f"w_{name}").mT for name in names]).mT
    bias = torch.cat([getattr(own, f"b_{name}") for name in names]) if module.spec.bias else None
    return kind(weight, bias, n_heads)


# Products


@pytest.mark.parametrize("length", [1, 2, 7, 64])
@pytest.mark.parametrize("d_model", [1, 17, 64, 512])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize(("h", "n_kv"), [(4, 4), (4, 2), (6, 1)], ids=["alike", "grouped", "one key head"])
def test_the_packed_product_is_that_of_all_heads_of_the_whole_matrix(h, n_kv, bias, d_model, length, normal):
    """Where d_k = d_v the whole packed matrix can be cut into heads: first of Q, then of K, then of V."""
    spec = AttentionSpec(d_model, h, n_kv_heads=n_kv, d_k=16, d_v=16, bias=bias)
    module = MultiHeadAttention(spec).requires_grad_(False)
    own = module.projections()
    for batch in (1, 3):
        x = normal(batch, length, d_model)
        whole = project_per_head(x, module.qkv.weight.mT, module.qkv.bias, h + 2 * n_kv)
        recorded = module.project(x)
        for name, made, heads in zip("qkv", recorded, whole.split([h, n_kv, n_kv], dim=1), strict=True):
            assert torch.equal(made, heads), name
            matrix = x, getattr(own, f"w_{name}"), getattr(own, f"b_{name}"), made.shape[1]
            assert torch.equal(project_packed(*matrix), project_per_head(*matrix)), name
            # The product with one of the three alone may sum in another order.
            torch.testing.assert_close(made, project_packed(*matrix), atol=2e-6, rtol=0)


def test_each_input_meets_its_own_matrix(module, inputs):
    """Three different inputs are three products, and then each is that of its matrix in every bit."""
    own = module.projections()
    for name, made, given in zip("qkv", module.project(*inputs), inputs, strict=True):
        weight, bias = getattr(own, f"w_{name}"), getattr(own, f"b_{name}")
        assert torch.equal(made, project_packed(given, weight, bias, made.shape[1])), name


@pytest.mark.parametrize(
    "same",
    [(0, None, None), (0, 1, None), (0, 0, 1), (0, 1, 0), (0, 0, None), (0, None, 0), (0, 1, 1)],
    ids=["x", "x c", "x x v", "x c x", "x x", "x - x", "x c c"],
)
def test_inputs_that_are_the_same_change_nothing_but_rounding(same, module, inputs):
    given = [None if index is None else inputs[index] for index in same]
    context = given[0] if given[1] is None else given[1]
    values = context if given[2] is None else given[2]
    if values.shape != context.shape:  # as many values as keys
        context = context[:, : values.shape[1]]
    apart = module.project(given[0], context.clone(), values.clone())
    for made, expected in zip(module.project(*given), apart, strict=True):
        rows = made[..., : expected.shape[2], :]
        torch.testing.assert_close(rows, expected, atol=2e-6, rtol=0)


def test_naming_the_same_input_three_times_is_self_attention(module, inputs):
    x = inputs[0]
    for named in ((x, x), (x, None, x), (x, x, x)):
        for made, expected in zip(module.project(*named), module.project(x), strict=True):
            assert torch.equal(made, expected)


@pytest.mark.parametrize("given", [1, 2, 3])
def test_gradients_reach_each_part_of_the_packed_matrix(given, module, inputs):
    module.requires_grad_(True)
    made = module.project(*inputs[:given])
    weights = torch.autograd.grad(made[1].sum(), module.qkv.weight)[0].split(module.widths)
    assert [bool(part.abs().sum() > 0) for part in weights] == [False, True, False]
    keys = inputs[min(given - 1, 1)]
    torch.testing.assert_close(weights[1], keys.sum((0, 1)).expand_as(weights[1]), atol=1e-5, rtol=1e-5)


def test_values_of_a_wrong_size_are_refused(module, inputs, normal, refused):
    x, context, _ = inputs
    width = module.spec.d_model
    for wrong in (normal(2, 7, width + 1), normal(3, 7, width), normal(7, width)):
        assert str(tuple(wrong.shape)) in str(refused(module, x, context, wrong))
        assert str(tuple(wrong.shape)) in str(refused(module, x, wrong, x))


# State dicts


def names(bias=True):
    return {f"{name}.{kind}" for name in "qkvo" for kind in (("weight", "bias") if bias else ("weight",))}


def test_a_state_dict_has_four_matrices_that_are_views(module):
    state = module.state_dict()
    assert set(state) == names(module.spec.bias)
    own = module.projections()
    for name, tensor in state.items():
        matrix, kind = name.split(".")
        expected = getattr(own, f"{kind[0]}_{matrix}")
        assert tensor.is_contiguous()
        assert torch.equal(tensor, expected.mT if tensor.dim() == 2 else expected)
        assert tensor.untyped_storage().data_ptr() == expected.untyped_storage().data_ptr()


def test_what_is_written_into_a_state_dict_arrives_in_the_product(module):
    for name, tensor in module.state_dict().items():
        tensor.fill_("qkvo".index(name[0]))
    for index, rows in enumerate(module.qkv.weight.split(module.widths)):
        assert (rows == index).all()


@pytest.mark.parametrize("assign", [False, True])
def test_what_was_saved_is_what_is_loaded(assign, module, inputs):
    state = {f"a.b.{name}": tensor.clone() for name, tensor in module.state_dict().items()}
    given = dict(state)
    other = torch.nn.ModuleDict({"a": torch.nn.ModuleDict({"b": MultiHeadAttention(module.spec)})})
    other.load_state_dict(state, assign=assign)
    assert {name: id(tensor) for name, tensor in state.items()} == {n: id(t) for n, t in given.items()}
    assert set(other.state_dict()) == set(state)
    twin = other["a"]["b"].requires_grad_(False)
    assert torch.equal(twin(*inputs).output, module(*inputs).output)
    twin.qkv.weight.zero_()
    assert all(torch.equal(tensor, module.state_dict()[name[4:]]) for name, tensor in state.items())


def test_a_copy_has_a_packed_matrix_of_its_own(module):
    twin = copy.deepcopy(module)
    for tensor in twin.state_dict().values():
        tensor.zero_()
    assert not twin.qkv.weight.any()
    assert module.qkv.weight.all()
    module.load_state_dict(twin.state_dict())
    assert not module.qkv.weight.any()


@pytest.mark.parametrize("name", sorted(names()))
def test_a_missing_matrix_is_named(name):
    module = MultiHeadAttention(SPECS["all alike"])
    state = {key: tensor + 1 for key, tensor in module.state_dict().items() if key != name}
    before = {key: tensor.clone() for key, tensor in module.state_dict().items()}
    with pytest.raises(RuntimeError, match=f'Missing key\\(s\\) in state_dict: "{name}". *$'):
        copy.deepcopy(module).load_state_dict(state)
    assert module.load_state_dict(state, strict=False).missing_keys == [name]
    for key, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[key] if key == name else state[key]), key


@pytest.mark.parametrize("more", ["qkv.weight", "x", "k.scale", "q"])
def test_a_name_too_many_is_refused(more):
    module = MultiHeadAttention(SPECS["all alike"])
    state = module.state_dict() | {more: torch.zeros(36, 12)}
    with pytest.raises(RuntimeError, match=f'Unexpected key\\(s\\) in state_dict: "{more}"'):
        module.load_state_dict(state)


def test_biases_for_a_layer_without_any_are_refused():
    state = MultiHeadAttention(SPECS["all alike"]).state_dict()
    with pytest.raises(RuntimeError, match=r'"q\.bias"'):
        MultiHeadAttention(SPECS["no bias"]).load_state_dict(state)


def test_matrices_that_only_fit_together_are_refused():
    module = MultiHeadAttention(SPECS["all alike"])
    state = {**module.state_dict(), "q.weight": torch.zeros(13, 12), "k.weight": torch.zeros(11, 12)}
    with pytest.raises(RuntimeError, match=r"(?s)size mismatch for q\.weight.*size mismatch for k\.weight"):
        module.load_state_dict(state)
