"""Models as people write them are recorded with the weights that their own code computes."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import mha_core as mha

H, D_K, D, L, LONG, VOCABULARY = 3, 5, 15, 7, 64, 29
TOKENS = ["the", "old", "cat", "saw", "the", "new", "cat"]


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture(params=[(1, 0), (2, 1), (H, 2), (L, 5)], ids="batch of {0[0]}".format)
def batch_item(request):
    """Also batches as large as there are heads or tokens."""
    return request.param


def record(model, *inputs, tokens=TOKENS, of=None, **options):
    """The trace, after the output was found to be the same to the bit."""
    with torch.no_grad():
        expected = model(*inputs)
        with mha.record(of, tokens=tokens, **options) as rec:
            output = model(*inputs)
    assert torch.equal(output, expected)
    return rec.trace


def close(ours, theirs, atol=1e-6):
    np.testing.assert_allclose(ours, torch.as_tensor(theirs).detach(), atol=atol)


# Heads folded into the batch


class Folded(nn.Module):
    """Heads and texts as one axis, texts first as in fairseq and d2l, or heads first as by chunk and cat."""

    def __init__(self, way, order):
        super().__init__()
        self.way, self.order, self.q, self.k, self.v = way, order, *(nn.Linear(D, D) for _ in range(3))

    def fold(self, x):
        if self.order == "heads first":
            return torch.cat(x.chunk(H, dim=-1))
        return x.view(len(x), L, H, D_K).transpose(1, 2).reshape(-1, L, D_K)

    def forward(self, x):
        q, k, v = self.fold(self.q(x)), self.fold(self.k(x)), self.fold(self.v(x))
        if self.way == "sdpa":
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        scores = torch.bmm(q, k.mT) / math.sqrt(D_K)
        return torch.bmm(torch.softmax(scores.masked_fill(torch.ones(L, L).triu(1) > 0, -torch.inf), -1), v)


@pytest.mark.parametrize("way", ["sdpa", "by hand"])
@pytest.mark.parametrize("order", ["texts first", "heads first"])
@pytest.mark.parametrize("given", [True, False])
def test_heads_that_are_folded_into_the_batch_are_found_by_the_layer_that_made_them(
    way, order, given, batch_item
):
    batch, item = batch_item
    model, x = Folded(way, order), torch.randn(batch, L, D)
    options = {"batch": batch} if given else {"of": model}
    [layer] = record(model, x, item=item, **options).layers
    assert layer.n_heads == H
    q, k, v = (part(x[item]).view(L, H, D_K).transpose(0, 1) for part in (model.q, model.k, model.v))
    close(layer.output(), F.scaled_dot_product_attention(q, k, v, is_causal=True))


@pytest.mark.parametrize("way", ["sdpa", "by hand"])
def test_with_equal_texts_the_folding_is_unknown(way, refused):
    model, x = Folded(way, "texts first"), torch.randn(1, L, D).expand(2, -1, -1)
    with torch.no_grad(), mha.record(tokens=TOKENS, batch=2, item=1) as rec:
        model(x)
    assert "cannot be told where the 2 texts are" in str(refused(lambda: rec.trace))


# Decoders


class SelfAttention(nn.Module):
    """One matrix for q, k and v; scores by hand or by torch's function; with an optional cache."""

    def __init__(self, fused: bool):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.attn_dropout, self.resid_dropout = nn.Dropout(0.1), nn.Dropout(0.1)
        self.register_buffer("bias", torch.tril(torch.ones(LONG, LONG)).view(1, 1, LONG, LONG))
        self.fused, self.weights = fused, None

    def forward(self, x, cache=None):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        q, k, v = (part.view(B, T, H, C // H).transpose(1, 2) for part in (q, k, v))
        if cache is not None:
            if self in cache:
                k, v = (torch.cat(pair, dim=2) for pair in zip(cache[self], (k, v), strict=True))
            cache[self] = k, v
        S = k.shape[2]
        if self.fused:
            mask = self.bias[:, :, S - T : S, :S] > 0
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:, :, S - T : S, :S] == 0, float("-inf"))
            att = F.softmax(att, dim=-1)
            self.weights = att
            y = self.attn_dropout(att) @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.resid_dropout(self.c_proj(y))


