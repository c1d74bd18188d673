"""Models as people write them are recorded with the weights that their own code multiplies."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import mha_core as mha
from mha_core.traces.verify import split_difference
from tests.parity import tiny
from tests.sources.recorded import (
    BATCHES,
    D_K,
    GPT,
    SOURCE,
    TOKENS,
    VOCABULARY,
    Attention,
    D,
    Function,
    H,
    Itself,
    L,
    SelfAttention,
    assert_flowed,
    close,
    heads_of,
    recorded,
    refusal,
)

BELOW = torch.ones(L, L, dtype=torch.bool).tril()


def vision(qkv, norm, x):
    """As in timm: q, k and v unbound from one tensor, q and k normalised."""
    q, k, v = qkv(x).reshape(len(x), -1, 3, H, D_K).permute(2, 0, 3, 1, 4).unbind(0)
    return F.scaled_dot_product_attention(norm(q), norm(k), v, scale=0.3).transpose(1, 2).flatten(2)


def keys_repeated(to_q, to_kv, x):
    q, (k, v) = heads_of(to_q(x)), map(heads_of, to_kv(x).chunk(2, dim=-1))
    k, v = (part.repeat_interleave(3, dim=1) for part in (k, v))
    return torch.softmax(q @ k.mT * D_K**-0.5, dim=-1) @ v


def keys_by_einsum(to_q, to_kv, x):
    q, (k, v) = heads_of(to_q(x)), map(heads_of, to_kv(x).chunk(2, dim=-1))
    dots = torch.einsum("bghid,bgjd->bghij", q.unflatten(1, (2, 3)), k) * D_K**-0.5
    return torch.einsum("bghij,bgjd->bghid", dots.softmax(dim=-1), v)


def grouped(way):
    return Function(way, nn.Linear(D, 6 * D_K), nn.Linear(D, 2 * 2 * D_K))


def of_one_head(key, query, value, x):
    wei = query(x) @ key(x).mT * D**-0.5
    return F.softmax(wei.masked_fill(~BELOW, float("-inf")), dim=-1) @ value(x)


def head():
    return Function(of_one_head, *(nn.Linear(D, D_K, bias=False) for _ in range(3)))


def joined(*given, join=partial(torch.cat, dim=-1)):
    """A list of heads with joined outputs: the textbook's layer."""
    *heads, proj, x = given
    return proj(join([one(x) for one in heads]))


def folded(fused, heads_first):
    """Heads and texts as one axis, texts first as in fairseq and d2l, or heads first as by chunk and cat."""

    def way(*given):
        *layers, x = given
        made = [layer(x) for layer in layers]
        if heads_first:
            q, k, v = (torch.cat(part.chunk(H, dim=-1)) for part in made)
        else:
            q, k, v = (heads_of(part).reshape(-1, L, D_K) for part in made)
        if fused:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        scores = (torch.bmm(q, k.mT) / math.sqrt(D_K)).masked_fill(~BELOW, -torch.inf)
        return torch.bmm(torch.softmax(scores, -1), v)

    return Function(way, *(nn.Linear(D, D) for _ in range(3)))


def heads_first(to_q, to_o, x):
    """Heads before texts, (head, text, token, width)."""
    q = torch.stack(to_q(x).split(D_K, dim=-1))
    return to_o(torch.cat(list(torch.softmax(q @ q.mT, -1) @ q), dim=-1))


def encoder(**settings):
    block = nn.TransformerEncoderLayer(D, 4, 8, dropout=0, batch_first=True)  # torch's fused path: even heads
    return nn.TransformerEncoder(block, 2, **settings)


# By its name a model, and the heads of its layers.
MODELS = {
    "nanoGPT": (GPT, [3, 3]),
    "nanoGPT by hand": (lambda: GPT(fused=False), [3, 3]),
    "timm": (lambda: Function(vision, nn.Linear(D, 3 * D, bias=False), nn.LayerNorm(D_K)), [3]),
    "keys repeated": (lambda: grouped(keys_repeated), [6]),
    "keys by einsum": (lambda: grouped(keys_by_einsum), [6]),
    "lists of heads": (
        lambda: nn.Sequential(*(Function(joined, head(), head(), head(), nn.Linear(D, D)) for _ in range(2))),
        [3, 3],
    ),
    **{
        f"folded, {fused}, {first}": (lambda fused=fused, first=first: folded(fused, first), [3])
        for fused in (True, False)
        for first in (True, False)
    },
    "heads first": (lambda: Function(heads_first, nn.Linear(D, D), nn.Linear(D, D)), [3]),
    "torch": (Itself, [3]),
    "torch without weights": (lambda: Itself(need_weights=False), [3]),
    "torch's encoder": (lambda: encoder(enable_nested_tensor=False), [4, 4]),
    "torch's encoder, nested": (lambda: encoder().eval(), [4, 4]),
}


