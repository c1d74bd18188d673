"""The parts of an item as one layer: each has the weights that it has alone, at the places of its tokens."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import mha_core as mha
from tests.sources.recorded import Function, refusal
from tests.sources.recorded import recorded as recorded_call

D, H, D_K = 12, 3, 4
SIDE, WINDOW = 8, 4
N, PARTS, ROWS = SIDE**2, (SIDE // WINDOW) ** 2, WINDOW**2
TOKENS = [str(at) for at in range(N)]


class WindowAttention(nn.Module):
    """Attention inside each window, with a bias for each head and a mask for each window, as in Swin."""

    def __init__(self, way):
        super().__init__()
        self.way, self.qkv, self.out = way, nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.bias = nn.Parameter(torch.randn(H, ROWS, ROWS))
        self.torchs = nn.MultiheadAttention(D, H, batch_first=True)

    def forward(self, x, sees=None):
        if self.way == "torch":
            return self.torchs(x, x, x, need_weights=False)[0]
        q, k, v = self.qkv(x).view(len(x), -1, 3, H, D_K).permute(2, 0, 3, 1, 4)
        bias = self.bias.expand(len(x), -1, -1, -1)
        bias = bias if sees is None else bias.masked_fill(~sees[:, None], -torch.inf)
        if self.way == "kernel":
            heads = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        else:
            heads = torch.softmax(q @ k.mT / 2 + bias, dim=-1) @ v
        return self.out(heads.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Windows of a picture (item, row, column, width), shifted or not, and a skip."""

    def __init__(self, way, shift):
        super().__init__()
        self.shift, self.norm, self.attn = shift, nn.LayerNorm(D), WindowAttention(way)

    def forward(self, x):
        y, sees = self.norm(x), None
        if self.shift:
            y, columns = y.roll((-2, -2), (1, 2)), torch.arange(SIDE).roll(-2) < 2
            sides = self.windows(columns[None, None, :, None].expand(1, SIDE, SIDE, 1))
            sees = sides == sides.mT
        y = self.attn(self.windows(y), sees)
        y = y.view(len(x), 2, 2, WINDOW, WINDOW, D).transpose(2, 3).reshape(x.shape)
        return x + (y.roll((2, 2), (1, 2)) if self.shift else y)

    def windows(self, x):
        return x.reshape(len(x), 2, WINDOW, 2, WINDOW, -1).transpose(2, 3).reshape(-1, ROWS, x.shape[-1])

    def places(self):
        """The tokens of each window."""
        grid = torch.arange(N).view(1, SIDE, SIDE, 1)
        return self.windows(grid.roll((-2, -2), (1, 2)) if self.shift else grid)[..., 0]


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def recorded(model, x, tokens=TOKENS, part="all", of=None):
    draws = torch.get_rng_state()
    with torch.no_grad():
        trace = recorded_call(model, x, tokens=tokens, of=of or model, part=part)
    assert torch.equal(torch.get_rng_state(), draws)
    return trace


@pytest.mark.parametrize("way", ["kernel", "by hand", "torch"])
def test_all_parts_are_one_layer_of_the_weights_that_each_has_alone(way):
    blocks = [Block(way, shift) for shift in (False, True)]
    model, x = nn.Sequential(*blocks).eval(), torch.randn(1, SIDE, SIDE, D)
    trace = recorded(model, x)
    assert trace.source.skipped == ()
    for at, note in enumerate(trace.source.notes[:2]):
        assert f"{at}.attn" in note
        assert (
            f"4 parts are shown as one layer. The tokens are in the order in which {at} has them, 8 × 8"
            in note
        )
    for part in range(PARTS):
        alone = recorded(model, x, TOKENS[:ROWS], part)
        for whole, one, block in zip(trace.layers, alone.layers, blocks, strict=True):
            own = block.places()[part].numpy()
            np.testing.assert_allclose(whole.weights(rows=own, keys=own), one.weights(), atol=1e-6)
            np.testing.assert_array_equal(whole.allowed(rows=own, keys=own), one.allowed())
            assert not np.delete(whole.allowed(rows=own), own, axis=2).any()
            for name in ("q", "k", "v"):
                np.testing.assert_array_equal(whole.tensor(name)[:, own], one.tensor(name))
            np.testing.assert_array_equal(whole.x[own], one.x)
            np.testing.assert_allclose(whole.result(rows=own), one.result(), atol=1e-6)
            assert {name for name in ("w_q", "w_k", "w_v", "w_o") if whole.knows(name)} == set(
                filter(one.knows, ("w_q", "w_k", "w_v", "w_o"))
            )


class Strided(nn.Module):
    """Every second pixel of a picture (item, width, row, column) is one part, behind a convolution.

    As in MobileViT; two layers of attention read the same parts.
    """

    def __init__(self):
        super().__init__()
        self.mixes, self.own = nn.Conv2d(D, D, 3, padding=1), nn.Conv2d(D, D, 1)
        self.layers = nn.ModuleList(WindowAttention("by hand") for _ in range(2))

    def forward(self, x):
        y = self.own(self.mixes(x)).view(1, D, 4, 2, 4, 2).permute(3, 5, 2, 4, 1, 0).reshape(PARTS, ROWS, D)
        for layer in self.layers:
            y = y + layer(y)
        return y.sum()