class Block(nn.Module):
    def __init__(self, fused: bool):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(D), SelfAttention(fused), nn.LayerNorm(D)
        self.mlp = nn.Sequential(nn.Linear(D, 2 * D), nn.GELU(), nn.Linear(2 * D, D))

    def forward(self, x, cache=None):
        x = x + self.attn(self.ln_1(x), cache)
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, fused=False):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, D), nn.Embedding(LONG, D)
        self.h = nn.ModuleList(Block(fused) for _ in range(2))
        self.lm_head = nn.Linear(D, VOCABULARY, bias=False)

    def forward(self, ids, cache=None):
        start = cache[self.h[0].attn][0].shape[2] if cache else 0
        x = self.wte(ids) + self.wpe(torch.arange(start, start + ids.shape[1]))
        for block in self.h:
            x = block(x, cache)
        return self.lm_head(x)

    def generate(self, ids, count, cache=None):
        new = ids
        for _ in range(count):
            new = self(ids if cache is None else new, cache)[:, -1:].argmax(-1)
            ids = torch.cat([ids, new], dim=1)
        return ids


def ids(batch=1, length=L):
    return torch.randint(VOCABULARY, (batch, length))


@pytest.mark.parametrize("fused", [True, False])
def test_a_small_gpt(batch_item, fused):
    batch, item = batch_item
    model = GPT(fused).eval()
    given = ids(batch)
    trace = record(model, given, item=item, of=model)
    assert [layer.name for layer in trace.layers] == ["h.0.attn", "h.1.attn"]
    assert trace.source.skipped == ()
    x = model.wte(given) + model.wpe(torch.arange(L))
    for layer, block in zip(trace.layers, model.h, strict=True):
        inside = block.ln_1(x)
        close(layer.x, inside[item], 1e-5)
        if not fused:
            close(layer.weights(), block.attn.weights[item])
        close(layer.result(), block.attn(inside)[item], 1e-5)
        close(layer.x @ layer.projections.w_q.numpy(), (block.attn.c_attn.weight[:D] @ inside[item].mT).mT
              .detach(), 1e-5)  # fmt: skip
        q = (layer.x @ layer.projections.w_q.numpy() + layer.projections.b_q.numpy()).reshape(L, H, D_K)
        np.testing.assert_allclose(layer.q, q.transpose(1, 0, 2), atol=1e-5)
        x = block(x)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("of_model", [True, False])
def test_a_text_read_token_by_token_is_one_causal_trace(fused, of_model):
    model, given = GPT(fused).eval(), ids()
    whole = record(model, given, of=model)
    for lengths in ([1] * L, [4, 1, 1, 1], [3, 4]):
        cache = {}
        with torch.no_grad(), mha.record(model if of_model else None, tokens=TOKENS) as rec:
            for part in given.split(lengths, dim=1):
                model(part, cache)
        trace = rec.trace
        assert len(trace.layers) == 2
        assert trace.source.skipped == ()
        for layer, expected in zip(trace.layers, whole.layers, strict=True):
            np.testing.assert_allclose(layer.weights(), expected.weights(), atol=1e-6)
            np.testing.assert_array_equal(layer.allowed(1), np.tri(L, dtype=bool))
            if of_model:
                np.testing.assert_allclose(layer.x, expected.x, atol=1e-5)
                np.testing.assert_allclose(layer.result(), expected.result(), atol=1e-5)


def test_generation_with_a_cache_is_one_trace(refused):
    model, given = GPT().eval(), ids(length=3)
    with torch.no_grad(), mha.record(model, tokens=TOKENS) as rec:
        written = model.generate(given, 5, {})
    assert written.shape == (1, 8)  # the last one is never read
    whole = record(model, written[:, :-1])
    for layer, expected in zip(rec.trace.layers, whole.layers, strict=True):
        np.testing.assert_allclose(layer.weights(), expected.weights(), atol=1e-6)
    with torch.no_grad(), mha.record(model, tokens=[*TOKENS, "end"]) as rec:
        model.generate(given, 5, {})
    assert "written and never read" in str(refused(lambda: rec.trace))


