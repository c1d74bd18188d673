"""The explanation of one number: its terms and its code give the number in the trace."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import mha_core as mha
from mha_core import edits
from mha_core.analysis.explanation import EXPLAINED, MAX_KEY_NUMBERS
from mha_core.traces.facts import Adjustments, Clip, Factor, Facts, Norm, OutputGate, Rotary
from tests.analysis import cells
from tests.conftest import SIDES
from tests.parity import tiny

TEXT = "the old cat saw the new dog"
GROUPED = {"text": TEXT, "d_model": 22, "h": 6, "n_kv_heads": 3, "d_k": 4, "d_v": 7, "layers": 2}
EDITS = [
    edits.Hide(rows="cat", keys="old"),
    edits.Scale(factor=0.7, layer=0),
    edits.Temperature(temperature=1.7),
    edits.Bias(values=1.5, heads=[0, 2], keys=[1, 4]),
    edits.Weights(heads=1, rows=[2, 3]),
    edits.Output(values=0.25, heads=4, rows=5),
]


def layer_by_hand(dtype=torch.float32, n_tokens: int = 5) -> mha.AttentionTrace:
    """Numbers for every part of a score rule, with a fully masked row, shared keys and a gate."""
    draw = torch.Generator().manual_seed(3)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw)

    mask = torch.ones(n_tokens, n_tokens).tril(1).bool()
    mask[2] = False
    rule = mha.ScoreRule(
        scale=0.6,
        soft_cap=3.0,
        temperature=1.3,
        bias=normal(1, n_tokens, n_tokens),
        distance_bias=normal(6, 2 * n_tokens - 1),
        mask=mask,
    )
    names = {"q": (6, n_tokens, 5), "k": (3, n_tokens, 5), "v": (3, n_tokens, 4), "gate": (6, n_tokens, 1)}
    tensors = {name: normal(*shape).to(dtype) for name, shape in names.items()}
    angles = normal(n_tokens, 4)
    tensors |= {"output_cos": angles.cos().to(dtype), "output_sin": angles.sin().to(dtype)}
    projections = mha.Projections(w_o=normal(24, 11).to(dtype), b_o=normal(11).to(dtype))
    about = Facts(gate=OutputGate("sigmoid", "head"), output_rotary=Rotary("pairs", 4))
    layer = mha.LayerTrace(tensors, rule, projections, about=about)
    sunk = replace(layer, rule=replace(rule, mask=None, sinks=normal(6)))
    tokens = mha.words(" ".join(f"w{at}" for at in range(n_tokens)))
    return mha.AttentionTrace(tokens, (layer, sunk), "numbers")


NORMS = (("LayerNorm", "head", 1), ("LayerNorm", "head", 3), ("LayerNorm", "all", 1))


def layer_normed() -> mha.AttentionTrace:
    """Norms, a scale and a limit between X W and q and k: a gain for all heads, for each, over all."""
    draw, n_heads, width, layers = torch.Generator().manual_seed(9), 3, 5, []
    x = torch.randn(4, 7, generator=draw)
    for kind, over, rows in (*NORMS, ("RMSNorm", "head", 1)):
        matrices = {f"w_{name}": torch.randn(7, n_heads * width, generator=draw) for name in "qkv"}
        linear = {n: (x @ matrices[f"w_{n}"]).unflatten(1, (n_heads, width)).transpose(0, 1) for n in "qkv"}
        tensors = {"x": x, "v_linear": linear["v"], "v": linear["v"].clamp(-1.5, 1.5)}
        for name in "qk":
            size = width if over == "head" else n_heads * width
            gain, shift = torch.randn(2, rows, size, generator=draw)
            tensors[f"{name}_linear"] = linear[name]
            numbers = linear[name].transpose(0, 1)  # (token, head, width)
            numbers = numbers.flatten(1) if over == "all" else numbers
            if kind == "LayerNorm":
                tensors |= {f"{name}_gain": gain, f"{name}_shift": shift}
                normed = nn.functional.layer_norm(numbers, (size,), eps=0.01) * gain + shift
            else:  # whose gain follows from the numbers before and behind it
                normed = nn.functional.rms_norm(numbers, (size,), gain[0], eps=0.01)
            tensors[name] = normed.view(4, n_heads, width).transpose(0, 1) * 0.5
            if kind == "LayerNorm":
                tensors[name] = tensors[name].clamp(-0.9, 0.9)
        steps = (Norm(kind, over, 0.01), Factor(0.5), *[Clip(0.9)] * (kind == "LayerNorm"))
        about = Facts(adjustments=Adjustments(steps, steps, (Clip(1.5),)))
        layers.append(mha.LayerTrace(tensors, projections=mha.Projections(**matrices), about=about))
    return mha.AttentionTrace(mha.words("a b c d"), tuple(layers), "numbers")


def layer_turned() -> mha.AttentionTrace:
    """A rotation of some dimensions and then a scale between X W and q and k."""
    draw, n_heads, width = torch.Generator().manual_seed(4), 2, 5
    x, angles = torch.randn(4, 7, generator=draw), torch.randn(4, 2, generator=draw).repeat(1, 2)
    matrices = {f"w_{name}": torch.randn(7, n_heads * width, generator=draw) for name in "qkv"}
    linear = {n: (x @ matrices[f"w_{n}"]).unflatten(1, (n_heads, width)).transpose(0, 1) for n in "qkv"}
    tensors = {"x": x, "v": linear["v"], "cos": angles.cos(), "sin": angles.sin()}
    for name in "qk":
        one, other = linear[name][..., 1:].chunk(2, -1)
        turned = linear[name][..., 1:] * angles.cos() + torch.cat((-other, one), -1) * angles.sin()
        turned = torch.cat((linear[name][..., :1], turned), -1)
        tensors |= {f"{name}_linear": linear[name], f"{name}_turned": turned, name: turned * 0.5}
    steps = (Rotary("half", 4, start=1), Factor(0.5))
    about = Facts(adjustments=Adjustments(steps, steps, ()))
    layer = mha.LayerTrace(tensors, projections=mha.Projections(**matrices), about=about)
    return mha.AttentionTrace(mha.words("a b c d"), (layer,), "numbers")


def recorded_trace() -> mha.AttentionTrace:
    torch.manual_seed(5)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(24, 4, batch_first=True), 2)
    with mha.record(encoder, tokens=TEXT.split()) as recorder:
        encoder(torch.randn(1, len(TEXT.split()), 24))
    return recorder.trace


def between_two_texts() -> mha.AttentionTrace:
    torch.manual_seed(6)
    module = nn.MultiheadAttention(12, 3, batch_first=True, kdim=10, vdim=10)
    with mha.record(module, tokens=SIDES.queries, keys=SIDES.keys) as recorder:
        module(torch.randn(1, len(SIDES.queries), 12), *[torch.randn(1, len(SIDES.keys), 10)] * 2)
    return recorder.trace


def of_family(family: str, dtype: torch.dtype) -> mha.AttentionTrace:
    built = tiny.model(family).to(dtype)
    text, target = tiny.texts(tiny.LENGTHS[0])
    named = {"source": built, "tokenizer": tiny.tokenizer(built)}
    return mha.trace(text, **named, **({"target": target} if family == "t5" else {}))


TRACES = {
    "causal, alibi, shared keys": lambda: mha.trace(**GROUPED, mask="causal", position="alibi"),
    "rotary, no bias": lambda: mha.trace(TEXT, d_model=24, h=3, position="rotary", bias=False),
    "rotary by an edit": lambda: mha.trace(TEXT, d_model=24, h=3, edits=[edits.Position(code="rotary")]),
    "edited": lambda: mha.trace(**GROUPED, edits=EDITS),
    "mini": lambda: mha.trace(TEXT, source="mini", h=4, d_model=64),
    "latent": lambda: mha.trace(TEXT, source="mini", architecture="latent"),
    "by hand": layer_by_hand,
    "by hand, bfloat16": lambda: layer_by_hand(torch.bfloat16),
    "by hand, float16": lambda: layer_by_hand(torch.float16),
    "by hand, float64": lambda: layer_by_hand(torch.float64),
    "behind a LayerNorm": layer_normed,
    "turned, then scaled": layer_turned,
    "behind an RMSNorm of all heads, and turned": lambda: of_family("olmo2", torch.float32),
    "behind an RMSNorm of each head, and turned": lambda: of_family("qwen3_next", torch.float32),
    "recorded": recorded_trace,
    "between two texts": between_two_texts,
    "one token": lambda: mha.trace("alone", d_model=2, h=1),
}
FAMILIES = [
    pytest.param(partial(of_family, family, dtype), marks=pytest.mark.slow, id=f"{family}, {dtype}")
    for family in ("deepseek_v3", "gemma2", "gpt_oss", "t5")
    for dtype in (torch.float32, torch.bfloat16)
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "trace", [*(pytest.param(make, id=name) for name, make in TRACES.items()), *FAMILIES]
)
def test_the_terms_give_the_number_of_the_trace(trace):
    trace, names, refusals = trace(), set(), []
    for name, place in cells.places(trace, 60):
        try:
            assert cells.fault(trace, name, place) == "", (name, place)
        except mha.MhaError as refusal:
            refusals.append(str(refusal))
            continue
        names.add(name)
    assert [one for one in refusals if "not known" not in one] == []
    steps_known = {"q", "k"} if trace.layers[0].knows("q_turned") else set()
    assert names >= {"scores", "scaled", "masked", "weights", "output", "concat"} | steps_known


def test_two_tokens_by_hand():
    q = torch.tensor([[[1.0, 2.0], [0.0, 1.0]]])
    k = torch.tensor([[[3.0, 0.5], [1.0, -1.0]]])
    v = torch.tensor([[[10.0], [20.0]]])
    trace = mha.from_tensors(q=q, k=k, v=v, tokens=["a", "b"])
    score = mha.explain(trace, "scores", head=0, query="a", key="b").steps[0]
    assert score.terms.tolist() == [1.0, -2.0]
    assert score.value == -1.0
    assert score.labels == ("1", "2")
    assert score.latex == r"q_{\text{a}} \cdot k_{\text{b}} = (1)(1) + (2)(-1) = -1"
    weight = mha.explain(trace, head=0, query="a", key="b")
    assert [step.name for step in weight.steps] == ["score", "scale", "softmax"]
    share = 1 / (1 + np.exp(5 / np.sqrt(2)))
    assert weight.value == pytest.approx(share)
    assert weight.steps[-1].terms[0] == pytest.approx(1 - share)
    mixture = mha.explain(trace, "output", head=0, query=0, dimension=0)
    assert mixture.steps[0].labels == ("a", "b")
    assert mixture.value == pytest.approx(10 * (1 - share) + 20 * share)
    assert (weight.layer, weight.head, weight.query, weight.key, weight.labels) == (0, 0, 0, 1, ("a", "b"))
    assert repr(weight).splitlines() == [
        '<Explanation of weights: layer=0, head=0, "a", "b": 0.0283179',
        "  score                  -1  2 terms",
        "  scale           -0.707107",
        "  softmax         0.0283179  2 terms>",
    ]
    assert weight._repr_latex_() == f"$${weight.latex}$$"


def test_every_part_of_a_rule_is_a_step_in_its_order():
    trace, place = layer_by_hand(), {"head": 1, "query": 3, "key": 0}
    names = ["score", "scale", "cap", "bias", "mask", "temperature", "softmax"]
    assert [step.name for step in mha.explain(trace, **place).steps] == names
    hidden = mha.explain(trace, **place | {"query": 0, "key": 3})
    assert (hidden.steps[4].value, hidden.value) == (-np.inf, 0)
    q, bias = torch.ones(1, 2, 3), torch.tensor([[0.0, -np.inf], [0.0, 0.0]])
    layer = mha.LayerTrace(dict.fromkeys("qkv", q), mha.ScoreRule(bias=bias))
    by_bias = mha.AttentionTrace(mha.words("a b"), (layer,), "by hand")
    found = mha.explain(by_bias, "masked", head=0, query=0, key=1)
    assert cells.output(found.pytorch()) == found.value == -np.inf
    empty = mha.explain(trace, **place | {"query": 2})
    assert empty.value == 0
    assert "every key is hidden" in empty.latex
    sunk = mha.explain(trace, layer=1, **place).steps[-1]
    assert sunk.labels[-1] == "sink"
    assert sunk.terms[:-1].sum() < 1
    rounded = mha.explain(layer_by_hand(torch.float16), **place)
    assert rounded.steps[-1].name == "rounding"
    assert rounded.pytorch().count("torch.float16") == 1


def test_what_an_edit_changes_is_a_step_with_its_words():
    trace = mha.trace(**GROUPED, edits=EDITS)
    weight = mha.explain(trace, head=1, query="cat", key="saw")
    assert weight.steps[-1].name == "patch"
    assert weight.value == trace.layers[0].weights(1)[2, 3]
    assert "uniform weights: head 2, rows 3, 4" in weight.edits
    off = mha.explain(trace, "output", layer=1, head=4, query=5, dimension=0)
    assert [step.name for step in off.steps] == ["mixture", "patch"]
    assert off.value == 0.25
    assert '# edited: "patched output: head 5, row 6"' in off.pytorch()
    assert "  edited: patched output: head 5, row 6\n" in repr(off)


def test_a_long_row_is_one_sum_in_its_code():
    """For this many keys a snippet has the sum of their exponentials, and stays short."""
    trace = mha.trace("word " * 300, h=2, d_model=32, mask="causal")
    assert trace.layers[0].n_key * trace.layers[0].d_k > MAX_KEY_NUMBERS
    for key in (3, 299):
        explanation = mha.explain(trace, head=1, query=200, key=key)
        assert len(explanation.pytorch()) < 2000
        assert cells.fault(trace, "weights", {"layer": 0, "head": 1, "query": 200, "key": key}) == ""


def test_words_of_a_text_are_text_in_formula_and_code():
    """They come from a person, and neither LaTeX nor Python reads them as its own."""
    hostile = [r"\evil{", "$x$", '"""\nimport os', "a_b^c", "'"]
    q = torch.randn(2, 5, 3)
    trace = mha.from_tensors(q=q, k=q, v=q, tokens=hostile)
    for query in range(5):
        found = mha.explain(trace, head=0, query=query, key=2)
        assert "\nimport os" not in found.pytorch()
        assert cells.output(found.pytorch()) == pytest.approx(found.value)
        assert r"\evil" not in found.latex
        assert "$x$" not in found.latex


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        ({"head": 0, "query": 0}, "has its place by layer=, head=, query=, key=, and by nothing else"),
        ({"name": "result", "head": 0, "query": 0, "dimension": 0}, "layer=, query=, dimension=, and"),
        ({"name": "x", "query": 0, "dimension": 0}, "no matrix with explained numbers called 'x'"),
        ({"head": 9, "query": 0, "key": 0}, "heads 0 to 5"),
        ({"head": 0, "query": 7, "key": 0}, "querys 0 to 6|query"),
        ({"head": 0, "query": "cow", "key": 0}, "cow"),
        ({"name": "q", "head": 0, "query": 0, "dimension": 4}, "dimensions 0 to 3"),
        ({"layer": 2, "head": 0, "query": 0, "key": 0}, "layers 0 to 1"),
    ],
)
def test_a_place_that_does_not_exist_is_refused(ask, message):
    with pytest.raises(mha.MhaError, match=message):
        mha.explain(mha.trace(**GROUPED), **ask)