def test_what_flowed_is_what_is_shown(subtests):
    for name, (build, heads) in MODELS.items():
        with subtests.test(name):
            for batch, item in BATCHES:
                model, x = build(), torch.randn(batch, L, D)
                for options in ({"of": model}, {"batch": batch}):
                    if (name, batch) == ("heads first", H):  # no size tells heads and texts apart
                        said = "It has 3 × 3 heads or texts, and it cannot be told where the 3 texts are"
                        assert said in refusal(model, x, item=item, **options)
                        continue
                    with torch.inference_mode():
                        trace = recorded(model, x, item=item, **options)
                    assert [layer.n_heads for layer in trace.layers] == heads
                    assert trace.layers[0].n_kv_heads == (2 if "keys" in name else heads[0])
                    assert trace.source.skipped == ()
                    assert_flowed(trace, model, x[item : item + 1])


def test_heads_that_are_not_joined_stay_layers_of_one_head():
    model, x = nn.ModuleList(head() for _ in range(H)), torch.randn(1, L, D)
    trace = recorded(call := lambda x: sum(one(x) for one in model), x)
    assert [layer.n_heads for layer in trace.layers] == [1] * H
    assert_flowed(trace, call, x)


def test_heads_are_joined_by_any_function_that_puts_columns_side_by_side():
    for join, axes in ((torch.hstack, (L, D)), (torch.column_stack, (L, D)), (torch.dstack, (1, L, D))):
        model = Function(partial(joined, join=join), head(), head(), head(), nn.Linear(D, D))
        trace = recorded(model, x := torch.randn(axes), of=model)
        assert [layer.n_heads for layer in trace.layers] == [H]
        assert trace.layers[0].knows("w_o")
        assert_flowed(trace, model, x)


def pool(x):
    """One query of its own looks at all tokens."""
    return torch.softmax(torch.ones(1, H, 1, D_K) @ heads_of(x).mT, -1) @ heads_of(x)


def test_a_call_of_another_size_is_named_beside_those_that_fit(refused):
    model, x = nn.Sequential(SelfAttention(fused=False), Function(pool)), torch.randn(1, L, D)
    trace = recorded(model, x)
    assert len(trace.layers) == 1
    [skipped] = trace.source.skipped
    assert "(Function): 1 queries and 7 keys; the tokens allow 7 and 7." in skipped
    assert "test_recorder_models.py:" in skipped
    with mha.record(tokens=TOKENS) as rec:  # what has no labels can be looked at all the same
        model(x)
    [layer] = rec.unlabelled
    close(layer.weights(), torch.softmax(torch.ones(1, H, 1, D_K) @ heads_of(model[0](x)).mT, -1)[0])
    assert "1 queries and 7 keys" in refusal(model, x, misfit="raise")
    assert "mha.from_weights(torch.cat(steps, dim=-2)" in refusal(Function(pool), x)
    assert "tokens allow 5 and 5, 7 and 7, 7 and 5" in refusal(Function(pool), x, keys=SOURCE)
    said = refusal(model, x, tokens=TOKENS[:6])
    assert "7 queries and 7 keys; the tokens allow 6 and 6. Give one" in said
    assert "misfit" in str(refused(lambda: mha.record(tokens=TOKENS, misfit="drop")))