def test_generation_without_a_cache_shows_the_pass_of_that_length():
    model, given = GPT().eval(), ids(length=5)
    with torch.no_grad(), mha.record(model, tokens=TOKENS) as rec:
        written = model.generate(given, 4)
    trace = rec.trace
    whole = record(model, written[:, :L])
    for layer, expected in zip(trace.layers, whole.layers, strict=True):
        np.testing.assert_allclose(layer.weights(), expected.weights(), atol=1e-6)
    assert len(trace.source.skipped) == 2 * 3
    assert any("h.0.attn (" in reason and "8 queries and 8 keys" in reason for reason in trace.source.skipped)


class Static(nn.Module):
    """Attention with keys and values in a buffer with room for more, as in a static cache."""

    def __init__(self, fused):
        super().__init__()
        self.fused, self.qkv = fused, nn.Linear(D, 3 * D)
        self.register_buffer("room", torch.zeros(2, 1, H, 20, D_K))

    def forward(self, x, at):
        q, k, v = (part.view(1, -1, H, D_K).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        self.room[0, :, :, at], self.room[1, :, :, at] = k, v
        (k, v), sees = self.room, torch.arange(20) <= at[:, None]
        if self.fused:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=sees)
        return torch.softmax((q @ k.mT / D_K**0.5).masked_fill(~sees, -torch.inf), -1) @ v


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("steps", [(4, 1, 1, 1), (1,) * L, (5, 2)], ids=str)
def test_generation_with_a_static_cache_is_one_trace(steps, fused):
    model, x, places = Static(fused), torch.randn(1, L, D), torch.arange(L)
    with torch.no_grad(), mha.record(model, tokens=TOKENS) as rec:
        for part, at in zip(x.split(steps, dim=1), places.split(steps), strict=True):
            model(part, at)
    [layer] = rec.trace.layers
    q, k, v = (part.view(L, H, D_K).transpose(0, 1) for part in model.qkv(x)[0].chunk(3, dim=-1))
    hidden = torch.ones(L, L, dtype=torch.bool).triu(1)
    weights = torch.softmax((q @ k.mT / D_K**0.5).masked_fill(hidden, -torch.inf), -1)
    close(layer.weights(), weights)
    close(layer.output(), weights @ v)


@pytest.mark.parametrize("of_model", [True, False])
def test_two_forward_passes_are_two_traces(refused, of_model):
    model, texts = GPT().eval(), ids(2)
    with torch.no_grad(), mha.record(model if of_model else None, tokens=TOKENS) as rec:
        for text in texts:
            model(text[None])
        model(texts[:1, :3])
    assert "2 forward passes were recorded; rec.traces" in str(refused(lambda: rec.trace))
    assert [len(trace.layers) for trace in rec.traces] == [2, 2]
    for trace, text in zip(rec.traces, texts, strict=True):
        expected = record(model, text[None])
        for layer, other in zip(trace.layers, expected.layers, strict=True):
            np.testing.assert_array_equal(layer.q, other.q)
        assert "3 queries and 3 keys" in trace.source.skipped[0]  # of the third pass


def test_layers_that_are_called_one_by_one_are_one_pass():
    model, x = GPT().eval(), torch.randn(1, L, D)
    with torch.no_grad(), mha.record(tokens=TOKENS) as rec:
        for block in model.h:
            x = block(x)
    assert len(rec.trace.layers) == 2


def test_functions_without_modules_tell_passes_apart_by_their_calls(refused):
    def attention(q):
        return torch.softmax(q @ q.mT, -1) @ q

    def model(q):
        for _ in range(2):
            q = attention(q)
        return q

    q = torch.randn(1, H, L, D_K)
    with mha.record(tokens=TOKENS) as rec:
        model(q)
    assert len(rec.trace.layers) == 2
    with mha.record(tokens=TOKENS) as rec:
        model(q)
        model(q + 1)
    assert [len(trace.layers) for trace in rec.traces] == [2, 2]
    assert "what is one pass belongs into one module or function" in str(refused(lambda: rec.trace))


def test_keys_that_grow_in_the_block_itself():
    q, k, v = torch.randn(3, 1, H, L, D_K)
    with mha.record(tokens=TOKENS) as rec:
        for n in range(1, L + 1):
            F.scaled_dot_product_attention(q[:, :, n - 1 : n], k[:, :, :n], v[:, :, :n])
    [layer] = rec.trace.layers
    scores = (q @ k.mT / math.sqrt(D_K)).masked_fill(~torch.ones(L, L).tril().bool(), -math.inf)
    close(layer.weights(), scores.softmax(-1)[0])


