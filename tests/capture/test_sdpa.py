"""Calls of torch's own attention functions are shown untouched, and read as q, k, v and rule of one text."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mha_core.attention.functional import attend
from mha_core.capture import sdpa

H, L, D_K, D_V = 3, 7, 4, 5


def output(q, k, v, *, item: int = 0, batch: int | None = None, **options) -> tuple[torch.Tensor, object]:
    """The output of a read call's rule for its q, k and v, and what was read. (head, query, d_v)"""
    reader = sdpa.SdpaReader()
    read, _ = reader.attended(*reader.lead(batch, q, k, v), item, q, k, v, **options)
    assert read.q.shape[0] == read.k.shape[0] == read.v.shape[0] == 1
    return attend(read.q, read.k, read.v, read.rule)[0], read


def test_calls_with_shared_keys_are_read(normal):
    q, k, v = normal(1, 6, L, D_K), normal(1, 2, L, D_K, seed=1), normal(1, 2, L, D_V, seed=2)
    made, read = output(q, k, v, enable_gqa=True)
    assert (read.q.shape[1], read.k.shape[1]) == (6, 2)
    np.testing.assert_allclose(made, F.scaled_dot_product_attention(q, k, v, enable_gqa=True)[0], atol=1e-6)


def test_keys_given_once_for_all_heads(normal):
    q, k, v = normal(2, 6, L, D_K), normal(2, 1, L, D_K, seed=1), normal(1, 6, L, D_V, seed=2)
    made, _ = output(q, k, v, item=1)
    np.testing.assert_allclose(made, F.scaled_dot_product_attention(q, k, v)[1], atol=1e-6)


def test_a_call_without_heads_or_with_a_batch_of_one(normal):
    q = normal(L, D_K)
    for lead in ((), (1,)):
        made, _ = output(*(q.expand(*lead, L, D_K),) * 3, is_causal=True, scale=0.3)
        asked = F.scaled_dot_product_attention(q, q, q, is_causal=True, scale=0.3)
        np.testing.assert_allclose(made[0], asked, atol=1e-6)


MASKS = {
    "of all": lambda normal: normal(L, L) > -0.5,
    "of an item": lambda normal: normal(2, 1, L, L) > -0.5,
    "of a head": lambda normal: normal(1, H, L, L) > -0.5,
    "of keys": lambda normal: (normal(2, 1, 1, L) > -0.5) | (torch.arange(L) == 0),
    "added": lambda normal: normal(2, H, L, L),
    "added and −∞": lambda normal: normal(L, L).masked_fill(torch.ones(L, L).triu(1) > 0, -torch.inf),
    "the lowest number": lambda normal: torch.zeros(2, 1, L, L).masked_fill(
        torch.ones(L, L).triu(1) > 0, torch.finfo(torch.float32).min
    ),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_masks_of_every_shape_are_read(normal, mask):
    q, k, v = normal(2, H, L, D_K), normal(2, H, L, D_K, seed=1), normal(2, H, L, D_V, seed=2)
    mask = mask(normal)
    made, read = output(q, k, v, item=1, attn_mask=mask)
    hidden = torch.zeros(1, L, L) > 0 if read.rule.mask is None else ~read.rule.mask
    seen = ~hidden.expand(H, L, L).all(-1)  # a row with all hidden is torch's to define
    asked = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)[1]
    assert seen.any()
    np.testing.assert_allclose(made[seen], asked[seen], atol=1e-5)


def test_the_lowest_number_hides_unless_all_of_a_row_have_it(normal):
    q = normal(1, 1, L, D_K)
    lowest = torch.zeros(L, L).masked_fill(torch.ones(L, L).triu(1) > 0, torch.finfo(torch.float32).min)
    lowest[3] = torch.finfo(torch.float32).min
    _, read = output(q, q, q, attn_mask=lowest)
    allowed = read.rule.mask.reshape(L, L)
    assert not allowed[2, 3:].any()
    assert allowed[3].all()


def test_an_invalid_call_is_refused(refused, normal):
    q = normal(2, L, D_K)
    assert "It has 2 heads or texts" in str(refused(output, q, q, q))
    q = normal(2, H, L, D_K)
    assert str(refused(output, q, q, q, item=2)) == "The batch has items 0 to 1; item 2 was asked for."
    empty = q.to("meta")
    assert "have no numbers (device “meta”)" in str(refused(output, empty, empty, empty))


def test_heads_before_texts_and_one_axis_for_one_of_both(normal):
    q, k, v = normal(H, 2, L, D_K), normal(H, 2, L, D_K, seed=1), normal(H, 2, L, D_V, seed=2)
    mask = normal(1, 2, L, L) > -0.5
    seen = mask[0, 1].any(-1)
    made, _ = output(q, k, v, item=1, batch=2, attn_mask=mask)
    asked = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)[:, 1]
    np.testing.assert_allclose(made[:, seen], asked[:, seen], atol=1e-6)
    first = F.scaled_dot_product_attention(q[:, 0], k[:, 0], v[:, 0])
    for batch, expected in ((1, first), (H, first[2:])):
        made, _ = output(q[:, 0], k[:, 0], v[:, 0], item=2, batch=batch)
        np.testing.assert_allclose(made, expected, atol=1e-6)


def test_functions_are_shown_with_their_results_and_nothing_that_they_call(normal):
    x, seen = normal(2, L, 12), []
    module = nn.MultiheadAttention(12, H, batch_first=True)
    with sdpa.SdpaMode(lambda function, *rest: seen.append((function, rest[-1]))):
        plain = F.scaled_dot_product_attention(x, x, x)
        joined, _ = module(x, x, x, need_weights=False)
    assert [function for function, _ in seen] == [sdpa.SDPA, sdpa.FORWARD]
    assert seen[0][1] is plain
    assert seen[1][1][0].numel() == joined.numel()


def test_the_heads_of_a_module_are_reached_without_its_output(normal):
    x, calls = normal(L, 2, 12), []
    module = nn.MultiheadAttention(12, H)
    with sdpa.SdpaMode(lambda _, args, kwargs, result: calls.append((args, kwargs))):
        wanted, weights = module(x, x, x, average_attn_weights=False)
    [(args, kwargs)] = calls
    with pytest.raises(sdpa.HeadsReached) as reached:
        sdpa.until_heads(*args, **kwargs | {"need_weights": False})
    made, _ = output(*reached.value.args[:3], item=1)
    matrices = sdpa.projections(sdpa.SIGNATURE.bind(*args, **kwargs).arguments)
    joined = made.transpose(0, 1).flatten(1) @ matrices.w_o + matrices.b_o
    np.testing.assert_allclose(joined.detach(), wanted[:, 1].detach(), atol=1e-5)
    assert weights.shape == (2, H, L, L)
