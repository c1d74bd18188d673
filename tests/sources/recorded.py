"""Recording a call of small models, and the referee: what flowed, seen in torch's dispatcher."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import mha_core as mha
from tests.parity import flow

TOKENS = ["the", "old", "cat", "saw", "the", "new", "cat"]
SOURCE = ["die", "Katze", "sah", "sie", "nie"]
H, D_K, D, L, LONG, VOCABULARY = 3, 4, 12, 7, 64, 29
BATCHES = ((1, 0), (2, 1), (H, 2), (L, 5))  # texts and the recorded one; also as many as heads, tokens


def recorded(model, *inputs, tokens=TOKENS, of=None, **options) -> mha.AttentionTrace:
    """The trace of a call, whose output must be the same to the bit."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        expected = model(*inputs)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    with mha.record(of, tokens=tokens, **options) as rec:
        output = model(*inputs)
    assert torch.backends.mha.get_fastpath_enabled() == fast
    for ours, theirs in zip(_parts(output), _parts(expected), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
    return rec.trace


def _parts(output):
    return [part for part in output if part is not None] if isinstance(output, tuple) else [output]


def refusal(model, *inputs, tokens=TOKENS, of=None, **options) -> str:
    """Why there is no trace of a call; the model has computed all the same."""
    with mha.record(of, tokens=tokens, **options) as rec:
        assert model(*inputs) is not None
    with pytest.raises(mha.MhaError) as caught:
        _ = rec.trace
    return str(caught.value)


def close(ours, theirs, atol=1e-6) -> None:
    theirs = theirs.detach() if isinstance(theirs, torch.Tensor) else theirs
    np.testing.assert_allclose(ours, theirs, atol=atol)


def assert_flowed(trace, model, *inputs) -> None:
    """The layers show, in order, all weights that were multiplied in a run, and the products."""
    names = model if isinstance(model, nn.Module) else nn.Module()
    run = flow.run(names, lambda: model(*inputs), len(trace.tokens))
    left = list(run.factors)
    for layer in trace.layers:
        weights, outputs = [], []
        while len(weights) < layer.n_heads:
            product = run.products[left[0]].float()
            product = product if product.shape[-1] == layer.d_v else product.mT  # of values as columns
            outputs += product.reshape(-1, layer.n_query, layer.d_v)
            weights += run.factors[left.pop(0)].rows.float().reshape(-1, layer.n_query, layer.n_key)
        atol = 0.02 if layer.tensors["q"].dtype.itemsize == 2 else 5e-6
        close(layer.weights(), torch.stack(weights), atol)
        close(layer.output(), torch.stack(outputs), atol)
    assert not left


def heads_of(x):
    return x.unflatten(-1, (-1, D_K)).transpose(1, 2)


class Attention(nn.Module):
    """Attention of queries to keys, fused or by hand."""

    def __init__(self, fused=True):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(D, D) for _ in range(4))
        self.fused = fused

    def forward(self, x, keys=None, sees=None):
        q, (k, v) = self.q(x), (layer(x if keys is None else keys) for layer in (self.k, self.v))
        q, k, v = map(heads_of, (q, k, v))
        if self.fused:
            heads = F.scaled_dot_product_attention(q, k, v, attn_mask=sees)
        else:
            scores = q @ k.mT / math.sqrt(D_K)
            scores = scores if sees is None else scores.masked_fill(~sees, -1e9)
            heads = torch.softmax(scores, dim=-1) @ v
        return self.o(heads.transpose(1, 2).flatten(2))


class Function(nn.Module):
    """A function of modules and of what is given, as a module."""

    def __init__(self, function, *parts):
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts) if parts else ()

    def forward(self, *given):
        return self.function(*self.parts, *given)


class Itself(nn.MultiheadAttention):
    """Torch's attention of tokens to each other."""

    def __init__(self, **settings):
        super().__init__(D, H, batch_first=True)
        self.settings = settings

    def forward(self, x):
        return super().forward(x, x, x, **self.settings)[0]


class SelfAttention(nn.Module):
    """Attention in the manner of nanoGPT: one matrix for q, k and v, causal, with an optional cache."""

    def __init__(self, fused=True, dropout=0.0):
        super().__init__()
        self.c_attn, self.c_proj, self.drop = nn.Linear(D, 3 * D), nn.Linear(D, D), nn.Dropout(dropout)
        self.register_buffer("bias", torch.tril(torch.ones(LONG, LONG)).view(1, 1, LONG, LONG))
        self.fused = fused

    def forward(self, x, cache=None):
        B, T, C = x.size()
        rows = x if self.fused else x.flatten(0, 1)  # of all texts at once
        made = self.c_attn(rows).view(B, T, -1)
        q, k, v = (part.view(B, T, H, D_K).transpose(1, 2) for part in made.split(C, dim=2))
        if cache is not None:
            if self in cache:
                k, v = (torch.cat(pair, dim=2) for pair in zip(cache[self], (k, v), strict=True))
            cache[self] = k, v
        S = k.shape[2]
        mask = self.bias[:, :, S - T : S, :S] > 0
        if self.fused:
            dropout = self.drop.p if self.training else 0.0
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = F.softmax(att.masked_fill(~mask, float("-inf")), dim=-1)
            y = self.drop(att) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self, fused):
        super().__init__()
        self.ln, self.attn, self.mlp = nn.LayerNorm(D), SelfAttention(fused), nn.Linear(D, D)

    def forward(self, x, cache=None):
        x = x + self.attn(self.ln(x), cache)
        return x + F.gelu(self.mlp(x))


class GPT(nn.Module):
    """It reads ids, or vectors."""

    def __init__(self, fused=True, layers=2):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, D), nn.Embedding(LONG, D)
        self.h = nn.ModuleList(Block(fused) for _ in range(layers))
        self.lm_head = nn.Linear(D, VOCABULARY, bias=False)

    def forward(self, x, cache=None):
        start = cache[self.h[0].attn][0].shape[2] if cache else 0
        if not x.is_floating_point():
            x = self.wte(x) + self.wpe(torch.arange(start, start + x.shape[1]))
        for block in self.h:
            x = block(x, cache)
        return self.lm_head(x)

    def generate(self, ids, count, cache=None):
        new = ids
        for _ in range(count):
            new = self(ids if cache is None else new, cache)[:, -1:].argmax(-1)
            ids = torch.cat([ids, new], dim=1)
        return ids
