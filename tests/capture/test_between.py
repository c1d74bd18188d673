"""What stands between a model's matrices and q, k and v is found: each number is that of its own modules."""

from functools import cache

import pytest
import torch
import transformers

import mha_core as mha
from mha_core.capture import between
from mha_core.capture.leaves import Leaf
from mha_core.sources.huggingface import model as huggingface
from mha_core.traces.verify import split_difference

SHARED = {
    "vocab_size": 61,
    "hidden_size": 60,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 14,
    "num_hidden_layers": 2,
    "intermediate_size": 53,
    "pad_token_id": None,
}
OLMO = {name: value for name, value in SHARED.items() if name != "head_dim"} | {"hidden_size": 84}
OPT = {
    "vocab_size": 61,
    "hidden_size": 39,
    "word_embed_proj_dim": 39,
    "num_attention_heads": 3,
    "ffn_dim": 53,
}
OPT |= {"num_hidden_layers": 2, "max_position_embeddings": 97}
DBRX = {"d_model": 84, "n_heads": 6, "n_layers": 2, "vocab_size": 61}
DBRX["attn_config"] = {"kv_n_heads": 3, "clip_qkv": 1.3, "rope_theta": 10000.0}
DBRX["ffn_config"] = {"ffn_hidden_size": 41, "moe_num_experts": 4, "moe_top_k": 2, "hidden_size": 84}
CROSS = {"d_model": 39, "d_kv": 13, "d_ff": 53, "num_layers": 2, "num_heads": 3, "decoder_start_token_id": 0}
BART = {"d_model": 42, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 3}
BART |= {"decoder_attention_heads": 6, "encoder_ffn_dim": 53, "decoder_ffn_dim": 47, "vocab_size": 61}
BART |= {"max_position_embeddings": 97, "pad_token_id": 1, "decoder_start_token_id": 2}
MODELS = {
    "qwen3": ("Qwen3Model", "Qwen3Config", SHARED),
    "gemma3": ("Gemma3TextModel", "Gemma3TextConfig", SHARED),
    "gemma3n": (
        "Gemma3nTextModel",
        "Gemma3nTextConfig",
        SHARED | {"num_kv_shared_layers": 0, "vocab_size_per_layer_input": 61},
    ),
    "olmo2": ("Olmo2Model", "Olmo2Config", OLMO),
    "hunyuan": ("HunYuanDenseV1Model", "HunYuanDenseV1Config", SHARED),
    "llama4": (
        "Llama4TextModel",
        "Llama4TextConfig",
        SHARED | {"num_local_experts": 2, "intermediate_size_mlp": 47, "no_rope_layers": [1, 1]},
    ),
    "nanochat": ("NanoChatModel", "NanoChatConfig", SHARED | {"hidden_size": 84}),
    "qwen3_next": (
        "Qwen3NextModel",
        "Qwen3NextConfig",
        SHARED | {"layer_types": ["full_attention"] * 2, "num_experts": 0, "partial_rotary_factor": 4 / 7},
    ),
    "persimmon": (
        "PersimmonModel",
        "PersimmonConfig",
        OLMO | {"num_attention_heads": 7, "num_key_value_heads": 7},
    ),
    "opt": ("OPTModel", "OPTConfig", OPT),
    "olmo": ("OlmoModel", "OlmoConfig", OLMO | {"clip_qkv": 1.3}),
    "dbrx": ("DbrxModel", "DbrxConfig", DBRX),
    "t5": ("T5ForConditionalGeneration", "T5Config", CROSS | {"vocab_size": 61}),
    "bart": ("BartForConditionalGeneration", "BartConfig", BART),
}
NORM = {"step": "norm", "kind": "RMSNorm", "over": "head"}
TURN = {"step": "rotary"}
LAYER_NORM = {"step": "norm", "kind": "LayerNorm", "over": "head"}
BETWEEN = {
    "qwen3": {"q": [NORM, TURN], "k": [NORM, TURN], "v": []},
    "gemma3": {"q": [NORM, TURN], "k": [NORM, TURN], "v": []},
    "gemma3n": {"q": [NORM, TURN], "k": [NORM, TURN], "v": [NORM]},
    "olmo2": {"q": [NORM | {"over": "all"}, TURN], "k": [NORM | {"over": "all"}, TURN], "v": []},
    "hunyuan": {"q": [TURN, NORM], "k": [TURN, NORM], "v": []},
    "llama4": {"q": [TURN, NORM], "k": [TURN, NORM], "v": []},
    "nanochat": {"q": [TURN, NORM], "k": [TURN, NORM], "v": []},
    "qwen3_next": {"q": [NORM, TURN], "k": [NORM, TURN], "v": []},
    "persimmon": {"q": [LAYER_NORM, TURN], "k": [LAYER_NORM, TURN], "v": []},
    "opt": {"q": [{"step": "scale", "by": 13**-0.5}], "k": [], "v": []},
}
CLIPPED = ("olmo", "dbrx")
WRITERS = ("t5", "bart")
IDS = torch.arange(3, 16)[None]


