"""Which matrices made q, k and v, and what stands between: each number is that of the model's own modules."""

from functools import cache

import pytest
import torch
from torch import nn
from transformers.models.dbrx.configuration_dbrx import DbrxAttentionConfig

import mha_core as mha
from mha_core.capture import projections
from mha_core.capture.projections import Proof, Use, provenance
from mha_core.sources.huggingface import model as huggingface
from mha_core.traces.facts import Adjustments, Clip, Factor, Norm, Rotary
from mha_core.traces.layer import with_texts
from mha_core.traces.tensors import shared
from mha_core.traces.verify import split_difference
from tests.parity import tiny

# Settings of a family that differ here from those of its tiny model.
CHANGED = {
    "gemma3n_text": {"num_kv_shared_layers": 0},
    "llama4_text": {"no_rope_layers": [1, 1]},
    "olmo": {"clip_qkv": 1.3},
    "dbrx": {"attn_config": DbrxAttentionConfig(kv_n_heads=3, clip_qkv=1.3, rope_theta=10000.0)},
}
HEAD_NORM, ALL_NORM, LAYER_NORM = Norm("RMSNorm", "head"), Norm("RMSNorm", "all"), Norm("LayerNorm", "head")


def turn(width: int = 8) -> Rotary:
    return Rotary("half", width)


ADJUSTED = {
    "qwen3": Adjustments(*((HEAD_NORM, turn()),) * 2),
    "gemma3n_text": Adjustments(*((HEAD_NORM, turn()),) * 2, v=(HEAD_NORM,)),
    "olmo2": Adjustments(*((ALL_NORM, turn()),) * 2),
    "hunyuan_v1_dense": Adjustments(*((turn(), HEAD_NORM),) * 2),
    "llama4_text": Adjustments(*((Rotary("pairs", 8), HEAD_NORM),) * 2),
    "qwen3_next": Adjustments(*((HEAD_NORM, turn(2)),) * 2),
    "persimmon": Adjustments(*((LAYER_NORM, turn(4)),) * 2),
    "opt": Adjustments(q=(Factor(8**-0.5),)),
}
CLIPPED = ("olmo", "dbrx")
PLAIN = ("bert", "bloom", "gpt2", "gpt_neox", "gptj", "phi3")  # several matrices, or packed in several ways
IDS = torch.arange(3, 16)[None]


def made(family: str) -> torch.nn.Module:
    return tiny.model(family, **CHANGED.get(family, {}))


def inputs(family: str) -> dict[str, torch.Tensor]:
    return {"input_ids": IDS} | ({"decoder_input_ids": IDS[:, :7] + 1} if family == "bart" else {})


@cache
def layers(family: str) -> tuple[mha.LayerTrace, ...]:
    found, skipped, _ = huggingface.flow(huggingface.adopt(made(family)), inputs(family))
    assert skipped == ()
    return found


def own(family: str) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """The inputs and outputs of each module of the same model, untouched by us."""
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
    """The tensor that is called the product of X and a matrix."""
    raw = layer.tensors.get(f"{name}_raw", layer.tensors[name])
    return layer.tensors.get(f"{name}_linear", raw)


@pytest.mark.parametrize("family", [*ADJUSTED, *CLIPPED, "bart", *PLAIN])
def test_all_matrices_are_known_and_make_what_is_called_their_product(family):
    """The steps between such a product and q, k or v are named in order."""
    for layer in layers(family):
        if family not in CLIPPED:
            assert layer.about.adjustments == ADJUSTED.get(family)
        for name in "qkv":
            asked = product(layer, name)
            torch.testing.assert_close(first(layer, name), asked, atol=2e-5, rtol=1e-5)
            other = layer.tensors[name]
            steps = layer.about.adjustments and getattr(layer.about.adjustments, name)
            plain = not steps and f"{name}_raw" not in layer.tensors
            assert plain == bool(torch.allclose(other, asked, atol=1e-3))


