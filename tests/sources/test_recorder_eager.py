"""Attention with a softmax of its own is recorded exactly, or reported as not recorded."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import mha_core as mha

TOKENS = ["the", "old", "cat", "saw", "the", "new", "cat"]  # 7
H, D_K, D = 3, 5, 15
CAUSAL = torch.ones(7, 7, dtype=torch.bool).tril()


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


class Block(nn.Module):
    """Heads by view, scores by a product, causal by a buffer, as in many a course."""

    def __init__(self, h=H, n_kv=H, dropout=0.0):
        super().__init__()
        self.h, self.n_kv, self.drop, self.seen = h, n_kv, nn.Dropout(dropout), None
        self.q = nn.Linear(D, h * D_K)
        self.k, self.v = nn.Linear(D, n_kv * D_K), nn.Linear(D, n_kv * D_K)
        self.o = nn.Linear(h * D_K, D)
        self.register_buffer("tril", torch.tril(torch.ones(64, 64)))

    def forward(self, x):
        length = x.shape[1]
        q, k, v = (part(x).view(len(x), length, -1, D_K).transpose(1, 2) for part in (self.q, self.k, self.v))
        k, v = (part.repeat_interleave(self.h // self.n_kv, dim=1) for part in (k, v))
        scores = q @ k.transpose(-2, -1) * D_K**-0.5
        scores = scores.masked_fill(self.tril[:length, :length] == 0, float("-inf"))
        weights = F.softmax(scores, dim=-1)
        self.seen = weights.detach(), q.detach()
        return self.o((self.drop(weights) @ v).transpose(1, 2).flatten(2))


class Head(nn.Module):
    """One head; several of them side by side are a layer."""

    def __init__(self):
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(D, D_K, bias=False) for _ in range(3))
        self.register_buffer("tril", torch.tril(torch.ones(64, 64)))
        self.seen = None

    def forward(self, x):
        length, width = x.shape[1:]
        k, q = self.key(x), self.query(x)
        wei = q @ k.transpose(-2, -1) * width**-0.5
        wei = wei.masked_fill(self.tril[:length, :length] == 0, float("-inf"))
        wei = F.softmax(wei, dim=-1)
        self.seen = wei.detach()
        return wei @ self.value(x)


def record_call(model, x, **settings):
    """The recorder of a call, whose output must be unchanged to the bit."""
    expected = model(x)
    with mha.record(tokens=TOKENS, **settings) as rec:
        output = model(x)
    assert torch.equal(output, expected)
    return rec


def close(ours, theirs):
    np.testing.assert_allclose(ours, theirs.detach(), atol=1e-6)


@pytest.mark.parametrize("item", [0, 1])
def test_heads_by_view(item):
    model = Block()
    [layer] = record_call(model, torch.randn(2, 7, D), item=item).trace.layers
    weights, q = (part[item] for part in model.seen)
    assert (layer.n_heads, layer.d_k, layer.n_query) == (H, D_K, 7)
    np.testing.assert_array_equal(layer.q, q)
    close(layer.weights(), weights)
    assert layer.allowed(0).tolist() == np.tri(7, dtype=bool).tolist()
    assert mha.against_torch(layer).difference < 1e-5


class Heads(nn.Module):
    """A list of heads with joined outputs: the textbook's layer."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.heads = nn.ModuleList(Head() for _ in range(H))
        self.proj, self.drop = nn.Linear(H * D_K, D), nn.Dropout(dropout)

    def forward(self, x):
        return self.drop(self.proj(torch.cat([head(x) for head in self.heads], dim=-1)))


@pytest.mark.parametrize(("batch", "item"), [(1, 0), (2, 1), (H, 2), (7, 3)])
def test_a_list_of_heads_is_one_layer(batch, item):
    model = nn.Sequential(Heads(), Heads())
    trace = record_call(model, torch.randn(batch, 7, D), item=item).trace
    assert [layer.n_heads for layer in trace.layers] == [H, H]
    for layer, part in zip(trace.layers, model, strict=True):
        close(layer.weights(), torch.stack([head.seen[item] for head in part.heads]))
        assert layer.allowed(1).tolist() == np.tri(7, dtype=bool).tolist()


