"""Beside recorded attention, each module that mixes tokens is named by what it does, and no other."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import mha_core as mha
from tests.sources.recorded import TOKENS, Attention, D, Function, Itself, L, heads_of, recorded


class Residual(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner, self.norm = inner, nn.LayerNorm(D)

    def forward(self, x):
        return x + self.inner(self.norm(x))


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


def residual(inner, **options):
    torch.manual_seed(0)
    model = nn.Sequential(Residual(Attention()), Residual(inner), Residual(Attention()))
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


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_modules_that_mix_tokens_are_named_once_and_no_others(subtests):
    for name, module in MIXERS.items():
        with subtests.test(name):
            [named] = residual(module, check="mixing").skipped
            assert named == "1.inner: it mixes tokens by what it computes, which is not shown."
    for name, module in HARMLESS.items():
        with subtests.test(name):
            source = residual(module, check="mixing")
            assert [reason for reason in source.skipped if "1." in reason] == []
            assert source.notes == ()


@pytest.mark.parametrize("last", [True, False])
def test_of_a_picture_rows_and_columns_count_tokens(last):
    class Pool(nn.AvgPool2d):
        def forward(self, x):
            return super().forward(x.movedim(-1, 1)).movedim(1, -1) if last else super().forward(x)

    rest = (nn.Linear(D, D), nn.Flatten(1, 2)) if last else (nn.Conv2d(D, D, 1), nn.Flatten(2))
    model = nn.Sequential(Pool(3, 1, 1), *rest, Function(lambda x: x if last else x.mT), Itself())
    x = torch.randn(2, 3, 5, D) if last else torch.randn(2, D, 3, 5)
    tokens = [str(at) for at in range(15)]
    trace = recorded(model, x, tokens=tokens, item=1, of=model, check="mixing")
    assert trace.source.skipped == ("0: it mixes tokens by what it computes, which is not shown.",)


SOMEWHERE = {
    "behind another": lambda mix, x: mix(x.detach(), x),
    "by name": lambda mix, x: mix(x.detach(), x=x),
    "behind a step": lambda mix, x: mix(torch.tensor(3), x),
    "behind a mask": lambda mix, x: mix(torch.ones(L, L), x),
    "behind a loss": lambda mix, x: mix(x.detach(), x, lambda y: (y.sum(), y))[1],
    "behind weights": lambda mix, x: mix(x.detach(), x, lambda y: (torch.ones(2, 3, L, L), y))[1],
}


@pytest.mark.parametrize("where", SOMEWHERE)
def test_every_tensor_that_a_module_is_given_or_returns_is_looked_at(where):
    class Mix(nn.Module):
        def forward(self, first, x, returned=lambda y: y):
            return returned(first + x.cumsum(1) if first.shape == x.shape else x.cumsum(1))

    model = Function(lambda attn, mix, x: attn(x) + SOMEWHERE[where](mix, x), Attention(), Mix())
    named = recorded(model, torch.randn(2, L, D), of=model, check="mixing").source.skipped
    assert "parts.1: it mixes tokens by what it computes, which is not shown." in named


class Beside(nn.Module):
    """Attention that changes its queries, keys, values or output by a function over tokens."""

    def __init__(self, where, function, fused):
        super().__init__()
        self.where, self.function, self.fused, self.qkv = where, function, fused, nn.Linear(D, 3 * D)

    def forward(self, x):
        parts = dict(zip("qkv", self.qkv(x).chunk(3, dim=-1), strict=True))
        parts |= {name: self.function(parts[name]) for name in self.where if name in parts}
        q, k, v = map(heads_of, parts.values())
        if self.fused:
            heads = F.scaled_dot_product_attention(q, k, v)
        else:
            heads = torch.softmax(q @ k.mT / 2, dim=-1) @ v
        output = heads.transpose(1, 2).flatten(2)
        return self.function(output) if "o" in self.where else output


KERNEL = torch.full((D, 1, 3), 0.2)


BESIDE = [
    ("k", lambda x: F.conv1d(x.mT, KERNEL, padding=1, groups=D).mT, "before its attention, in its keys,"),
    ("qv", lambda x: x.cumsum(1), "before its attention, in its queries and values,"),
    ("o", lambda x: x.roll(1, dims=1), "behind its attention,"),
    ("qkvo", torch.tanh, None),
]


class Two(Attention):
    """Attention that is followed and attention that is not."""

    def forward(self, x):
        return super().forward(x) + torch.softmax(x @ x.mT, dim=-1).sqrt() @ x


def of_ids(words, attention, ids):
    """It reads ids, which are changed to others that it knows."""
    x = words(ids) + words(ids.roll(1, dims=1))
    return x + attention(x)


def test_what_is_around_attention_is_checked_or_said_not_to_be():
    def skipped(model, x=None):
        x = torch.randn(2, L, D) if x is None else x
        source = recorded(model, x, of=model, check="mixing").source
        assert source.notes == ()
        return source.skipped

    for where, function, said in BESIDE:
        for fused in (True, False):
            named = () if said is None else (f"0: it mixes tokens {said} which is not shown.",)
            assert skipped(nn.Sequential(Beside(where, function, fused))) == named
    computed = "it mixes tokens by what it computes, which is not shown."
    shifted = Function(lambda inner, x: inner(x).roll(1, dims=1), Residual(Itself()))
    assert skipped(nn.Sequential(shifted, nn.Identity())) == (f"0: {computed}",)
    reader = Function(of_ids, nn.Embedding(9, D), Attention())
    assert f"Function: {computed}" in skipped(reader, torch.arange(L)[None])
    assert skipped(nn.TransformerEncoderLayer(D, 3, 2 * D, dropout=0, batch_first=True)) == ()
    assert skipped(nn.TransformerEncoderLayer(D, 4, 2 * D, dropout=0, batch_first=True).eval()) == ()
    unchecked = "it was not checked for mixing tokens beside its attention."
    unfollowed, beside = skipped(nn.Sequential(Two()))
    assert "its weights went through sqrt" in unfollowed
    assert beside == f"0: {unchecked}"


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
    [note] = residual(nn.Identity()).notes
    assert "was not checked" in note
    assert "of a model" in str(refused(mha.record, tokens=TOKENS, check="mixing"))
    assert "mixing" in str(refused(mha.record, nn.Identity(), tokens=TOKENS, check="all"))