def test_a_layer_norm_of_a_file_is_explained_as_that_of_the_model(tmp_path):
    trace = layer_normed()
    trace.save(tmp_path / "t.safetensors")
    loaded = mha.load(tmp_path / "t.safetensors")
    for layer in range(3):
        place = {"layer": layer, "head": 2, "key": 3, "dimension": 4}
        one, other = (mha.explain(given, "k", **place) for given in (trace, loaded))
        assert [step.name for step in one.steps] == ["projection", "norm", "scale", "clip"]
        assert one.pytorch() == other.pytorch()
        assert one.value == trace.layers[layer].k[2, 3, 4]
    first = loaded.layers[0]
    known = {name: tensor for name, tensor in first.tensors.items() if name != "k_gain"}
    for wrong in ({}, {"k_gain": first.tensors["k_gain"][:, :2]}):
        unknown = replace(loaded, layers=(replace(first, tensors=known | wrong),))
        with pytest.raises(mha.MhaError, match="LayerNorm whose gain and shift this trace does not have"):
            mha.explain(unknown, "k", head=2, key=3, dimension=4)


def test_a_number_with_unknown_parts_is_refused():
    trace = mha.from_weights(torch.softmax(torch.randn(2, 3, 3), -1), ["a", "b", "c"])
    for name, (axes, _) in EXPLAINED.items():
        with pytest.raises(mha.MhaError, match=r"not known|only its weights are known"):
            mha.explain(trace, name, **dict.fromkeys(axes, 0))


def test_terms_that_do_not_give_the_number_are_refused():
    """A matrix of another layer, as a wrong reading of a model would have it."""
    trace = mha.trace(**GROUPED)
    layer, other = trace.layers
    wrong = replace(trace, layers=(replace(layer, projections=other.projections), other))
    with pytest.raises(mha.MhaError, match="computes something that the trace does not have"):
        mha.explain(wrong, "q", head=0, query=0, dimension=0)
