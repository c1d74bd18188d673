"""The code of each step: run on the numbers of a trace, it gives the next numbers of the trace."""

import re
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

import mha_core as mha
from mha_core.analysis.derivation import steps
from mha_core.analysis.pytorch import of_layer, of_step
from mha_core.attention.positions import rotary_angles, rotated
from mha_core.attention.score_rule import ScoreRule
from mha_core.traces.facts import Adjustments, Clip, Factor, Facts, Norm, OutputGate, Rotary
from mha_core.traces.layer import LayerTrace
from mha_core.traces.verify import projection_parts
from tests.sources.tiny import module

SENTENCE = "the cat saw the dog"
GROUPED = {"text": SENTENCE, "d_model": 12, "h": 6, "n_kv_heads": 3, "d_k": 4, "d_v": 7}
TRACES = {
    "wide values": {"text": "How are", "d_model": 512, "h": 8, "d_k": 64, "d_v": 100},
    "shared, causal, alibi": GROUPED | {"mask": "causal", "position": "alibi"},
    "rotary without bias": GROUPED | {"position": "rotary", "bias": False},
    "empty rows": {"text": "two words", "d_model": 8, "h": 2, "mask": "padding"},
    "temperature": GROUPED | {"edits": [mha.edits.Temperature(temperature=2.5)]},
    "scale": GROUPED | {"edits": [mha.edits.Scale(factor=0.75)]},
}
LIMIT = 1e-6


def names(layer: LayerTrace) -> dict[str, torch.Tensor | None]:
    """The variables that the code of a layer's steps can use, besides the numbers of the step before."""
    known = layer.projections._asdict()
    rule = layer.rule.at(slice(None), slice(None), n_query=layer.n_query, n_key=layer.n_key)
    known |= {"bias": rule.bias, "sinks": rule.sinks, "allowed": torch.from_numpy(layer.allowed().copy())}
    angles = rotary_angles(layer.n_query, layer.d_k) if layer.d_k % 2 == 0 else ()
    known |= {name: table.float() for name, table in zip(("cos", "sin"), angles, strict=False)}
    known |= dict(layer.tensors)
    return known | {"y": layer.tensors.get("x_v")}


def before_and_after(layer: LayerTrace) -> dict[str, tuple[dict, dict]]:
    """For each step the numbers it uses and the numbers it computes, by their names in the code."""

    def read(method: str) -> torch.Tensor:
        return torch.from_numpy(getattr(layer, method)().copy())

    packed = {}
    for name, (x, matrix, bias, _) in projection_parts(layer).items():
        packed[name] = x[0] @ matrix + (0 if bias is None else bias)
    first = {name: layer.tensors[layer.stages(name)[0]] for name in "qkv"}
    heads = {name: layer.tensors[name] for name in "qkv"}
    raw, scaled, masked = ({"scores": read(name)} for name in ("scores", "scaled", "masked"))
    weights, outputs, concat = (
        {"weights": read("weights")},
        {"heads": read("output")},
        {"concat": read("concat")},
    )
    result = {"z": read("result")} if layer.knows("w_o") else {}
    return {
        "project": ({}, packed),
        "split": (packed, first),
        "adjust": (first, heads),
        "scores": (heads, raw),
        "scale": (raw, scaled),
        "mask": (scaled, masked),
        "softmax": (masked, weights),
        "mix": (weights | heads, outputs),
        "concat": (outputs, concat),
        "output": (concat, result),
    }


def run(lines: str, layer: LayerTrace, step: str) -> None:
    """Run the code of a step and compare its result."""
    given, made = before_and_after(layer)[step]
    values = {"torch": torch} | names(layer) | given
    exec(lines, values)
    assert made
    for name, expected in made.items():
        size = max(1.0, expected.nan_to_num(neginf=0.0).abs().max().item())
        same = torch.isclose(values[name], expected, atol=LIMIT * size, rtol=0)
        assert values[name].shape == expected.shape, f"{step}: {name}"
        assert same.all(), f"{step}: {name}"


SHIPPED = ("glass-box", "standard", "grouped-query", "multi-query", "latent")
FAMILIES = ("bert", "gpt2", "gpt_neox", "llama", "mistral", "qwen3", "cohere", "glm", "gemma2", "gpt_oss")
FAMILIES += ("deepseek_v3", "bloom", "falcon")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*TRACES, *SHIPPED, *FAMILIES])
def test_the_code_of_all_steps_one_after_the_other_is_the_layer(name):
    if name in FAMILIES:
        trace = mha.trace([5, 17, 8, 41, 29, 3, 17], source=module(name))
    else:
        trace = mha.trace(**TRACES.get(name, {"text": SENTENCE, "source": "mini", "architecture": name}))
    for at, layer in enumerate(trace.layers):
        told, values = steps(trace, layer=at, head=0), {"trace": trace}
        lines = of_layer([step.code for step in told], layer, at)
        for part, (norm, *_) in ((one, made) for one, made in layer.adjustments.items() if made):
            if isinstance(norm, Norm):  # its gain is that of the model
                before, after = (layer.tensors[stage] for stage in layer.stages(part)[:2])
                values[f"{part}_gain"] = (after / F.rms_norm(before, before.shape[-1:], eps=norm.epsilon))[
                    0, -1
                ]
        assert ("# missing: " in lines) == (name == "deepseek_v3")
        if layer.knows("w_uk"):  # the latent vectors are the trace's, their matrix is not
            values["c_kv"], lines = layer.tensors["kv_short"], re.sub("(?m)^c_kv = .*", "", lines)
        exec(lines, values)
        expected = torch.from_numpy(layer.result().copy())
        assert torch.isclose(values["z"], expected, atol=1e-5 * expected.abs().max().item(), rtol=0).all()


