"""Traces and layers in a notebook: correct, escaped, and without anything from elsewhere."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import mha_core as mha

NASTY = ["<script>alert(1)</script>", "a&b", '"', "</div>", "שלום", "動"]


def parsed(shown: str) -> ElementTree.Element:
    """As XML: every tag closed and every text escaped."""
    return ElementTree.fromstring(shown)


def weights(svg) -> dict[tuple[int, int], float]:
    found = {}
    for path in svg.iter("path"):
        column, row = map(int, re.match(r"M(\d+) (\d+)h", path.get("d")).groups())
        found[row, column] = float(path.get("fill-opacity")) ** 2
    return found


def test_a_trace_shows_its_text_source_shapes_and_weights():
    trace = mha.trace("How are you?", h=3, d_model=15, layers=2, seed=7)
    page = parsed(trace._repr_html_())
    said = "".join(page.itertext())
    assert "AttentionTrace of 4 tokens, 2 layers" in said
    assert "“How are you?”" in said
    assert "seed=7" in said
    assert "layers[1]: self, 3 heads, 4 × 4" in said
    pictures = list(page.iter("svg"))
    assert len(pictures) == 6
    for number, svg in enumerate(pictures):
        expected = trace.layers[number // 3].weights(number % 3)
        for (row, column), weight in weights(svg).items():
            assert weight == pytest.approx(expected[row, column], abs=0.011)
        assert len(weights(svg)) == 16


def test_a_layer_shows_the_recorded_shapes():
    layer = mha.trace("How are you?", h=3, d_model=15).layers[0]
    said = "".join(parsed(layer._repr_html_()).itertext())
    assert "LayerTrace, self, 3 heads" in said
    assert "q (3, 4, 5)" in said
    bare = mha.from_weights(torch.eye(6)[None], NASTY).layers[0]
    assert "weights (1, 6, 6)" in "".join(parsed(bare._repr_html_()).itertext())
    [layer] = mha.from_weights(torch.full((1, 3, 5), 0.2), ["a"] * 3, ["b"] * 5).layers  # of two texts
    [svg] = parsed(layer._repr_html_()).iter("svg")
    assert svg.get("viewBox") == "0 0 5 3"


def test_no_text_becomes_a_tag_and_nothing_is_loaded():
    trace = mha.from_weights(torch.eye(6)[None], NASTY, source={"name": "<img src=x>", "a": "&"})
    shown = trace._repr_html_()
    assert "<script" not in shown
    assert "<img" not in shown
    assert "http" not in shown
    said = "".join(parsed(shown).itertext())
    assert " ".join(NASTY) in said
    assert "name='<img src=x>'" in said


def test_a_long_text_of_many_heads_stays_a_small_picture():
    shown = torch.full((40, 601, 601), 1 / 700)
    shown[0, 300] = 0
    shown[0, 300, 599] = 0.5
    page = mha.from_weights(shown, ["a"] * 601)._repr_html_()
    assert len(page) < 500_000
    pictures = list(parsed(page).iter("svg"))
    assert len(pictures) == 8
    assert "+ 32" in page
    first = weights(pictures[0])
    assert max(first, key=first.get) == (12, 23)
    assert np.isclose(first[0, 0], 1 / 700, atol=0.002)
