"""Rows and columns are proven to be the tokens in their order, or left out; check="mixing" proves more."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import mha_core as mha
from tests.sources.recorded import GPT, TOKENS, VOCABULARY, Attention, D, Function, H, L, SelfAttention

PADDED = (torch.arange(L) < 5).float()[:, None]
PIXELS = [f"px{at}" for at in range(16)]


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def built(way, *parts):
    """A function of attention, of further parts and of what the model is given."""
    return Function(way, Attention(), *parts)


class Channels(nn.Module):
    """Attention over 16 channels, as many as pixels."""

    def __init__(self, make):
        super().__init__()
        self.make, self.conv = make, nn.ModuleList(nn.Conv2d(16, 16, 1) for _ in range(3))
        self.table, self.mix = nn.Parameter(torch.randn(3, 16, 16)), nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = self.make(self, x)
        return torch.softmax(q @ k.mT / 4, -1) @ v


def by_importance(x):
    return x.gather(1, x[..., :1].argsort(1).expand_as(x))


def of_pictures(channels):
    """q, k and v (text, pixel or channel, width) by convolutions."""

    def make(model, x):
        made = (layer(x).flatten(2) for layer in model.conv)
        return [part if channels else part.mT for part in made]

    return make


def mixed_keys(model, x):
    q, k, v = (layer(x).flatten(2).mT for layer in model.conv)
    return q, *(model.mix(part.mT).mT.contiguous() for part in (k, v))


ORDER, LEARNED, NONE = (
    "in the order in which the model",
    "do not change with the tokens",
    "changes with every token",
)
REFUSED = {
    "flipped": (built(lambda attn, x: attn(x.flip(1))), ORDER),
    "flipped for a residual": (built(lambda attn, x: x + attn(x.flip(1)).flip(1)), ORDER),
    "flipped by a module": (
        built(lambda attn, flip, x: attn(flip(x)), Function(lambda x: x.flip(1))),
        ORDER,
    ),
    "sorted": (built(lambda attn, x: attn(by_importance(x))), ORDER),
    "shifted": (built(lambda attn, x: attn(F.pad(x[:, :-1], (0, 0, 1, 0)))), ORDER),
    "keys in another order": (
        built(lambda attn, x: attn(x, x.roll(1, 1))),
        "its keys and values are not the tokens",
    ),
    "another item": (built(lambda attn, x: attn(x[[1, 2, 0]])[[2, 0, 1]]), ORDER),
    "over the batch": (built(lambda attn, x: attn(x.transpose(0, 1)).transpose(0, 1)), ORDER),
    # As many learned queries, keys or both as there are tokens.
    "learned queries": (
        built(lambda attn, table, x: attn(table.weight[None], x), nn.Embedding(L, D)),
        "its queries do not change with the tokens",
    ),
    "learned keys": (
        built(lambda attn, table, x: attn(x, table.weight[None]), nn.Embedding(L, D)),
        "its keys and values do not change with the tokens",
    ),
    "latents": (built(lambda attn, table, x: attn(table.weight[None]), nn.Embedding(L, D)), LEARNED),
    "a second layer": (built(lambda attn, one, x: attn(one(x).flip(1)), Attention()), ORDER),
}
OF_CHANNELS = {
    "convolution": of_pictures(True),
    "parameter": lambda model, x: [x.flatten(2) @ part for part in model.table],
    "covariance": lambda model, x: [x.flatten(2) @ x.flatten(2).mT] * 3,
    "mixtures": mixed_keys,
}
PROVEN = {
    "by hand": (Attention(fused=False), torch.randn(3, L, D)),
    "no residual": (nn.Sequential(Attention(), nn.Tanh(), Attention(), nn.Linear(D, D), Attention()), None),
    "residual": (built(lambda attn, one, x: attn((y := x + one(x)).exp()) + y, Attention()), None),
    "flipped twice": (built(lambda attn, x: attn(x.flip(1).tanh().flip(1))), None),
    "ids": (GPT(), torch.randint(VOCABULARY, (3, L))),
    "one text": (GPT(fused=False), torch.randint(VOCABULARY, (1, L))),
    "as many texts": (GPT(), torch.randn(L, L, D)),
    "dropout": (built(lambda attn, drop, x: attn(drop(x)), nn.Dropout(0.5)), None),
    "torch": (nn.TransformerEncoderLayer(D, H, 8, batch_first=True), None),
    "torch, tokens first": (nn.TransformerEncoderLayer(D, H, 8, 0.0), torch.randn(L, 3, D)),
    "behind a mixer": (
        built(lambda attn, conv, x: attn(x + conv(x.mT).mT), nn.Conv1d(D, D, 3, padding=1)),
        None,
    ),
    "masked": (SelfAttention(), None),
    "padding without numbers": (built(lambda attn, x: attn(x * PADDED, sees=PADDED.mT > 0)), None),
}


def checked(model, *given, tokens=TOKENS, item=1, check="mixing", **options):
    """What is shown, and what is said about the rest."""
    with torch.no_grad(), mha.record(model, tokens=tokens, item=item, check=check, **options) as rec:
        model(*given)
    try:
        trace = rec.trace
    except mha.MhaError as error:
        return (), str(error), ()
    notes = [note for note in trace.source.notes if "dropout" not in note]
    return trace.layers, " ".join(trace.source.skipped), notes


@pytest.mark.parametrize("check", ["order", "mixing"])
def test_rows_that_are_not_the_tokens_in_their_order_are_left_out(subtests, check):
    for name, (model, said) in REFUSED.items():
        with subtests.test(name):
            x = torch.randn(L if "batch" in name else 3, L, D)
            layers, skipped, _ = checked(model, x, check=check)
            assert said in skipped
            assert len(layers) == (name == "a second layer")


def test_channels_and_mixtures_are_left_out_and_pixels_are_proven(subtests):
    for name, make in OF_CHANNELS.items():
        with subtests.test(name):
            layers, skipped, _ = checked(Channels(make), torch.randn(1, 16, 4, 4), tokens=PIXELS, item=0)
            assert NONE in skipped
            assert layers == ()
    layers, *said = checked(Channels(of_pictures(False)), torch.randn(1, 16, 4, 4), tokens=PIXELS, item=0)
    assert (len(layers), said) == (1, ["", []])


def test_tokens_in_their_order_are_proven(subtests):
    kinds = Attention, SelfAttention, nn.MultiheadAttention
    for name, (model, x) in PROVEN.items():
        with subtests.test(name):
            x = torch.randn(3, L, D) if x is None else x
            layers, _, notes = checked(model, x, item=int(name != "one text"))
            assert notes == []
            [note] = checked(model, x, item=int(name != "one text"), check="order")[2]
            assert note.startswith("Whether anything" if name != "behind a mixer" else "Whether rows")
            assert len(layers) == sum(isinstance(part, kinds) for part in model.modules())


def test_unasked_two_runs_prove_the_order_and_the_notes_say_what_they_do_not(subtests):
    runs = []

    class Told(nn.Module):
        def __init__(self, attention, other):
            super().__init__()
            self.attention, self.other = attention, other

        def forward(self, x, cache=None):
            runs.append(1)
            return self.attention(self.other(x))

    class Cache:
        def __deepcopy__(self, memo):
            raise AssertionError("a cache may be as large as a model")

    convolution = Function(lambda conv, x: conv(x.mT).mT, nn.Conv1d(D, D, 3, padding=1))
    linear, nothing = nn.Linear(D, D), "Whether rows and columns"
    for name, other, cache, check, n_runs, begins in (
        ("vectors", linear, None, "order", 3, "Whether anything but the attention"),
        ("a cache", linear, Cache(), "order", 1, nothing),
        ("not asked for", linear, None, None, 1, nothing),
        ("a mixer before it", convolution, None, "order", 3, nothing),
    ):
        with subtests.test(name):
            runs.clear()
            model = Told(Attention(), other)
            with torch.no_grad(), mha.record(model, tokens=TOKENS, check=check) as recorder:
                model(torch.randn(3, L, D), cache)
            [note] = recorder.trace.source.notes
            assert (len(runs), note.startswith(begins), len(recorder.trace.layers)) == (n_runs, True, 1)


def test_unasked_a_mixer_of_all_tokens_is_named_and_not_taken_for_channels():
    norm = Function(lambda norm, x: norm(x.mT).mT, nn.InstanceNorm1d(D))
    layers, skipped, notes = checked(nn.Sequential(norm, Attention()), torch.randn(3, L, D), check="order")
    assert (len(layers), notes) == (1, [])
    assert "0.parts.0 and 0: each mixes tokens" in skipped or "0: it mixes tokens" in skipped


def test_queries_and_keys_of_two_tensors_are_of_two_texts():
    given, model = torch.randn(2, 1, L, D), built(lambda attn, x, y: attn(x, y))
    assert "of two texts" in checked(model, *given, item=0)[1]
    layers, *said = checked(model, *given, item=0, keys=list("abcdefg"), kinds=["cross"])
    assert (len(layers), said[1]) == (1, [])


@pytest.mark.parametrize("special", [0, 1, 2])
def test_patches_of_pictures_are_proven_or_left_out(special):
    def forward(attn, patch, x):
        patches = order(patch(x).flatten(2).mT)
        return attn(torch.cat([torch.ones(len(x), special, D), patches], dim=1))

    model, tokens = built(forward, nn.Conv2d(3, D, 2, 2)), [str(at) for at in range(special + 6)]
    order = nn.Identity()
    layers, *said = checked(model, torch.randn(2, 3, 4, 6), tokens=tokens)
    assert (len(layers), said) == (1, ["", []])
    order = lambda patches: patches[:, torch.tensor([2, 0, 1, 5, 4, 3])]  # noqa: E731
    assert ORDER in checked(model, torch.randn(2, 3, 4, 6), tokens=tokens)[1]


def test_one_tensor_given_three_times_is_one_text():
    x, model = torch.randn(2, L, D), nn.MultiheadAttention(D, H, batch_first=True)
    layers, *said = checked(model, x, x, x)
    assert (len(layers), said) == (1, ["", []])
    assert "of two texts" in checked(model, x, x + 1, x + 1)[1]


def test_what_is_given_no_tokens_could_not_be_checked():
    model = built(lambda attn, linear, x: attn(linear(x).unflatten(1, (L, D))), nn.Linear(5, L * D))
    [note] = checked(model, torch.randn(2, 5))[2]
    assert "of parts.0 are the tokens in their order could not be checked" in note