# Torch's own modules


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_multihead_attention_of_torch_with_masks(normal, need_weights, batch_first):
    model = nn.MultiheadAttention(D, H, bias=need_weights, batch_first=batch_first)
    for part in model.parameters():
        part.data += 0.1  # a fresh bias is zero
    x = normal(2, L, D)
    x = x if batch_first else x.transpose(0, 1)
    added = normal(L, L).masked_fill(normal(L, L, seed=1) > 1, -torch.inf)
    padding = torch.tensor([[False] * 7, [False] * 5 + [True] * 2])

    def call(given, weights=need_weights):
        return model(given, given, given, attn_mask=added, key_padding_mask=padding.float() * -9,
                     need_weights=weights, average_attn_weights=False)  # fmt: skip

    [layer] = recorded(call, x, item=1).layers
    output, weights = call(x, weights=True)
    close(layer.weights(), weights[1])
    close(layer.result(), output[1] if batch_first else output[:, 1])
    np.testing.assert_array_equal(layer.x, x[1] if batch_first else x[:, 1])
    assert split_difference(layer) < 1e-6


def test_masks_of_torchs_module():
    model, x = Itself().eval(), torch.randn(2, L, D)
    model.settings = {"attn_mask": torch.ones(L, L, dtype=torch.bool).triu(1)}
    [layer] = recorded(model, x).layers
    np.testing.assert_array_equal(layer.allowed(0), np.tri(L, dtype=bool))
    assert layer.rule.bias is None
    # With weights wanted the mask counts, and not the hint that it is causal.
    model.settings = {"attn_mask": torch.zeros(L, L, dtype=torch.bool), "is_causal": True}
    assert_flowed(recorded(model, x), model, x[:1])
    [layer] = recorded(model, x[0]).layers  # a sentence without a batch
    np.testing.assert_array_equal(layer.x, x[0])
    padding = torch.tensor([[False] * 7, [False] * 5 + [True] * 2])
    for model in (encoder(enable_nested_tensor=False), encoder().eval()):
        with torch.inference_mode():
            trace = recorded(lambda x, model=model: model(x, src_key_padding_mask=padding), x, item=1)
        assert len(trace.layers) == 2
        assert trace.layers[0].weights()[:, :, 5:].max() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_that_sees_nothing_has_weight_0_where_torch_has_nan(normal, dtype):
    for length in (1, 7):
        model, x = nn.MultiheadAttention(D, H, batch_first=True).to(dtype), normal(2, length, D).to(dtype)
        padding, first = torch.zeros(2, length, dtype=torch.bool), torch.zeros(length, length, dtype=dtype)
        padding[1], first[0] = True, -torch.inf
        filled = torch.zeros(2, length, dtype=dtype).masked_fill(padding, -torch.inf)
        for masks in (
            {"key_padding_mask": padding},
            {"attn_mask": first},
            {"attn_mask": first, "key_padding_mask": filled},
        ):
            with torch.no_grad(), mha.record(tokens=TOKENS[:length], item=1) as rec:
                _, weights = model(x, x, x, average_attn_weights=False, **masks)
            assert weights[1].isnan().any()
            expected = weights[1].nan_to_num(0.0).float()
            close(rec.trace.layers[0].weights(), expected, 4 * torch.finfo(dtype).eps)


# Two texts


def test_an_encoder_and_a_decoder_are_distinguished_by_their_lengths(normal):
    model = nn.Transformer(D, 4, 2, 2, 8, dropout=0, batch_first=True).eval()
    below = nn.Transformer.generate_square_subsequent_mask(L)
    source, target = normal(1, 5, D), normal(1, L, D, seed=1)
    call = lambda *given: model(*given, tgt_mask=below, tgt_is_causal=True)  # noqa: E731
    trace = recorded(call, source, target, keys=SOURCE)
    assert [layer.kind for layer in trace.layers] == [*["encoder"] * 2, *["decoder", "cross"] * 2]
    assert (trace.tokens.pieces, trace.sides.keys.pieces) == (tuple(TOKENS), tuple(SOURCE))
    assert_flowed(trace, call, source, target)
    assert trace.layers[3].x is None  # two inputs, of which one would be told
    np.testing.assert_array_equal(trace.layers[2].allowed(0), np.tril(np.ones((L, L), bool)))


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder, self.cross = (Attention(fused=False) for _ in range(3))

    def forward(self, source, target):
        memory = self.encoder(source)
        return self.cross(self.decoder(target, sees=BELOW), memory)


