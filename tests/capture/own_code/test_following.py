"""Attention in a module's own code is followed where it is understood, and left alone elsewhere."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mha_core.capture.collector import Collector, watch
from mha_core.capture.own_code import following
from mha_core.capture.own_code.scores import ROWS

H, L, D = 3, 7, 5  # heads, tokens, width of a head
CAUSAL = torch.ones(L, L, dtype=torch.bool).tril()
FINITE = torch.finfo(torch.float32).min
FADED = torch.zeros(L, L).masked_fill(~CAUSAL, FINITE)
SLOPES = -torch.arange(1.0, H + 1)[:, None, None] * (
    L - 1 - torch.arange(float(L))
)  # as in Bloom: keys alone
TABLE = torch.randn(H, 2 * L - 1, generator=torch.Generator().manual_seed(5))
T5 = TABLE[:, torch.arange(L) - torch.arange(L)[:, None] + L - 1]
FREE = torch.randn(1, H, L, L, generator=torch.Generator().manual_seed(6))


def draw() -> torch.Tensor:
    return torch.randn(3, 1, H, L, D, generator=torch.Generator().manual_seed(3))


def plain(q, k, v):
    weights = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(D)
    return F.softmax(weights, dim=-1), v


def scaled_before(q, k, v):
    q = (q.transpose(1, 2) * D**-0.5).reshape(1, L, H * D).view(L, H, D).transpose(0, 1)
    k, v = k.reshape(H, L, D), v.reshape(H, L, D)
    scores = torch.bmm(q, k.transpose(1, 2))
    scores = scores.view(1, H, L, L) + FADED
    scores = torch.max(scores, torch.full((), FINITE))
    weights = F.softmax(scores.view(H, L, L), dim=-1)
    return F.dropout(weights.view(1, H, L, L).view(H, L, L), p=0.1, training=False), v


def bloom(q, k, v):
    q, k, v = (part.reshape(H, L, D) for part in (q, k, v))
    scores = SLOPES.baddbmm(batch1=q, batch2=k.mT, beta=1.0, alpha=0.3)
    scores = scores.view(1, H, L, L) + FADED
    return F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype).view(H, L, L), v


def in_place(q, k, v):
    scores = q @ k.mT
    scores /= 2.0
    scores += FREE
    scores *= 0.5
    scores.masked_fill_(~CAUSAL, FINITE)
    return nn.Softmax(dim=-1)(scores.float()).type_as(scores), v


def where(q, k, v):
    scores = torch.where(CAUSAL, q @ k.mT, torch.tensor(FINITE))
    return (scores - T5).softmax(-1), v


def gpt(q, k, v):
    """By a table of ones and zeros, and ten thousand less."""
    b = CAUSAL.float()[None, None]
    return F.softmax((q @ k.mT) / math.sqrt(D) * b + -1e4 * (1 - b), dim=-1), v


def two_steps(q, k, v):
    """The softmax as in Reformer."""
    scores = q @ k.mT
    return torch.exp(scores - torch.logsumexp(scores, dim=-1, keepdim=True)), v


def by_names(q, k, v):
    scores = torch.matmul(input=q, other=k.mT)
    scores = torch.mul(input=scores, other=0.5).where(CAUSAL, torch.tensor(float("-inf")))
    return F.softmax(input=scores, dim=-1), v


def masked_by_name(q, k, v):
    scores = torch.baddbmm(input=FREE[0], batch1=q[0], batch2=k[0].mT, alpha=0.3).unsqueeze(0)
    return torch.softmax(scores.masked_fill(mask=~CAUSAL, value=-1e9), dim=-1), v


OWN = {
    "plain": plain,
    "scaled before": scaled_before,
    "keys scaled before": lambda q, k, v: torch.softmax(q @ (k.mT / torch.tensor(3.0)), -1),
    "bloom": bloom,
    "in place": in_place,
    "where": where,
    "gpt": gpt,
    "capped": lambda q, k, v: F.softmax(torch.tanh(q @ k.mT * 0.7 / 3.0) * 3.0 + FADED, dim=-1),
    "added then scaled": lambda q, k, v: F.softmax((FADED + q @ k.mT + T5) / 4.0, dim=-1),
    # Content and place, each its own product, as in DeBERTa or LiLT.
    "two products": lambda q, k, v: F.softmax(q @ k.mT * 0.4 + (q.flip(-1) @ k.mT) / 2, dim=-1),
    "two steps": two_steps,
    "arguments by name": by_names,
    "a mask by name": masked_by_name,
}


class Own(nn.Module):
    """A module that computes attention with a function of q, k and v, and knows nothing of us."""

    def __init__(self, way):
        super().__init__()
        self.way, self.inner = way, nn.ModuleList()

    def forward(self, q, k, v):
        made = self.way(q, k, v)
        weights, v = made if isinstance(made, tuple) else (made, v)
        return weights, weights @ v


def followed(way, *, every_row: bool = True):
    """The reported calls, the computed weights and outputs of heads, and the watcher."""
    module = Own(way)
    q, k, v = draw()
    collector = Collector(watch(module))
    mode = following.CollectingMode(collector, 1e-5, every_row=every_row)
    with torch.no_grad(), collector, mode as seen:
        weights, output = module(q, k, v)
    return collector.calls, weights.reshape(-1, L, L), output.reshape(-1, L, D), seen


def test_every_way_to_write_attention_is_followed(subtests):
    for name, way in OWN.items():
        with subtests.test(name):
            [call], weights, output, seen = followed(way)
            for ours, given in zip((call.q, call.k, call.v), draw(), strict=True):
                torch.testing.assert_close(ours, given)
            torch.testing.assert_close(call.weights()[0], weights)
            assert np.abs(call.layer("self", {}).output() - output.numpy()).max() < 1e-6
            assert weights.std() > 0.05
            assert seen.softmaxes == {(L, L): 1}
            assert seen.gap < 1e-6


def test_each_finding_is_in_its_field_of_the_rule():
    def rule(way):
        return followed(OWN[way])[0][0].rule

    assert rule("plain").scale == pytest.approx(D**-0.5)
    assert rule("plain").tensors() == {}
    assert rule("scaled before").scale == pytest.approx(D**-0.5)
    assert torch.equal(rule("scaled before").mask[0, 0], CAUSAL)
    assert rule("scaled before").bias is None
    assert rule("keys scaled before").scale == pytest.approx(1 / 3)
    assert rule("bloom").bias.shape == (1, H, 1, L)
    assert rule("bloom").mask.shape == (1, 1, L, L)
    assert rule("in place").scale == pytest.approx(0.25)
    torch.testing.assert_close(rule("in place").bias, FREE * 0.5)
    torch.testing.assert_close(rule("where").distance_bias, -TABLE)
    assert torch.equal(rule("where").mask[0, 0], CAUSAL)
    assert torch.equal(rule("gpt").mask[0, 0], CAUSAL)
    assert rule("gpt").bias is None
    assert rule("capped").soft_cap == pytest.approx(3.0)
    assert rule("capped").scale == pytest.approx(0.7)
    torch.testing.assert_close(rule("added then scaled").distance_bias, TABLE / 4)
    assert rule("two products").scale == pytest.approx(0.4)
    assert rule("two products").bias.shape == (1, H, L, L)


# What is not understood.


def talking(q, k, v):
    """Heads that mix their scores."""
    mixed = (q @ k.mT).permute(0, 2, 3, 1) @ torch.tensor([[1.0, 0.2, 0], [0, 1, 0.3], [0.1, 0, 1]])
    return F.softmax(mixed.permute(0, 3, 1, 2), dim=-1), v


def thinned(q, k, v):
    weights = F.softmax(q @ k.mT, dim=-1)
    return weights * (weights > 0.1), v


def behind_our_back(q, k, v):
    scores = q @ k.mT
    scores.data.add_(FREE)
    return F.softmax(scores, dim=-1), v


def keys_changed(q, k, v):
    weights = F.softmax(q @ k.mT, dim=-1)
    k.mul_(2)
    return weights, v


UNSUPPORTED = {
    "talking": talking,
    "times a table": lambda q, k, v: F.softmax(q @ k.mT * FREE, dim=-1),
    "thinned": thinned,
    "behind our back": behind_our_back,
    "keys changed": keys_changed,
    "random drops": lambda q, k, v: F.dropout(F.softmax(q @ k.mT, dim=-1), 0.5, training=True),
    "gated": lambda q, k, v: F.softmax(q @ k.mT * (FREE > 0), dim=-1),
}


def test_unsupported_code_is_not_shown(subtests):
    for name, way in UNSUPPORTED.items():
        with subtests.test(name):
            calls, _, _, seen = followed(way)
            assert calls == []
            assert sum(seen.softmaxes.values()) == 1  # and it is known that there was something


# The same where only some rows are compared, and it happens in another one.
ROW = torch.arange(L)[:, None] == 1


def row_set(q, k, v):
    """In place, by an operation that is not followed."""
    scores = q @ k.mT
    scores[..., 1, :] = 0.5
    return F.softmax(scores, dim=-1), v


def row_set_in_a_view(q, k, v):
    scores = (q @ k.mT).view(H, L, L)
    scores.view(1, H, L, L).select(-2, 1).mul_(0.5)
    return F.softmax(scores, dim=-1), v


ROWS_CHANGED = {
    "gated row": lambda q, k, v: F.softmax(q @ k.mT * torch.where(ROW, FREE > 0, True), dim=-1),
    "zeroed row": lambda q, k, v: F.softmax(q @ k.mT, dim=-1).masked_fill(ROW & (FREE < 0), 0.0),
    "row set": row_set,
    "row set in a view": row_set_in_a_view,
}


def test_differences_in_other_rows_are_not_missed(subtests):
    """Few rows are compared, and what happens in another one is found all the same."""
    assert ROWS * 2 < L
    assert len(followed(OWN["plain"], every_row=False)[0]) == 1
    for name, way in {**ROWS_CHANGED, "behind our back": behind_our_back}.items():
        with subtests.test(name):
            assert followed(way, every_row=False)[0] == []


@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
def test_an_unusual_call_is_not_an_internal_error():
    """Forms of the operations that are followed, of which none is attention as we read it."""
    x, m = torch.randn(2, 3, 3), torch.randn(3, 3)
    equations = [
        ("bij,jk", x, m),
        ("...ij,...jk->...ik", x, x),
        ("bij->bji", x),
        ("bii,ij->bj", x, m),
        ("bij,bjk->bi", x, x),
        ("bij,jk,kl->bil", x, m, m),
        ("bij,jk->bik", [x, m]),
    ]
    with following.EagerMode(lambda *_: None, every_row=True) as seen:
        torch.einsum(x, [0, 1, 2], m, [2, 3], [0, 1, 3])
        for equation, *ends in equations:
            torch.einsum(equation, *ends)
        scores = x @ x.mT
        F.softmax(scores)
        torch.where(scores > 0)
        torch.where(scores > 0, scores, 0.0)
        torch.add(scores, scores, alpha=2)
        scores.div(2.0, rounding_mode="floor")
        scores.max(-1)
        scores.clamp(min=0.0)
        scores.double()
        scores.mul(torch.inf)
        scores.mul(0.0)
        scores.sub(torch.tensor(1j))
        torch.softmax(torch.tanh(scores) * 1e9, -1) @ x  # no soft cap that a rule takes
        F.dropout(scores, 0.5, True, True)
        torch.softmax(scores, -1) @ torch.randn(5, 2, 3, 3)
        torch.matmul(m, m[0])
        torch.mm(m.to_sparse(), m)
        torch.logsumexp(scores, (1, 2))
        with torch.device("meta"):
            torch.softmax(torch.empty(2, 3, 3) @ torch.empty(2, 3, 3), -1) @ torch.empty(2, 3, 3)
    assert seen.error is None


def test_an_internal_error_is_reported_and_the_model_unchanged(monkeypatch):
    def broken(*args, **kwargs):
        raise IndexError("ours")

    monkeypatch.setattr(following, "followed_attention", broken)
    calls, weights, _, seen = followed(OWN["plain"])
    assert calls == []
    assert weights.shape[-2:] == (L, L)
    with pytest.warns(UserWarning, match=r"by an error of ours: IndexError\('ours'\)"):
        seen.warn()
