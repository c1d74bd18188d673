"""Attention with a softmax of its own is recorded exactly, or reported as not recorded."""

import math
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import mha_core as mha
from tests.sources.recorded import (
    D_K,
    TOKENS,
    D,
    Function,
    H,
    L,
    SelfAttention,
    assert_flowed,
    close,
    recorded,
    refusal,
)

CAUSAL = torch.ones(L, L, dtype=torch.bool).tril()


# Ways to write attention: functions of q, k and v to their weights, and values that are not v, of two texts


def relative(q, k, v):
    table = torch.arange(1.0, 14.0)[torch.arange(L) - torch.arange(L)[:, None] + 6]
    slopes = torch.tensor([[0.5, 0.25, 0.125], [1.0, 2.0, 3.0]])[:, :, None, None]  # others in each text
    return torch.softmax(q @ k.mT / math.sqrt(D_K) + (slopes * table).to(q), -1), v


def padded(q, k, v):
    there = torch.arange(L) < torch.tensor([[7], [4]])
    return torch.softmax((q @ k.mT).masked_fill(~there[:, None, None], float("-inf")), -1), v


def upcast(q, k, v):
    scores = torch.matmul(q, k.transpose(2, 3)) * D_K**-0.5
    return F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype), v


def same_keys(q, k, v):
    """All heads and texts share them."""
    k = k[:1, :1].expand(2, H, -1, -1)
    return torch.softmax(q @ k.mT, -1), k


def exponentials(q, k, v):
    scores = (q @ k.mT).masked_fill(~CAUSAL, -torch.inf)
    weights = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
    return weights / weights.sum(dim=-1, keepdim=True), v


def exponentials_hidden_afterwards(q, k, v):
    weights = (q @ k.mT / 2).exp() * CAUSAL
    return weights / weights.sum(-1)[..., None], v


def stable_by_one_number(q, k, v):
    scores = q @ k.mT
    scores -= scores.max()
    weights = scores.exp_()
    weights /= weights.sum(-1, keepdim=True)
    return weights, v


def heads_last(q, k, v):
    scores = torch.einsum("bhqd,bhkd->bqkh", q, k)
    scores = scores.masked_fill(~CAUSAL[None, :, :, None], -torch.inf)
    return scores.softmax(dim=2).permute(0, 3, 1, 2), v


def sink(q, k, v):
    column = torch.tensor([0.5, -1.0, 2.0]).to(q).view(1, H, 1, 1).expand(len(q), -1, L, 1)
    scores = torch.cat([(q @ k.mT).masked_fill(~CAUSAL, -torch.inf), column], dim=-1)
    scores = scores - scores.max(dim=-1, keepdim=True).values
    return F.softmax(scores, dim=-1)[..., :-1], v


def factor_for_each_head(q, k, v):
    factor = torch.tensor([0.5, 1.5, 2.0]).to(q).view(H, 1, 1)
    bias = torch.randn(L, L, generator=torch.Generator().manual_seed(5)).to(q)
    return torch.softmax((q @ k.mT + bias) * factor, -1), v


def values_first(q, k, v):
    """As over pixels: (width, token) times (token, token)."""
    weights = torch.softmax(q @ k.mT, -1)
    return weights, v, (v.mT @ weights.permute(0, 1, 3, 2)).mT


def values_by_einsum(q, k, v):
    weights = (torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(D_K)).softmax(dim=-1)
    return weights, v, torch.einsum("bhij,bhjd->bhid", weights, v)


def einsum_of_keys_first(q, k, v):
    weights = torch.einsum("bnjd,bnid->bnij", (k, q)).softmax(dim=-1)
    return weights, v, torch.einsum("bnjd,bnij->bnid", v, weights)


def overwritten_by_yes_and_no(q, k, v):
    scores, lengths = q @ k.mT / D_K**0.5, torch.tensor([4, 6])
    scores[torch.arange(L) >= lengths[:, None, None, None].expand(scores.shape)] = -torch.inf
    return torch.softmax(scores, -1), v


def overwritten_row_by_row(q, k, v):
    """Masks what is beyond the valid length, as in "Dive into Deep Learning"."""
    scores, lengths = q @ k.mT / D_K**0.5, torch.tensor([4, 6])
    rows = scores.reshape(-1, L)
    rows[~(torch.arange(L)[None] < lengths.repeat_interleave(H * L)[:, None])] = -1e6
    return torch.softmax(rows.reshape(scores.shape), -1), v