def test_the_inputs_of_an_encoder_and_a_decoder_are_known():
    for batch, item in BATCHES:
        model = Translator()
        source, target = torch.randn(batch, 5, D), torch.randn(batch, L, D)
        trace = recorded(model, source, target, keys=SOURCE, item=item, of=model)
        one = slice(item, item + 1)
        assert [(layer.name, layer.kind) for layer in trace.layers] == [
            *(("encoder", "encoder"), ("decoder", "decoder"), ("cross", "cross"))
        ]
        assert_flowed(trace, model, source[one], target[one])
        encoder, decoder, cross = trace.layers
        close(encoder.x, source[item])
        close(cross.x, model.decoder(target, sees=BELOW)[item], 1e-5)
        close(cross.tensors["x_v"], model.encoder(source)[item], 1e-5)
        close(decoder.projections.w_o, model.decoder.o.weight.mT)
        close(cross.result(), model(source, target)[item], 1e-5)


def test_keys_of_another_text_of_the_same_length_are_not_mismistaken_for_the_same(normal):
    x, model = normal(2, L, D), nn.Transformer(D, 4, 1, 1, 8, dropout=0, batch_first=True).eval()
    trace = recorded(model, x, x + 1, item=1)
    assert [layer.kind for layer in trace.layers] == ["self", "self"]
    [reason] = trace.source.skipped
    assert "its queries and its keys are of two texts" in reason
    kinds = ["encoder", "decoder", "cross"]
    trace = recorded(model, x, x + 1, keys=list("abcdefg"), kinds=kinds)
    assert [layer.kind for layer in trace.layers] == kinds
    assert "kinds=" in refusal(model, x, x, keys=list("abcdefg"))
    assert "names 1 calls, and 3" in refusal(model, x, x, keys=list("abcdefg"), kinds=["cross"])
    deep = nn.Transformer(D, 4, 1, 2, 8, dropout=0, batch_first=True).eval()
    trace = recorded(deep, x, x + 1)  # behind a look at the other text it is not told whose tokens are read
    assert len(trace.layers) == 2
    assert "runs behind attention between two texts" in trace.source.skipped[1]
    attention = nn.MultiheadAttention(D, H, batch_first=True)
    # A code of positions, which values do not have, makes no second text.
    assert len(recorded(lambda: attention(x + 1, x + 1, x)).layers) == 1


# Decoders


def ids(batch=1, length=L):
    return torch.randint(VOCABULARY, (batch, length))


@pytest.mark.parametrize("fused", [True, False])
def test_the_inputs_and_matrices_of_a_gpt_are_known(fused):
    model, given = GPT(fused), ids(2)
    trace = recorded(model, given, item=1, of=model)
    assert [layer.name for layer in trace.layers] == ["h.0.attn", "h.1.attn"]
    x = model.wte(given) + model.wpe(torch.arange(L))
    for layer, block in zip(trace.layers, model.h, strict=True):
        inside = block.ln(x)
        close(layer.x, inside[1], 1e-5)
        close(layer.result(), block.attn(inside)[1], 1e-5)
        q = (layer.x @ layer.projections.w_q.numpy() + layer.projections.b_q.numpy()).reshape(L, H, D_K)
        close(layer.q, q.transpose(1, 0, 2), 1e-5)
        close(layer.q, heads_of(block.attn.c_attn(inside)[..., :D])[1], 1e-5)
        x = block(x)
    masks = [layer.rule.mask.data_ptr() for layer in trace.layers]
    assert masks[0] == masks[1]  # one for all layers


def assert_same_weights(trace, expected) -> None:
    for layer, other in zip(trace.layers, expected.layers, strict=True):
        close(layer.weights(), other.weights())


@pytest.mark.parametrize("fused", [True, False])
def test_a_text_read_token_by_token_is_one_causal_trace(fused):
    model, given = GPT(fused), ids()
    whole = recorded(model, given, of=model)
    for lengths in ([1] * L, [4, 1, 1, 1], [3, 4]):
        for of in (model, None):
            cache = {}
            with torch.no_grad(), mha.record(of, tokens=TOKENS) as rec:
                for part in given.split(lengths, dim=1):
                    model(part, cache)
            assert rec.trace.source.skipped == ()
            assert_same_weights(rec.trace, whole)
            for layer, expected in zip(rec.trace.layers, whole.layers, strict=True):
                np.testing.assert_array_equal(layer.allowed(1), np.tri(L, dtype=bool))
                if of is not None:
                    close(layer.x, expected.x, 1e-5)
                    close(layer.result(), expected.result(), 1e-5)


