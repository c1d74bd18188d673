"""Token mixing besides the shown attention is named, wherever it is in the model."""

import pytest
import torch
from torch import nn

import mha_core as mha
from mha_core.sources.huggingface import trial
from tests.parity import tiny
from tests.sources.tiny import module

IDS = list(range(5, 18))


class Shift(nn.Module):
    """A module that adds a little of the previous token to each token."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, *args, **settings):
        output = self.inner(*args, **settings)
        x = output[0] if isinstance(output, tuple) else output
        shifted = x + 0.1 * x.roll(1, dims=1)
        return (shifted, *output[1:]) if isinstance(output, tuple) else shifted


def shift(model: nn.Module, place: str) -> nn.Module:
    parent, _, name = place.rpartition(".")
    model.get_submodule(parent).register_module(name, Shift(model.get_submodule(place)))
    return model


@pytest.mark.parametrize(
    ("family", "place"),
    [
        ("llama", "layers.1.mlp"),
        ("llama", "layers.0.self_attn"),
        ("llama", "embed_tokens"),
        ("bloom", "h.0.mlp"),  # its own code is followed
        ("bart", "model.encoder.layers.0.fc1"),
        ("bart", "model.decoder.layers.0.fc1"),
        ("bart", "model.decoder.layers.0.encoder_attn.out_proj"),
    ],
)
def test_the_part_that_mixes_tokens_is_named_and_no_other(family, place):
    model, more = module(family), {"target": [7, 8, 9, 10]} if family == "bart" else {}
    assert mha.trace(IDS, source=model, **more).source.skipped == ()
    trace = mha.trace(IDS, source=shift(model, place), **more)
    assert trace.source.skipped == (f"{place}: it mixes tokens beside what is shown",)
    assert trace.source.notes == ()
    assert trace.layers


def test_token_mixing_is_named_in_half_precision():
    model = module("llama").to(torch.bfloat16)
    assert mha.trace(IDS, source=model).source.skipped == ()
    [named] = mha.trace(IDS, source=shift(model, "layers.0.mlp")).source.skipped
    assert named.startswith("layers.0.mlp: ")


@pytest.mark.filterwarnings("ignore")
def test_each_token_mixing_of_a_layer_that_is_not_attention_is_named():
    """That of MobileBERT, and that there is none in others: `tests.parity`."""
    skipped = mha.trace(IDS, source=tiny.model("rwkv")).source.skipped
    parts = [f"rwkv.blocks.{n}.{part}.time_shift" for n in (0, 1) for part in ("attention", "feed_forward")]
    assert [entry.partition(":")[0] for entry in skipped] == parts


def test_unknown_token_mixing_is_reported(monkeypatch):
    def failing(*_, **__):
        raise mha.MhaError("it does not run once more")

    monkeypatch.setattr(trial, "mixing", failing)
    trace = mha.trace(IDS, source=module("llama"))
    assert trace.source.skipped == ()
    assert trace.source.notes == (trial.NOT_CHECKED,)
