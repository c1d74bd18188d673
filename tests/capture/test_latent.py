"""Latent attention: which part of queries and keys a rotary code turns, and what it was before."""

import numpy as np
import pytest
import torch

from mha_core.analysis.cost import cache_sizes, short_vectors
from mha_core.capture.rotary import RotaryCode
from mha_core.sources.huggingface import model as huggingface
from mha_core.traces.facts import Rotary
from mha_core.traces.layer import LayerTrace
from tests.parity import tiny as every
from tests.sources import tiny

TOKENS = torch.arange(3, 16)[None]


def layers(module):
    return huggingface.flow(huggingface.adopt(module), {"input_ids": TOKENS})[0]


def deepseek(**changed):
    return layers(tiny.module("deepseek_v3", **changed))


@pytest.mark.parametrize(
    "changed",
    [{}, {"rope_interleave": False}, {"q_lora_rank": None}, {"qk_nope_head_dim": 4}],
    ids=["pairs taken apart", "as they are", "queries of one matrix", "more turned than not"],
)
def test_the_last_dimensions_of_each_head_are_turned(changed):
    for layer in deepseek(**changed):
        start = changed.get("qk_nope_head_dim", 13)
        assert layer.about.rotary == Rotary("half", 10, start)
        code = RotaryCode("half", layer.tensors["cos"], layer.tensors["sin"], start)
        for name in "qk":
            raw, used = layer.tensors[f"{name}_raw"], layer.tensors[name]
            torch.testing.assert_close(code.rotate(raw), used, atol=1e-5, rtol=1e-5)
            assert torch.equal(raw[..., :start], used[..., :start])
            assert (raw[:, 1:, start:] - used[:, 1:, start:]).abs().max() > 0.1


def test_the_latent_vectors_are_the_cache_and_give_k_and_v():
    module = tiny.module("deepseek_v3").requires_grad_(False)
    for layer, block in zip(layers(module), module.layers, strict=True):
        found, made = short_vectors(layer), block.self_attn
        assert list(found) == ["kv", "position", "q"]
        assert found["kv"].shape[1] + found["position"].shape[1] == cache_sizes(layer)["own"] == 33
        both = made.kv_b_proj(torch.tensor(found["kv"])).view(layer.n_key, 3, 13 + 17).numpy()
        np.testing.assert_allclose(both[..., :13].swapaxes(0, 1), layer.k[..., :13], atol=1e-5)
        np.testing.assert_allclose(both[..., 13:].swapaxes(0, 1), layer.v, atol=1e-5)
        for head in range(3):
            np.testing.assert_array_equal(layer.k[head, :, 13:], found["position"])
        queries = made.q_b_proj(torch.tensor(found["q"])).view(layer.n_query, 3, 23).transpose(0, 1)
        torch.testing.assert_close(queries, layer.tensors["q_raw"][..., order()], atol=1e-5, rtol=1e-5)
    assert short_vectors(layers(tiny.module("llama"))[0]) == {}
    assert short_vectors(LayerTrace(layer.tensors)) == {}  # of which nobody says that it is latent


def order() -> list[int]:
    """The order of the matrix's numbers in the query used: pairs were separated."""
    return [*range(13), *(13 + at // 2 + 5 * (at % 2) for at in range(10))]


def test_a_code_of_complex_numbers_is_understood():
    for layer in layers(every.model("deepseek_v2")):
        assert layer.about.rotary.form == "pairs"
        code = RotaryCode("pairs", layer.tensors["cos"], layer.tensors["sin"], layer.about.rotary.start)
        torch.testing.assert_close(
            code.rotate(layer.tensors["q_raw"]), layer.tensors["q"], atol=1e-5, rtol=1e-5
        )


@pytest.mark.parametrize("name", ["q_b_proj", "kv_a_proj_with_mqa"])
def test_changed_vectors_are_rejected(name):
    """The model multiplies what the matrix gave: no matrix made what was turned."""
    module = tiny.module("deepseek_v3")
    attention = module.layers[0].self_attn

    class Louder(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x) * 1.5

    setattr(attention, name, Louder(getattr(attention, name)))
    first, second = layers(module)
    assert first.about.rotary is None
    assert "q_raw" not in first.tensors
    assert second.about.rotary is not None