def test_generation_is_one_trace(refused):
    model, given = GPT(fused=False), ids(length=3)
    with torch.no_grad(), mha.record(model, tokens=TOKENS) as rec:
        written = model.generate(given, 5, {})
    assert written.shape == (1, 8)  # the last one is never read
    assert_same_weights(rec.trace, recorded(model, written[:, :-1]))
    with torch.no_grad(), mha.record(model, tokens=[*TOKENS, "end"]) as rec:
        model.generate(given, 5, {})
    assert "written and never read" in str(refused(lambda: rec.trace))
    with torch.no_grad(), mha.record(model, tokens=TOKENS) as rec:  # without a cache: the pass of that length
        written = model.generate(ids(length=5), 4)
    assert_same_weights(rec.trace, recorded(model, written[:, :L]))
    skipped = rec.trace.source.skipped
    assert len(skipped) == 2 * 3
    assert any("h.0.attn (" in reason and "8 queries and 8 keys" in reason for reason in skipped)


@pytest.mark.parametrize("fused", [True, False])
def test_texts_of_a_batch_that_change_places_are_refused(refused, fused):
    """As the beams of a search do in a cache; a text that stays in its place may not be the best one."""
    model, given = GPT(fused), ids(5, 3)
    for order, said in (
        ([0, 1, 2, 3, 4], None),
        ([0, 0, 2, 3, 4], "the beams of a search, which change places"),
    ):
        cache = {}
        with torch.no_grad(), mha.record(model, tokens=TOKENS[:5]) as rec:
            model(given, cache)
            for _ in range(2):
                cache = {layer: [part[order] for part in parts] for layer, parts in cache.items()}
                model(ids(5, 1), cache)
        if said is None:
            assert len(rec.trace.layers) == 2
        else:
            assert said in str(refused(lambda rec=rec: rec.trace))


class Static(nn.Module):
    """Attention with keys and values in a buffer with room for more, as in a static cache."""

    def __init__(self, fused):
        super().__init__()
        self.fused, self.qkv = fused, nn.Linear(D, 3 * D)
        self.register_buffer("room", torch.zeros(2, 1, H, 20, D_K))

    def forward(self, x, at):
        q, k, v = map(heads_of, self.qkv(x).chunk(3, dim=-1))
        self.room[0, :, :, at], self.room[1, :, :, at] = k, v
        (k, v), sees = self.room, torch.arange(20) <= at[:, None]
        if self.fused:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=sees)
        return torch.softmax((q @ k.mT / D_K**0.5).masked_fill(~sees, -torch.inf), -1) @ v


@pytest.mark.parametrize("fused", [True, False])
def test_generation_with_a_static_cache_is_one_trace(fused):
    for steps in ((4, 1, 1, 1), (1,) * L, (5, 2), (L,)):
        model, x, places = Static(fused), torch.randn(1, L, D), torch.arange(L)
        with torch.no_grad(), mha.record(model, tokens=TOKENS) as rec:
            for part, at in zip(x.split(steps, dim=1), places.split(steps), strict=True):
                model(part, at)
        [layer] = rec.trace.layers
        q, k, v = (heads_of(part)[0] for part in model.qkv(x).chunk(3, dim=-1))
        close(layer.output(), F.scaled_dot_product_attention(q, k, v, is_causal=True))


def test_keys_that_grow_in_the_block_itself():
    q, k, v = torch.randn(3, 1, H, L, D_K)
    with mha.record(tokens=TOKENS) as rec:
        for n in range(1, L + 1):
            F.scaled_dot_product_attention(q[:, :, n - 1 : n], k[:, :, :n], v[:, :, :n])
    [layer] = rec.trace.layers
    close(layer.output(), F.scaled_dot_product_attention(q, k, v, is_causal=True)[0])


