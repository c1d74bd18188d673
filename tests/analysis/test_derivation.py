"""The nine steps: their formulas, matrices and facts are those of the trace."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import mha_core as mha
from mha_core.analysis.derivation import STEPS, Step, steps
from mha_core.analysis.frames import Crop
from mha_core.capture.rotary import RotaryCode
from mha_core.traces.facts import Adjustments, Clip, Factor, Facts, Norm, Rotary
from mha_core.traces.verify import product_difference

GROUPED = {"text": "the cat saw the dog", "d_model": 11, "h": 6, "n_kv_heads": 3, "d_k": 3, "d_v": 7}
SETTINGS = {
    "causal, alibi, two layers": GROUPED | {"mask": "causal", "position": "alibi", "layers": 2},
    "rotary without bias": {"text": "a b c d", "d_model": 6, "h": 3, "position": "rotary", "bias": False},
    "one token": {"text": "alone", "d_model": 2, "h": 1},
}
# The matrices of each step before and after, for one head.
SHOWN = {
    "project": ("x", "q k v"),
    "split": ("", "q k v"),
    "scores": ("q k", "scores"),
    "scale": ("scores", "scaled"),
    "mask": ("scaled", "masked"),
    "softmax": ("masked", "weights"),
    "mix": ("weights v", "output"),
    "concat": ("output", "concat"),
    "output": ("concat", "contribution result"),
}
EMPTY_ROWS = np.array([[True, True, False], [False, False, False], [True, False, False]])


@pytest.fixture(scope="module", params=SETTINGS.values(), ids=SETTINGS)
def trace(request):
    return mha.trace(**request.param)


def steps_by_name(trace: mha.AttentionTrace, head: int = 0, layer: int = 0) -> dict[str, Step]:
    return {step.name: step for step in steps(trace, layer=layer, head=head)}


def values(pictures) -> dict[str, np.ndarray]:
    return {picture.name: picture.frame.to_numpy() for picture in pictures}


def plain(formula: str) -> str:
    """A formula as one reads it: without white space and spacing commands."""
    return re.sub(r"\\[;,!]|\s", "", formula).replace(r"{\cdot}", "·")


# Formulas

# Of the fourth of 6 heads, which has the second of 3 key heads: 5 tokens, d_model 11, d_k 3, d_v 7.
FORMULAS = {
    "project": r"\begin{gathered}"
    r"\underset{5\times11}{X}\underset{11\times6·3}{W^Q}=\underset{5\times6·3}{Q}\\"
    r"\underset{5\times11}{X}\underset{11\times3·3}{W^K}=\underset{5\times3·3}{K}\\"
    r"\underset{5\times11}{X}\underset{11\times3·7}{W^V}=\underset{5\times3·7}{V}\end{gathered}",
    "split": r"\underset{5\times6·3}{Q}\toQ_1…\underset{5\times3}{Q_{4}}…Q_{6}",
    "scores": r"\underset{5\times3}{Q_{4}}\underset{3\times5}{K_{2}^{\top}}=\underset{5\times5}{S_{4}}",
    "scale": r"\underset{5\times5}{S_{4}}\cdot\tfrac{1}{\sqrt{d_k}}=S_{4}\cdot{0.5774}",
    "mask": r"s_{mn}\tos_{mn}+M_{mn}\qquadM_{mn}\in\{0,-\infty\}",
    "softmax": r"a_{mn}=\frac{e^{s_{mn}}}{e^{s_{m1}}+…+e^{s_{mL}}}\qquad\underset{5\times5}{A_{4}}",
    "mix": r"\underset{5\times5}{A_{4}}\underset{5\times7}{V_{2}}=\underset{5\times7}{\text{head}_{4}}",
    "concat": r"\text{head}_1\Vert…\Vert\text{head}_{6}=\underset{5\times6·7}{\text{concat}}",
    "output": r"\underset{5\times6·7}{\text{concat}}\underset{6·7\times11}{W^O}=\underset{5\times11}{Z}",
}


def test_the_formulas_have_the_sizes_of_their_matrices_the_head_its_key_head_and_the_scale():
    found = steps_by_name(mha.trace(**GROUPED), head=3)
    assert {name: plain(step.formula) for name, step in found.items()} == FORMULAS


# Matrices


def test_each_step_shows_the_layers_matrices_before_and_after(trace):
    for at, layer in enumerate(trace.layers):
        for head in {0, layer.n_heads // 2, layer.n_heads - 1}:
            kv = head // (layer.n_heads // layer.n_kv_heads)
            found = steps_by_name(trace, head, at)
            own = {name: getattr(layer, name)(head) for name in ("scores", "scaled", "masked", "weights")}
            own |= {"q": layer.q[head], "k": layer.k[kv], "v": layer.v[kv], "x": layer.x}
            own |= {"output": layer.output(head), "contribution": layer.contribution(head)}
            own |= {"concat": layer.concat(), "result": layer.result()}
            assert [*found] == [*SHOWN]
            for name, (before, after) in SHOWN.items():
                step = found[name]
                assert ([*values(step.before)], [*values(step.after)]) == (before.split(), after.split())
                # All heads are side by side in the products; the columns of this one are framed.
                whole = {q: np.hstack(list(getattr(layer, q))) for q in "qkv"} if name == "project" else {}
                for picture in step.before + step.after:
                    shown = picture.frame.to_numpy()
                    np.testing.assert_array_equal(shown, (own | whole)[picture.name])
                    framed = picture.name in whole or (name, picture.name) == ("concat", "concat")
                    assert (picture.framed is not None) == framed
                    if framed:
                        one = own["output" if picture.name == "concat" else picture.name]
                        np.testing.assert_array_equal(shown[:, slice(*picture.framed)], one)
            for picture in found["project"].after:
                assert tuple(picture.frame.index) == trace.tokens.labels
                assert [*picture.frame.columns] == [*range(1, picture.frame.shape[1] + 1)]
                assert (picture.symbol, picture.kind) == (picture.name.upper(), "signed")


def test_an_input_that_v_has_of_its_own_is_named_and_shown(own_values):
    usual, own = (steps_by_name(own_values, head=2, layer=layer)["project"] for layer in (0, 1))
    assert (usual.notes, own.notes) == (("why", "paper"), ("why", "stacked", "values"))
    assert [[p.name for p in step.before] for step in (usual, own)] == [["x"], ["x", "x_v"]]
    assert [p.symbol for p in own.before] == ["X", "Y"]
    np.testing.assert_array_equal(values(own.before)["x_v"], own_values.layers[1].x_v)
    # Y stands where V is made of it, once, and X everywhere else; the sizes are the same.
    assert usual.formula.count("{X}") == 3
    first, last = own.formula.split("{Y}")
    assert first + "{X}" + last == usual.formula
    assert first.count("{X}") == 2
    assert "W^V" in last
    assert "W^V" not in first
    assert own.code.splitlines()[-1].startswith("v = y @ w_v")
    assert steps_by_name(own_values, layer=1)["split"].facts["difference"] == 0.0


# Facts


def test_the_facts_are_those_of_the_head_and_count_from_one(trace):
    layer = trace.layers[0]
    sizes = {"L": len(trace.tokens), "d_model": layer.d_model, "h": layer.n_heads, "n_kv": layer.n_kv_heads}
    sizes |= {"d_k": layer.d_k, "d_v": layer.d_v, "scale": f"{layer.d_k**-0.5:.4g}"}
    for head, kv in ((0, 1), (layer.n_heads - 1, layer.n_kv_heads)):
        found = steps_by_name(trace, head)
        for step in found.values():
            assert step.facts.items() >= (sizes | {"i": head + 1, "kv": kv}).items()
        raw, facts = layer.scores(head), found["scores"].facts
        row, column = np.unravel_index(raw.argmax(), raw.shape)
        assert facts["score"] == raw.max()
        assert (facts["query"], facts["key"]) == (trace.tokens.labels[row], trace.tokens.labels[column])
        facts = found["scale"].facts
        assert facts["spread_before"] == pytest.approx(raw.std())
        assert facts["spread_after"] == pytest.approx(raw.std() * layer.scale, rel=1e-5)
        assert found["softmax"].facts["empty"] == 0
        assert 0 <= found["softmax"].facts["deviation"] <= 1e-6
        assert found["split"].facts["difference"] == 0.0
        assert found["output"].facts["difference"] <= 1e-5


def by_words() -> mha.AttentionTrace:
    """A bias that depends on words, and not on their positions."""
    trace = trace_of_rule(bias=torch.ones(2, 3, 3))
    return replace(trace, layers=(replace(trace.layers[0], about=Facts(bias="It depends on the words.")),))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: abc(), {"split": "why same", "mask": "none", "softmax": "why whole", "mix": "why"}),
        (
            lambda: abc(n_kv_heads=1, position="rotary", mask=EMPTY_ROWS),
            {"split": "why same shared rotary", "mask": "why", "softmax": "why empty whole"},
        ),
        (lambda: abc(position="learned"), {"mask": "none"}),
        (lambda: abc(position="alibi"), {"mask": "none biased"}),
        (by_words, {"mask": "none by_words"}),
        (lambda: trace_of_rule(bias=torch.ones(2, 3, 3)), {"mask": "none added"}),
        (lambda: trace_of_rule(distance_bias=torch.ones(2, 5)), {"mask": "none added"}),
        (lambda: trace_of_rule(soft_cap=5.0), {"mask": "none capped"}),
        (lambda: trace_of_rule(sinks=torch.ones(2)), {"softmax": "sinks"}),
        (lambda: trace_of_rule(scale=0.5), {"scale": "why"}),  # 1/√d_k
        (lambda: trace_of_rule(scale=0.3), {"scale": "own"}),
    ],
)
def test_the_sentences_shown_are_true(make, said):
    found = steps_by_name(make())
    assert {name: sorted(found[name].notes) for name in said} == {
        name: sorted(notes.split()) for name, notes in said.items()
    }
    own = said.get("scale") == "own"
    assert ("sqrt" in found["scale"].formula) != own
    assert ("0.3" in found["scale"].formula) == own
    softmax, sunk = found["softmax"], "sinks" in said.values()
    assert bool(softmax.wrong) != sunk
    assert not sunk or 0 < softmax.facts["minimum"] <= softmax.facts["maximum"] < 1


@pytest.mark.parametrize("mask", ["causal", np.zeros((3, 3), bool)], ids=str)
def test_the_softmax_over_the_whole_matrix_is_shown_as_the_mistake(mask):
    trace = abc(mask=mask, edits=[mha.edits.Temperature(temperature=0.4)])
    step = steps_by_name(trace, 1)["softmax"]
    [wrong] = step.wrong
    scores = torch.tensor(trace.layers[0].masked(1)).double() / 0.4
    expected = torch.nan_to_num(scores.flatten().softmax(0)).reshape(3, 3)
    np.testing.assert_allclose(wrong.frame, expected, rtol=1e-5)
    rows = expected.sum(1)
    assert (step.facts["least"], step.facts["most"]) == pytest.approx((float(rows.min()), float(rows.max())))
    patched = abc(mask=mask, edits=[mha.edits.Weights(heads=1, rows=2)])
    assert not steps_by_name(patched)["softmax"].wrong  # no softmax made these weights


# Models whose attention is not the plain one


def trace_of_rule(**rule) -> mha.AttentionTrace:
    draw = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(1, 2, 3, 4, generator=draw) for _ in range(3))
    return mha.from_tensors(q=q, k=k, v=v, tokens=["a", "b", "c"], rule=mha.ScoreRule(**rule))


def abc(**settings) -> mha.AttentionTrace:
    return mha.trace("a b c", h=2, d_model=4, **settings)


# Two texts: 7 tokens look at 11 others


def test_the_steps_take_keys_and_values_from_the_other_text(projected_cross):
    found, sides = steps_by_name(projected_cross, 5), projected_cross.sides
    assert [*found] == [*SHOWN]
    project = found["project"]
    assert [(drawn.symbol, drawn.name) for drawn in project.before] == [("X", "x"), ("Y", "x_v")]
    keys = [*sides.keys.labels]
    assert [[*drawn.frame.index] for drawn in project.after] == [[*sides.queries.labels], keys, keys]
    assert (project.formula.count("{X}"), project.formula.count("{Y}")) == (1, 2)
    assert project.notes == ("why", "cross")
    for name, part in (
        ("project", r"\underset{11 \times 13}{Y}"),
        ("project", r"\underset{7 \times 13}{X}"),
        ("softmax", r"\underset{7 \times 11}{A_{6}}"),
        ("softmax", "s_{mM}"),
        ("mix", r"\underset{11 \times 5}{V_{2}}"),
    ):
        assert part in found[name].formula
    assert found["split"].facts["difference"] < 1e-5
    largest = found["output"].after[1].frame.abs().to_numpy().max()
    assert found["output"].facts["difference"] < 1e-6 * largest


def test_a_layer_in_half_precision_has_all_steps():
    """With a bias of W^O: a GPU runs in bfloat16, of which numpy has no arrays."""
    trace = mha.trace("the old cat", h=3, d_model=12)
    [layer] = trace.layers
    tensors = {name: tensor.bfloat16() for name, tensor in layer.tensors.items()}
    projections = mha.Projections(*(one if one is None else one.bfloat16() for one in layer.projections))
    assert projections.b_o is not None
    found = steps_by_name(replace(trace, layers=(replace(layer, tensors=tensors, projections=projections),)))
    assert [*found] == [*SHOWN]
    assert 0 < found["output"].facts["difference"] < 0.05


def test_steps_with_unknown_inputs_are_left_out(cross_trace):
    found = steps(cross_trace, layer=1, head=0)
    assert [step.name for step in found] == [make.__name__ for make in STEPS[1:-1]]
    assert [drawn.frame.shape for drawn in found[0].after] == [(7, 3), (11, 3), (11, 5)]
    assert not any("None" in step.formula for step in found)


# What a model does between the products X W and q, k and v has a step of its own

TOKENS = mha.Tokens("a b c", ("a", "b", "c"), ((0, 1), (2, 3), (4, 5)))
N_HEADS, N_KV, D_K, D_V, D_MODEL = 4, 2, 6, 5, 11


def rms(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def layer_of(order: str) -> mha.LayerTrace:
    """A layer of three tokens with these adjustments: n(orm), r(otation), s(cale), c(lip)."""
    torch.manual_seed(3)
    x = torch.randn(3, D_MODEL)
    sizes = [(N_HEADS, D_K), (N_KV, D_K), (N_KV, D_V)]
    matrices = [torch.randn(D_MODEL, n * width) for n, width in sizes]
    q, k, v = ((x @ w).unflatten(1, size).transpose(0, 1) for w, size in zip(matrices, sizes, strict=True))
    angle = torch.arange(3)[:, None] * torch.tensor([1.0, 0.3, 0.1]).repeat(2)
    code = RotaryCode("half", angle.cos(), angle.sin())
    known = {"n": Norm("RMSNorm", "head"), "r": Rotary("half", D_K), "s": Factor(0.25), "c": Clip(0.7)}
    does = {"n": rms, "r": code.rotate, "s": lambda t: t * 0.25, "c": lambda t: t.clamp(-0.7, 0.7)}
    tensors, about = {"x": x, "v": v}, Facts()
    for name, now in (("q", q), ("k", k)):
        if order and order[0] != "r":
            tensors[f"{name}_linear"] = now
        for at, letter in enumerate(order):
            if letter == "r":
                tensors[f"{name}_raw"] = now
            now = does[letter](now)
            if letter == "r" and at < len(order) - 1:
                tensors[f"{name}_turned"] = now
        tensors[name] = now
    if "r" in order:
        about = replace(about, rotary=known["r"])
        tensors |= {"cos": code.cos, "sin": code.sin}
    if order.strip("r"):
        steps = tuple(known[letter] for letter in order)
        about = replace(about, adjustments=Adjustments(steps, steps))
    return mha.LayerTrace(tensors, projections=mha.Projections(*matrices), about=about)


def adjusted_steps(layer: mha.LayerTrace, head: int = 3) -> dict:
    return steps_by_name(mha.AttentionTrace(TOKENS, (layer,), {"name": "by hand"}), head)


@pytest.mark.parametrize("order", ["nr", "rn", "r", "s", "cr", "n"])
def test_the_products_and_their_adjustments_are_separate_steps(order):
    layer = layer_of(order)
    found, stages = adjusted_steps(layer), ["linear"] * (order[0] != "r") + ["raw"] * ("r" in order)
    stages += ["turned"] * (order == "rn")
    assert list(found)[:4] == ["project", "split", "adjust", "scores"]
    q, k, _ = found["split"].after
    for drawn, name, own in ((q, "q", 3), (k, "k", 1)):
        product = layer.x @ getattr(layer.projections, f"w_{name}").numpy()[:, own * D_K : (own + 1) * D_K]
        np.testing.assert_allclose(drawn.frame.to_numpy(), product, atol=1e-5)
    shown = found["adjust"].after
    names = [name for q in "qk" for name in (*(f"{q}_{stage}" for stage in stages), q)]
    for drawn, name in zip(shown, names, strict=True):
        own = 3 if name.startswith("q") else 1
        np.testing.assert_array_equal(drawn.frame.to_numpy(), layer.tensors[name][own].numpy())
    marks = ("′", "″", "‴")[: len(stages)]
    symbols = [f"{letter}{mark}{own}" for letter, own in ("Q₄", "K₂") for mark in (*marks, "")]
    assert [drawn.symbol for drawn in shown] == symbols
    assert (found["adjust"].before, found["adjust"].per_row) == ((), len(stages) + 1)
    assert [drawn.symbol for drawn in found["project"].after] == ["Q′", "K′", "V"]


@pytest.mark.parametrize(
    ("order", "formula", "notes"),
    [
        ("nr", [r"\text{RMSNorm}", r"Q''_{4}", r"\text{RoPE}", "Q_{4}"], ("why", "norm", "rotary")),
        ("rn", [r"\text{RoPE}", r"Q''_{4}", r"\text{RMSNorm}", "Q_{4}"], ("why", "rotary", "norm")),
        ("s", [r"\cdot\, 0.25", "Q_{4}"], ("why", "scale")),
        ("cr", [r"\pm 0.7", "Q''_{4}", r"\text{RoPE}", "Q_{4}"], ("why", "clip", "rotary")),
        ("", [], ()),
    ],
)
def test_the_formula_names_the_adjustments_in_order_and_x_w_is_not_called_q(order, formula, notes):
    found = adjusted_steps(layer_of(order))
    project, split = found["project"], found["split"]
    assert ("adjust" in found) == ("{Q'}" in split.formula) == bool(order)
    assert ("before" in project.notes) == bool(order)
    mark = "'" if order else ""
    for letter in (f"Q{mark}", f"K{mark}", "V"):
        assert f"{{{letter}}}" in project.formula
    assert "W^Q'" not in project.formula
    assert [drawn.symbol for drawn in project.after] == (["Q′", "K′", "V"] if order else ["Q", "K", "V"])
    if not order:
        return
    assert project.facts["difference"] <= 1e-5
    step = found["adjust"]
    places = [step.formula.index(part) for part in formula]
    assert places == sorted(places)
    assert "Q'_{4}" in step.formula.split(formula[0])[0]
    assert "K'_{2}" in step.formula
    assert "V" not in step.formula
    assert step.notes == notes


def test_a_wrong_matrix_is_detected():
    layer = layer_of("nr")
    assert product_difference(layer) <= 1e-5
    other = layer.projections._replace(w_k=layer.projections.w_k + 0.5)
    assert product_difference(mha.LayerTrace(layer.tensors, projections=other)) > 0.1
    assert product_difference(mha.LayerTrace(layer.tensors)) is None
    # As if q itself were the product: it is not.
    bare = {name: tensor for name, tensor in layer.tensors.items() if "_" not in name}
    assert product_difference(mha.LayerTrace(bare, projections=layer.projections)) > 0.1


# A part of a long text

LONG = " ".join(f"word{at}" for at in range(23))
CUT = Crop(slice(5, 16), slice(5, 16))


@pytest.mark.parametrize("settings", [{"mask": "causal"}, {"n_kv_heads": 3, "position": "rotary"}])
def test_the_steps_of_a_part_are_cut_out_of_those_of_the_text(settings):
    trace = mha.trace(LONG, d_model=42, h=6, d_k=6, d_v=5, **settings)
    for whole, part in zip(
        steps(trace, layer=0, head=4), steps(trace, layer=0, head=4, part=CUT), strict=True
    ):
        notes = tuple(note for note in whole.notes if note != "whole")  # a part does not have all cells
        assert (whole.name, whole.formula, notes) == (part.name, part.formula, part.notes)
        assert not part.wrong
        for all_rows, cut in zip(whole.before + whole.after, part.before + part.after, strict=True):
            of_tokens = all_rows.frame.columns.name == "key"
            expected = all_rows.frame.iloc[CUT.queries, CUT.keys if of_tokens else slice(None)]
            pd.testing.assert_index_equal(cut.frame.index, expected.index)
            pd.testing.assert_index_equal(cut.frame.columns, expected.columns)
            np.testing.assert_allclose(cut.frame, expected, rtol=1e-5, atol=1e-6)
            assert (cut.name, cut.symbol, cut.framed) == (all_rows.name, all_rows.symbol, all_rows.framed)
            assert cut.start == (5, 5 if of_tokens else 0)
            assert all(span[1:] == (5, 16, 23) for span in cut.origin.spans)
            assert len(cut.origin.spans) == (2 if of_tokens else 1)


def test_the_facts_of_a_part_are_those_of_its_cells_and_of_whole_rows():
    trace = mha.trace(LONG, d_model=12, h=3, mask="causal")
    assert steps_by_name(trace)["mask"].facts["hidden"] == 23 * 22 / 2
    facts = {step.name: step.facts for step in steps(trace, layer=0, head=1, part=CUT)}
    assert facts["softmax"]["minimum"] == pytest.approx(1, abs=1e-6)
    assert facts["softmax"]["deviation"] < 1e-6
    assert (facts["mask"]["hidden"], facts["mask"]["cells"]) == (55, 121)
    cells = trace.frame("scores", layer=0, head=1).iloc[CUT.queries, CUT.keys]
    assert facts["scores"]["score"] == pytest.approx(cells.to_numpy().max())
    assert facts["output"]["difference"] < 1e-5


def test_the_steps_of_a_part_never_compute_the_whole(allocated):
    n = 400
    trace = mha.trace("a " * n, d_model=12, h=3)
    assert max(allocated(lambda: steps(trace, layer=0, head=1))) >= 4 * n * n
    assert max(allocated(lambda: steps(trace, layer=0, head=1, part=CUT))) < n * n


def test_the_input_of_a_layer_is_compared_with_the_output_before():
    """With random weights Z of one layer is X of the next; in the small models a norm is between them."""
    stacked = mha.trace("How are you?", h=3, d_model=15, layers=2)
    assert "stacked" not in steps_by_name(stacked)["project"].notes
    second = steps_by_name(stacked, layer=1)["project"]
    assert "stacked" in second.notes
    assert (second.facts["previous"], second.facts["gap"]) == (1, pytest.approx(0, abs=1e-6))
    normed = mha.trace("the dog was tired", source="mini", trained=False)
    assert "stacked" not in steps_by_name(normed, layer=1)["project"].notes
