"""The kind of each layer of a model, read off its masks."""

from dataclasses import replace
from types import MappingProxyType

import pytest
import torch

import mha_core as mha
from mha_core.analysis.layer_kinds import LayerKind, layer_kinds
from mha_core.attention.score_rule import ScoreRule
from mha_core.traces.facts import LatentProjection, OutputGate
from mha_core.traces.layer import LayerTrace
from mha_core.traces.mixer import MixerTrace

N = 11
ROW, KEY = torch.arange(N)[:, None], torch.arange(N)[None]
CAUSAL = KEY <= ROW
TEXT = "a b c d e f g h i j k"


def layer(mask: torch.Tensor | None = None, name: str = "", **about: object) -> LayerTrace:
    q, k, v = torch.randn(3, 2, N, 5, generator=torch.Generator().manual_seed(1))
    made = LayerTrace(MappingProxyType({"q": q, "k": k, "v": v}), ScoreRule(mask=mask), name=name)
    return replace(made, about=replace(made.about, **about))


def mixer(rule: str, name: str, width: int = N) -> MixerTrace:
    mixing = torch.ones(2, N, N).tril().triu(1 - width)
    v = torch.ones(2, N, 1)
    tensors = MappingProxyType({"v": v, "output": mixing @ v})
    return MixerTrace(tensors, rule, name=name, matrices=lambda heads: mixing[list(heads)])


def trace(*layers: LayerTrace, mixers: tuple[MixerTrace, ...] = ()) -> mha.AttentionTrace:
    whole = mha.trace(TEXT, h=2, d_model=10)
    return replace(whole, layers=layers, mixers=mixers)


@pytest.mark.parametrize(
    ("mask", "kind", "size"),
    [
        (None, "full", None),
        (CAUSAL, "full", None),
        (CAUSAL & (KEY > ROW - 4), "window", 4),
        ((KEY - ROW).abs() <= 2, "window", 5),
        (CAUSAL & (KEY // 4 == ROW // 4), "part", 4),  # chunks
        (CAUSAL & ((KEY == 0) | (KEY > ROW - 3)), "part", 4),  # a window and the first token
        (CAUSAL & (KEY < 3), "part", 3),  # together, but where the text begins: no window that slides
    ],
    ids=["all", "causal", "window", "window on both sides", "chunks", "first and window", "beginning"],
)
def test_the_kind_of_a_layer_is_read_off_its_mask(mask, kind, size):
    assert layer_kinds(trace(layer(mask))) == (LayerKind("", kind, layer=0, size=size),)


def test_layers_and_mixers_are_in_the_order_of_the_model_with_their_traits():
    gate, latent = OutputGate("sigmoid", "head"), LatentProjection(5)
    layers = (
        layer(name="layers.2.self_attn", gate=gate),
        layer(name="layers.10.self_attn", gate=gate, latent=latent),
    )
    mixers = mixer("gated delta rule", "layers.1.mixer"), mixer("short convolution", "layers.9.conv", 3)
    kinds = layer_kinds(trace(*layers, mixers=mixers))
    assert [(kind.kind, kind.layer, kind.mixer, kind.size, kind.traits) for kind in kinds] == [
        ("linear", None, 0, None, ()),
        ("full", 0, None, None, ("gated",)),
        ("convolution", None, 1, 3, ()),
        ("full", 1, None, None, ("latent", "gated")),
    ]


def test_the_kind_of_a_layer_is_read_off_its_weights_if_only_they_are_known():
    seen = (CAUSAL & (KEY > ROW - 3)).float()
    weights = torch.stack([CAUSAL / CAUSAL.sum(1, keepdim=True), seen / seen.sum(1, keepdim=True)])
    kinds = layer_kinds(mha.from_weights(weights[:, None].numpy(), TEXT))
    assert [(kind.kind, kind.size) for kind in kinds] == [("full", None), ("window", 3)]