def test_heads_that_are_not_joined_stay_layers_of_one_head():
    model = nn.ModuleList(Head() for _ in range(H))
    trace = record_call(lambda x: sum(head(x) for head in model), torch.randn(1, 7, D)).trace
    assert [layer.n_heads for layer in trace.layers] == [1] * H
    for layer, head in zip(trace.layers, model, strict=True):
        close(layer.weights(), head.seen)


@pytest.mark.parametrize(("batch", "item"), [(1, 0), (2, 1), (3, 1)])
def test_shared_keys_are_stored_once(batch, item):
    model = Block(h=6, n_kv=2)
    [layer] = record_call(model, torch.randn(batch, 7, D), item=item).trace.layers
    assert (layer.n_heads, layer.n_kv_heads) == (6, 2)
    close(layer.weights(), model.seen[0][item])


@pytest.mark.parametrize("heads", [1, H])
def test_texts_that_have_the_same_keys_keep_their_heads(heads):
    q, one = torch.randn(2, heads, 7, D_K), torch.randn(1, 1, 7, D_K)
    k = v = one.expand(2, heads, -1, -1)
    [layer] = record_call(lambda _: torch.softmax(q @ k.mT, -1) @ v, None, item=1, batch=2).trace.layers
    close(layer.weights(), torch.softmax(q @ k.mT, -1)[1])


def relative(q, k, v):
    table = torch.arange(1.0, 14.0)[torch.arange(7) - torch.arange(7)[:, None] + 6]
    slopes = torch.tensor([[0.5, 0.25, 0.125], [1.0, 2.0, 3.0]])[:, :, None, None]  # others in each text
    return torch.softmax(q @ k.mT / math.sqrt(D_K) + slopes * table, -1) @ v


def padded(q, k, v):
    there = torch.arange(7) < torch.tensor([[7], [4]])
    return torch.softmax((q @ k.mT).masked_fill(~there[:, None, None], float("-inf")), -1) @ v


def by_words(q, k, v):
    return torch.softmax(q @ k.mT + torch.sin(v @ q.mT), -1) @ v


def einsum(q, k, v):
    scores = torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(D_K)
    return torch.einsum("bhij,bhjd->bhid", scores.softmax(dim=-1), v)


def upcast(q, k, v):
    scores = torch.matmul(q, k.transpose(2, 3)) * D_K**-0.5
    return torch.matmul(F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype), v)


def capped(q, k, v):
    return torch.softmax(4.0 * torch.tanh(q @ k.mT / 4.0), -1) @ v


@pytest.mark.parametrize("way", [relative, padded, by_words, einsum, upcast, capped])
def test_attention_written_in_any_way_is_recorded(way):
    q, k, v = torch.randn(3, 2, H, 7, D_K)
    [layer] = record_call(lambda _: way(q, k, v), None, item=1, batch=2).trace.layers
    np.testing.assert_array_equal(layer.q, q[1])
    close(layer.output(), way(q, k, v)[1])


def test_attention_in_inference_mode_is_recorded():
    model = Block().eval()
    with torch.inference_mode(), mha.record(tokens=TOKENS) as rec:
        model(torch.randn(1, 7, D))
    close(rec.trace.layers[0].weights(), model.seen[0][0])


def test_recording_does_not_change_a_training():
    x, gradients = torch.randn(1, 7, D), []
    for record in (False, True):
        torch.manual_seed(1)
        model = Block()
        if record:
            with mha.record(tokens=TOKENS) as rec:
                model(x).sum().backward()
        else:
            model(x).sum().backward()
        gradients.append([part.grad for part in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))
    before = rec.trace.layers[0].q.copy()
    with torch.no_grad():
        model.q.weight.zero_()
    np.testing.assert_array_equal(rec.trace.layers[0].q, before)


