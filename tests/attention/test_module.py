"""The attention module: sizes are checked once, numbers are torch's, a state dict has four matrices."""

import copy

import pytest
import torch

from mha_core import AttentionSpec, LayerTrace, MultiHeadAttention, ScoreRule, attend
from mha_core.attention.module import MAX_D_MODEL, MAX_HEADS, project_packed, project_per_head
from tests.attention.random_masks import SHAPES, random_mask
from tests.conftest import assert_close

SPECS = {
    "all alike": AttentionSpec(12, 3),
    "shared key heads, no bias": AttentionSpec(12, 4, n_kv_heads=2, bias=False),
    "all widths apart": AttentionSpec(11, 6, n_kv_heads=3, d_k=5, d_v=13),
    "one of each": AttentionSpec(1, 1),
}


@pytest.fixture(params=SPECS.values(), ids=SPECS)
def module(request, normal):
    module = MultiHeadAttention(request.param).requires_grad_(False).eval()
    for index, part in enumerate(module.state_dict().values()):
        part.copy_(normal(*part.shape, seed=index) / 3)
    return module


@pytest.fixture
def inputs(module, normal):
    """x, a context and an input for V."""
    width = module.spec.d_model
    return normal(2, 5, width), normal(2, 7, width, seed=1), normal(2, 7, width, seed=2)


def built(module, normal, seed=0):
    """The module with weights of the size that keeps everything of order one."""
    for index, parameter in enumerate(module.parameters()):
        parameter.data = normal(*parameter.shape, seed=seed + index) / parameter.shape[-1] ** 0.5
    return module.requires_grad_(False).eval()


# Sizes


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({"d_model": 512, "n_heads": 8}, (512, 8, 8, 64, 64, True)),  # d_model is split over the heads
        ({"d_model": MAX_D_MODEL, "n_heads": MAX_HEADS}, (MAX_D_MODEL, MAX_HEADS, MAX_HEADS, 64, 64, True)),
        ({"d_model": 11, "n_heads": 3, "d_k": 5}, (11, 3, 3, 5, 5, True)),
        ({"d_model": 15, "n_heads": 3, "d_v": 7}, (15, 3, 3, 5, 7, True)),
        (
            {"d_model": 11, "n_heads": 6, "n_kv_heads": 2, "d_k": 5, "d_v": 13, "bias": False},
            (11, 6, 2, 5, 13, False),
        ),
    ],
)
def test_a_spec_is_a_value_with_all_sizes(sizes, expected):
    spec = AttentionSpec(**sizes)
    assert tuple(vars(spec).values()) == expected
    assert spec == AttentionSpec(*expected)
    assert hash(spec) == hash(AttentionSpec(*expected))
    assert spec != AttentionSpec(5, 1)
    with pytest.raises(AttributeError):
        spec.d_model = 30


