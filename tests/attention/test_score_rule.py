"""A score rule applies scale, soft cap, bias, mask, sinks and softmax, in this order and without NaN."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mha_core import LayerTrace, ScoreRule, attend
from mha_core.attention import functional

H, QUERIES, KEYS = 3, 5, 7
D_K = 11
EVERYTHING = slice(None)


def reference(raw, *, scale, cap, bias, table, mask, sinks, temperature):
    """The rule in plain loops over double precision numbers. (head, query, key)"""
    h, queries, keys = raw.shape
    s = np.empty(raw.shape)
    for i in range(h):
        for m in range(queries):
            for n in range(keys):
                cell = scale * float(raw[i, m, n])
                if cap is not None:
                    cell = cap * math.tanh(cell / cap)
                if bias is not None:
                    cell += float(bias[i, m, n])
                if table is not None:
                    cell += float(table[i, n - m + queries - 1])
                if mask is not None and not mask[m, n]:
                    cell = -math.inf
                s[i, m, n] = cell
    weights = np.empty(raw.shape)
    for i in range(h):
        for m in range(queries):
            total = sum(math.exp(cell / temperature) for cell in s[i, m])
            if sinks is not None:
                total += math.exp(float(sinks[i]) / temperature)
            for n in range(keys):
                weights[i, m, n] = math.exp(s[i, m, n] / temperature) / total if total else 0.0
    return s, weights


def laid_out(rule):
    return rule.at(EVERYTHING, EVERYTHING, n_query=QUERIES, n_key=KEYS)


def weights_of(rule, raw):
    rule = laid_out(rule)
    return rule.weights(rule.logits(raw, D_K)[1])


# Invariants


@given(
    scale=st.sampled_from([None, 0.2, 1.5]),
    cap=st.sampled_from([None, 0.7, 3.0]),
    with_bias=st.booleans(),
    with_table=st.booleans(),
    with_mask=st.booleans(),
    with_sinks=st.booleans(),
    temperature=st.sampled_from([1.0, 0.5, 2.3]),
    seed=st.integers(0, 999),
)
def test_the_steps_come_in_the_order_that_the_docstring_gives(
    scale, cap, with_bias, with_table, with_mask, with_sinks, temperature, seed, normal
):
    def drawn(given: bool, *shape: int, more: int) -> torch.Tensor | None:
        return normal(*shape, seed=seed + more, dtype=torch.float64) if given else None

    raw = normal(H, QUERIES, KEYS, seed=seed, dtype=torch.float64) * 2
    bias = drawn(with_bias, H, QUERIES, KEYS, more=1)
    table = drawn(with_table, H, QUERIES + KEYS - 1, more=2)
    mask = normal(QUERIES, KEYS, seed=seed + 3) > 0 if with_mask else None
    settings = {"bias": bias, "mask": mask, "sinks": drawn(with_sinks, H, more=4), "temperature": temperature}
    rule = laid_out(ScoreRule(scale=scale, soft_cap=cap, distance_bias=table, **settings))
    factor = D_K**-0.5 if scale is None else scale
    s, weights = reference(raw, scale=factor, cap=cap, table=table, **settings)
    scaled, masked = rule.logits(raw, D_K)
    np.testing.assert_allclose(scaled, raw * factor, rtol=0, atol=1e-12)
    np.testing.assert_allclose(masked, s, rtol=0, atol=1e-12)
    np.testing.assert_allclose(rule.weights(masked), weights, rtol=0, atol=1e-12)


@pytest.mark.parametrize("temperature", [1.0, 0.3])
@pytest.mark.parametrize("mask", [None, torch.ones(QUERIES, KEYS).tril().bool()], ids=["all", "causal"])
def test_scores_are_written_over_only_where_nobody_needs_them(mask, temperature, normal):
    rule = ScoreRule(mask=mask, temperature=temperature)
    masked = rule.masked(normal(H, QUERIES, KEYS))
    before = masked.clone()
    weights = rule.weights(masked)
    assert torch.equal(masked, before)
    assert torch.equal(rule.weights(masked, spent=True), weights)
    asked = before.requires_grad_()  # a gradient needs them, too
    assert torch.equal(rule.weights(asked, spent=True), weights)
    assert torch.equal(asked, before)


@pytest.mark.parametrize("sinks", [None, torch.tensor([0.3, -1.0, 2.0])], ids=["plain", "sinks"])
def test_a_fully_masked_row_has_zero_weights_and_zero_output(sinks, normal):
    causal = torch.arange(KEYS) <= torch.arange(QUERIES)[:, None]
    padding = torch.arange(KEYS) >= 2  # left padding leaves nothing for the first two queries
    rule = ScoreRule(mask=causal & padding, sinks=sinks)
    weights = weights_of(rule, normal(H, QUERIES, KEYS))
    assert weights.isfinite().all()
    assert (weights[:, :2] == 0).all()
    assert (weights[:, 2:].sum(-1) > 0).all()
    q, k, v = normal(H, QUERIES, D_K), normal(H, KEYS, D_K), normal(H, KEYS, 13)
    output = attend(q, k, v, rule)
    assert output.isfinite().all()
    assert (output[:, :2] == 0).all()
    assert (output[:, 2:] != 0).all()


def test_a_bias_of_minus_infinity_is_a_mask_and_narrows_the_one_that_is_there(normal):
    raw, bias, hidden = normal(H, QUERIES, KEYS), normal(H, QUERIES, KEYS, seed=1), normal(QUERIES, KEYS) > 0
    hidden[2] = True
    rule = ScoreRule(bias=bias.masked_fill(hidden, float("-inf")))
    assert rule.bias.isfinite().all()
    assert torch.equal(rule.mask.expand(H, -1, -1), ~hidden.expand(H, -1, -1))
    assert torch.equal(weights_of(rule, raw), weights_of(ScoreRule(bias=bias, mask=~hidden), raw))
    assert (weights_of(rule, raw)[:, 2] == 0).all()
    mask, hidden = normal(QUERIES, KEYS, seed=2) > -0.5, normal(H, QUERIES, KEYS, seed=3) > 0
    rule = ScoreRule(bias=torch.zeros(H, QUERIES, KEYS).masked_fill(hidden, float("-inf")), mask=mask)
    assert torch.equal(rule.mask, mask & ~hidden)


def test_a_distance_bias_of_minus_infinity_is_a_mask(normal):
    table = torch.zeros(H, QUERIES + KEYS - 1)
    table[:, 0:7] = float("-inf")  # all keys up to two places ahead
    weights = weights_of(ScoreRule(distance_bias=table), normal(H, QUERIES, KEYS))
    allowed = torch.arange(KEYS) - torch.arange(QUERIES)[:, None] >= 3
    assert (weights[:, ~allowed] == 0).all()
    torch.testing.assert_close(weights.sum(-1), allowed.any(-1).float().expand(H, -1), atol=1e-6, rtol=0)


TABLES = {
    "mask (query, key)": lambda normal: {"mask": normal(QUERIES, KEYS) > 0},
    "mask (head, query, key)": lambda normal: {"mask": normal(H, QUERIES, KEYS) > 0},
    "mask (batch, head, query, key)": lambda normal: {"mask": normal(2, H, QUERIES, KEYS) > 0},
    "key padding": lambda normal: {"mask": normal(2, 1, 1, KEYS) > 0},
    "bias of a batch": lambda normal: {"bias": normal(2, 1, QUERIES, KEYS)},
    "all": lambda normal: {
        "mask": normal(2, 1, QUERIES, KEYS) > -1,
        "bias": normal(H, QUERIES, KEYS),
        "distance_bias": normal(H, QUERIES + KEYS - 1),
        "sinks": normal(H),
        "soft_cap": 2.0,
    },
}


@pytest.mark.parametrize(
    ("heads", "rows"), [(slice(None), slice(1, 4)), (slice(1, 2), [4, 0, 2]), (slice(0, 2), slice(-2, None))]
)
@pytest.mark.parametrize("tables", TABLES.values(), ids=TABLES)
def test_a_rule_for_some_heads_and_rows_is_that_part_of_the_whole(tables, rows, heads, normal):
    rule, raw = ScoreRule(**tables(normal)), normal(2, H, QUERIES, KEYS, seed=9)
    scaled, masked = laid_out(rule).logits(raw, D_K)
    part = rule.at(heads, rows, n_query=QUERIES, n_key=KEYS)
    cut_scaled, cut_masked = part.logits(raw[:, heads][:, :, rows], D_K)
    assert torch.equal(cut_scaled, scaled[:, heads][:, :, rows])
    assert torch.equal(cut_masked, masked[:, heads][:, :, rows])
    torch.testing.assert_close(
        part.weights(cut_masked), laid_out(rule).weights(masked)[:, heads][:, :, rows], atol=1e-6, rtol=0
    )


def test_one_item_of_a_batch_keeps_what_is_its_own(normal):
    mask, bias, sinks = normal(2, H, QUERIES, KEYS) > 0, normal(1, H, QUERIES, KEYS), normal(H)
    rule = ScoreRule(mask=mask, bias=bias, sinks=sinks, temperature=0.7)
    item = rule.item(1)
    assert torch.equal(item.mask, mask[1])
    assert torch.equal(item.bias, bias[0])
    assert torch.equal(item.sinks, sinks)
    assert item.temperature == 0.7


def test_combining_masks_hides_more(normal):
    one, other = normal(QUERIES, KEYS) > 0, normal(2, 1, QUERIES, KEYS, seed=1) > 0
    rule = ScoreRule(mask=one, scale=0.3)
    assert rule.hiding(None) is rule
    assert torch.equal(rule.hiding(other).mask, one & other)
    assert rule.hiding(other).scale == 0.3
    assert torch.equal(ScoreRule().hiding(other).mask, other)


# Refusals


NOT_NUMBERS = [
    (name, number)
    for name in ("scale", "soft_cap", "temperature")
    for number in ("1", True, 1j, torch.ones(2))
]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": 0}, "temperature 0 is out of range; 0.001 to 1,000,000 work."),
        ({"temperature": math.nan}, "temperature nan is out of range; 0.001 to 1,000,000 work."),
        ({"soft_cap": 0.0}, "soft_cap 0.0 is out of range; 0.001 to 1,000,000 work."),
        ({"scale": math.nan}, "scale nan is no finite number."),
        ({"scale": math.inf}, "scale inf is no finite number."),
        ({"scale": 10**400}, "scale has 1,329 bits, more than a float has."),
        (
            {"mask": torch.zeros(3, 3)},
            "The mask has dtype torch.float32; a mask is boolean, True where a query may look at a key. "
            "Numbers that are added to scores belong in ScoreRule(bias=...).",
        ),
        *(({name: number}, f"{name} is a number; got ") for name, number in NOT_NUMBERS),
        *(
            ({name: table}, f"{name} is a tensor, as torch.as_tensor makes it; got a ")
            for name in ("bias", "distance_bias", "mask", "sinks", "patched_weights")
            for table in ("x", np.zeros((3, 3)))
        ),
    ],
)
def test_values_that_make_no_sense_are_refused(fields, message, refused):
    assert str(refused(ScoreRule, **fields)).startswith(message)


@pytest.mark.parametrize("name", ["mask", "bias"])
@pytest.mark.parametrize("shape", [(90, 90), (70, 89)])
def test_a_table_of_other_sizes_is_refused_whole_and_in_blocks(name, shape, normal, refused, monkeypatch):
    """In blocks of rows a table with too many rows would be cut without an error."""
    q, k = normal(1, 70, 3), normal(1, 90, 3)
    table = normal(*shape)
    rule = ScoreRule(**{name: table > 0 if name == "mask" else table})
    message = (
        f"The {name} has shape {shape}; for 70 queries and 90 keys it ends in (70, 90), with 1 for an axis "
        f"along which it does not change."
    )
    for cells in (1 << 20, 1):
        monkeypatch.setattr(functional, "CELLS", cells)
        assert str(refused(attend, q, k, k, rule)) == message
    layer = LayerTrace({"q": q, "k": k, "v": k}, rule)
    assert str(refused(layer.weights, 0, rows=[0])) == message
    assert str(refused(attend, q, k, k, ScoreRule(distance_bias=normal(1, 13)))) == (
        "The distance_bias has shape (1, 13); for 70 queries and 90 keys it has 159 columns."
    )


def test_numbers_of_a_rule_are_kept_as_floats():
    rule = ScoreRule(scale=2**64, soft_cap=30, temperature=2)
    assert [type(n) for n in (rule.scale, rule.soft_cap, rule.temperature)] == [float] * 3
    assert (rule.scale, rule.soft_cap, rule.temperature) == (2**64, 30, 2)
    for name in ("scale", "soft_cap", "temperature"):
        assert getattr(ScoreRule(**{name: np.float32(2)}), name) == 2
