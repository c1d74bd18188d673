"""The module to copy: run as it stands, with the weights of a layer, it computes that layer's Z."""

from dataclasses import replace

import pytest
import torch

import mha_core as mha
from mha_core.analysis.torch_module import COMMENTS, module, spec_of, state
from mha_core.attention.latent import LatentAttention, LatentSpec
from mha_core.sources import mini

SENTENCE = "the cat saw the dog"
SAYS = {name: name for name in COMMENTS}
LAYERS = {
    "heads": {"d_model": 12, "h": 3, "d_k": 5, "d_v": 7},
    "shared, causal": {"d_model": 12, "h": 6, "n_kv_heads": 3, "mask": "causal", "bias": False},
    "one key and value, empty rows": {"d_model": 8, "h": 4, "n_kv_heads": 1, "mask": "padding"},
    "Chinese": {"source": "mini", "h": 8, "d_model": 128},
}


def built(code: str, weights: dict) -> torch.nn.Module:
    values: dict = {}
    exec(code, values)
    made = values["MultiHeadAttention"]()
    made.load_state_dict(weights)
    return made


@pytest.mark.parametrize("settings", LAYERS.values(), ids=LAYERS)
def test_it_computes_z_from_x(settings):
    text = "他在酒店订了一个房间。" if settings.get("source") else SENTENCE
    layer = mha.trace(text, **settings).layers[0]
    spec, biases = spec_of(layer)
    allowed = torch.from_numpy(layer.allowed().copy())[None]
    z = built(module(spec, "", SAYS, biases), state(layer))(layer.tensors["x"][None], allowed)[0]
    torch.testing.assert_close(z, torch.from_numpy(layer.result().copy()), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "spec",
    [
        mini.find("zh", "latent", 4, 64).spec,
        LatentSpec(16, 4, kv_rank=6),
        LatentSpec(16, 4, kv_rank=6, q_rank=5, d_k=3, d_v=7, rotary_width=2),
    ],
)
def test_latent_attention_is_that_of_our_module(spec):
    torch.manual_seed(0)
    own = LatentAttention(spec).requires_grad_(False)
    x = torch.randn(2, 5, spec.d_model)
    made = built(module(spec, "", SAYS), state(None, own))
    torch.testing.assert_close(made(x), own(x).output, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    "settings", [{"position": "rotary"}, {"position": "alibi"}, {"edits": [mha.edits.Scale(factor=1.0)]}]
)
def test_a_layer_that_does_more_has_none(settings):
    layer = mha.trace(SENTENCE, d_model=8, h=2, **settings).layers[0]
    assert spec_of(layer) is None
    plain = mha.trace(SENTENCE, d_model=8, h=2).layers[0]
    assert spec_of(plain)
    assert spec_of(replace(plain, tensors={k: plain.tensors[k] for k in "qkv"})) is None