def test_tokens_may_have_their_order_from_a_part_of_the_module_that_folds_them():
    """The earliest one behind which nothing mixes them but attention."""
    model, x = Strided().eval(), torch.randn(1, D, SIDE, SIDE)
    trace = recorded(model, x)
    assert [layer.name for layer in trace.layers] == ["layers.0", "layers.1"]
    assert "in the order in which mixes has them, 8 × 8." in trace.source.notes[1]
    own = torch.arange(N).view(SIDE, SIDE)[1::2, ::2].flatten().numpy()
    for whole, one in zip(trace.layers, recorded(model, x, TOKENS[:ROWS], 2).layers, strict=True):
        np.testing.assert_allclose(whole.weights(rows=own, keys=own), one.weights(), atol=1e-6)


def test_the_order_is_that_of_the_module_around_those_that_are_given_parts():
    """Attention is given the item in parts; the module around it is given a picture."""
    whole = Function(lambda x: x.view(1, 2, WINDOW, 2, WINDOW, D).transpose(2, 3).reshape(1, PARTS, ROWS, D))
    parts = nn.Sequential(nn.Sequential(nn.Flatten(0, 1), WindowAttention("kernel")))
    trace = recorded(nn.Sequential(whole, parts), x := torch.randn(1, SIDE, SIDE, D))
    assert "in which Sequential has them, 8 × 8." in trace.source.notes[0]
    np.testing.assert_array_equal(trace.layers[0].allowed(0)[0, :8], [True] * 4 + [False] * 4)
    inner = recorded(parts, x.view(1, PARTS, ROWS, D))
    assert "in which 0 has them, part by part." in inner.source.notes[0]


class Folding(nn.Module):
    """Parts by any function of the item (1, token, width), with their keys in any order."""

    def __init__(self, fold, order=slice(None)):
        super().__init__()
        self.fold, self.order = fold, order
        self.attn = nn.MultiheadAttention(D, H, batch_first=True)

    def forward(self, x):
        y = self.fold(x)
        return self.attn(y, y[:, self.order], y)[0]


class Locked(Folding):
    def __deepcopy__(self, memo):
        raise TypeError("not this one")


class Sinks(Folding):
    def forward(self, x):
        q = self.fold(x).view(4, 7, H, D_K).transpose(1, 2)
        scores = torch.cat([q @ q.mT, self.order.view(4, 1, 1, 1).expand(4, H, 7, 1)], dim=-1)
        return torch.softmax(scores, dim=-1)[..., :-1] @ q


def four(x):
    return x.view(4, 7, D)


MISFITS = [
    (Folding(lambda x: four(x + x.roll(1, 1))), "are made of several tokens each"),
    (
        Folding(lambda x: torch.cat([x[:, :1].expand(4, 1, D), x[:, :24].view(4, 6, D)], 1)),
        "have several rows",
    ),
    (Folding(lambda x: four(F.pad(x[:, 1:], (0, 0, 1, 0)))), "are of no token, as padding is"),
    (Folding(lambda x: four(x) + torch.randn(4, 7, D)), "does not run again, or computes something else"),
    (
        Folding(lambda x: x[:, :24].reshape(4, 6, D)),
        "4 parts of 6 queries and 6 keys do not make up 28 tokens",
    ),
    (Folding(four, torch.arange(7).roll(1)), "have the tokens in different orders"),
    (Sinks(torch.clone, torch.arange(4.0)), "its parts have different sinks"),
    (Locked(four), "does not run again"),
]


def test_parts_that_cannot_be_shown_as_one_layer_are_named(refused, recwarn):
    x = torch.randn(1, 28, D)
    for model, said in MISFITS:
        assert said in refusal(model, x, tokens=TOKENS[:28], of=model, part="all")
    assert list(recwarn) == []
    model = Folding(four)  # where one part was looked for
    assert 'part="all" shows its 4 parts as one layer.' in refusal(model, x, tokens=TOKENS[:28], of=model)
    two = refusal(Folding(lambda x: x.reshape(8, 7, D)), x.expand(2, -1, -1), tokens=TOKENS[:28], part="all")
    assert "record one item at a time" in two
    assert str(refused(mha.record, tokens=TOKENS, part="every")).startswith("part is the number of a part")


def test_sinks_are_those_of_all_parts():
    model, x = Sinks(torch.clone, torch.ones(4)), torch.randn(1, 28, D)
    [layer] = recorded(model, x, TOKENS[:28], of=model).layers
    np.testing.assert_allclose(layer.output(rows=slice(7, 14)), model(x)[1], atol=1e-6)


class Pairs(nn.Module):
    """It is given its queries and its keys."""

    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(D, H, batch_first=True)

    def forward(self, x, keys):
        return self.attn(four(x), four(keys), four(keys))[0]


def test_one_tensor_given_twice_is_one_in_the_proof():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.pairs = Pairs()

        def forward(self, x):
            return self.pairs(x, keys=x)

    trace = recorded(Twice(), torch.randn(1, 28, D), TOKENS[:28])
    assert "in which pairs has them" in trace.source.notes[0]


def test_what_is_read_in_one_part_is_shown_as_it_is():
    model, x = nn.MultiheadAttention(D, H, batch_first=True), torch.randn(2, 7, D)
    with (
        mha.record(tokens=TOKENS[:7], part="all", item=1) as whole,
        mha.record(tokens=TOKENS[:7], item=1) as one,
    ):
        model(x, x, x)
    np.testing.assert_array_equal(whole.trace.layers[0].weights(), one.trace.layers[0].weights())