# Encoder and decoder


def attention(query, key, value, mask=None, dropout=None):
    d_k = query.size(-1)
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    p_attn = scores.softmax(dim=-1)
    if dropout is not None:
        p_attn = dropout(p_attn)
    return torch.matmul(p_attn, value), p_attn


class MultiHeadedAttention(nn.Module):
    """Four matrices in a list, as in the annotated transformer."""

    def __init__(self):
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(D, D) for _ in range(4))
        self.attn, self.dropout = None, nn.Dropout(0.1)

    def forward(self, query, key, value, mask=None):
        n = query.size(0)
        query, key, value = (
            lin(x).view(n, -1, H, D_K).transpose(1, 2)
            for lin, x in zip(self.linears, (query, key, value), strict=False)
        )
        x, self.attn = attention(query, key, value, mask=mask, dropout=self.dropout)
        x = x.transpose(1, 2).contiguous().view(n, -1, D)
        return self.linears[-1](x)


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder, self.cross = (MultiHeadedAttention() for _ in range(3))

    def forward(self, source, target):
        memory = self.encoder(source, source, source)
        below = torch.ones(1, target.shape[1], target.shape[1]).tril()
        target = self.decoder(target, target, target, below.unsqueeze(1))
        return self.cross(target, memory, memory)


def test_the_annotated_transformer(batch_item):
    batch, item = batch_item
    model = Translator().eval()
    source, target = torch.randn(batch, 5, D), torch.randn(batch, L, D)
    trace = record(model, source, target, keys=list("abcde"), item=item, of=model)
    assert [(layer.name, layer.kind) for layer in trace.layers] == [
        *(("encoder", "encoder"), ("decoder", "decoder"), ("cross", "cross")),
    ]
    for layer, part in zip(trace.layers, (model.encoder, model.decoder, model.cross), strict=True):
        close(layer.weights(), part.attn[item])
    encoder, decoder, cross = trace.layers
    close(encoder.x, source[item])
    close(cross.x, model.decoder(target, target, target, torch.ones(1, L, L).tril())[item], 1e-5)
    close(cross.tensors["x_v"], model.encoder(source, source, source)[item], 1e-5)
    close(decoder.projections.w_o, model.decoder.linears[-1].weight.mT)
    close(cross.result(), model(source, target)[item], 1e-5)


# Pictures


class Grouped(nn.Module):
    """Products by einsum, heads that share keys, no masks."""

    def __init__(self):
        super().__init__()
        self.to_q, self.to_kv = nn.Linear(D, 6 * D_K, bias=False), nn.Linear(D, 2 * 2 * D_K, bias=False)
        self.to_out, self.weights = nn.Linear(6 * D_K, D), None

    def forward(self, x):
        b, n, _ = x.shape
        q = self.to_q(x).view(b, n, 2, 3, D_K).permute(0, 2, 3, 1, 4)
        k, v = (part.view(b, n, 2, D_K).transpose(1, 2) for part in self.to_kv(x).chunk(2, dim=-1))
        dots = torch.einsum("bghid,bgjd->bghij", q, k) * D_K**-0.5
        self.weights = dots.softmax(dim=-1)
        out = torch.einsum("bghij,bgjd->bghid", self.weights, v)
        return self.to_out(out.permute(0, 3, 1, 2, 4).reshape(b, n, -1))


def test_heads_in_groups_by_einsum(batch_item):
    batch, item = batch_item
    model = Grouped()
    x = torch.randn(batch, L, D)
    [layer] = record(model, x, item=item, of=model).layers
    assert (layer.n_heads, layer.n_kv_heads) == (6, 2)
    close(layer.weights(), model.weights[item].flatten(0, 1))