def left_padding(q, k, v):
    """Rows that see nothing are even: the lowest number everywhere leaves no difference."""
    sees = CAUSAL & (torch.arange(L) >= torch.tensor([[0], [3]]))[:, None, None]
    added = torch.zeros(sees.shape, dtype=q.dtype).masked_fill(~sees, torch.finfo(q.dtype).min)
    wide = torch.promote_types(q.dtype, torch.float32)
    return torch.softmax(q @ k.mT / D_K**0.5 + added, dim=-1, dtype=wide).to(q.dtype), v


def guarded(guard, fill=-torch.inf, there=5):
    """Something behind the softmax for the queries that see nothing, of which one text has some."""

    def way(q, k, v):
        sees = CAUSAL & (torch.arange(L) < torch.tensor([[7], [there]]))[:, None, :, None]
        weights = torch.softmax((q @ k.mT).masked_fill(~sees, fill), -1)
        return guard(weights, sees.expand_as(weights)), v

    return way


def set_to_0(weights, sees):
    weights[weights.isnan()] = 0
    return weights


def row_hidden(hide):
    """A query of a text that sees nothing: NaN, or even weights."""

    def way(q, k, v):
        hidden = torch.zeros(2, 1, L, 1, dtype=torch.bool)
        hidden[0, :, 4] = hidden[1, :, 2] = True
        return torch.softmax(hide(q @ k.mT, hidden.expand(2, H, L, L)), -1), v

    return way


WINDOWS = torch.zeros(2, L, L)  # of Swin: a mask of its own for each
WINDOWS[1, :3, 3:] = WINDOWS[1, 3:, :3] = -100.0


def set_far(scores, hidden):
    scores[hidden] = -1e9
    return scores


WAYS = {
    "guarded by where": guarded(lambda a, _: torch.where(a.isnan(), torch.zeros_like(a), a)),
    "guarded by a cell": guarded(set_to_0),
    "guarded by nan_to_num and a mask": guarded(lambda a, sees: a.nan_to_num() * sees),
    "filled in place": guarded(lambda a, sees: a.masked_fill_(~sees, 0), fill=-1e9),
    "renormalised by its mask": guarded(lambda a, sees: a * sees / (a * sees).sum(-1, keepdim=True), there=7),
    "hidden behind the softmax": lambda q, k, v: (
        (a := torch.softmax(q @ k.mT, -1) * CAUSAL) / a.sum(-1, keepdim=True)
    ),
    "a row filled": row_hidden(lambda scores, hidden: scores.masked_fill(hidden, -1e4)),
    "a row filled in place": row_hidden(lambda scores, hidden: scores.masked_fill_(hidden, -1e9)),
    "a row chosen": row_hidden(lambda scores, hidden: torch.where(hidden, -1e9, scores)),
    "a row set": row_hidden(set_far),
    "a row of the other text is NaN": row_hidden(
        lambda scores, hidden: scores.masked_fill(
            hidden & torch.tensor([True, False]).view(2, 1, 1, 1), -torch.inf
        )
    ),
    "in windows": lambda q, k, v: torch.softmax(
        ((q @ k.mT).view(1, 2, H, L, L) + WINDOWS.unsqueeze(1).to(q)).view(2, H, L, L), -1
    ),
    "times ones": lambda q, k, v: torch.softmax(q @ k.mT * torch.ones(H, 1, 1).to(q), -1),
    "divided by equal numbers": lambda q, k, v: torch.softmax(q @ k.mT / torch.full((1, L), 2.0).to(q), -1),
    "relative": relative,
    "padded": padded,
    "by words": lambda q, k, v: torch.softmax(q @ k.mT + torch.sin(v @ q.mT), -1),
    "upcast": upcast,
    "capped": lambda q, k, v: torch.softmax(4.0 * torch.tanh(q @ k.mT / 4.0), -1),
    "same keys": same_keys,
    "exponentials": exponentials,
    "exponentials hidden afterwards": exponentials_hidden_afterwards,
    "stable by one number": stable_by_one_number,
    "logarithm": lambda q, k, v: F.log_softmax(q @ k.mT * 0.3, dim=-1).exp(),
    "special": lambda q, k, v: torch.special.softmax(q @ k.mT, -1),
    # Keys before queries: each column sums to 1.
    "columns": lambda q, k, v: torch.softmax((k @ q.mT).masked_fill(~CAUSAL.mT, -1e9), dim=-2).transpose(
        -2, -1
    ),
    "transposed": lambda q, k, v: torch.softmax((k @ q.mT).transpose(-1, -2) / 3, -1),
    "heads last": heads_last,
    "sink": sink,
    "factor for each head": factor_for_each_head,
    "values first": values_first,
    "values by einsum": values_by_einsum,
    "einsum of tokens first": lambda q, k, v: torch.einsum(
        "ibnd,jbnd->bnij", q.permute(2, 0, 1, 3), k.permute(2, 0, 1, 3)
    ).softmax(-1),
    "einsum of keys first": einsum_of_keys_first,
    "einsum with dots": lambda q, k, v: torch.einsum("...id,...jd->...ij", q, k).softmax(-1),
    "overwritten by yes and no": overwritten_by_yes_and_no,
    "overwritten row by row": overwritten_row_by_row,
    "left padding": left_padding,
}