def test_eager_layers_and_torchs_calls_are_in_order():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = Block(), Block()

        def forward(self, x):
            x = self.first(x)
            q = x.view(1, 7, H, D_K).transpose(1, 2)
            return self.last(F.scaled_dot_product_attention(q, q, q).transpose(1, 2).flatten(2))

    model = Both()
    layers = record_call(model, torch.randn(1, 7, D)).trace.layers
    assert [layer.about.by_hand for layer in layers] == [True, False, True]
    close(layers[2].weights(), model.last.seen[0][0])


def test_a_recorder_within_another_shows_it_nothing_of_its_own_work():
    model = Block()
    with mha.record(tokens=TOKENS) as outer, mha.record(tokens=TOKENS) as inner:
        model(torch.randn(1, 7, D))
    assert len(inner.trace.layers) == len(outer.trace.layers) == 1


def test_attention_between_two_texts_is_recorded():
    q, k = torch.randn(1, H, 5, D_K), torch.randn(1, H, 7, D_K)
    with mha.record(tokens=list("abcde"), keys=TOKENS) as rec:
        torch.softmax(q @ k.mT, -1) @ k
    assert [layer.kind for layer in rec.trace.layers] == ["cross"]


class Pool(nn.Module):
    """One learned query looks at all tokens."""

    def forward(self, x):
        k = x.view(len(x), x.shape[1], H, D_K).transpose(1, 2)
        return torch.softmax(torch.ones(1, H, 1, D_K) @ k.mT, -1) @ k


def test_a_call_of_another_size_is_named_beside_those_that_fit(refused):
    model, x = nn.Sequential(Block(), Pool()), torch.randn(1, 7, D)
    trace = record_call(model, x).trace
    assert len(trace.layers) == 1
    [skipped] = trace.source.skipped
    assert "(Pool): 1 queries and 7 keys; the tokens allow 7 and 7." in skipped
    assert "test_recorder_eager.py:" in skipped
    strict = record_call(model, x, misfit="raise")
    assert "1 queries and 7 keys" in str(refused(lambda: strict.trace))
    with mha.record(tokens=TOKENS[:6]) as rec:
        model(x)
    assert "7 queries and 7 keys; the tokens allow 6 and 6. Give one" in str(refused(lambda: rec.trace))
    assert "misfit" in str(refused(lambda: mha.record(tokens=TOKENS, misfit="drop")))


# Which axis counts heads, and which one texts


class HeadsFirst(nn.Module):
    """Heads before texts, (head, text, token, width), or both in one axis, by heads first."""

    def __init__(self, *, joined=False):
        super().__init__()
        self.q, self.o, self.joined, self.seen = nn.Linear(D, D), nn.Linear(D, D), joined, None

    def forward(self, x):
        q = torch.stack(self.q(x).split(D_K, dim=-1))
        q = q.flatten(0, 1) if self.joined else q
        self.seen = torch.softmax(q @ q.mT, -1)
        return self.o(torch.cat(list((self.seen @ q).reshape(H, *x.shape[:2], D_K)), dim=-1))


@pytest.mark.parametrize(("batch", "item"), [(1, 0), (2, 1), (7, 6)])
def test_heads_before_texts_by_what_the_module_reads(batch, item):
    model = HeadsFirst()
    [layer] = record_call(model, torch.randn(batch, 7, D), item=item).trace.layers
    close(layer.weights(), model.seen[:, item])


def test_equal_numbers_of_heads_and_texts_are_refused(refused):
    rec = record_call(HeadsFirst(), torch.randn(H, 7, D))
    assert "It has 3 × 3 heads or texts, and it cannot be told where the 3 texts are" in str(
        refused(lambda: rec.trace)
    )
    model = HeadsFirst(joined=True)  # then the layer that made the values tells
    [layer] = record_call(model, torch.randn(2, 7, D), item=1).trace.layers
    close(layer.weights(), model.seen.view(H, 2, 7, 7)[:, 1])
    [layer] = record_call(model, torch.randn(1, 7, D)).trace.layers
    close(layer.weights(), model.seen)