@pytest.mark.parametrize("of_model", [True, False])
def test_two_forward_passes_are_two_traces(refused, of_model):
    model, texts = GPT(fused=False), ids(2)
    with torch.no_grad(), mha.record(model if of_model else None, tokens=TOKENS) as rec:
        for text in texts:
            model(text[None])
        model(texts[:1, :3])
    assert "2 forward passes were recorded; rec.traces" in str(refused(lambda: rec.trace))
    for trace, text in zip(rec.traces, texts, strict=True):
        assert_same_weights(trace, recorded(model, text[None]))
        assert "3 queries and 3 keys" in trace.source.skipped[0]  # of the third pass
    x = torch.randn(1, L, D)
    with torch.no_grad(), mha.record(tokens=TOKENS) as rec:  # layers that are called one by one
        for block in model.h:
            x = block(x)
    assert len(rec.trace.layers) == 2


def test_functions_without_modules_tell_passes_apart_by_their_calls(refused):
    def attention(q):
        return torch.softmax(q @ q.mT, -1) @ q

    def model(q):
        return attention(attention(q))

    q = torch.randn(1, H, L, D_K)
    assert len(recorded(model, q).layers) == 2
    with mha.record(tokens=TOKENS) as rec:
        model(q)
        model(q + 1)
    assert [len(trace.layers) for trace in rec.traces] == [2, 2]
    assert "what is one pass belongs into one module or function" in str(refused(lambda: rec.trace))


# An item that is read in parts


def in_windows(attention):
    """Seven tokens to a window, the windows of all pictures in one batch, as in Swin."""
    return nn.Sequential(nn.Unflatten(1, (4, L)), nn.Flatten(0, 1), attention)


class Axes(nn.Module):
    """Parts with an axis of their own, as in Nest: (text, window, head, token, width); or folded into one."""

    def __init__(self, fused, folded=None):
        super().__init__()
        self.qkv, self.fused, self.folded = nn.Linear(D, 3 * D), fused, folded

    def forward(self, x):
        q, k, v = self.qkv(x).view(1, 4, L, 3, H, D_K).permute(3, 0, 1, 4, 2, 5)
        if self.folded is not None:  # one text does not say that all that is read at once are heads
            q, k, v = (part.flatten(0, 2 if self.folded else 1) for part in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v) if self.fused else torch.softmax(q @ k.mT, -1) @ v


def test_one_part_of_an_item_is_shown_and_the_others_named(normal):
    x = normal(1, 28, D)
    for part in (0, 3):
        for model in (in_windows(Itself()), Axes(True), Axes(False)):
            trace = recorded(model, x, part=part)
            [layer] = trace.layers
            own = x[:, 7 * part : 7 * part + 7]
            if isinstance(model, nn.Sequential):
                assert_flowed(trace, model[-1], own)
            else:
                q, k, _ = map(heads_of, model.qkv(own).chunk(3, dim=-1))
                close(layer.weights(), torch.softmax(q @ k.mT / (2 if model.fused else 1), -1)[0])
            [reason] = trace.source.skipped
            assert f"it reads the item in 4 parts. Part {part}, from 0, is shown" in reason


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("folded", [True, False])
def test_one_text_that_is_read_in_parts_has_no_more_heads_than_each_part(normal, fused, folded):
    model, x = in_windows(Axes(fused, folded)), normal(1, 28, D)
    one, other = (recorded(model, x, part=2, batch=batch) for batch in (None, 1))
    assert one.layers[0].n_heads == other.layers[0].n_heads == H
    np.testing.assert_array_equal(one.layers[0].weights(), other.layers[0].weights())
    assert one.source.skipped == other.source.skipped
    assert "it reads the item in 4 parts" in other.source.skipped[0]


def product(q, k, v):
    return torch.softmax(q @ k.mT, -1) @ v


def in_turn(way):
    """Attention in turn: some heads at a time, one text at a time, or a module for one text at a time."""

    def forward(qkv, block, x):
        if way == "module":
            return torch.cat([block(one[None]) for one in x])
        q, k, v = map(heads_of, qkv(x).split(D, dim=2))
        if way == "texts":
            return torch.stack([product(*one) for one in zip(q, k, v, strict=True)])
        q, k, v = (part.flatten(0, 1) for part in (q, k, v))
        if way == "heads of a text":
            return torch.cat([product(q[[at]], k[[at]], v[[at]]) for at in range(len(q))])
        slices = zip(q.split(len(x)), k.split(len(x)), v.split(len(x)), strict=True)
        return torch.cat([F.scaled_dot_product_attention(*one) for one in slices])

    return Function(forward, nn.Linear(D, 3 * D), SelfAttention())