@pytest.mark.parametrize(
    ("sizes", "message", "fixes"),
    [
        *(
            (sizes, f"{name} {value} is out of range; 1 to {most} work.", ({name: 1 if value < 1 else most},))
            for sizes, name, value, most in (
                ((0, 1), "d_model", 0, 8192),
                ((512, 129), "h", 129, 128),
                ((512, 8, None, 0), "d_k", 0, 8192),
                ((512, 8, None, 64, 9000), "d_v", 9000, 8192),
                ((512, 8, 0), "n_kv_heads", 0, 128),
            )
        ),
        ((512, True), "h must be a whole number from 1 to 128; got True.", ()),
        ((512.0, 8), "d_model must be a whole number from 1 to 8192; got 512.0.", ()),
        (
            (512, 8, 3),
            "8 query heads cannot share 3 key/value heads evenly; 1, 2, 4 or 8 can.",
            tuple({"n_kv_heads": count} for count in (1, 2, 4, 8)),
        ),
        (
            (30, 4),
            "d_model 30 cannot be split into 4 heads; 28 or 32 can. With d_model 30, 3 or 5 heads work.",
            ({"d_model": 28}, {"d_model": 32}, {"h": 3}, {"h": 5}),
        ),
        (
            (1, 2),
            "d_model 1 cannot be split into 2 heads; 2 can. With d_model 1, 1 head works.",
            ({"d_model": 2}, {"h": 1}),
        ),
        (
            (8192, 3),
            "d_model 8192 cannot be split into 3 heads; 8190 can. With d_model 8192, 2 or 4 heads work.",
            ({"d_model": 8190}, {"h": 2}, {"h": 4}),
        ),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes, message, fixes, refused):
    error = refused(AttentionSpec, *sizes)
    assert (str(error), error.fixes) == (message, fixes)


# Products


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("length", [1, 128])
@pytest.mark.parametrize("widths", [(512, 8, 8, 64), (64, 6, 1, 16), (7, 13, 13, 2), (1, 1, 1, 1)])
def test_the_packed_product_is_that_of_all_heads_of_the_whole_matrix(widths, length, bias, normal):
    """Where d_k = d_v the whole packed matrix can be cut into heads: first of Q, then of K, then of V."""
    d_model, h, n_kv, d_k = widths
    spec = AttentionSpec(d_model, h, n_kv_heads=n_kv, d_k=d_k, d_v=d_k, bias=bias)
    module = built(MultiHeadAttention(spec), normal)
    for batch in (1, 3):
        x = normal(batch, length, d_model, seed=50)
        whole = project_per_head(x, module.qkv.weight.mT, module.qkv.bias, h + 2 * n_kv)
        parts = whole.split([h, n_kv, n_kv], 1)
        for name, tensor, heads in zip("qkv", module.project(x), parts, strict=True):
            assert torch.equal(tensor, heads), name
            alone = x, *own(module, name), tensor.shape[1]
            assert torch.equal(project_packed(*alone), project_per_head(*alone)), name
            # The product with one of the three alone may sum in another order.
            torch.testing.assert_close(tensor, project_packed(*alone), atol=2e-6, rtol=0)


def own(module, name):
    """The matrix and the bias of Q, K or V."""
    return getattr(module.projections(), f"w_{name}"), getattr(module.projections(), f"b_{name}")


@pytest.mark.parametrize(
    "same",
    [(0, None, None), (0, 1, None), (0, 0, 1), (0, 1, 0), (0, 0, None), (0, None, 0), (0, 1, 1)],
    ids=["x", "x c", "x x v", "x c x", "x x", "x - x", "x c c"],
)
def test_inputs_that_are_the_same_change_nothing_but_rounding(same, module, inputs):
    named = [None if index is None else inputs[index] for index in same]
    context = named[0] if named[1] is None else named[1]
    values = context if named[2] is None else named[2]
    if values.shape != context.shape:  # as many values as keys
        context = context[:, : values.shape[1]]
    apart = module.project(named[0], context.clone(), values.clone())
    for name, one, x, made in zip(
        "qkv", apart, (named[0], context, values), module.project(*named), strict=True
    ):
        assert torch.equal(one, project_packed(x, *own(module, name), one.shape[1])), name
        torch.testing.assert_close(made[..., : one.shape[2], :], one, atol=2e-6, rtol=0)


def test_inputs_of_a_wrong_size_are_refused(module, inputs, normal, refused):
    x, context, _ = inputs
    width = module.spec.d_model
    for wrong in (normal(2, 7, width + 1), normal(3, 7, width), normal(7, width), normal(1, 2, 7, width)):
        assert str(tuple(wrong.shape)) in str(refused(module, x, context, wrong))
        assert str(refused(module, x, wrong, x)) == (
            f"The input has shape {tuple(wrong.shape)}; expected (batch, tokens, {width}) with batch 2."
        )
    assert f"expected (batch, tokens, {width})." in str(refused(module, normal(2, 7, width + 1)))
    refused(module, x, context, normal(2, 3, width))  # three values cannot go with seven keys


# Parity with torch


def torch_twin(ours):
    """`nn.MultiheadAttention` with the weights of our module."""
    spec = ours.spec
    theirs = torch.nn.MultiheadAttention(spec.d_model, spec.n_heads, bias=spec.bias, batch_first=True)
    state = {"in_proj_weight": ours.qkv.weight, "out_proj.weight": ours.o.weight}
    if spec.bias:
        state["in_proj_bias"] = ours.qkv.bias
        state["out_proj.bias"] = ours.o.bias
    theirs.load_state_dict(state)
    return theirs.requires_grad_(False).eval()


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("padded", [False, True], ids=["", "padded"])
@pytest.mark.parametrize("form", ["none", "(L, S)", "(N, h, L, S)"])
@pytest.mark.parametrize("crossed", [False, True], ids=["self", "cross"])
def test_module_equals_torch_per_head(crossed, form, padded, bias, normal):
    n, h, q_len, d_model = 2, 5, 11, 35
    k_len = 13 if crossed else q_len
    ours = built(MultiHeadAttention(AttentionSpec(d_model, h, bias=bias)), normal)
    x = normal(n, q_len, d_model, seed=20)
    context = normal(n, k_len, d_model, seed=21) if crossed else None
    mask = SHAPES[form] and random_mask(normal, *SHAPES[form](n, h, q_len, k_len), seed=22)
    padding = random_mask(normal, n, k_len, seed=23) if padded else None
    attended = ours(x, context, mask=mask, key_padding=padding)

    keys = x if context is None else context
    hidden = {"key_padding_mask": None if padding is None else ~padding}
    hidden["attn_mask"] = None if mask is None else ~mask if mask.dim() == 2 else ~mask.flatten(0, 1)
    output, weights = torch_twin(ours)(x, keys, keys, **hidden, average_attn_weights=False)
    torch.testing.assert_close(attended.output, output, atol=1e-6, rtol=0)
    for item in range(n):
        assert_close(LayerTrace.of(attended, item=item).weights(), weights[item])


def test_the_rule_that_comes_back_is_the_one_that_was_used(normal):
    ours = built(MultiHeadAttention(AttentionSpec(11, 6, n_kv_heads=2, d_k=5, d_v=13)), normal)
    x, hidden = normal(2, 7, 11), random_mask(normal, 7, 7, seed=5)
    padding = random_mask(normal, 2, 7, seed=6)
    mask, bias = random_mask(normal, 2, 7, 7, seed=7), normal(6, 7, 7, seed=8)
    attended = ours(x, mask=mask, key_padding=padding, rule=ScoreRule(mask=hidden, bias=bias))
    allowed = mask[:, None] & padding[:, None, None] & hidden
    assert torch.equal(attended.rule.mask, allowed)
    assert torch.equal(attended.rule.bias, bias)
    again = attend(attended.q, attended.k, attended.v, ScoreRule(mask=allowed, bias=bias))
    assert torch.equal(ours.join(again), attended.output)


# State dicts


def test_a_state_dict_has_four_matrices_that_are_views(module):
    state, matrices = module.state_dict(), module.projections()
    kinds = ("weight", "bias") if module.spec.bias else ("weight",)
    assert set(state) == {f"{name}.{kind}" for name in "qkvo" for kind in kinds}
    for name, tensor in state.items():
        matrix, kind = name.split(".")
        expected = getattr(matrices, f"{kind[0]}_{matrix}")
        assert tensor.is_contiguous()
        assert torch.equal(tensor, expected.mT if tensor.dim() == 2 else expected)
        assert tensor.untyped_storage().data_ptr() == expected.untyped_storage().data_ptr()
        tensor.fill_("qkvo".index(matrix))  # what is written is used
    for index, rows in enumerate(module.qkv.weight.split(module.widths)):
        assert (rows == index).all()


@pytest.mark.parametrize("assign", [False, True])
def test_a_saved_state_dict_loads_exactly(assign, module, inputs):
    state = {f"a.b.{name}": tensor.clone() for name, tensor in module.state_dict().items()}
    before = dict(state)
    other = torch.nn.ModuleDict({"a": torch.nn.ModuleDict({"b": MultiHeadAttention(module.spec)})})
    other.load_state_dict(state, assign=assign)
    assert {name: id(tensor) for name, tensor in state.items()} == {n: id(t) for n, t in before.items()}
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


@pytest.mark.parametrize("name", ["q.weight", "v.bias", "o.weight"])
def test_a_missing_matrix_is_named(name):
    module = MultiHeadAttention(SPECS["all alike"])
    state = {key: tensor + 1 for key, tensor in module.state_dict().items() if key != name}
    before = {key: tensor.clone() for key, tensor in module.state_dict().items()}
    with pytest.raises(RuntimeError, match=f'Missing key\\(s\\) in state_dict: "{name}". *$'):
        copy.deepcopy(module).load_state_dict(state)
    assert module.load_state_dict(state, strict=False).missing_keys == [name]
    for key, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[key] if key == name else state[key]), key


ALIKE = MultiHeadAttention(SPECS["all alike"]).state_dict()
ODD = ALIKE | {"q.weight": torch.zeros(13, 12), "k.weight": torch.zeros(11, 12)}  # together as many rows


@pytest.mark.parametrize(
    ("bias", "state", "said"),
    [
        *(
            (True, ALIKE | {more: torch.zeros(36, 12)}, rf'Unexpected key\(s\) in state_dict: "{more}"')
            for more in ("qkv.weight", "x", "k.scale", "q")
        ),
        (False, ALIKE, r'"q\.bias"'),
        (True, ODD, r"(?s)size mismatch for q\.weight.*size mismatch for k\.weight"),
    ],
)
def test_a_state_dict_of_another_layer_is_refused(bias, state, said):
    with pytest.raises(RuntimeError, match=said):
        MultiHeadAttention(AttentionSpec(12, 3, bias=bias)).load_state_dict(state)


def test_a_layer_is_made_of_its_sizes_alone(refused):
    assert "A layer is made of an AttentionSpec" in str(refused(MultiHeadAttention, 512))