@pytest.mark.parametrize(
    ("family", "norms", "before"),
    [
        ("qwen3", ("q_norm", "k_norm"), "linear"),
        ("hunyuan_v1_dense", ("query_layernorm", "key_layernorm"), "turned"),
    ],
)
def test_a_norm_makes_of_one_the_other_as_the_models_own_module_does(family, norms, before):
    seen = own(family)
    for layer in layers(family):
        for name, norm in zip("qk", norms, strict=True):
            given, out = seen[f"{layer.name}.{norm}"]
            after = layer.tensors[f"{name}_raw" if before == "linear" else name]
            for ours, theirs in ((layer.tensors[f"{name}_{before}"], given), (after, out)):
                theirs = theirs[0] if theirs.shape[1] == len(ours) else theirs[0].transpose(0, 1)
                torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", CLIPPED)
def test_numbers_that_are_cut_off_in_place_or_not_are_known_before(family):
    layer = layers(family)[0]
    for name in "qkv":
        clip, *rest = getattr(layer.about.adjustments, name)
        assert clip == Clip(pytest.approx(1.3))
        assert rest == ([] if name == "v" else [turn()])
        before, after = layer.tensors[f"{name}_linear"], layer.tensors["v" if name == "v" else f"{name}_raw"]
        assert (before.abs() > 1.3).any()
        torch.testing.assert_close(after, before.clamp(-1.3, 1.3), atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("family", "dtype"),
    [("qwen3", torch.bfloat16), ("persimmon", torch.float16), ("olmo", torch.float16)],
)
def test_the_same_is_found_in_half_precision(family, dtype):
    found, *_ = huggingface.flow(huggingface.adopt(made(family).to(dtype)), inputs(family))
    clipped = Adjustments(*((Clip(1.3), turn()),) * 2, v=(Clip(1.3),))
    assert found[0].about.adjustments == ADJUSTED.get(family, clipped)
    assert found[0].tensors["q_linear"].dtype == dtype


def test_a_limit_that_was_not_reached_in_the_trial_is_found_when_it_is():
    model = huggingface.adopt(tiny.model("olmo", clip_qkv=60.0))
    plain, *_ = huggingface.flow(model, {"input_ids": IDS})
    assert plain[0].about.adjustments is None
    model.module.config.clip_qkv = 1.3
    clipped, *_ = huggingface.flow(model, {"input_ids": IDS})
    assert clipped[0].about.adjustments.q == (Clip(pytest.approx(1.3)), turn())
    torch.testing.assert_close(clipped[0].tensors["q_linear"], plain[0].tensors["q_raw"])