def layer_of(
    kind: str = "self", *, about: Facts = Facts(), rule: ScoreRule = ScoreRule(), **more
) -> LayerTrace:
    """Random numbers of 4 heads that share two of keys and values: 3 queries, 5 keys."""
    draw = torch.Generator().manual_seed(0)
    n_key = 5 if kind == "cross" else 3
    sizes = {"q": (4, 3, 6), "k": (2, n_key, 6), "v": (2, n_key, 7)}
    tensors = {name: torch.randn(size, generator=draw) for name, size in sizes.items()}
    return LayerTrace(tensors | more, rule=rule, about=about, kind=kind)


def test_a_cap_a_bias_and_sinks_are_in_the_code():
    draw = torch.Generator().manual_seed(1)
    bias, sinks = torch.randn(4, 3, 3, generator=draw), torch.randn(4, generator=draw)
    layer = layer_of(rule=ScoreRule(scale=0.3, soft_cap=2.0, bias=bias, sinks=sinks, temperature=1.5))
    for name in ("scores", "scale", "mask", "softmax", "mix", "concat"):
        run(of_step(name, layer), layer, name)


def test_a_gate_is_in_the_code():
    gate = torch.rand(4, 3, 7, generator=torch.Generator().manual_seed(2))
    layer = layer_of(gate=gate, about=Facts(gate=OutputGate("sigmoid", "number")))
    run(of_step("concat", layer), layer, "concat")


@pytest.mark.parametrize("form", ["half", "pairs"])
def test_adjustments_of_queries_and_keys_are_in_the_code(form):
    plain = layer_of()
    cos, sin = (torch.randn(3, 6, generator=torch.Generator().manual_seed(seed)) for seed in (3, 4))
    steps_of = Clip(0.8), Rotary(form, 6)
    tensors = {"cos": cos, "sin": sin}
    for name in "qk":
        limited = plain.tensors[name].clamp(-0.8, 0.8)
        tensors |= {f"{name}_linear": plain.tensors[name], f"{name}_raw": limited}
        tensors[name] = rotated(limited, cos, sin, form=form)
    adjustments = Adjustments(q=steps_of, k=steps_of, v=(Factor(0.5),))
    tensors |= {"v": plain.tensors["v"] * 0.5, "v_linear": plain.tensors["v"]}
    layer = layer_of(about=Facts(adjustments=adjustments), **tensors)
    run(of_step("adjust", layer), layer, "adjust")


@pytest.mark.parametrize(
    "step",
    [
        Norm("RMSNorm", "head", 1e-6),
        Norm("LayerNorm", "head", 1e-5),
        Rotary("half", 4),
        Rotary("pairs", 4, start=2),
    ],
)
def test_norms_and_rotations_of_a_part_are_in_the_code(step):
    draw = torch.Generator().manual_seed(6)
    before, (gain, shift) = layer_of().tensors["q"], torch.randn(2, 1, 6, generator=draw)
    cos, sin = torch.randn(2, 3, 4, generator=draw)
    if isinstance(step, Rotary):
        after = {"q_raw": before, "q": rotated(before, cos, sin, form=step.form, start=step.start)}
    elif step.kind == "RMSNorm":
        after = {"q_linear": before, "q": F.rms_norm(before, (6,), gain[0], step.epsilon)}
    else:
        after = {"q_linear": before, "q": F.layer_norm(before, (6,), gain[0], shift[0], step.epsilon)}
    about = Facts(adjustments=Adjustments(q=(step,)))
    layer = layer_of(about=about, cos=cos, sin=sin, q_gain=gain, q_shift=shift, **after)
    run(of_step("adjust", layer), layer, "adjust")


def adjusted(*steps) -> LayerTrace:
    return layer_of(about=Facts(adjustments=Adjustments(q=(Factor(2.0), *steps))))


def patched(edit) -> LayerTrace:
    return mha.trace(**GROUPED, edits=[edit]).layers[0]


@pytest.mark.parametrize(
    ("step", "layer"),
    [
        ("concat", lambda: layer_of(about=Facts(output_rotary=Rotary("half", 6)))),
        ("project", layer_of),  # of neither text is X known
        ("split", layer_of),
        ("adjust", lambda: adjusted(Norm("RMSNorm", "all"))),  # its gain is not known
        ("adjust", lambda: adjusted(Norm("LayerNorm", "head"))),
        ("softmax", lambda: patched(mha.edits.Weights(layer=0))),
        ("mix", lambda: patched(mha.edits.Output(layer=0, heads=1))),
    ],
)
def test_where_a_line_is_missing_the_code_says_so(step, layer):
    assert "# missing: " in of_step(step, layer())


def test_the_code_of_two_texts_takes_keys_and_values_from_the_other_one():
    draw = torch.Generator().manual_seed(5)
    x, y = torch.randn(3, 9, generator=draw), torch.randn(5, 9, generator=draw)
    matrices = [torch.randn(9, width, generator=draw) for width in (24, 12, 14)]
    packed = [part @ matrix for part, matrix in zip((x, y, y), matrices, strict=True)]
    q, k, v = (
        one.unflatten(1, (heads, -1)).transpose(0, 1) for one, heads in zip(packed, (4, 2, 2), strict=True)
    )
    layer = replace(layer_of("cross", q=q, k=k, v=v, x=x, x_v=y), projections=mha.Projections(*matrices))
    for name in ("project", "split", "scores", "mix"):
        run(of_step(name, layer), layer, name)