def test_every_way_to_a_softmax_is_followed(subtests):
    for name, way in WAYS.items():
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            q, k, v = torch.randn(3, 2, H, L, D_K).to(dtype)
            seen = []

            def model(way=way, given=(q, k, v), seen=seen):
                made = way(*given)
                weights, values, *output = made if isinstance(made, tuple) else (made, given[2])
                seen[:] = weights, values
                return output[0] if output else weights @ values

            with subtests.test(name, dtype=dtype):
                trace = recorded(model, item=1, batch=2)
                assert trace.source.skipped == ()
                [layer] = trace.layers
                if name != "factor for each head":  # which is then one of its queries
                    np.testing.assert_array_equal(layer.q, q[1].float() if dtype.itemsize == 2 else q[1])
                weights, values = (part[1].double() for part in seen)
                atol = 1e-6 if dtype.itemsize > 2 else 0.02
                close(layer.weights(), weights, atol)
                close(layer.output(), weights @ values, 10 * atol)


@pytest.mark.parametrize("unbatched", [True, False])
def test_one_text_without_an_axis_for_it(unbatched):
    q = torch.randn(L, D_K) if unbatched else torch.randn(1, L, D_K)
    call = lambda: torch.softmax(q @ q.mT, -1) @ q  # noqa: E731
    assert_flowed(recorded(call), call)


def test_heads_of_one_text_that_share_a_key():
    q, k = torch.randn(2, 1, L, D_K), torch.randn(1, 1, L, D_K).expand(2, 1, -1, -1)
    [layer] = recorded(lambda: torch.softmax(q @ k.mT, -1) @ k, item=1, batch=2).layers
    close(layer.weights(), torch.softmax(q @ k.mT, -1)[1])


def test_eager_layers_and_torchs_calls_are_in_order():
    model, x = nn.Sequential(*(SelfAttention(fused) for fused in (False, True, False))), torch.randn(1, L, D)
    trace = recorded(model, x)
    assert [layer.about.by_hand for layer in trace.layers] == [True, False, True]
    assert_flowed(trace, model, x)


# What is not followed


def one_more(q, k, v):
    """One more in the sum: a sink at zero that has no column."""
    weights = (q @ k.mT).exp()
    return (weights / (1 + weights.sum(-1, keepdim=True))) @ v


def talking(q, k, v):
    mixed = torch.einsum("bhij,hg->bgij", q @ k.mT, torch.eye(H) + 0.1)
    return torch.softmax(mixed, -1) @ v


def divided_afterwards(q, k, v):
    weights = (q @ k.mT).exp()
    return (weights @ v) / weights.sum(-1, keepdim=True)


def in_blocks(q, k, v):
    """A few keys at a time, as FlashAttention does."""
    output, total = torch.zeros_like(v), torch.zeros(1, H, L, 1)
    for keys, values in zip(k.split(3, dim=2), v.split(3, dim=2), strict=True):
        weights = (q @ keys.mT).exp()
        output, total = output + weights @ values, total + weights.sum(-1, keepdim=True)
    return output / total


def sharpened(q, k, v):
    weights = torch.softmax(q @ k.mT, -1)
    return weights / weights.max() @ v


def changed_where_torch_does_not_see(q, k, v):
    weights = torch.softmax(q @ k.mT, -1)
    weights.data.mul_(0.5)
    return weights @ v


def column_set(q, k, v):
    scores = q @ k.mT
    scores[..., 0] = 0.5
    return torch.softmax(scores, -1) @ v


def gated(q, k, v):
    """Two softmaxes mixed by a gate, over the tokens without the first one, in the manner of ConViT."""
    q, k, v, places = q[:, :, 1:], k[:, :, 1:], v[:, :, 1:], torch.ones(6, 6).tril()
    weights = 0.6 * torch.softmax(q @ k.mT, -1) + 0.4 * torch.softmax(places, -1)
    return weights @ v


def outlook(q, k, v):
    """Weights without queries and keys, for nine cells around a place, as in VOLO."""
    weights = q.sum(1).repeat_interleave(9, -1)[..., None, :9].expand(-1, -1, 9, 9).softmax(-1)
    return weights @ v.sum(1)[:, :, None].expand(-1, -1, 9, -1)