def test_heads_or_texts_in_turn_are_not_mismistaken_for_each_other(normal):
    """Where there are as many texts as heads, no size tells them apart."""
    for way in ("heads", "heads of a text", "texts", "module"):
        for item in (0, 1):
            said = "one item" if way == "module" else "in a row"
            assert said in refusal(in_turn(way), normal(H, L, D), item=item)
    assert len(recorded(in_turn("module"), normal(1, L, D)).layers) == 1


def test_ambiguous_heads_texts_and_parts_are_refused(normal, refused):
    one, table, windows = normal(1, 28, D), normal(3, 28, D), in_windows(Itself())
    q, k, v = torch.randn(6, L, D_K), torch.randn(6, 5, D_K), torch.randn(6, 5, 2)
    # Several queries of its own for one token that is read, which look at all that came before.
    latents = Function(lambda x, y: F.scaled_dot_product_attention(torch.randn(1, H, 2, D_K), y, y))
    memory, both = torch.randn(1, H, 2, D_K), ["a", "b"]
    said = "It has 2 queries, and Function reads one token of each text"
    assert said in refusal(latents, torch.randn(1, 1, D), memory, tokens=both, of=latents)
    for model, given, options, said in (
        (windows, table, {"item": 1}, "reads 12 sequences at once, and the model was given 3 items"),
        (windows, one, {"item": 1}, "items 0 to 0; item 1"),
        (windows, one, {"part": 4}, "parts 0 to 3; part 4"),
        (GPT(), table[:, :L], {"part": 1}, "part is 1, and no layer reads its item in parts"),
        (SelfAttention(), normal(2, L, D), {"batch": H}, "reads 2 texts at once, and batch is 3"),
        (windows, table, {}, "batch=1 if all of them are parts of one"),
    ):
        assert said in refusal(model, given, **options)
    assert "it reads the item in 12 parts" in recorded(windows, table, batch=1, part=7).source.skipped[0]
    module = Function(product)  # whose inputs have heads and texts in one axis
    assert "It has 6 heads or texts" in refusal(module, q, k, v, keys=SOURCE)
    assert_flowed(recorded(module, q, k, v, keys=SOURCE, batch=1), module, q, k, v)
    for fused in (True, False):  # with equal texts the folding is unknown
        same = torch.randn(1, L, D).expand(2, -1, -1)
        said = refusal(folded(fused, False), same, batch=2, item=1)
        assert "cannot be told where the 2 texts are" in said
    for heads, texts in ((4, 1), (4, 3)):  # without modules the number of texts is asked for
        q, k, v = torch.randn(3, heads, texts, L, D_K)
        assert f"It has {heads} × {texts} heads or texts" in refusal(module, q, k, v)
        for batch, item, own in ((texts, texts - 1, (slice(None), -1)), (heads, 2, 2)):
            [layer] = recorded(module, q, k, v, batch=batch, item=item).layers
            close(layer.weights(), torch.softmax(q @ k.mT, -1)[own])
    for batch in (None, 2):  # as with rows of a table: batch= would make heads of them
        for call in (F.scaled_dot_product_attention, product):
            given = torch.randn(3, 2, 4, H, L, D_K)
            assert "It has 2 × 4 × 3 heads or parts of texts" in refusal(call, *given, batch=batch)
            assert "heads or parts of texts" in refusal(call, *given[:, 1:])
            assert recorded(call, *given[:, 1:], batch=1).layers[0].n_heads == 4 * H
    said = refusal(product, *[torch.randn(H, L, D_K)] * 3)
    assert "It has 3 heads or texts, and it cannot be told how many texts there are; give batch=" in said
    assert "mha.from_tensors" in said


def test_the_last_item_may_be_counted_from_the_end(normal):
    for fused in (True, False):
        model, x = SelfAttention(fused), normal(2, L, D)
        last, second = (recorded(model, x, of=model, item=item) for item in (-1, 1))
        assert last.source == second.source
        close(last.layers[0].result(), second.layers[0].result())


# Other layers, programs and libraries