class Product(nn.Module):
    """Attention as a module of its own, whose inputs q, k and v have heads and texts in one axis."""

    def forward(self, q, k, v):
        return torch.softmax(q @ k.mT, -1) @ v


def test_a_module_that_is_given_q_k_and_v_does_not_tell_how_many_texts_there_are(refused):
    q, k, v = torch.randn(6, 7, D_K), torch.randn(6, 5, D_K), torch.randn(6, 5, 2)
    with mha.record(tokens=TOKENS, keys=list("abcde")) as rec:
        Product()(q, k, v)
    assert "It has 6 heads or texts" in str(refused(lambda: rec.trace))
    with mha.record(tokens=TOKENS, keys=list("abcde"), batch=1) as rec:
        Product()(q, k, v)
    close(rec.trace.layers[0].weights(), torch.softmax(q @ k.mT, -1))


@pytest.mark.parametrize(("heads", "texts"), [(4, 1), (4, 3)])
def test_without_modules_the_number_of_texts_is_asked_for(heads, texts, refused):
    q, k, v = torch.randn(3, heads, texts, 7, D_K)

    def heads_first(_):
        return torch.softmax(q @ k.mT, -1) @ v

    rec = record_call(heads_first, None)
    assert f"It has {heads} × {texts} heads or texts" in str(refused(lambda: rec.trace))
    [layer] = record_call(heads_first, None, batch=texts, item=texts - 1).trace.layers
    close(layer.weights(), torch.softmax(q @ k.mT, -1)[:, -1])
    [layer] = record_call(heads_first, None, batch=heads, item=2).trace.layers
    close(layer.weights(), torch.softmax(q @ k.mT, -1)[2])


@pytest.mark.parametrize("unbatched", [True, False])
def test_one_text_without_an_axis_for_it(unbatched):
    q = torch.randn(7, D_K) if unbatched else torch.randn(1, 7, D_K)
    [layer] = record_call(lambda _: torch.softmax(q @ q.mT, -1) @ q, None).trace.layers
    close(layer.weights()[0], torch.softmax(q @ q.mT, -1).view(7, 7))


# Ways to write a softmax


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


def logarithm(q, k, v):
    return F.log_softmax(q @ k.mT * 0.3, dim=-1).exp(), v


def special(q, k, v):
    return torch.special.softmax(q @ k.mT, -1), v


def columns(q, k, v):
    """Keys before queries: each column sums to 1."""
    return torch.softmax((k @ q.mT).masked_fill(~CAUSAL.mT, -1e9), dim=-2).transpose(-2, -1), v


def transposed(q, k, v):
    return torch.softmax((k @ q.mT).transpose(-1, -2) / 3, -1), v


def heads_last(q, k, v):
    scores = torch.einsum("bhqd,bhkd->bqkh", q, k)
    scores = scores.masked_fill(~CAUSAL[None, :, :, None], -torch.inf)
    return scores.softmax(dim=2).permute(0, 3, 1, 2), v


def sink(q, k, v):
    column = torch.tensor([0.5, -1.0, 2.0]).to(q).view(1, H, 1, 1).expand(len(q), -1, 7, 1)
    scores = torch.cat([(q @ k.mT).masked_fill(~CAUSAL, -torch.inf), column], dim=-1)
    scores = scores - scores.max(dim=-1, keepdim=True).values
    return F.softmax(scores, dim=-1)[..., :-1], v


def factor_for_each_head(q, k, v):
    factor = torch.tensor([0.5, 1.5, 2.0]).to(q).view(H, 1, 1)
    bias = torch.randn(7, 7, generator=torch.Generator().manual_seed(5)).to(q)
    return torch.softmax((q @ k.mT + bias) * factor, -1), v