def inverse(q, k, v):
    """Weights times the inverse of others, as where Nyströmformer has as many landmarks as tokens."""
    weights = torch.softmax(q @ k.mT, -1)
    return weights @ (L * torch.eye(L) - weights @ weights) @ v


def looked_at(q, k, v):
    weights = torch.softmax(q @ k.mT, -1)
    assert weights.dtype == weights.isnan().to(weights.dtype).dtype, repr(weights)
    assert weights.mean(1).numel() > weights.topk(2).values.numel()
    return weights.roll(1, -1) @ v


OF_NODE, OF_NEIGHBOUR = (nn.Parameter(torch.ones(D_K, 1)) for _ in range(2))


def graph(q, k, v):
    """As in a graph attention network: a number for each query and one for each key are added."""
    return torch.softmax(F.leaky_relu(q @ OF_NODE + (k @ OF_NEIGHBOUR).mT), -1) @ v


def capped(scores, cap: float):
    return (scores / cap).tanh() * cap


with warnings.catch_warnings(action="ignore"):  # torch's, about itself
    SCRIPTED = torch.jit.script(capped)
UNFOLLOWED = {
    "own kernel": (
        lambda q, k, v: torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)[0],
        "calls the operator _scaled_dot_product_flash_attention_for_cpu itself",
    ),
    "operator": (
        lambda q, k, v: torch.ops.aten.scaled_dot_product_attention(q, k, v),
        "calls the operator scaled_dot_product_attention itself",
    ),
    "sigmoids": (lambda q, k, v: torch.sigmoid(q @ k.mT) @ v, "went through sigmoid"),
    "no softmax": (lambda q, k, v: ((q @ k.mT) * CAUSAL) @ v, "went through no softmax"),
    "one more": (one_more, "scores that went through div"),
    "over queries": (lambda q, k, v: torch.softmax(q @ k.mT, dim=-2) @ v, "it sums to 1 over the queries"),
    "over heads": (lambda q, k, v: torch.softmax(q @ k.mT, dim=1) @ v, "it sums to 1 over another axis"),
    "talking": (talking, "7 × 7 tokens was not followed: its weights went through matmul"),
    # Additive attention: there is no product of queries and keys.
    "no product": (
        lambda q, k, v: torch.softmax(torch.tanh(q[..., :, None, :] + k[..., None, :, :]).sum(-1), -1) @ v,
        "no product of queries and keys",
    ),
    "divided afterwards": (divided_afterwards, "exponentials of scores that are not divided by their sum"),
    "in blocks": (in_blocks, "exponentials of scores that are not divided by their sum. (3 times)"),
    "many at once": (
        lambda q, k, v: torch.vmap(lambda q, k, v: torch.softmax(q @ k.mT, -1) @ v)(q, k, v),
        "of torch.vmap",
    ),
    "times another": (
        lambda q, k, v: (a := torch.softmax(q @ k.mT, -1)) * torch.full_like(a, 0.9) @ v,
        "its weights went through mul",
    ),
    "sharpened": (sharpened, "its weights went through div"),
    "changed where torch does not see": (changed_where_torch_does_not_see, "was not followed"),
    "column set": (column_set, "its scores went through setitem"),
    "looked at": (looked_at, "its weights went through roll"),
    "graph": (graph, "7 × 7 tokens was not followed: its scores went through add"),
    "gated": (gated, "attention over 6 × 6 was not followed: its weights went through mul"),
    "outlook": (
        outlook,
        "attention over 9 × 9 was not followed: its input is no product of queries and keys",
    ),
    "inverse": (inverse, "its weights are multiplied with weights"),
    # As x-transformers caps its scores.
    "scripted": (
        lambda q, k, v: torch.softmax(SCRIPTED(q @ k.mT, 3.0), -1) @ v,
        "torch.jit.script (with PYTORCH_JIT=0 in the environment these are shown)",
    ),
    "one axis": (
        lambda q, k, v: torch.softmax(q[0] @ k[0].mT, -1) @ v[0],
        "3 heads or texts, and it cannot be told",
    ),
}


def test_operations_not_followed_are_named_with_their_place(subtests):
    for name, (way, words) in UNFOLLOWED.items():
        q, k, v = torch.randn(3, 1, H, L, D_K)
        with subtests.test(name):
            call = lambda *given, way=way: (F.scaled_dot_product_attention(*given), way(*given))  # noqa: E731
            trace = recorded(call, q, k, v)
            assert len(trace.layers) == 1
            skipped = trace.source.skipped[0]
            assert words in skipped
            place = int(skipped.partition("test_recorder_eager.py:")[2].partition(":")[0])
            assert 0 <= place - way.__code__.co_firstlineno < 6
        if name == "sharpened":
            with subtests.test("alone"):
                assert words in refusal(way, q, k, v)


