"""Attention equals torch's, for every mask and grouping, without wasted memory."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck
from torch.nn import functional as F

from mha_core import ScoreRule, attend
from mha_core.attention import functional, masks
from mha_core.attention.functional import fused, raw_scores
from mha_core.attention.positions import alibi
from tests.attention.random_masks import SHAPES, random_mask

PRIME = st.sampled_from([2, 3, 5, 7, 11, 13, 17])


# Invariants


def test_a_hidden_key_has_no_influence_at_all(normal):
    q, k, v = normal(2, 3, 7, 5), normal(2, 3, 11, 5, seed=1), normal(2, 3, 11, 13, seed=2)
    allowed = torch.arange(11).expand(7, 11) != 4
    before = attend(q, k, v, ScoreRule(mask=allowed))
    k[..., 4, :], v[..., 4, :] = 1e6, -1e6
    assert torch.equal(attend(q, k, v, ScoreRule(mask=allowed)), before)
    assert not torch.equal(attend(q, k, v), attend(q, k, v, ScoreRule(mask=allowed)))


def test_inputs_are_unchanged(normal):
    q, k, v, bias = normal(3, 7, 5), normal(3, 11, 5), normal(3, 11, 13), normal(3, 7, 11)
    inputs = [q, k, v, bias]
    copies = [t.clone() for t in inputs]
    attend(q, k, v, ScoreRule(bias=bias, soft_cap=3.0, temperature=0.7, mask=bias > -1))
    assert all(torch.equal(t, copy) for t, copy in zip(inputs, copies, strict=True))


BLOCKED = {
    "plain": lambda normal: ScoreRule(),
    "mask of each head": lambda normal: ScoreRule(mask=random_mask(normal, 2, 6, 7, 11, seed=3)),
    "key padding": lambda normal: ScoreRule(mask=random_mask(normal, 2, 1, 1, 11, seed=3)),
    "bias": lambda normal: ScoreRule(bias=normal(6, 7, 11, seed=4), temperature=1.3),
    "all": lambda normal: ScoreRule(
        scale=0.2,
        mask=random_mask(normal, 2, 1, 7, 11, seed=3),
        bias=normal(2, 6, 7, 11, seed=4),
        distance_bias=alibi(6, 7, 11),
        sinks=normal(6, seed=5),
    ),
}


@pytest.mark.parametrize(("cells", "n_kv"), [(1, 1), (2 * 2 * 6 * 11 * 3, 3)])
@pytest.mark.parametrize("rule", BLOCKED.values(), ids=BLOCKED)
def test_blocks_of_rows_give_what_the_whole_gives(rule, n_kv, cells, normal, monkeypatch):
    q, k, v = normal(2, 6, 7, 5), normal(2, n_kv, 11, 5, seed=1), normal(2, n_kv, 11, 13, seed=2)
    whole = attend(q, k, v, rule(normal))
    monkeypatch.setattr(functional, "CELLS", cells)
    monkeypatch.setattr(functional, "MIN_ROWS", 1)
    for recording in (True, False):
        with torch.set_grad_enabled(recording):
            torch.testing.assert_close(attend(q, k, v, rule(normal)), whole, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("min_rows", "heights"), [(1, [2, 2, 2, 2, 2, 2, 1]), (5, [5, 5, 3])])
def test_no_block_has_more_than_half_of_what_may_be_held_at_once_but_for_a_few_rows(
    min_rows, heights, normal, monkeypatch
):
    sizes = []

    def measured(q, k):
        sizes.append(q.shape[:-1].numel() * k.shape[-2])
        return q @ k.mT

    monkeypatch.setattr(functional, "raw_scores", measured)
    row = 2 * 3 * 11
    monkeypatch.setattr(functional, "CELLS", 4 * row)
    monkeypatch.setattr(functional, "MIN_ROWS", min_rows)
    attend(normal(2, 3, 13, 5), normal(2, 3, 11, 5), normal(2, 3, 11, 7))
    assert sizes == [row * count for count in heights]


def test_the_gradient_is_that_of_the_formula_and_zero_for_a_fully_masked_row(normal):
    q, k, v = (normal(*shape, dtype=torch.float64) for shape in ((2, 3, 5), (1, 5, 5), (1, 5, 3)))
    bias, sinks = normal(2, 3, 5, dtype=torch.float64), normal(2, dtype=torch.float64)
    allowed = torch.ones(3, 5).tril().bool()
    allowed[1] = False
    inputs = [t.requires_grad_() for t in (q, k, v, bias, sinks)]

    def attended(q, k, v, bias, sinks):
        return attend(q, k, v, ScoreRule(soft_cap=2.0, bias=bias, sinks=sinks, mask=allowed, temperature=1.3))

    assert gradcheck(attended, inputs)
    for rule in (ScoreRule(mask=allowed), ScoreRule(mask=allowed, sinks=sinks)):
        attend(q, k, v, rule).sum().backward()
    assert (q.grad[:, 1] == 0).all()
    assert all(t.grad.isfinite().all() for t in (q, k, v, sinks))


def test_keys_and_values_that_heads_share_are_not_copied(normal, allocated):
    h, n_kv, keys, width = 32, 2, 1031, 61
    q, k, v = normal(1, h, 3, width), normal(1, n_kv, keys, width), normal(1, n_kv, keys, width)
    expanded = 2 * h * keys * width * 4

    def wasteful():
        return attend(q, *(t.repeat_interleave(h // n_kv, dim=1) for t in (k, v)))

    attend(q, k, v)  # what is allocated once only is not counted
    assert sum(allocated(wasteful)) > expanded
    assert sum(allocated(lambda: attend(q, k, v))) < expanded / 4


# Parity


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)], ids=str)
@pytest.mark.parametrize("form", SHAPES.values(), ids=SHAPES)
@given(
    padded=st.booleans(),
    n=PRIME,
    n_kv=st.sampled_from([1, 2, 3]),
    group=st.sampled_from([1, 2, 5]),
    q_len=PRIME,
    k_len=PRIME,
    d_k=PRIME,
    d_v=PRIME,
    biased=st.booleans(),
    scale=st.sampled_from([None, 0.05, 0.3]),
    temperature=st.sampled_from([1.0, 0.8, 1.9]),
    seed=st.integers(0, 999),
)
def test_attend_equals_torch(
    form, padded, dtype, tolerance, n, n_kv, group, q_len, k_len, d_k, d_v, biased, scale, temperature,
    seed, normal,
):  # fmt: skip
    h = n_kv * group
    q = normal(n, h, q_len, d_k, seed=seed, dtype=dtype)
    k = normal(n, n_kv, k_len, d_k, seed=seed + 1, dtype=dtype)
    v = normal(n, n_kv, k_len, d_v, seed=seed + 2, dtype=dtype) / 2  # outputs below 2: 1e-6 is 8 roundings
    bias = normal(h, q_len, k_len, seed=seed + 3, dtype=dtype) if biased else None
    mask = form and random_mask(normal, *form(n, h, q_len, k_len), seed=seed + 4)
    padding = random_mask(normal, n, k_len, seed=seed + 5) if padded else None
    allowed = masks.combine(mask, padding, batch=n, n_heads=h, n_query=q_len, n_key=k_len)
    ours = attend(q, k, v, ScoreRule(scale=scale, bias=bias, mask=allowed, temperature=temperature))

    extra = torch.zeros(n, h, q_len, k_len, dtype=dtype)
    if biased:
        extra = extra + bias / temperature
    if mask is not None:
        seen = mask[:, None] if mask.dim() == 3 else mask
        extra = extra.masked_fill(~seen, float("-inf"))
    if padded:
        extra = extra.masked_fill(~padding.reshape(n, 1, 1, k_len), float("-inf"))
    theirs = F.scaled_dot_product_attention(
        q,
        k.repeat_interleave(group, dim=1),
        v.repeat_interleave(group, dim=1),
        attn_mask=extra,
        scale=(d_k**-0.5 if scale is None else scale) / temperature,
    )
    assert ours.dtype == dtype
    assert ours.shape == (n, h, q_len, d_v)
    torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=0)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 4e-3), (torch.bfloat16, 3e-2)], ids=str)
def test_half_precision_stays_as_near_to_fp32_as_its_digits_allow(dtype, tolerance, normal):
    q, k, v = (normal(2, h, n, d, seed=h, dtype=dtype) for h, n, d in ((6, 7, 5), (3, 11, 5), (3, 11, 13)))
    rule = ScoreRule(mask=random_mask(normal, 7, 11, seed=4), bias=normal(6, 7, 11, seed=5))
    half = attend(q, k, v, rule)
    assert half.dtype == dtype
    assert raw_scores(q, k).dtype == torch.float32
    full = attend(q.float(), k.float(), v.float(), rule)
    torch.testing.assert_close(half.float(), full, atol=tolerance, rtol=0)


def test_a_difference_too_fine_for_bf16_still_moves_the_weights():
    one, v = torch.tensor([[[16.0]]]).bfloat16(), torch.tensor([[[0.0], [1.0]]]).bfloat16()
    bias = torch.tensor([[[0.0, 0.25]]])  # beside a score of 256, where bf16 counts in steps of 2
    output = attend(one, one.expand(1, 2, 1), v, ScoreRule(scale=1.0, bias=bias))
    assert output.item() == pytest.approx(torch.tensor(0.25).sigmoid().item(), abs=2e-3)


# Refusals


@pytest.mark.parametrize(
    ("q", "k", "v"),
    [
        ((3, 5, 7), (3, 11, 2), (3, 11, 13)),  # widths of q and k
        ((3, 5, 7), (3, 11, 7), (3, 13, 13)),  # numbers of keys and values
        ((3, 5, 7), (2, 11, 7), (2, 11, 13)),  # 3 heads over 2
        ((6, 5, 7), (3, 11, 7), (2, 11, 13)),  # heads of k and v
        ((5, 7), (11, 7), (11, 13)),  # no head axis
        ((2, 6, 5, 7), (3, 6, 11, 7), (3, 6, 11, 13)),  # batches
        ((3, 5, 7), (0, 11, 7), (0, 11, 13)),  # no key heads
        ((3, 5, 7), (3, 0, 7), (3, 0, 13)),  # no keys
    ],
    ids=["width", "keys", "group", "kv", "axes", "batch", "no key heads", "no keys"],
)
def test_shapes_that_do_not_fit_and_values_that_are_no_tensors_are_named(q, k, v, normal, refused, kernel):
    ran = kernel()
    for ask in (attend, lambda *given: fused(*given, ScoreRule())):
        assert str(refused(ask, normal(*q), normal(*k), normal(*v))) == (
            f"q {q}, k {k} and v {v} do not fit; expected "
            f"q (…, h, L, d_k), k (…, n_kv, S, d_k), v (…, n_kv, S, d_v) with h a multiple of n_kv, S ≥ 1."
        )
    assert not ran
    q = normal(3, 5, 7)
    assert "got a list, a Tensor and a Tensor." in str(refused(attend, q.tolist(), q, q))
    assert "rule is a ScoreRule" in str(refused(attend, q, q, q, None))


# The fused kernel

PLAIN = {
    "nothing": lambda normal: ScoreRule(),
    "scale": lambda normal: ScoreRule(scale=0.3),
    "mask of each head": lambda normal: ScoreRule(mask=random_mask(normal, 1, 6, 7, 11, seed=3)),
    "rows that see nothing": lambda normal: ScoreRule(mask=torch.arange(7)[:, None] > torch.arange(11)),
}


@pytest.mark.parametrize("n_kv", [1, 3])
@pytest.mark.parametrize("rule", PLAIN.values(), ids=PLAIN)
def test_the_fused_kernel_gives_what_attend_gives(rule, n_kv, normal, kernel):
    ran = kernel()
    q, k, v = normal(1, 6, 7, 5), normal(1, n_kv, 11, 5, seed=1), normal(1, n_kv, 11, 5, seed=2)
    torch.testing.assert_close(fused(q, k, v, rule(normal)), attend(q, k, v, rule(normal)), atol=1e-6, rtol=0)
    assert len(ran) == 1


@pytest.mark.parametrize(
    ("n_kv", "d_v", "dtype", "rule"),
    [
        (6, 13, torch.float32, {}),
        (6, 5, torch.float64, {}),
        (6, 5, torch.bfloat16, {}),
        (6, 5, torch.float32, {"soft_cap": 5.0}),
        (6, 5, torch.float32, {"sinks": torch.ones(6)}),
        (6, 5, torch.float32, {"bias": torch.ones(7, 11)}),
        (6, 5, torch.float32, {"distance_bias": torch.ones(6, 17)}),
        (6, 5, torch.float32, {"temperature": 2.0}),
    ],
)
def test_unsupported_rules_fall_back_from_the_fused_kernel(n_kv, d_v, dtype, rule, normal, kernel):
    ran = kernel()
    q, k, v = normal(1, 6, 7, 5), normal(1, n_kv, 11, 5, seed=1), normal(1, n_kv, 11, d_v, seed=2)
    q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    assert torch.equal(fused(q, k, v, ScoreRule(**rule)), attend(q, k, v, ScoreRule(**rule)))
    assert not ran
