"""The sweep over libraries: which layers it calls exact, named, not checked and wrong."""

from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

from mha_core.traces.layer import LayerTrace
from tests.parity.libraries import HEADS, LENGTH, Beside, Blocks, Model, transformers, vectors
from tests.parity.recording import compared


class Rows(nn.Module):
    """Weights of a parameter, without queries and keys."""

    def __init__(self):
        super().__init__()
        self.places = nn.Parameter(torch.randn(LENGTH - 1, LENGTH - 1))

    def forward(self, x: Tensor) -> Tensor:
        return x + nn.functional.pad(self.places.softmax(-1) @ x[:, 1:], (0, 0, 1, 0))


class Neighbours(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + x.roll(1, dims=1)


def words(layers) -> set[str]:
    return {each.word for each in compared(Model("", lambda: Beside(layers()), vectors, LENGTH))}


def test_a_model_is_exact_named_or_not_checked():
    assert words(nn.Identity) == {"exact"}
    assert words(lambda: Blocks(Rows)) == {"named"}
    assert words(lambda: Blocks(Neighbours)) == {"not checked"}


@pytest.mark.parametrize("of_heads", [True, False])
def test_numbers_that_did_not_flow_are_wrong(monkeypatch, of_heads):
    weights = LayerTrace.weights

    def other(layer: LayerTrace, **cells):
        shown = weights(layer, **cells)
        return shown[: HEADS - 1] if of_heads else shown**2

    monkeypatch.setattr(LayerTrace, "weights", other)
    assert words(nn.Identity) == {"WRONG"}


def test_attention_neither_shown_nor_named_is_wrong(monkeypatch):
    monkeypatch.setattr("mha_core.sources.recorded_layers._unfollowed", lambda *_: "")
    monkeypatch.setattr("mha_core.sources.recorder.outermost", lambda *_, **_options: nullcontext())
    assert words(lambda: Blocks(Rows)) == words(lambda: Blocks(Neighbours)) == {"WRONG"}


# Shared keys and a window, tokens in blocks, a layer without softmax beside attention.
FAMILIES = {"gemma2": "exact", "canine": "named", "qwen3_next": "named"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_of_transformers_shows_what_flowed_and_names_the_rest(family):
    [model] = [model for model in transformers() if model.name == f"{family}, eager"]
    assert {each.word for each in compared(model)} == {FAMILIES[family]}