def made(family: str, **changed) -> torch.nn.Module:
    """A model with random weights, not too small ones, also in its norms: they should show."""
    kind, config, settings = MODELS[family]
    torch.manual_seed(11)
    model = getattr(transformers, kind)(getattr(transformers, config)(**settings | changed)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(std=0.3)
            else:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def inputs(family: str) -> dict[str, torch.Tensor]:
    return {"input_ids": IDS} | ({"decoder_input_ids": IDS[:, :7] + 1} if family in WRITERS else {})


@cache
def layers(family: str) -> tuple[mha.LayerTrace, ...]:
    found, skipped = huggingface.flow(huggingface.adopt(made(family)), inputs(family))
    assert skipped == ()
    return found


def own(family: str) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """What went into each module of the same model, untouched by us, and what came out, as it was then."""
    model, seen = made(family), {}
    model.set_attn_implementation("eager")
    for name, part in model.named_modules():
        part.register_forward_hook(
            lambda _, given, out, name=name: seen.__setitem__(name, _copies(given, out))
        )
    with torch.no_grad():
        model(**inputs(family), use_cache=False)
    return seen


def _copies(given, out):
    return tuple(part.clone() if isinstance(part, torch.Tensor) else None for part in (*given[:1], out))


def heads(y: torch.Tensor, count: int) -> torch.Tensor:
    """(1, token, head · d) or (1, token, head, d) → (head, token, d)"""
    return y.reshape(y.shape[1], count, -1).transpose(0, 1)


def product(layer: mha.LayerTrace, name: str) -> torch.Tensor:
    """X W + b, cut into heads, of the layer's own X and matrices."""
    p, x = layer.projections, layer.tensors["x"]
    if layer.kind == "cross" and name != "q":
        x = layer.tensors["x_v"]
    w, b = getattr(p, f"w_{name}"), getattr(p, f"b_{name}")
    count = layer.n_heads if name == "q" else layer.n_kv_heads
    return heads((x @ w if b is None else x @ w + b)[None], count)


def first(layer: mha.LayerTrace, name: str) -> torch.Tensor:
    """What is said to be the product of X and a matrix."""
    raw = layer.tensors.get(f"{name}_raw", layer.tensors[name])
    return layer.tensors.get(f"{name}_linear", raw)


@pytest.mark.parametrize("family", BETWEEN)
def test_what_stands_between_is_said_in_order(family):
    for layer in layers(family):
        assert layer.about["between"] == BETWEEN[family]


@pytest.mark.parametrize("family", MODELS)
def test_all_matrices_are_known_and_make_what_is_called_their_product(family):
    for layer in layers(family):
        for name in "qkv":
            asked = product(layer, name)
            torch.testing.assert_close(first(layer, name), asked, atol=2e-5, rtol=1e-5)
            other = layer.tensors[name]
            plain = not layer.about.get("between", {}).get(name) and f"{name}_raw" not in layer.tensors
            assert plain == bool(torch.allclose(other, asked, atol=1e-3))


@pytest.mark.parametrize("family", ["qwen3", "gemma3", "gemma3n", "olmo2", "hunyuan"])
def test_a_norm_makes_of_one_the_other_as_the_models_own_module_does(family):
    seen = own(family)
    for at, layer in enumerate(layers(family)):
        for name in "qkv" if family == "gemma3n" else "qk":
            count = layer.n_heads if name == "q" else layer.n_kv_heads
            norm = (
                {"q": "query_layernorm", "k": "key_layernorm"}[name]
                if family == "hunyuan"
                else f"{name}_norm"
            )
            given, out = seen[f"layers.{at}.self_attn.{norm}"]
            before, after = (
                (layer.tensors[f"{name}_turned"], layer.tensors[name])
                if family == "hunyuan"
                else (layer.tensors[f"{name}_linear"], layer.tensors.get(f"{name}_raw", layer.tensors[name]))
            )
            for ours, theirs in ((before, given), (after, out)):
                theirs = theirs[0] if theirs.dim() == 4 and theirs.shape[1] == count else heads(theirs, count)
                torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
            assert (before - after).abs().max() > 0.1


@pytest.mark.parametrize("family", CLIPPED)
def test_numbers_that_are_cut_off_in_place_or_not_are_known_before(family):
    layer = layers(family)[0]
    for name in "qkv":
        kinds = [step["step"] for step in layer.about["between"][name]]
        assert kinds == (["clip"] if name == "v" else ["clip", "rotary"])
        assert layer.about["between"][name][0]["at"] == pytest.approx(1.3)
        before, after = layer.tensors[f"{name}_linear"], layer.tensors["v" if name == "v" else f"{name}_raw"]
        assert (before.abs() > 1.3).any()
        torch.testing.assert_close(after, before.clamp(-1.3, 1.3), atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", ["qwen3", "persimmon", "opt", *CLIPPED])
def test_the_same_is_found_in_half_precision(family, dtype):
    found, _ = huggingface.flow(huggingface.adopt(made(family).to(dtype)), inputs(family))
    limit = {"step": "clip", "at": 1.3}
    clipped = {"q": [limit, TURN], "k": [limit, TURN], "v": [limit]}
    assert found[0].about["between"] == BETWEEN.get(family, clipped)
    assert found[0].tensors["q_linear"].dtype == dtype


def test_a_limit_that_was_not_reached_in_the_trial_is_found_when_it_is(monkeypatch):
    model = huggingface.adopt(made("olmo", clip_qkv=60.0))
    plain, _ = huggingface.flow(model, {"input_ids": IDS})
    assert "between" not in plain[0].about
    model.module.config.clip_qkv = 1.3
    clipped, _ = huggingface.flow(model, {"input_ids": IDS})
    assert [step["step"] for step in clipped[0].about["between"]["q"]] == ["clip", "rotary"]
    torch.testing.assert_close(clipped[0].tensors["q_linear"], plain[0].tensors["q_raw"])


@pytest.mark.parametrize(
    ("family", "keys"),
    [
        ("t5", "decoder.block.{}.layer.1.EncDecAttention.k"),
        ("bart", "model.decoder.layers.{}.encoder_attn.k_proj"),
    ],
)
def test_what_another_text_is_made_of_is_known_where_it_is_looked_at(family, keys):
    seen = own(family)
    of_text = [layer for layer in layers(family) if layer.kind == "cross"]
    assert len(of_text) == 2
    for at, layer in enumerate(of_text):
        states, made_k = seen[keys.format(at)]
        torch.testing.assert_close(layer.tensors["x_v"], states[0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(layer.tensors["k"], heads(made_k, layer.n_heads), atol=1e-5, rtol=1e-5)
        assert layer.tensors["x"].shape == (7, layer.d_model)
        assert split_difference(layer) == 0.0
    # Both layers look at the same text, and share it.
    assert len({layer.tensors["x_v"].data_ptr() for layer in of_text}) == 1
    assert all("x_v" not in layer.tensors for layer in layers(family) if layer.kind != "cross")


@pytest.mark.parametrize("family", ["qwen3", "hunyuan", "gemma3n", "bart"])
def test_all_of_it_is_saved_and_read_again(family, tmp_path):
    labels = mha.Tokens("a" * 13, tuple("abcdefghijklm"), tuple((n, n + 1) for n in range(13)))
    target = mha.Tokens("a" * 7, tuple("abcdefg"), tuple((n, n + 1) for n in range(7)))
    trace = mha.AttentionTrace(labels, layers(family), {"name": "m"}, target=target)
    trace.save(tmp_path / "t.safetensors")
    for one, other in zip(trace.layers, mha.load(tmp_path / "t.safetensors").layers, strict=True):
        assert set(one.tensors) == set(other.tensors)
        assert all(torch.equal(tensor, other.tensors[name]) for name, tensor in one.tensors.items())
        assert one.about == other.about


class Norm(torch.nn.Module):
    """A norm in one of the ways in which libraries write it."""

    def __init__(self, kind: str, epsilon: float):
        super().__init__()
        self.kind, self.variance_epsilon = kind, epsilon
        self.weight = torch.nn.Parameter(torch.randn(11))
        self.bias = torch.nn.Parameter(torch.randn(11)) if kind == "shifted" else None

    def forward(self, x):
        if self.kind in ("layer", "shifted"):
            x = x - x.mean(-1, keepdim=True)
        even = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.variance_epsilon)
        gain = {"more": 1 + self.weight, "none": 1.0}.get(self.kind, self.weight)
        made = even * gain + (0.0 if self.bias is None else self.bias)
        return made.tanh() if self.kind == "other" else made


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("rms", "RMSNorm"),
        ("more", "RMSNorm"),
        ("none", "RMSNorm"),
        ("layer", "LayerNorm"),
        ("shifted", "LayerNorm"),
        ("other", None),
    ],
)
def test_a_norm_is_told_by_its_numbers(kind, told):
    torch.manual_seed(5)
    module, x = Norm(kind, 3e-3), torch.randn(1, 5, 3, 11) + 0.5
    with torch.no_grad():
        found = between.norm(Leaf.of(module, x, module(x)), 11)
    assert (found and found["kind"]) == told
    if told:
        assert found["over"] == "head"
        assert between.norm(Leaf.of(module, x, module(x).detach()), 33)["over"] == "all"


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_in_half_precision_the_nearer_norm_is_told(kind):
    torch.manual_seed(5)
    module, x = Norm(kind, 1e-6).bfloat16(), torch.randn(1, 5, 3, 11)
    x = (x - 0.98 * x.mean(-1, keepdim=True)).bfloat16()
    with torch.no_grad():
        found = between.norm(Leaf.of(module, x, module(x.float()).bfloat16()), 11)
    assert found["kind"] == {"rms": "RMSNorm", "layer": "LayerNorm"}[kind]


def test_only_one_number_for_all_is_a_scale_or_a_limit():
    torch.manual_seed(5)
    made = torch.randn(1, 3, 5, 7)
    assert between.adjusted(made, made * 0.25) == {"step": "scale", "by": pytest.approx(0.25)}
    assert between.adjusted(made, made * 7**-0.5) == {"step": "scale", "by": 7**-0.5}
    assert between.adjusted(made, made.clamp(-0.5, 0.5)) == {"step": "clip", "at": 0.5}
    by_head = made * torch.tensor([0.25, 0.5, 0.25])[:, None, None]
    assert between.adjusted(made, by_head) is None
    assert between.adjusted(made, made.clamp(-0.5, 0.6)) is None
    assert between.adjusted(torch.zeros_like(made), made) is None