def values_first(q, k, v):
    """As over pixels: (width, token) times (token, token)."""
    weights = torch.softmax(q @ k.mT, -1)
    return weights, v, (v.mT @ weights.permute(0, 1, 3, 2)).mT


WAYS = (
    *(exponentials, exponentials_hidden_afterwards, stable_by_one_number, logarithm, special, columns),
    *(transposed, heads_last, sink, factor_for_each_head, values_first),
)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_every_way_to_a_softmax_is_followed(way, dtype):
    q, k, v = torch.randn(3, 2, H, 7, D_K).to(dtype)
    seen = []

    def model(_):
        weights, values, *output = way(q, k, v)
        seen[:] = weights, *output
        return output[0] if output else weights @ values

    trace = record_call(model, None, item=1, batch=2).trace
    assert trace.source.skipped == ()
    [layer] = trace.layers
    np.testing.assert_allclose(
        layer.weights(), seen[0][1].double(), atol=1e-6 if dtype.itemsize > 2 else 0.02
    )


# What is not followed


def sigmoids(q, k, v):
    return torch.sigmoid(q @ k.mT) @ v


def squares(q, k, v):
    return (q @ k.mT).relu().square() @ v


def no_softmax(q, k, v):
    return ((q @ k.mT) * CAUSAL) @ v


def one_more(q, k, v):
    """One more in the sum: a sink at zero that has no column."""
    weights = (q @ k.mT).exp()
    return (weights / (1 + weights.sum(-1, keepdim=True))) @ v


def over_queries(q, k, v):
    return torch.softmax(q @ k.mT, dim=-2) @ v


def over_heads(q, k, v):
    return torch.softmax(q @ k.mT, dim=1) @ v


def talking(q, k, v):
    mixed = torch.einsum("bhij,hg->bgij", q @ k.mT, torch.eye(H) + 0.1)
    return torch.softmax(mixed, -1) @ v


def no_product(q, k, v):
    """Additive attention: there is no product of queries and keys."""
    return torch.softmax(torch.tanh(q[..., :, None, :] + k[..., None, :, :]).sum(-1), -1) @ v


def divided_afterwards(q, k, v):
    weights = (q @ k.mT).exp()
    return (weights @ v) / weights.sum(-1, keepdim=True)


def renormalised(q, k, v):
    weights = torch.softmax(q @ k.mT, -1)
    return F.normalize(weights, p=1, dim=-1).pow(2) @ v


def in_blocks(q, k, v):
    """A few keys at a time, as FlashAttention does."""
    output, total = torch.zeros_like(v), torch.zeros(1, H, 7, 1)
    for keys, values in zip(k.split(3, dim=2), v.split(3, dim=2), strict=True):
        weights = (q @ keys.mT).exp()
        output, total = output + weights @ values, total + weights.sum(-1, keepdim=True)
    return output / total


def many_at_once(q, k, v):
    return torch.vmap(lambda q, k, v: torch.softmax(q @ k.mT, -1) @ v)(q, k, v)


def own_kernel(q, k, v):
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)[0]


def operator(q, k, v):
    return torch.ops.aten.scaled_dot_product_attention(q, k, v)


def private(q, k, v):
    return torch._scaled_dot_product_flash_attention_for_cpu(q, k, v)[0]


UNFOLLOWED = {
    own_kernel: "calls the operator _scaled_dot_product_flash_attention_for_cpu itself",
    operator: "calls the operator scaled_dot_product_attention itself",
    private: "calls the operator _scaled_dot_product_flash_attention_for_cpu itself",
    sigmoids: "went through sigmoid",
    squares: "went through relu",
    no_softmax: "went through no softmax",
    one_more: "scores that went through div",
    over_queries: "it sums to 1 over the queries",
    over_heads: "it sums to 1 over another axis",
    talking: "7 × 7 tokens was not followed: its weights went through matmul",
    no_product: "no product of queries and keys",
    divided_afterwards: "exponentials of scores that are not divided by their sum",
    in_blocks: "exponentials of scores that are not divided by their sum. (3 times)",
    many_at_once: "of torch.vmap",
    renormalised: "its weights went through normalize",
}


