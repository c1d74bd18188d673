"""The fold "Why there?": the terms of a score as the library has them, as a matrix and in words."""

import numpy as np
import pytest

import mha_core as mha
from mha_core.scene.scene import Scene
from pages._kit.text import isolated, literal

PAGES = ("see/heads.py", "understand/steps.py")


@pytest.fixture
def open_fold(opened_on):
    """`open_fold("see/heads.py", h=2)`: a page with its fold open."""
    return lambda page, **link: opened_on(page, "why", **link)


def lines(app) -> list[str]:
    """The largest terms in words."""
    [found] = [text.value for text in app.main.markdown if text.value.startswith("1. ")]
    return found.splitlines()


def captions(app) -> str:
    return " ".join(caption.value for caption in app.main.caption)


@pytest.mark.parametrize("page", PAGES)
def test_the_terms_of_the_chosen_cell_are_drawn_and_named(open_fold, heatmaps, english, page):
    app = open_fold(page, source="mini", layer=2, head=3, token="it", key_token="street")
    trace = mha.trace(**Scene(source="mini").settings())
    why = mha.attribution(trace, layer=1, head=2, query="it", key="street")
    drawn = heatmaps(app, "why-terms")["why"]
    np.testing.assert_allclose(drawn["values"], why.terms, atol=1e-5)
    assert drawn["rows"][2] == english("why.head_of_layer", head=1, layer=1)
    assert drawn["columns"][0] == english("why.word")
    first, *others = lines(app)
    largest = why.frame().term[0]
    assert first.endswith(literal(f"{largest:+.2f}".replace("-", "−")))
    assert isolated("it") in first
    assert len(others) == 4
    assert english("why.frozen") in captions(app)


def test_without_a_chosen_key_it_is_the_one_with_the_largest_weight(open_fold, heatmaps):
    app = open_fold("understand/steps.py", source="random", h=2, d_model=8, layer=1, head=2, token=3)
    trace = mha.trace(**Scene(source="random", h=2, d_model=8).settings())
    key = int(trace.layers[0].weights(1)[2].argmax())
    why = mha.attribution(trace, layer=0, head=1, query=2, key=key)
    np.testing.assert_allclose(heatmaps(app, "why-terms")["why"]["values"], why.terms, atol=1e-5)


def test_scores_that_cannot_be_split_are_reported(open_fold, english):
    link = {"source": "random", "h": 2, "d_model": 8, "position": "alibi", "mask": "causal"}
    app = open_fold("understand/steps.py", **link, head=1, token=2, key_token=4)
    assert english("why.hidden") in captions(app)
    trace = mha.trace(**Scene(source="random", h=2, d_model=8, position="alibi", mask="causal").settings())
    bias = mha.attribution(trace, layer=0, head=0, query=1, key=3).bias
    assert english("why.bias_added", bias=literal(f"−{-bias:.4g}")) in captions(app)


def test_many_writers_are_drawn_as_the_largest_and_the_rest(open_fold, heatmaps, english):
    link = {"source": "random", "h": 16, "d_model": 64, "layers": 2, "layer": 2}
    drawn = heatmaps(open_fold("see/heads.py", **link), "why-terms")["why"]
    assert len(drawn["rows"]) == len(drawn["columns"]) == 13
    assert drawn["rows"][-1] == english("why.rest")
