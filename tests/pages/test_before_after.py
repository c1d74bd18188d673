"""Before / after: the same sentence and sizes at step 0 and trained, side by side."""

import json
from functools import partial

import numpy as np
import pytest

import mha_core as mha
from pages._kit.state import Focus, Scene

PAGE = "learn/before_after.py"


@pytest.fixture
def on_page(opened_on):
    return partial(opened_on, PAGE)


@pytest.mark.parametrize("link", [{}, {"h": 2, "d_model": 32, "layer": 1, "head": 1}])
def test_both_sides_show_the_same_model_untrained_and_trained(on_page, heatmaps, english, link):
    app = on_page(**link)
    focus = Focus.of_link(link)
    layer, head = focus.layer - 1, focus.head - 1
    scene = Scene(h=link.get("h", 4), d_model=link.get("d_model", 64))
    for key, trained in (("before", False), ("after", True)):
        shown = mha.trace(scene.text, source="mini", h=scene.h, d_model=scene.d_model, trained=trained)
        recorded = shown.layers[layer]
        side = english(f"before.{key}", step=f"{shown.source.step:,}")
        for name, values in (("weights", recorded.weights(head)), ("q", recorded.q[head])):
            drawn = heatmaps(app, f"before-{name}")[key]
            np.testing.assert_array_equal(drawn["values"], values)
            assert drawn["symbol"].startswith(f"{side} · ")
    weights = heatmaps(app, "before-weights")
    assert not np.array_equal(weights["before"]["values"], weights["after"]["values"])
    assert weights["before"]["end"] == weights["after"]["end"]


def test_the_view_has_the_untrained_and_the_trained_layers_side_by_side(on_page, eye):
    header, panels = eye(on_page(), "before_view")
    scene = Scene()
    for panel, trained in zip(panels, (False, True), strict=True):
        shown = mha.trace(scene.text, source="mini", h=4, d_model=64, trained=trained)
        for packed, layer in zip(panel["layers"], shown.layers, strict=True):
            np.testing.assert_allclose(packed["weights"], layer.weights(), atol=2e-5)
    assert (header["layer"], header["head"], header["token"]) == (1, 3, 8)
    assert panels[0]["title"] == f"Before: step 0 · {scene.text}"
    assert panels[1]["title"] == f"After: step {shown.source.step:,} · {scene.text}"
    assert header["source"] == "mini, glass-box, h=4, d_model=64, seed=0"  # no step: there are two
    assert header["follows"] is header["tells"] is True


def explanation(app) -> dict | None:
    return json.loads(app.get_by_key("before-weights").proto.json)[0]["explanation"]


def test_a_number_is_explained_as_long_as_its_matrix_is_drawn(on_page, click, move):
    app = on_page()
    assert explanation(app) is None
    asked = {"id": 7, "name": "after", "row": 3, "column": 5}
    app = click(app, "before-weights", {"row": 3, "column": None, "explained": asked})
    trained = mha.trace(Scene.text, source="mini", h=4, d_model=64)
    answer = explanation(app)
    assert answer["value"] == pytest.approx(trained.layers[1].weights(3)[3, 5], rel=1e-5)
    assert (answer["id"], answer["to"]) == (7, trained.tokens.labels[5])
    move(app, head=1)
    assert explanation(app) is None
    move(app, head=4)
    assert explanation(app) == answer
    rows = len(trained.tokens)
    app = click(app, "before-weights", {"row": 3, "column": None, "explained": asked | {"row": rows}})
    assert explanation(app) is None


def test_random_weights_have_no_after_and_a_trained_model_is_offered(on_page, english):
    app = on_page(source="random")
    assert [info.value for info in app.info] == [english("before.random")]
    app.button(key="take_mini").click().run()
    assert not app.exception
    assert not app.info


def test_what_is_chosen_in_the_view_moves_the_figures(on_page, heatmaps, move):
    app = move(on_page(), layer=1, head=2, token=3)
    assert not app.exception
    shown = mha.trace(Scene().text, source="mini", h=4, d_model=64)
    np.testing.assert_array_equal(
        heatmaps(app, "before-weights")["after"]["values"], shown.layers[0].weights(1)
    )