@pytest.mark.parametrize("way", UNFOLLOWED, ids=lambda way: way.__name__)
def test_operations_not_followed_are_named_with_their_place(way):
    q, k, v = torch.randn(3, 1, H, 7, D_K)

    def model(_):
        return F.scaled_dot_product_attention(q, k, v), way(q, k, v)

    expected = model(None)
    with mha.record(tokens=TOKENS) as rec:
        output = model(None)
    assert all(torch.equal(one, other) for one, other in zip(output, expected, strict=True))
    assert len(rec.trace.layers) == 1
    [skipped] = rec.trace.source.skipped
    assert UNFOLLOWED[way] in skipped
    line = way.__code__.co_firstlineno
    place = int(skipped.partition("test_recorder_eager.py:")[2].partition(":")[0])
    assert line < place < line + 6


def test_custom_dropout_is_named():
    def model(x):
        weights = torch.softmax(x @ x.mT, -1)
        return weights * (torch.rand_like(weights) > 0.1) / 0.9 @ x

    x = torch.randn(1, H, 7, D_K)
    with mha.record(tokens=TOKENS) as rec:
        model(x)
        F.scaled_dot_product_attention(x, x, x)
    assert "its weights went through mul" in rec.trace.source.skipped[0]


def test_two_texts_in_one_call_are_named():
    q, k = torch.randn(1, H, 5, D_K), torch.randn(1, H, 7, D_K)

    def model(_):
        both = torch.cat([k, q], dim=2)
        own = torch.softmax(q @ q.mT, -1) @ q
        return own + torch.softmax(q @ both.mT, -1) @ both

    with mha.record(tokens=list("abcde"), keys=TOKENS) as rec:
        model(None)
    assert [layer.kind for layer in rec.trace.layers] == ["decoder"]
    [skipped] = rec.trace.source.skipped
    assert "5 queries and 12 keys; the tokens allow 7 and 7, 5 and 5, 5 and 7." in skipped


def test_a_classifier_or_router_is_not_attention():
    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.gate, self.up = Block(), nn.Linear(D, 4), nn.Parameter(torch.randn(D, 7))

        def forward(self, x):
            x = self.attention(x)
            y = torch.sigmoid(x @ self.up) @ self.up.T
            return (y * self.gate(x).softmax(-1).sum()).log_softmax(-1)

    assert record_call(Mixture(), torch.randn(1, 7, D)).trace.source.skipped == ()


