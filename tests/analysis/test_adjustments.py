"""What a model does between the products X W and q, k and v has a step of its own, with its own numbers."""

from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core.analysis.derivation import steps
from mha_core.analysis.rotary import rotated_pairs
from mha_core.capture.rotary import RotaryCode
from mha_core.traces.facts import Adjustments, Clip, Facts, Norm, Rotary, Scale
from mha_core.traces.verify import product_difference

TOKENS = mha.Tokens("a b c", ("a", "b", "c"), ((0, 1), (2, 3), (4, 5)))
N_HEADS, N_KV, D_K, D_V, D_MODEL = 4, 2, 6, 5, 11


def rms(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def layer_of(order: str) -> mha.LayerTrace:
    """A layer of three tokens whose products go through these: n(orm), r(otation), s(cale), c(lip)."""
    torch.manual_seed(3)
    x = torch.randn(3, D_MODEL)
    matrices = [torch.randn(D_MODEL, n) for n in (N_HEADS * D_K, N_KV * D_K, N_KV * D_V)]
    made = [
        (x @ w).unflatten(1, (n, -1)).transpose(0, 1)
        for w, n in zip(matrices, (N_HEADS, N_KV, N_KV), strict=True)
    ]
    angle = torch.arange(3)[:, None] * torch.tensor([1.0, 0.3, 0.1]).repeat(2)
    code = RotaryCode("half", angle.cos(), angle.sin())
    known = {"n": Norm("RMSNorm", "head"), "r": Rotary("half", D_K), "s": Scale(0.25), "c": Clip(0.7)}
    does = {"n": rms, "r": code.turn, "s": lambda t: t * 0.25, "c": lambda t: t.clamp(-0.7, 0.7)}
    tensors, about = {"x": x, "v": made[2]}, Facts()
    for name, now in zip("qk", made, strict=False):
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
    projections = mha.Projections(*matrices)
    return mha.LayerTrace(MappingProxyType(tensors), projections=projections, about=about)


def told(layer: mha.LayerTrace, head: int = 3) -> dict:
    trace = mha.AttentionTrace(TOKENS, (layer,), {"name": "by hand"})
    return {step.name: step for step in steps(trace, layer=0, head=head)}


@pytest.mark.parametrize("order", ["nr", "rn", "r", "s", "cr", "n"])
def test_products_and_what_becomes_of_them_are_shown_apart(order):
    layer = layer_of(order)
    found, stages = told(layer), ["linear"] * (order[0] != "r") + ["raw"] * ("r" in order)
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
    ],
)
def test_the_formula_names_what_is_done_in_its_order(order, formula, notes):
    step = told(layer_of(order))["adjust"]
    places = [step.formula.index(part) for part in formula]
    assert places == sorted(places)
    assert "Q'_{4}" in step.formula.split(formula[0])[0]
    assert "K'_{2}" in step.formula
    assert "V" not in step.formula
    assert step.notes == notes


def test_nothing_between_is_no_step_and_no_mark():
    found = told(layer_of(""))
    assert "adjust" not in found
    assert "'" not in found["project"].formula
    assert found["project"].notes == ("why",)
    assert [drawn.symbol for drawn in found["project"].after] == ["Q", "K", "V"]


def test_x_w_is_called_the_product_and_not_q_where_something_is_between():
    found = told(layer_of("nr"))
    assert "{Q'}" in found["project"].formula
    assert "{K'}" in found["project"].formula
    assert "{V}" in found["project"].formula
    assert "W^Q'" not in found["project"].formula
    assert "{Q'}" in found["split"].formula
    assert "before" in found["project"].notes
    assert found["project"].facts["difference"] <= 1e-5


def test_a_matrix_that_did_not_make_the_product_is_found_out():
    layer = layer_of("nr")
    assert product_difference(layer) <= 1e-5
    other = layer.projections._replace(w_k=layer.projections.w_k + 0.5)
    assert product_difference(mha.LayerTrace(layer.tensors, projections=other)) > 0.1
    assert product_difference(mha.LayerTrace(layer.tensors)) is None
    # As if q itself were the product: it is not.
    bare = {name: tensor for name, tensor in layer.tensors.items() if "_" not in name}
    assert product_difference(mha.LayerTrace(bare, projections=layer.projections)) > 0.1


def test_a_rotation_before_a_norm_ends_where_the_norm_begins():
    layer = layer_of("rn")
    table = rotated_pairs(layer, 2, head=3)
    after = layer.tensors["q_turned"][3, 2].numpy()
    np.testing.assert_array_equal(table["x_after"], after[table["first"]])
    assert np.allclose(np.hypot(table["x"], table["y"]), np.hypot(table["x_after"], table["y_after"]))
