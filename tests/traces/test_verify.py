"""The check against torch passes for every trace, and fails for a single wrong number."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core.attention import functional
from mha_core.traces import verify
from mha_core.traces.layer import LayerTrace
from mha_core.traces.verify import Check, against_torch, split_difference

REASON = "torch's function knows no soft cap and no sinks"


def test_every_trace_passes_and_the_two_views_of_its_split_do_not_differ(trace):
    for layer in trace.layers:
        found = against_torch(layer)
        assert (found.passed, found.reason) == (True, "")
        assert 0 <= found.difference <= 1e-5
        assert verify.split_difference(layer) == 0.0


def test_rules_made_by_hand_pass_or_say_why_they_cannot(rule, make_layer, known_by_weights):
    found = against_torch(make_layer(rule))
    if rule.soft_cap is not None or rule.sinks is not None:
        assert found == Check(None, reason=REASON)
        assert not found.passed
    else:
        assert found.passed
    nothing = mha.ScoreRule(mask=torch.zeros(7, 7, dtype=torch.bool))
    reason = "every row is fully masked, which torch does not define"
    assert against_torch(make_layer(nothing)) == Check(None, reason=reason)
    check = against_torch(known_by_weights.layers[0], rows=slice(0, 3))
    assert (check.difference, check.passed) == (None, False)
    assert "only the weights" in check.reason


def test_other_precisions_are_as_near_as_their_digits_allow(make_layer, normal):
    rule = mha.ScoreRule(bias=normal(6, 7, 7), temperature=1.7)
    assert against_torch(make_layer(rule, dtype=torch.float64)).difference <= 1e-12
    for dtype in (torch.float16, torch.bfloat16):
        assert against_torch(make_layer(dtype=dtype)).passed


def test_values_alone_may_be_in_half_precision(make_layer):
    """As in GPT-J and CodeGen, which rotate q and k in float32."""
    dtype = torch.bfloat16
    layer = make_layer()
    mixed = replace(layer, tensors=dict(layer.tensors) | {"v": layer.tensors["v"].to(dtype)})
    found = against_torch(mixed)
    assert found.passed
    assert 0 < found.difference <= verify.ROUNDING[dtype]


@pytest.mark.parametrize(
    ("shown", "cell", "error", "large"),
    [
        *((shown, (1, 4, 2), e, 1) for shown in ("weights", "output") for e in (1e-3, -1e-3, np.nan, np.inf)),
        ("weights", (0, 0, 6), 1e-3, 1),  # hidden by the mask
        ("weights", (1, 4, 2), 1e-3, 10_000),  # large values hide no wrong weight
    ],
)
def test_one_wrong_number_is_noticed(shown, cell, error, large, monkeypatch):
    layer = mha.trace("the old cat saw the new cat", h=3, d_model=15, mask="causal").layers[0]
    layer = replace(layer, tensors={**layer.tensors, "v": layer.tensors["v"] * large})
    assert against_torch(layer).passed
    true = getattr(LayerTrace, shown)

    def planted(self, *args, **kwargs):
        array = true(self, *args, **kwargs).copy()
        array[cell] += error
        return array

    monkeypatch.setattr(LayerTrace, shown, planted)
    found = against_torch(layer)
    assert not found.passed
    if np.isfinite(error) and large == 1:
        assert found.difference == pytest.approx(1e-3, abs=1e-5)


def test_the_rounding_of_large_scores_is_no_fault():
    """It is larger than for ordinary scores, and depends on the processor."""
    sizes = {"h": 6, "n_kv_heads": 3, "d_model": 4, "d_k": 4, "d_v": 2, "layers": 2}
    edits, found = [mha.edits.Scale(factor=300.0)], []
    for seed in range(8):
        trace = mha.trace("the old cat saw the new cat, and " * 4, **sizes, seed=seed, edits=edits)
        found.append(against_torch(trace.layers[1]))
    assert all(check.passed for check in found)
    assert 2e-5 < max(check.difference for check in found) < 1e-3


# The two views of the split


def test_both_views_of_the_split_agree_where_v_has_an_input_of_its_own(own_values, normal):
    own = own_values.layers[1]
    assert verify.split_difference(own) == 0.0
    # Values of a width that X does not have: only x_v can have been multiplied.
    tensors, matrices = {**own.tensors, "x_v": normal(5, 13)}, own.projections._replace(w_v=normal(13, 12))
    assert verify.split_difference(mha.LayerTrace(tensors, own.rule, matrices)) == 0.0


def test_the_split_of_a_layer_without_x_or_matrices_is_not_known(own_values):
    layer = own_values.layers[0]
    without_x = {name: tensor for name, tensor in layer.tensors.items() if name != "x"}
    for bare in (replace(layer, tensors=without_x), replace(layer, projections=mha.Projections())):
        assert verify.split_difference(bare) is None


def test_a_wrong_split_is_noticed(trace, monkeypatch):
    true = verify.project_per_head

    def swapped(x, weight, bias, n_heads):
        """Dimensions dealt out to the heads in turn, instead of in blocks."""
        deal = torch.arange(weight.shape[1]).reshape(-1, n_heads).T.flatten()
        return true(x, weight[:, deal], None if bias is None else bias[deal], n_heads)

    monkeypatch.setattr(verify, "project_per_head", swapped)
    for layer in trace.layers:
        if layer.n_heads > 1:
            assert verify.split_difference(layer) > 1e-2


@pytest.mark.parametrize(
    "rows", [0, 3, "", [], False, slice(0, 4, 2), slice(3, 3), slice(5, 2), slice(99, 100)]
)
def test_rows_that_would_not_be_those_compared_are_refused(rows, make_layer, refused):
    assert "row" in str(refused(against_torch, make_layer(mha.ScoreRule()), rows=rows))


def test_in_blocks_of_rows_it_is_the_same_and_each_is_looked_at(rule, make_layer, monkeypatch):
    layer = make_layer(rule)
    whole = against_torch(layer)
    monkeypatch.setattr(functional, "CELLS", 2 * layer.n_heads * layer.n_key)
    found = against_torch(layer)
    assert (found.passed, found.reason) == (whole.passed, whole.reason)
    if whole.difference is not None:
        assert found.difference == pytest.approx(whole.difference, abs=1e-6)
    true = LayerTrace.output
    for wrong in range(layer.n_query):
        calls = iter(range(layer.n_query))
        monkeypatch.setattr(
            LayerTrace, "output", lambda *a, calls=calls, wrong=wrong: true(*a) + (next(calls) == wrong // 2)
        )
        hidden = rule.mask is not None and not rule.mask[..., wrong // 2 * 2 : wrong // 2 * 2 + 2, :].any()
        assert against_torch(layer).passed == (hidden and whole.passed)
        monkeypatch.setattr(LayerTrace, "output", true)


def test_blocks_stay_within_the_limit_and_of_many_keys_the_outputs_are_compared(normal, monkeypatch):
    tensors = {"q": normal(2, 40, 4), "k": normal(2, 40, 4), "v": normal(2, 40, 3)}
    layer, sizes, queries, values = mha.LayerTrace(tensors, mha.ScoreRule()), [], [], []
    real = torch.nn.functional.scaled_dot_product_attention

    def asked(q, k, v, **named):
        sizes.append(q.shape[1] * q.shape[2] * k.shape[2])
        queries.append(q[0])
        values.append(v.shape[-1])
        return real(q, k, v, **named)

    monkeypatch.setattr("mha_core.traces.verify.F.scaled_dot_product_attention", asked)
    monkeypatch.setattr(functional, "CELLS", 2 * 40 * 16)
    assert against_torch(layer).passed
    assert sizes == [1280, 1280, 1280, 1280, 640, 640]  # outputs and weights of 16, 16 and 8 rows
    assert sorted(values) == [3] * 3 + [40] * 3
    assert torch.equal(torch.cat(queries[::2], 1), layer.tensors["q"])
    queries.clear()
    assert against_torch(layer, rows=slice(9, 31)).passed
    assert torch.equal(torch.cat(queries[::2], 1), layer.tensors["q"][:, 9:31])
    monkeypatch.setattr("mha_core.traces.verify.MAX_UNIT", 39)
    values.clear()
    assert against_torch(layer, rows=slice(3, 9)).passed
    assert values == [3]  # outputs alone


# Two texts: 7 tokens look at 11 others


def test_torch_agrees_about_two_texts(cross_trace, projected_cross):
    [projected] = projected_cross.layers
    for shown in (*cross_trace.layers, projected):
        assert against_torch(shown).passed
    assert against_torch(cross_trace.layers[0], rows=slice(2, 5)).passed
    assert split_difference(projected) < 1e-5
    bare = {name: tensor for name, tensor in projected.tensors.items() if name != "x_v"}
    assert split_difference(replace(projected, tensors=bare)) is None