class Vision(nn.Module):
    """Patches and a class token; q, k and v unbound from one tensor; at the end a class attention."""

    def __init__(self):
        super().__init__()
        self.patch, self.cls = nn.Conv2d(3, D, 4, 4), nn.Parameter(torch.randn(1, 1, D))
        self.qkv, self.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.class_q, self.class_kv = nn.Linear(D, D), nn.Linear(D, 2 * D)
        self.weights = None

    def forward(self, picture):
        x = self.patch(picture).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1)
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, H, C // H).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        attn = (q * D_K**-0.5) @ k.transpose(-2, -1)
        attn = attn.softmax(dim=-1)
        self.weights = attn
        x = self.proj((attn @ v).transpose(1, 2).reshape(B, N, C))
        q = self.class_q(x[:, 0]).unsqueeze(1).reshape(B, 1, H, D_K).permute(0, 2, 1, 3)
        k, v = (part.reshape(B, N, H, D_K).permute(0, 2, 1, 3) for part in self.class_kv(x).chunk(2, -1))
        attn = (q @ k.transpose(-2, -1)).softmax(dim=-1)
        return (attn @ v).transpose(1, 2).reshape(B, 1, C)


@pytest.mark.parametrize(("batch", "item"), [(1, 0), (2, 1), (5, 3)])
def test_a_model_of_pictures_with_a_class_attention(batch, item):
    """No module gets tokens: the axes of texts and heads are found in memory."""
    model, tokens = Vision(), ["cls", *"abcdef"]
    trace = record(model, torch.randn(batch, 3, 8, 12), tokens=tokens, item=item, of=model)
    [layer] = trace.layers
    close(layer.weights(), model.weights[item])
    [skipped] = trace.source.skipped
    assert "1 queries and 7 keys; the tokens allow 7 and 7" in skipped