@pytest.mark.parametrize("item", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_with_padding_on_the_left_rows_that_see_nothing_are_even(item, dtype):
    """As transformers computes them: the lowest number everywhere leaves no difference."""
    q, k, v = torch.randn(3, 2, H, 7, D_K).to(dtype)
    sees = (
        torch.ones(7, 7, dtype=torch.bool).tril()
        & (torch.arange(7) >= torch.tensor([[3], [0]]))[:, None, None]
    )
    added = torch.zeros(sees.shape, dtype=dtype).masked_fill(~sees, torch.finfo(dtype).min)
    seen = []

    def model(_):
        scores = q @ k.mT / D_K**0.5 + added
        seen[:] = [torch.softmax(scores, dim=-1, dtype=torch.float32).to(dtype)]
        return seen[0] @ v

    trace = record_call(model, None, item=item, batch=2).trace
    assert trace.source.skipped == ()
    [layer] = trace.layers
    rounding = max(1e-6, torch.finfo(dtype).eps)
    np.testing.assert_allclose(layer.weights(), seen[0][item].float(), atol=rounding)
    if item == 0:
        np.testing.assert_allclose(layer.weights()[:, 0], 1 / 7, atol=rounding)


def by_yes_and_no(scores, lengths):
    scores[torch.arange(7) >= lengths[:, None, None].expand(scores.shape)] = -torch.inf
    return torch.softmax(scores, -1)


def row_by_row(scores, lengths, value=-1e6):
    """Masks what is beyond the valid length, as in "Dive into Deep Learning"."""
    rows = scores.reshape(-1, scores.shape[-1])
    rows[~(torch.arange(7)[None] < lengths.repeat_interleave(7)[:, None])] = value
    return torch.softmax(rows.reshape(scores.shape), -1)


@pytest.mark.parametrize("masked", [by_yes_and_no, row_by_row], ids=lambda masked: masked.__name__)
def test_overwritten_scores_are_masked(masked):
    q, k, v, lengths = *torch.randn(3, 2, 7, D_K), torch.tensor([4, 6])

    def model(_):
        return masked(q @ k.mT / D_K**0.5, lengths) @ v

    trace = record_call(model, None, item=1, batch=2).trace
    assert trace.source.skipped == ()
    [layer] = trace.layers
    close(layer.weights(head=0), masked(q @ k.mT / D_K**0.5, lengths)[1])
    assert layer.weights(head=0)[:, 6].max() == 0


def test_scores_overwritten_in_other_ways_are_unknown():
    block = Block()

    def model(x):
        scores = x @ x.mT
        scores[:, 0] = 0.5
        return torch.softmax(scores, -1) @ x + block(x)

    [reason] = record_call(model, torch.randn(1, 7, D), batch=1).trace.source.skipped
    assert "its scores went through setitem" in reason


class Gated(nn.Module):
    """Two softmaxes mixed by a gate, over the tokens without the first one, in the manner of ConViT."""

    def __init__(self):
        super().__init__()
        self.qkv, self.places = nn.Linear(D, 3 * D), nn.Parameter(torch.randn(6, 6))

    def forward(self, x):
        q, k, v = (part[:, 1:] for part in self.qkv(x).chunk(3, dim=-1))
        weights = 0.6 * torch.softmax(q @ k.mT, -1) + 0.4 * torch.softmax(self.places, -1)
        return x + F.pad(weights @ v, (0, 0, 1, 0))


class Outlook(nn.Module):
    """Weights of a linear layer, without queries and keys, for nine cells around a place, as in VOLO."""

    def __init__(self):
        super().__init__()
        self.values, self.weights = nn.Linear(D, 9 * D), nn.Linear(D, 81)

    def forward(self, x):
        weights = self.weights(x).view(1, 7, 9, 9).transpose(-1, -2).softmax(-1)
        return x + (weights @ self.values(x).view(1, 7, 9, D)).mean(2)


def test_weights_that_no_queries_and_keys_give_are_named_whatever_their_size():
    [reason] = record_call(nn.Sequential(Outlook(), Block()), torch.randn(1, 7, D)).trace.source.skipped
    assert "attention over 9 × 9 was not followed: its input is no product of queries and keys" in reason


class OfNoTokens(nn.Module):
    """Seven keys that are channels, as in XCiT, or mixtures of the seven tokens, as in Linformer."""

    def __init__(self, way, fused):
        super().__init__()
        self.way, self.fused, self.qkv = way, fused, nn.Linear(D, 3 * 7)
        self.mix, self.places = nn.Linear(7, 7), nn.Parameter(torch.randn(7, 7))

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        if self.way == "channels":
            q, k, v = F.normalize(q.mT, dim=-1), F.normalize(k.mT, dim=-1), v.mT
        elif self.way == "by a layer":
            k, v = (self.mix(part.mT).mT for part in (k, v))
        elif self.way == "by a matrix":
            k, v = (torch.einsum("bnd,nk->bkd", part, self.places) for part in (k, v))
        q, k, v = q[:, None], k[:, None], v[:, None]
        if self.fused:
            return F.scaled_dot_product_attention(q, k, v)[:, 0]
        return (torch.softmax(q @ k.mT, -1) @ v)[:, 0]


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("way", ["channels", "by a layer", "by a matrix", "tokens"])
def test_axes_that_are_not_tokens_have_no_labels_of_tokens(way, fused):
    model = nn.Sequential(Block(), OfNoTokens(way, fused))
    trace = record_call(model, torch.randn(1, 7, D)).trace
    assert len(trace.layers) == 1 + (way == "tokens")
    named = "its keys are no tokens: they are channels, or mixtures of all tokens"
    assert (named in " ".join(trace.source.skipped)) == (way != "tokens")


class Inverse(nn.Module):
    """Weights times the inverse of others, as where Nyströmformer has as many landmarks as tokens."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(D, 3 * D)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        weights = torch.softmax(q @ k.mT, -1)
        return x + weights @ (7 * torch.eye(7) - weights @ weights) @ v


def test_weights_times_weights_are_not_a_layer():
    trace = record_call(nn.Sequential(Inverse(), Block()), torch.randn(1, 7, D)).trace
    assert len(trace.layers) == 1
    assert "its weights are multiplied with weights" in " ".join(trace.source.skipped)


def test_attention_that_is_not_followed_is_named_whatever_its_size():
    trace = record_call(nn.Sequential(Gated(), Block()), torch.randn(1, 7, D)).trace
    assert len(trace.layers) == 1
    [reason] = trace.source.skipped
    assert "attention over 6 × 6 was not followed: its weights went through mul" in reason


def test_with_dropout_the_weights_are_those_before_it():
    model, x = nn.Sequential(Block(dropout=0.5), Block(dropout=0.25)).train(), torch.randn(2, 7, D)
    torch.manual_seed(3)
    expected = model(x)
    with mha.record(tokens=TOKENS, item=1) as rec:
        torch.manual_seed(3)
        output = model(x)
    assert torch.equal(output, expected)
    assert [layer.about.dropout for layer in rec.trace.layers] == [0.5, 0.25]
    assert rec.trace.source.skipped == ()
    for layer, part in zip(rec.trace.layers, model, strict=True):
        close(layer.weights(), part.seen[0][1])


def test_ambiguous_calls_do_not_affect_clear_ones():
    def model(x):
        q = x.view(1, 7, H, D_K).transpose(1, 2)
        torch.softmax(q[0] @ q[0].mT, -1) @ q[0]
        return F.scaled_dot_product_attention(q, q, q)

    trace = record_call(model, torch.randn(1, 7, D)).trace
    assert len(trace.layers) == 1
    assert "3 heads or texts, and it cannot be told" in trace.source.skipped[0]


def test_weights_that_are_changed_on_their_way_are_not_shown(refused):
    def sharpened(x):
        q = x.view(1, 7, H, D_K).transpose(1, 2)
        weights = torch.softmax(q @ q.mT, -1)
        return weights / weights.max() @ q

    with mha.record(tokens=TOKENS) as rec:
        sharpened(torch.randn(1, 7, D))
    assert "its weights went through div" in str(refused(lambda: rec.trace))


def test_changes_that_torch_does_not_see_are_not_shown(refused):
    def halved(x):
        q = x.view(1, 7, H, D_K).transpose(1, 2)
        weights = torch.softmax(q @ q.mT, -1)
        weights.data.mul_(0.5)
        return weights @ q

    with mha.record(tokens=TOKENS) as rec:
        halved(torch.randn(1, 7, D))
    assert "was not followed" in str(refused(lambda: rec.trace))


def test_one_axis_for_heads_and_texts_is_refused(refused):
    q = torch.randn(H, 7, D_K)
    with mha.record(tokens=TOKENS) as rec:
        torch.softmax(torch.bmm(q, q.mT), -1) @ q
    message = str(refused(lambda: rec.trace))
    assert "It has 3 heads or texts, and it cannot be told how many texts there are; give batch=" in message
    assert "mha.from_tensors" in message