USED_AGAIN = {
    "other values": lambda a, v: a @ v + a @ v.flip(-1),
    "values beside": lambda a, v: torch.cat([a @ v, a @ v.exp()], dim=-1),
    "a table": lambda a, v: a @ v + a @ torch.ones(H, L, D_K),
    "einsum": lambda a, v: a @ v + torch.einsum("bhij,bhjd->bhid", a, v * 2),
    "relative": lambda a, v: a @ v + torch.einsum("bhij,ijd->bhid", a, torch.ones(L, L, D_K)),
    "a view": lambda a, v: a @ v + (a.unsqueeze(-2) @ v.unsqueeze(-3))[..., 0, :],
    "their mean": lambda a, v: a @ v + a.mean(1, keepdim=True) @ v,
    "places": lambda a, v: (a @ v) + (a @ torch.arange(7.0))[..., None],
}


def test_one_softmax_is_one_layer_and_a_second_use_is_named(subtests):
    q, k, v = torch.randn(3, 1, H, L, D_K)
    for name, use in USED_AGAIN.items():
        with subtests.test(name):
            trace = recorded(lambda q, use=use: use(torch.softmax(q @ k.mT, -1), v), q)
            [layer] = trace.layers
            close(layer.weights(), torch.softmax(q @ k.mT, -1)[0])
            close(layer.output(), (torch.softmax(q @ k.mT, -1) @ v)[0])
            [said] = trace.source.skipped
            assert "its weights are multiplied with further tensors" in said


def test_a_classifier_or_router_is_not_attention():
    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.gate = SelfAttention(fused=False), nn.Linear(D, 4)
            self.up = nn.Parameter(torch.randn(D, L))

        def forward(self, x):
            x = self.attention(x)
            y = torch.sigmoid(x @ self.up) @ self.up.T
            return (y * self.gate(x).softmax(-1).sum()).log_softmax(-1)

    assert recorded(Mixture(), torch.randn(1, L, D)).source.skipped == ()


def of_no_tokens(way, fused):
    """Seven keys that are channels, as in XCiT, or mixtures of the seven tokens, as in Linformer."""

    def forward(qkv, mix, places, x):
        q, k, v = qkv(x).chunk(3, dim=-1)
        if way == "channels":
            q, k, v = F.normalize(q.mT, dim=-1), F.normalize(k.mT, dim=-1), v.mT
        elif way == "by a layer":
            k, v = (mix(part.mT).mT for part in (k, v))
        elif way == "by a matrix":
            k, v = (torch.einsum("bnd,nk->bkd", part, places.weight) for part in (k, v))
        q, k, v = q[:, None], k[:, None], v[:, None]
        heads = F.scaled_dot_product_attention(q, k, v) if fused else torch.softmax(q @ k.mT, -1) @ v
        return heads[:, 0]

    return Function(forward, nn.Linear(D, 3 * L), nn.Linear(L, L), nn.Embedding(L, L))


@pytest.mark.parametrize("fused", [True, False])
def test_axes_that_are_not_tokens_have_no_labels_of_tokens(fused):
    for way in ("channels", "by a layer", "by a matrix", "tokens"):
        trace = recorded(nn.Sequential(SelfAttention(), of_no_tokens(way, fused)), torch.randn(1, L, D))
        assert len(trace.layers) == 1 + (way == "tokens")
        named = "its keys are no tokens: they are channels, or mixtures of all tokens"
        assert (named in " ".join(trace.source.skipped)) == (way != "tokens")


# What recording leaves alone


@pytest.mark.parametrize("fused", [True, False])
def test_with_dropout_the_weights_are_those_before_it(fused):
    model, x = nn.Sequential(SelfAttention(fused, 0.5), SelfAttention(fused, 0.25)), torch.randn(2, L, D)
    with mha.record(tokens=TOKENS, item=1) as rec:
        torch.manual_seed(3)
        output = model(x)
    torch.manual_seed(3)
    assert torch.equal(output, model(x))  # recording draws no random numbers
    assert [layer.about.dropout for layer in rec.trace.layers] == [0.5, 0.25]
    assert rec.trace.source.skipped == ()
    first = nn.Sequential(model[0])
    trace = recorded(first.eval(), x, item=1)
    close(rec.trace.layers[0].weights(), trace.layers[0].weights())
    np.testing.assert_allclose(rec.trace.layers[1].weights().sum(-1), 1, atol=1e-6)