class Window(nn.Module):
    """Cosines with a temperature for each head, a bias by places, and a mask of its own for each window."""

    def __init__(self, windows: int):
        super().__init__()
        self.qkv, self.proj = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D)
        self.logit_scale = nn.Parameter(torch.log(10 * torch.rand(H, 1, 1) + 0.5))
        self.table = nn.Parameter(torch.randn(H, L, L))
        masks = torch.zeros(windows, L, L)
        masks[1, :3, 3:] = masks[1, 3:, :3] = -100.0
        self.register_buffer("masks", masks)
        self.weights = None

    def forward(self, x):
        B_, N, C = x.shape
        qkv = self.qkv(x).reshape(B_, N, 3, H, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        attn = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
        attn = attn * torch.clamp(self.logit_scale, max=math.log(1.0 / 0.01)).exp()
        attn = attn + self.table.unsqueeze(0)
        n_w = self.masks.shape[0]
        attn = attn.view(B_ // n_w, n_w, H, N, N) + self.masks.unsqueeze(1).unsqueeze(0)
        self.weights = attn.view(-1, H, N, N).softmax(-1)
        return self.proj((self.weights @ v).transpose(1, 2).reshape(B_, N, C))


@pytest.mark.parametrize("item", [0, 1, 5])
def test_windows_with_a_temperature_for_each_head(item):
    model = Window(windows=2)
    [layer] = record(model, torch.randn(6, L, D), item=item).layers
    close(layer.weights(), model.weights[item])
    close(layer.output(), layer.weights() @ layer.v)


class Recurrent(nn.Module):
    """A recurrent layer, with attention behind it or not."""

    def __init__(self, attends=True):
        super().__init__()
        self.rnn, self.attn = nn.LSTM(D, D, batch_first=True), SelfAttention(fused=False) if attends else None

    def forward(self, x):
        x = self.rnn(x)[0]
        return x if self.attn is None else self.attn(x)


@pytest.mark.parametrize("of_model", [True, False])
def test_layers_that_mix_tokens_by_other_means_are_named(of_model, refused):
    model, x = Recurrent().eval(), torch.randn(1, L, D)
    given = model if of_model else None
    named = "rnn: LSTM mixes tokens by other means than attention."
    assert record(model, x, of=given).source.skipped == (named,)
    assert str(refused(record, model, x, of=given, misfit="raise")) == named
    assert str(refused(record, Recurrent(attends=False), x, of=Recurrent(attends=False))).endswith(named)


# Programs of torch.export


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.filterwarnings("ignore")  # of torch, about itself
def test_the_module_of_an_exported_program_is_recorded(fused, refused):
    model, x = SelfAttention(fused).eval(), torch.randn(1, L, D)
    program = torch.export.export(model, (x,))
    expected = record(model, x).layers[0].weights()
    close(record(program.module(), x).layers[0].weights(), expected)
    decomposed = program.run_decompositions().module()
    if fused:
        assert "7 × 7 tokens was not followed: its weights went through" in str(
            refused(record, decomposed, x)
        )
    else:
        close(record(decomposed, x).layers[0].weights(), expected)
    assert "program.module()" in str(refused(mha.record, program, tokens=TOKENS))


# Libraries


@pytest.mark.parametrize(
    ("family", "implementation"),
    [(family, name) for family in ("gpt2", "llama", "mistral") for name in ("eager", "sdpa")],
)
def test_generation_of_a_model_of_transformers_is_recorded(family, implementation):
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
    if family == "gpt2":
        config = transformers.GPT2Config(n_embd=D, n_layer=2, n_head=H, n_positions=LONG, **sizes)
    else:  # Mistral's cache forgets what its window of three has passed
        kind = transformers.LlamaConfig if family == "llama" else transformers.MistralConfig
        window = {"sliding_window": 3} if family == "mistral" else {}
        config = kind(
            hidden_size=24, intermediate_size=11, num_hidden_layers=2, num_attention_heads=6,
            num_key_value_heads=2, max_position_embeddings=LONG, **sizes, **window,
        )  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=implementation).eval()
    given = torch.randint(3, VOCABULARY, (1, 4))
    with torch.no_grad(), mha.record(model, tokens=TOKENS) as rec:
        written = model.generate(given, max_new_tokens=4, do_sample=False)
    assert written.shape == (1, 8)
    with torch.no_grad():
        model.set_attn_implementation("eager")
        asked = model(written[:, :-1], output_attentions=True).attentions
    trace = rec.trace
    assert trace.source.skipped == ()
    assert [layer.name.split(".")[2] for layer in trace.layers] == ["0", "1"]
    for layer, weights in zip(trace.layers, asked, strict=True):
        close(layer.weights(), weights[0], 1e-5)
        assert layer.x is not None
        assert layer.knows("w_o")
    assert trace.layers[0].n_kv_heads == (H if family == "gpt2" else 2)


@pytest.mark.parametrize(("heads", "kv_heads", "window", "batch"), [(4, 2, 2, 1), (4, 2, 2, 2), (6, 1, 4, 1)])
def test_a_decoding_step_that_lays_heads_beside_each_other_has_one_query(heads, kv_heads, window, batch):
    """As many heads share a key as there are keys and tokens: its queries are heads of one token."""
    transformers = pytest.importorskip("transformers")
    config = transformers.MistralConfig(
        hidden_size=8 * heads, head_dim=8, intermediate_size=11, num_hidden_layers=1, vocab_size=VOCABULARY,
        num_attention_heads=heads, num_key_value_heads=kv_heads, sliding_window=window, pad_token_id=0,
        eos_token_id=None,
    )  # fmt: skip
    model = transformers.MistralForCausalLM._from_config(config, attn_implementation="sdpa").eval()
    for length in {heads // kv_heads, window}:
        given = torch.randint(3, VOCABULARY, (batch, 1))
        with torch.no_grad(), mha.record(model, tokens=TOKENS[:length], item=batch - 1) as rec:
            written = model.generate(given, max_new_tokens=length, do_sample=False)
        model.set_attn_implementation("eager")
        with torch.no_grad():
            [asked] = model(written[:, :-1], output_attentions=True).attentions
        model.set_attn_implementation("sdpa")
        [layer] = rec.trace.layers
        assert (layer.n_heads, layer.n_kv_heads) == (heads, kv_heads)
        close(layer.weights(), asked[batch - 1], 1e-5)
        assert layer.knows("w_o")


class Latents(nn.Module):
    """Reads one token of a text, and looks at all that came before with several queries of its own."""

    def forward(self, x, memory):
        queries = torch.randn(1, H, 2, D_K)
        return F.scaled_dot_product_attention(queries, memory, memory)


def test_more_queries_than_tokens_are_named(refused):
    model = Latents()
    with torch.no_grad(), mha.record(model, tokens=["a", "b"]) as rec:
        model(torch.randn(1, 1, D), torch.randn(1, H, 2, D_K))
    assert "It has 2 queries, and Latents reads one token of each text" in str(refused(lambda: rec.trace))