def test_the_input_of_another_text_is_known():
    seen = own("bart")
    of_text = [layer for layer in layers("bart") if layer.kind == "cross"]
    assert len(of_text) == 3
    for layer in of_text:
        states, made_k = seen[f"{layer.name}.k_proj"]
        torch.testing.assert_close(layer.tensors["x_v"], states[0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(layer.tensors["k"], heads(made_k, layer.n_heads), atol=1e-5, rtol=1e-5)
        assert layer.tensors["x"].shape == (7, layer.d_model)
        assert split_difference(layer) == 0.0
    # All layers look at the same text, and share it.
    assert len({shared(layer.tensors)["x_v"].data_ptr() for layer in of_text}) == 1
    assert all("x_v" not in layer.tensors for layer in layers("bart") if layer.kind != "cross")


@pytest.mark.parametrize("family", ["hunyuan_v1_dense", "bart", "deepseek_v3"])
def test_all_of_it_is_saved_and_read_again(family, tmp_path):
    labels = mha.Tokens("a" * 13, tuple("abcdefghijklm"), tuple((n, n + 1) for n in range(13)))
    target = mha.Tokens("a" * 7, tuple("abcdefg"), tuple((n, n + 1) for n in range(7)))
    trace = mha.AttentionTrace(labels, with_texts(labels, target, layers(family)), {"name": "m"})
    trace.save(tmp_path / "t.safetensors")
    for one, other in zip(trace.layers, mha.load(tmp_path / "t.safetensors").layers, strict=True):
        assert set(one.tensors) == set(other.tensors)
        assert all(torch.equal(tensor, other.tensors[name]) for name, tensor in one.tensors.items())
        assert one.about == other.about


class Norming(nn.Module):
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


NORMS = {"rms": "RMSNorm", "more": "RMSNorm", "none": "RMSNorm", "layer": "LayerNorm", "shifted": "LayerNorm"}


def test_a_norm_is_recognized_by_its_numbers():
    for kind, told in {**NORMS, "other": None}.items():
        torch.manual_seed(5)
        module, x = Norming(kind, 3e-3), torch.randn(1, 5, 3, 11) + 0.5
        with torch.no_grad():
            use = Use.of(module, x, module(x), Proof("q_norm"))
        assert projections.norm(use, 11) == (told and Norm(told, "head")), kind
        assert projections.norm(use, 33) == (told and Norm(told, "all")), kind


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_in_half_precision_the_nearer_norm_is_reported(kind):
    torch.manual_seed(5)
    module, x = Norming(kind, 1e-6).bfloat16(), torch.randn(1, 5, 3, 11)
    x = (x - 0.98 * x.mean(-1, keepdim=True)).bfloat16()
    with torch.no_grad():
        use = Use.of(module, x, module(x.float()).bfloat16(), Proof("q_norm"))
    assert projections.norm(use, 11).kind == {"rms": "RMSNorm", "layer": "LayerNorm"}[kind]


def test_only_one_number_for_all_is_a_scale_or_a_limit():
    torch.manual_seed(5)
    made = torch.randn(1, 3, 5, 7)
    assert projections.adjusted(made, made * 0.25) == Factor(pytest.approx(0.25))
    assert projections.adjusted(made, made * 7**-0.5) == Factor(7**-0.5)
    assert projections.adjusted(made, made.clamp(-0.5, 0.5)) == Clip(0.5)
    by_head = made * torch.tensor([0.25, 0.5, 0.25])[:, None, None]
    assert projections.adjusted(made, by_head) is None
    assert projections.adjusted(made, made.clamp(-0.5, 0.6)) is None
    assert projections.adjusted(torch.zeros_like(made), made) is None


# What is proven, and what is not believed

N_HEADS, D_K, D_MODEL = 3, 5, 7


def used(name: str, x: torch.Tensor, width: int = N_HEADS * D_K, kind=nn.Linear) -> Use:
    """A matrix that was multiplied with x."""
    module = kind(x.shape[-1], width).requires_grad_(False)
    return Use.of(module, x, module(x), Proof(name))


def again(use: Use, x: torch.Tensor) -> Use:
    return Use.of(use.module, x, use.module(x), use.proof)


def cut(use: Use) -> torch.Tensor:
    return use.y.unflatten(2, (N_HEADS, D_K)).transpose(1, 2)


@pytest.fixture
def texts() -> list[torch.Tensor]:
    torch.manual_seed(3)
    return [torch.randn(1, 4, D_MODEL) for _ in range(3)]


@pytest.mark.parametrize(
    ("inputs", "outside", "known"),
    [
        *(((0, 0, 0), False, True), ((0, 0, 0), True, True), ((0, 1, 1), True, True)),
        *(((0, 1, 1), False, False), ((0, 1, 2), True, False), ((0, 0, 1), False, False)),
        ((0, 1, 0), False, False),
    ],
)
def test_matrices_are_known_where_the_inputs_are_those_of_such_a_layer(texts, inputs, outside, known):
    uses = [used(name, texts[at]) for name, at in zip(("query", "key", "value"), inputs, strict=True)]
    found = provenance(*map(cut, uses), uses, outside=outside)
    assert set(found.projections) == (
        {f"{part}_{name}" for part in "wb" for name in "qkv"} if known else set()
    )
    if known:
        assert torch.equal(found.projections["w_k"], uses[1].module.weight.mT)
        assert torch.equal(found.tensors["x"], texts[0][0])
        assert ("x_v" in found.tensors) == (inputs[0] != inputs[2])
        if "x_v" in found.tensors:
            assert torch.equal(found.tensors["x_v"], texts[1][0])


@pytest.mark.parametrize("names", projections.NAMES[:11])
def test_each_triple_of_names_is_looked_for(texts, names):
    if len(set(names)) == 1:
        whole = used(names[0], texts[0], 3 * N_HEADS * D_K)
        parts = [part.unflatten(2, (N_HEADS, D_K)).transpose(1, 2) for part in whole.y.chunk(3, dim=2)]
        found = provenance(*parts, [whole])
    else:
        uses = [used(name, texts[0]) for name in names]
        found = provenance(*map(cut, uses), uses)
    assert {"w_q", "w_k", "w_v"} <= set(found.projections)


SPOILED = {
    "written over": lambda use, wanted, text: (use.y.mul_(2.0), use, wanted)[1:],
    "x written over": lambda use, wanted, text: (use.x.add_(1.0), use, wanted)[1:],
    "another text": lambda use, wanted, text: (other := again(use, text), cut(other)),
    "other numbers": lambda use, wanted, text: (use, torch.randn_like(wanted)),
    "cut otherwise": lambda use, wanted, _: (use, use.y.unflatten(2, (D_K, N_HEADS)).permute(0, 3, 1, 2)),
    "a part": lambda use, wanted, text: (use, wanted[:, :, :-1]),
    "not used": lambda use, wanted, text: (None, wanted),
}


def test_a_proof_about_a_module_is_checked_again(subtests):
    for spoiled, spoil in SPOILED.items():
        for which in range(3):
            with subtests.test(spoiled, which=which):
                one, other = torch.randn(2, 1, 4, D_MODEL)
                uses = [used(name, one) for name in ("query", "key", "value")]
                assert provenance(*map(cut, uses), uses).projections
                wanted = [cut(use) for use in uses]
                uses[which], wanted[which] = spoil(uses[which], wanted[which], other)
                uses = [as_it_was for use in uses if use and (as_it_was := use.unchanged()) is not None]
                assert not provenance(*wanted, uses).projections


def test_an_output_that_was_cut_off_in_place_is_known_as_it_was(texts):
    use = used("query", texts[0])
    product = use.y.clone()
    use.y.clamp_(-0.1, 0.1)
    assert torch.equal(use.unchanged().y, product)
    use.y.mul_(2.0)
    assert use.unchanged() is None


def test_a_matrix_that_was_proven_is_not_multiplied_again_until_it_lies_elsewhere(texts, monkeypatch):
    use = used("query", texts[0])
    proven = projections.matrix(use)
    monkeypatch.setattr(projections, "alike", None)
    assert projections.matrix(again(use, texts[1])) is proven
    use.module.weight = nn.Parameter(torch.randn_like(use.module.weight), requires_grad=False)
    with pytest.raises(TypeError):
        projections.matrix(again(use, texts[1]))
    monkeypatch.undo()
    assert torch.equal(projections.matrix(again(use, texts[1]))[0], use.module.weight.mT)


def test_a_part_of_a_packed_matrix_is_not_copied(texts):
    packed = used("c_attn", texts[0], 3 * N_HEADS * D_K)
    q, k, v = (part.unflatten(2, (N_HEADS, D_K)).transpose(1, 2) for part in packed.y.chunk(3, dim=2))
    found = provenance(q, k, v, [packed])
    parts = {name: part.tensor() for name, part in found.projections.items()}
    place = packed.module.weight.untyped_storage().data_ptr()
    assert {parts[f"w_{name}"].untyped_storage().data_ptr() for name in "qkv"} == {place}
    torch.testing.assert_close(texts[0][0] @ parts["w_v"] + parts["b_v"], v[0].transpose(0, 1).flatten(1))


def test_a_packed_matrix_of_another_layout_is_unknown():
    """36 columns are q, k and v of 3 heads of 4 numbers, but the values have 6."""
    packed, x = nn.Linear(7, 36), torch.randn(1, 5, 7)
    q, k, v = (torch.randn(1, 3, 5, width) for width in (4, 4, 6))
    assert not provenance(q, k, v, [Use.of(packed, x, packed(x), Proof("qkv_proj"))]).projections


def test_a_layer_norm_leaves_its_gain_and_shift_in_the_trace():
    """As they were: a model that is trained on does not change them."""
    model = made("persimmon")
    found, _, _ = huggingface.flow(huggingface.adopt(model), inputs("persimmon"))
    blocks = [block.self_attn for block in model.model.layers]
    for layer, block in zip(found, blocks, strict=True):
        for name, norm in (("q", block.q_layernorm), ("k", block.k_layernorm)):
            kept = [layer.tensors[f"{name}_{what}"][0].clone() for what in ("gain", "shift")]
            assert torch.equal(kept[0], norm.weight)
            assert torch.equal(kept[1], norm.bias)
            with torch.no_grad():
                norm.weight.mul_(2)
                norm.bias.mul_(2)
            assert torch.equal(layer.tensors[f"{name}_gain"][0], kept[0])
            assert torch.equal(layer.tensors[f"{name}_shift"][0], kept[1])
        assert [step.epsilon for step in layer.adjustments.q[:1]] == [block.q_layernorm.eps]
        assert "v_gain" not in layer.tensors
