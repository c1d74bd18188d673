"""Latent attention: the numbers of the published code, and the cache of a token."""

import pytest
import torch

from mha_core import ScoreRule
from mha_core.attention.latent import LatentAttention, LatentSpec
from mha_core.attention.masks import causal

SPECS = {
    "all widths apart": LatentSpec(13, 3, kv_rank=7, q_rank=11, d_k=5, d_v=17, rotary_width=6),
    "queries at once": LatentSpec(12, 4, kv_rank=5),
    "no position": LatentSpec(12, 3, kv_rank=19, d_k=2, rotary_width=0),
    "one of each": LatentSpec(1, 1, kv_rank=1),
}


@pytest.fixture(params=SPECS.values(), ids=SPECS)
def module(request, normal):
    module = LatentAttention(request.param).requires_grad_(False).eval()
    for index, part in enumerate(module.state_dict().values()):
        part.copy_(normal(*part.shape, seed=index) / part.shape[-1] ** 0.5)
    return module


def test_the_tensors_of_every_head_have_the_sizes_of_the_spec(module, normal):
    spec, x = module.spec, normal(2, 9, module.spec.d_model)
    attended, (short, position) = module(x), module.cached(x)
    assert attended.q.shape == attended.k.shape == (2, spec.n_heads, 9, spec.d_k + spec.rotary_width)
    assert attended.v.shape == (2, spec.n_heads, 9, spec.d_v)
    assert (short.shape, position.shape) == ((2, 9, spec.kv_rank), (2, 9, spec.rotary_width))


def test_the_published_code_computes_the_same(normal):
    """The parts of a rotated vector are paired (0, 1), (2, 3) … there and (0, n/2) … here."""
    transformers = pytest.importorskip("transformers")
    from transformers.models.deepseek_v2.modeling_deepseek_v2 import (
        DeepseekV2Attention,
        DeepseekV2RotaryEmbedding,
    )

    spec = LatentSpec(24, 3, kv_rank=10, q_rank=11, d_k=8, d_v=13, rotary_width=6)
    sizes = {"hidden_size": 24, "num_attention_heads": 3, "num_key_value_heads": 3}
    sizes |= {"kv_lora_rank": 10, "q_lora_rank": 11, "qk_nope_head_dim": 8, "v_head_dim": 13}
    sizes |= {"qk_rope_head_dim": 6, "head_dim": 6}
    config = transformers.DeepseekV2Config(attn_implementation="eager", **sizes)
    theirs, ours = DeepseekV2Attention(config, 0).eval(), LatentAttention(spec).eval()
    names = {"q_a_proj": "q_down", "q_a_layernorm": "q_norm", "q_b_proj": "q_up", "o_proj": "o"}
    names |= {"kv_a_proj_with_mqa": "kv_down", "kv_a_layernorm": "kv_norm", "kv_b_proj": "kv_up"}
    halves = torch.tensor([0, 2, 4, 1, 3, 5])
    with torch.no_grad():
        for index, (name, module) in enumerate(theirs.named_children()):
            matrix = normal(*module.weight.shape, seed=index) / module.weight.shape[-1] ** 0.5
            module.weight.copy_(matrix)
            if name == "q_b_proj":
                matrix = matrix.view(3, 14, 11).clone()
                matrix[:, 8:] = matrix[:, 8:][:, halves]
                matrix = matrix.flatten(0, 1)
            if name == "kv_a_proj_with_mqa":
                matrix = torch.cat([matrix[:10], matrix[10:][halves]])
            getattr(ours, names[name]).weight.copy_(matrix)
        x = normal(2, 9, 24, seed=50)
        codes = DeepseekV2RotaryEmbedding(config)(x, torch.arange(9)[None].expand(2, -1))
        mask = torch.zeros(9, 9).masked_fill(~causal(9, 9, 1), float("-inf"))[None, None]
        expected, _ = theirs(x, attention_mask=mask, position_embeddings=codes)
        attended = ours(x, rule=ScoreRule(mask=causal(9, 9, 1)))
    torch.testing.assert_close(attended.output, expected, atol=2e-6, rtol=0)


def test_values_of_another_text_have_latent_vectors_of_their_own(normal):
    module = LatentAttention(SPECS["no position"]).requires_grad_(False)
    x, context, words = (normal(2, n, 12, seed=n) for n in (4, 7, 7))
    words = words + 1
    attended, of_context = module(x, context, words), module(x, context)
    assert torch.equal(attended.k, of_context.k)
    assert torch.equal(attended.v, module(x, words).v)
    assert (attended.v - of_context.v).abs().max() > 0.1


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"kv_rank": 0}, "kv_rank 0 is out of range; 1 to 8192 work."),
        ({"kv_rank": 4, "q_rank": 0}, "q_rank 0 is out of range; 1 to 8192 work."),
        ({"kv_rank": 4, "rotary_width": 3}, "rotary_width 3 is odd, and rotary positions turn pairs"),
        ({"kv_rank": 4, "rotary_width": -2}, "rotary_width -2 is out of range; 0 to 8192 work."),
        ({"kv_rank": 4, "n_heads": 5}, "d_model 12 cannot be split into 5 heads"),
        ({"kv_rank": 4.0}, "kv_rank must be a whole number from 1 to 8192; got 4.0."),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes, message, refused):
    assert message in str(refused(LatentSpec, **({"d_model": 12, "n_heads": 3} | sizes)))


def test_inputs_that_do_not_fit_are_refused(normal, refused):
    module = LatentAttention(LatentSpec(12, 3, 5, rotary_width=2))
    assert "rotary_width 0 works" in str(refused(module, normal(1, 2, 12), normal(1, 3, 12)))
    assert "expected (batch, tokens, 12)" in str(refused(module, normal(1, 2, 11)))
