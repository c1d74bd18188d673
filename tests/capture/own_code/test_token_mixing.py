"""Beside recorded attention, each module that mixes tokens is named by what it does, and no other."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import mha_core as mha

D, L = 12, 7
TOKENS = ["the", "old", "cat", "saw", "the", "new", "cat"]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(D, 3 * D)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (3, 4)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


class Residual(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner, self.norm = inner, nn.LayerNorm(D)

    def forward(self, x):
        return x + self.inner(self.norm(x))


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Convolution(nn.Conv1d):
    def forward(self, x):
        return super().forward(x.mT).mT


class OwnGradient(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.flip(1).exp()


def linear(x):
    """Linear attention, elu + 1: no softmax over tokens."""
    q = k = F.elu(x) + 1
    return q @ (k.mT @ x) / (q @ k.sum(1)[..., None])


def by_scatter(x):
    """A graph: each token gets a message from the one before it."""
    return torch.zeros_like(x).index_add(1, torch.arange(1, L), x[:, :-1])


MIXERS = {
    "depthwise convolution": Convolution(D, D, 3, padding=1, groups=D),
    "linear over tokens": Function(lambda x: x.mT.cumsum(-1).mT),
    "fourier": Function(lambda x: torch.fft.fft(x, dim=1).real),
    "roll": Function(lambda x: x.roll(1, dims=1)),
    "numpy": Function(lambda x: torch.from_numpy(x.detach().numpy().mean(1, keepdims=True)).expand_as(x)),
    "own gradient": Function(OwnGradient.apply),
    "linear attention": Function(linear),
    "scatter": Function(by_scatter),
}
HARMLESS = {
    "perceptron": nn.Sequential(
        nn.Linear(D, 3 * D), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(3 * D, D)
    ),
    "gate": Function(lambda x: x * torch.sigmoid(x.mean(-1, keepdim=True))),
    "reversed twice": Function(lambda x: x.flip(1).tanh().flip(1)),
}


class Itself(nn.MultiheadAttention):
    def __init__(self):
        super().__init__(D, 3, batch_first=True)

    def forward(self, x):
        return super().forward(x, x, x, need_weights=False)[0]


def recorded(inner, *, train=True, **options):
    torch.manual_seed(0)
    model = nn.Sequential(Residual(Attention()), Residual(inner), Residual(Attention())).train(train)
    x = torch.randn(2, L, D)
    torch.manual_seed(1)
    expected = model(x)
    with mha.record(model, tokens=TOKENS, item=1, **options) as rec:
        torch.manual_seed(1)
        output = model(x)
    torch.manual_seed(1)
    assert torch.equal(output, expected)
    assert torch.equal(model(x), expected)
    assert not any(part._forward_hooks for part in model.modules())
    assert [layer.name for layer in rec.trace.layers] == ["0.inner", "2.inner"]
    return rec.trace.source


@pytest.mark.parametrize("name", MIXERS)
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_modules_that_mix_tokens_are_named_once(name):
    [named] = recorded(MIXERS[name], check="mixing").skipped
    assert named == "1.inner: it mixes tokens by what it computes, which is not shown."


@pytest.mark.parametrize("name", HARMLESS)
def test_modules_that_mix_no_tokens_are_not_named(name):
    source = recorded(HARMLESS[name], check="mixing")
    assert [reason for reason in source.skipped if "1." in reason] == []
    assert source.notes == ()


@pytest.mark.parametrize("last", [True, False])
def test_of_a_picture_rows_and_columns_count_tokens(last):
    class Pool(nn.AvgPool2d):
        def forward(self, x):
            return super().forward(x.movedim(-1, 1)).movedim(1, -1) if last else super().forward(x)

    class Picture(nn.Module):
        def __init__(self):
            super().__init__()
            self.pool, self.attention = Pool(3, 1, 1), Itself()
            self.plain = nn.Linear(D, D) if last else nn.Conv2d(D, D, 1)

        def forward(self, x):
            x = self.plain(self.pool(x))
            return self.attention(x.flatten(1, 2) if last else x.flatten(2).mT)

    model, x = Picture(), torch.randn(2, 3, 5, D) if last else torch.randn(2, D, 3, 5)
    with mha.record(model, tokens=[str(at) for at in range(15)], item=1, check="mixing") as rec:
        model(x)
    assert rec.trace.source.skipped == ("pool: it mixes tokens by what it computes, which is not shown.",)


def test_code_around_attention_is_distinguished_from_the_attention():
    class Shifted(Residual):
        def forward(self, x):
            return super().forward(x).roll(1, dims=1)

    model, x = nn.Sequential(Shifted(Itself()), nn.Identity()), torch.randn(1, L, D)
    with mha.record(model, tokens=TOKENS, check="mixing") as rec:
        model(x)
    assert rec.trace.source.skipped == ("0: it mixes tokens by what it computes, which is not shown.",)


class Beside(Attention):
    """Attention that changes its queries, keys, values or output by a function over tokens."""

    def __init__(self, where, function, fused):
        super().__init__()
        self.where, self.function, self.fused = where, function, fused

    def forward(self, x, memory=None):
        parts = dict(zip("qkv", self.qkv(x).chunk(3, dim=-1), strict=True))
        parts |= {name: self.function(parts[name]) for name in self.where if name in parts}
        q, k, v = (part.unflatten(-1, (3, 4)).transpose(1, 2) for part in parts.values())
        k, v = (k, v) if memory is None else (memory, memory)
        if self.fused:
            heads = F.scaled_dot_product_attention(q, k, v)
        else:
            heads = torch.softmax(q @ k.mT / 2, dim=-1) @ v
        output = heads.transpose(1, 2).flatten(2)
        return self.function(output) if "o" in self.where else output


KERNEL = torch.full((D, 1, 3), 0.2)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(
    ("where", "function", "said"),
    [
        ("k", lambda x: F.conv1d(x.mT, KERNEL, padding=1, groups=D).mT, "before its attention, in its keys,"),
        ("qv", lambda x: x.cumsum(1), "before its attention, in its queries and values,"),
        ("o", lambda x: x.roll(1, dims=1), "behind its attention,"),
        ("qkvo", torch.tanh, None),
    ],
)
def test_what_mixes_tokens_before_or_behind_the_heads_of_a_module_is_named(where, function, said, fused):
    model = nn.Sequential(Beside(where, function, fused))
    with mha.record(model, tokens=TOKENS, check="mixing") as rec:
        model(torch.randn(2, L, D))
    named = f"0: it mixes tokens {said} which is not shown."
    assert rec.trace.source.skipped == (() if said is None else (named,))


def test_keys_of_another_text_are_not_checked():
    """Its tokens are not those that were changed."""

    class Reading(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Beside("", torch.tanh, fused=True)

        def forward(self, x):
            return self.inner(x, self.memory)

    model = Reading()
    model.memory = torch.randn(2, 3, L, 4)
    with mha.record(model, tokens=TOKENS, check="mixing") as rec:
        model(torch.randn(2, L, D))
    assert "inner: it was not checked for mixing tokens beside its attention." in rec.trace.source.skipped


def test_beside_attention_that_is_not_followed_nothing_is_checked():
    class Two(Attention):
        def forward(self, x):
            seen = super().forward(x)
            return seen + torch.softmax(x @ x.mT, dim=-1).sqrt() @ x

    model = nn.Sequential(Two())
    with mha.record(model, tokens=TOKENS, check="mixing") as rec:
        model(torch.randn(2, L, D))
    unfollowed, beside = rec.trace.source.skipped
    assert "its weights went through sqrt" in unfollowed
    assert beside == "0: it was not checked for mixing tokens beside its attention."


def test_torchs_own_encoder_is_checked_whole():
    layer = nn.TransformerEncoderLayer(D, 3, 2 * D, batch_first=True)
    with mha.record(layer, tokens=TOKENS, check="mixing") as rec:
        layer(torch.randn(2, L, D))
    assert rec.trace.source.skipped == rec.trace.source.notes == ()


def test_ids_are_changed_to_others_that_the_model_knows():
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.attention = nn.Embedding(9, D), Residual(nn.Identity())
            self.attention.inner = Attention()

        def forward(self, ids):
            return self.attention(self.words(ids) + self.words(ids.roll(1, dims=1)))

    model = Reader()
    with mha.record(model, tokens=TOKENS, check="mixing") as rec:
        model(torch.arange(L)[None])
    assert "Reader: it mixes tokens by what it computes, which is not shown." in rec.trace.source.skipped


def test_the_check_does_not_disturb_a_model(recwarn):
    class Lock:
        def __deepcopy__(self, memo):
            raise TypeError("not this one")

    class Locked(Attention):
        def forward(self, x, lock=None):
            return super().forward(x)

    class Recorded(nn.Sequential):
        def forward(self, x):
            self.recorder = mha.record(self, tokens=TOKENS, check="mixing")
            self.recorder.__enter__()  # and it ends when this module has ended
            return super().forward(x)

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.free, self.attention = nn.Linear(D, D), Locked()

        def forward(self, x, lock):
            return self.attention(self.free(x), lock=lock)

    begun = Recorded(Attention(), nn.Linear(D, D))
    assert begun(torch.randn(1, L, D)).shape == (1, L, D)
    begun.recorder.__exit__(None, None, None)
    model = Outer()
    with mha.record(model, tokens=TOKENS, check="mixing") as rec:
        model(torch.randn(1, L, D), Lock())
    skipped = " ".join(rec.trace.source.skipped)
    assert "Outer: it could not be checked for mixing tokens" in skipped
    assert list(recwarn) == []


def test_without_the_check_the_trace_says_that_nothing_was_checked(refused):
    [note] = recorded(nn.Identity()).notes
    assert "was not checked" in note
    assert "of a model" in str(refused(mha.record, tokens=TOKENS, check="mixing"))
    assert "mixing" in str(refused(mha.record, nn.Identity(), tokens=TOKENS, check="all"))