def recurrent(attention):
    return nn.Sequential(nn.LSTM(D, D, batch_first=True), Function(lambda made: made[0]), attention)


@pytest.mark.parametrize("of_model", [True, False])
def test_layers_that_mix_tokens_by_other_means_are_named(of_model):
    model, x = recurrent(SelfAttention()), torch.randn(1, L, D)
    given = model if of_model else None
    named = "0: LSTM mixes tokens by other means than attention."
    assert recorded(model, x, of=given).source.skipped == (named,)
    assert refusal(model, x, of=given, misfit="raise") == named

    class MSDeformAttn(nn.Linear):
        """It samples points of a picture, as in Deformable DETR."""

    sampling = nn.Sequential(MSDeformAttn(D, D), SelfAttention())
    assert (
        "0: MSDeformAttn mixes tokens by other means" in recorded(sampling, x, of=sampling).source.skipped[0]
    )
    alone = recurrent(nn.Identity())
    assert refusal(alone, x, of=alone).endswith(named)


@pytest.mark.filterwarnings("ignore")  # of torch, about itself
def test_the_module_of_an_exported_program_is_recorded(refused):
    model, x = SelfAttention(), torch.randn(1, L, D)
    program = torch.export.export(model, (x,))
    assert_flowed(recorded(program.module(), x), model, x)
    decomposed = program.run_decompositions().module()
    assert_flowed(recorded(decomposed, x), model, x)
    assert "program.module()" in str(refused(mha.record, program, tokens=TOKENS))


@pytest.mark.parametrize(("family", "implementation"), [("mistral", "eager"), ("gpt2", "sdpa")])
def test_generation_of_a_model_of_transformers_is_recorded(family, implementation, refused):
    changed = {"sliding_window": 3} if family == "mistral" else {}  # its cache forgets what that has passed
    model = tiny.model(family, **changed)
    model.generation_config.eos_token_id = None
    model.set_attn_implementation(implementation)
    given = torch.randint(3, VOCABULARY, (1, 4))
    with torch.no_grad(), mha.record(model, tokens=TOKENS) as rec:
        written = model.generate(given, max_new_tokens=4, do_sample=False)
        model.set_attn_implementation("eager")
    with torch.no_grad():
        asked = model(written[:, :-1], output_attentions=True).attentions
    with torch.no_grad(), mha.record(model, tokens=TOKENS) as of_beams:
        model.generate(given, max_new_tokens=4, num_beams=2)
    assert "the beams of a search" in str(refused(lambda: of_beams.trace))
    assert {layer.n_query for layer in of_beams.unlabelled} == {L}
    trace = rec.trace
    assert trace.source.skipped == ()
    assert [layer.name.split(".")[2] for layer in trace.layers] == ["0", "1"]
    for layer, weights in zip(trace.layers, asked, strict=True):
        close(layer.weights(), weights[0], 1e-5)
        assert layer.x is not None
        assert layer.knows("w_o")
    assert trace.layers[0].n_kv_heads == (6 if family == "gpt2" else 3)


@pytest.mark.parametrize(("heads", "kv_heads", "window", "batch"), [(4, 2, 2, 2), (6, 1, 4, 1)])
def test_a_decoding_step_that_lays_heads_beside_each_other_has_one_query(heads, kv_heads, window, batch):
    """As many heads share a key as there are keys and tokens: its queries are heads of one token."""
    sizes = {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "num_hidden_layers": 1}
    model = tiny.model("mistral", **sizes, sliding_window=window)
    model.generation_config.eos_token_id = None
    for length in {heads // kv_heads, window}:
        given = torch.randint(3, VOCABULARY, (batch, 1))
        model.set_attn_implementation("sdpa")
        with torch.no_grad(), mha.record(model, tokens=TOKENS[:length], item=batch - 1) as rec:
            written = model.generate(given, max_new_tokens=length, do_sample=False)
        model.set_attn_implementation("eager")
        with torch.no_grad():
            [asked] = model(written[:, :-1], output_attentions=True).attentions
        [layer] = rec.trace.layers
        assert (layer.n_heads, layer.n_kv_heads) == (heads, kv_heads)
        close(layer.weights(), asked[batch - 1], 1e-5)
        assert layer.knows("w_o")
