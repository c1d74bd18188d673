"""The cost of a layer: the shapes of its tensors, and the counts of torch and transformers."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import mha_core as mha
from mha_core import AttentionSpec, MultiHeadAttention
from mha_core.analysis.cost import by_heads, cache_sizes, cost, shapes, spec_of, step_flops, variants
from mha_core.attention.functional import attend
from mha_core.attention.latent import LatentAttention, LatentSpec
from mha_core.traces.facts import Facts, LatentProjection
from mha_core.traces.layer import LayerTrace

SPECS = {
    "all alike": AttentionSpec(12, 3),
    "no bias": AttentionSpec(12, 3, bias=False),
    "wide values": AttentionSpec(512, 8, d_k=64, d_v=100),
    "shared key heads": AttentionSpec(12, 4, n_kv_heads=2),
    "one key head, all widths apart": AttentionSpec(11, 6, n_kv_heads=1, d_k=5, d_v=13),
    "latent": LatentSpec(13, 3, kv_rank=7, q_rank=11, d_k=5, d_v=17, rotary_width=6),
    "latent, queries at once": LatentSpec(12, 4, kv_rank=5),
    "latent, no position": LatentSpec(12, 4, kv_rank=5, rotary_width=0),
}


@pytest.fixture(params=SPECS.values(), ids=SPECS)
def spec(request):
    return request.param


def layer(spec):
    return (LatentAttention if isinstance(spec, LatentSpec) else MultiHeadAttention)(spec)


@pytest.mark.parametrize(("batch", "tokens"), [(1, 1), (2, 19)])
def test_operations_are_those_that_torch_counts(spec, batch, tokens):
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        layer(spec)(torch.randn(batch, tokens, spec.d_model))
    assert cost(spec, tokens, batch=batch).flops == counter.get_total_flops()


def test_a_decoding_step_takes_the_operations_that_torch_counts(spec):
    module, x = layer(spec), torch.randn(1, 19, spec.d_model)
    held = module.cached(x) if isinstance(spec, LatentSpec) else module.project(x)[1:]
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        if isinstance(spec, LatentSpec):
            q, (k, v) = module.queries(x[:, -1:], first=18), module.expanded(*held)
            module.cached(x[:, -1:], first=18)
        else:
            (q, *_), (k, v) = module.project(x[:, -1:]), held
        module.join(attend(q, k, v))
    assert step_flops(spec, 19) == counter.get_total_flops()


def test_a_step_s_latent_vectors_are_those_of_the_whole_text():
    spec = SPECS["latent"]
    module, x = LatentAttention(spec), torch.randn(1, 9, spec.d_model)
    with torch.no_grad():
        for one, whole in zip(module.cached(x[:, 6:], first=6), module.cached(x), strict=True):
            assert torch.allclose(one, whole[:, 6:], atol=1e-6)
        assert torch.allclose(module.queries(x[:, 6:], first=6), module.queries(x)[:, :, 6:], atol=1e-6)


def test_parameters_and_shapes_are_those_of_a_pass(spec):
    module = layer(spec)
    assert cost(spec, 5).parameters == sum(parameter.numel() for parameter in module.parameters())
    attended = module(torch.randn(2, 5, spec.d_model))
    sizes = {tensor.symbol: tensor.sizes for tensor in shapes(spec, 5, batch=2)}
    assert (sizes["Q"], sizes["K"], sizes["V"]) == (attended.q.shape, attended.k.shape, attended.v.shape)
    assert sizes["Z"] == sizes["X"] == attended.output.shape
    assert sizes["S"] == sizes["A"] == (2, spec.n_heads, 5, 5)
    assert sizes["head_i"] == (2, spec.n_heads, 5, spec.d_v)
    assert sizes["concat"] == (2, 5, spec.n_heads * spec.d_v)
    if isinstance(spec, AttentionSpec):
        for name in "qkvo":
            assert sizes[f"W^{name.upper()}"] == getattr(module.projections(), f"w_{name}").shape


LATENT = {"num_key_value_heads": 4, "kv_lora_rank": 10, "q_lora_rank": 6, "qk_nope_head_dim": 8}
LATENT |= {"qk_rope_head_dim": 4, "v_head_dim": 14, "head_dim": 4, "first_k_dense_replace": 2}


@pytest.mark.parametrize(
    ("architecture", "sizes", "spec"),
    [
        ("Llama", {"num_key_value_heads": 2}, AttentionSpec(24, 4, n_kv_heads=2)),
        ("Llama", {"num_key_value_heads": 1, "head_dim": 10}, AttentionSpec(24, 4, n_kv_heads=1, d_k=10)),
        ("DeepseekV2", LATENT, LatentSpec(24, 4, kv_rank=10, q_rank=6, d_k=8, d_v=14, rotary_width=4)),
    ],
)
def test_the_cache_has_the_bytes_of_a_real_one(architecture, sizes, spec):
    transformers = pytest.importorskip("transformers")
    shape = {"hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 16}
    config = getattr(transformers, f"{architecture}Config")(vocab_size=31, **shape, **sizes)
    cache = transformers.DynamicCache(config=config)
    with torch.no_grad():
        getattr(transformers, f"{architecture}Model")(config).eval()(
            torch.arange(14).reshape(2, 7), past_key_values=cache, use_cache=True
        )
    kept = sum(tensor.nbytes for layer in cache.layers for tensor in (layer.keys, layer.values))
    assert kept == 2 * 4 * cost(spec, 7, batch=2).cache  # layers, bytes of fp32


def test_h_heads_cost_as_much_as_one_of_full_width_but_for_their_scores():
    costs = by_heads(512, 10)
    assert list(costs.index) == [1, 2, 4, 8, 16, 32]
    assert (costs["parameters"] == 4 * 512**2).all()
    assert costs["flops"].nunique() == costs["cache"].nunique() == 1
    assert (costs["activations"] - 2 * costs.index * 100).nunique() == 1
    assert list(by_heads(12, 3).index) == [1, 2, 4]  # 8 does not divide 12


# What a layer keeps of each token

HEADS, KV, TOKENS, D_K, D_V = 6, 2, 9, 5, 7


def traced_layer(latent=None, kv=KV):
    draw = torch.Generator().manual_seed(1)
    q = torch.randn(HEADS, TOKENS, D_K, generator=draw)
    k, v = (torch.randn(kv, TOKENS, width, generator=draw) for width in (D_K, D_V))
    return LayerTrace({"q": q, "k": k, "v": v}, about=Facts(latent=latent))


def test_heads_that_share_keys_or_a_latent_vector_cache_fewer_numbers():
    assert cache_sizes(traced_layer()) == {"own": KV * 12, "all": HEADS * 12, "one": 12, "shared": KV * 12}
    assert cache_sizes(traced_layer(kv=HEADS))["own"] == HEADS * 12
    found = cache_sizes(traced_layer(LatentProjection(kv_rank=8, rotary_width=3)))
    assert (found["own"], found["latent"]) == (11, 11)
    assert "shared" not in found
    weights = LayerTrace({"weights": torch.full((2, 3, 3), 1 / 3)})
    assert cache_sizes(weights) is spec_of(weights) is None


SIZES = [{"n_kv_heads": 2, "d_v": 7, "bias": False}, {"h": 6, "d_model": 30}]


@pytest.mark.parametrize("settings", SIZES, ids=str)
def test_a_traced_layer_has_its_sizes_and_its_rivals(settings):
    sizes = {"h": 4, "d_model": 24} | settings
    found = spec_of(mha.trace("one two three", **sizes).layers[0])
    expected = {"n_heads" if name == "h" else name: size for name, size in sizes.items()}
    assert found == AttentionSpec(**expected)
    rivals = variants(found)
    assert list(rivals) == ["mha", "gqa", "mqa", "mla"]
    assert found in rivals.values()
    small = mha.trace("one two", source="mini", architecture="latent")
    assert spec_of(small.layers[0]) == LatentSpec(64, 4, kv_rank=32, rotary_width=0)
