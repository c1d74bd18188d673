"""Two texts, layers of every kind between them, and a layer with known weights only."""

from dataclasses import replace
from types import MappingProxyType

import pytest
import torch

import mha_core as mha
from mha_core.traces.facts import Facts, LatentProjection, Rotary

HEADS, D_K, D_V = 3, 11, 13
TEXT = replace(mha.words("die alte Katze sah den neuen Hund"), words=(0, 0, 1, 2, 3, 4, 5), special=(0, 6))
TARGET = mha.words("the old cat saw it")
SIDES = {
    "encoder": mha.Sides(TEXT, TEXT),
    "decoder": mha.Sides(TARGET, TARGET),
    "cross": mha.Sides(TARGET, TEXT),
}


@pytest.fixture(scope="session")
def by_kind(normal):
    """`by_kind(kind)`: a layer of that kind, every size another prime."""

    def make(kind: str, seed: int = 0, **described) -> mha.LayerTrace:
        n_query, n_key = len(SIDES[kind].queries), len(SIDES[kind].keys)
        tensors = {
            "q": normal(HEADS, n_query, D_K, seed=seed),
            "k": normal(HEADS, n_key, D_K, seed=seed + 1),
            "v": normal(HEADS, n_key, D_V, seed=seed + 2),
        }
        return mha.LayerTrace(MappingProxyType(tensors), kind=kind, sides=SIDES[kind], **described)

    return make


@pytest.fixture(scope="session")
def translation(by_kind):
    """Two encoder layers, then a decoder and a cross layer, as an encoder–decoder calls them."""
    layers = (
        by_kind("encoder", 0, name="encoder.0"),
        by_kind("encoder", 10, name="encoder.1", about=Facts(rotary=Rotary("half", 6))),
        by_kind("decoder", 20, name="decoder.0.self"),
        by_kind("cross", 30, name="decoder.0.cross", about=Facts(latent=LatentProjection(17))),
    )
    return mha.AttentionTrace(TEXT, layers, {"name": "by hand"})


@pytest.fixture(scope="session")
def weights(normal):
    return torch.softmax(normal(HEADS, 7, 7, seed=40), -1)


@pytest.fixture(scope="session")
def known_by_weights(weights):
    """A trace of which nothing is known but the weights of one layer."""
    layer = mha.LayerTrace(MappingProxyType({"weights": weights}))
    return mha.AttentionTrace(TEXT, (layer,), {"name": "by hand"})
