"""The view Two layers of Steps: the path through two heads in words and pictures, for both sentences."""

import numpy as np
import pytest

import mha_core as mha
from mha_core.analysis.rollout import best_hops, two_hops
from mha_core.scene.scene import Scene
from pages.understand._steps import two_layers

PAGE = "understand/steps.py?steps_view=layers"


@pytest.fixture
def shown_by(heatmaps):
    """`shown_by(app, "twin")`: the matrices of a sentence: both heads and their product."""

    def read(app, sentence="first"):
        return {name: one["values"] for name, one in heatmaps(app, f"hops-{sentence}").items()}

    return read


def trace(text=Scene.text, **settings) -> mha.AttentionTrace:
    return mha.trace(text, source="mini", **settings)


def test_a_small_weight_is_not_written_as_0_00():
    text = " ".join(["one two three four"] * 60)
    hops = two_layers.Hops(query=5, layer=1, first=0, second=1)
    said = two_layers.path(mha.trace(text, layers=2), hops=hops)
    assert "<0.01" in said
    assert "0.00" not in said


@pytest.mark.slow
def test_the_standard_model_opens_on_the_pair_of_heads_that_reaches_its_answer(on_page, shown_by, rows):
    app = on_page()
    shown = trace(architecture="standard")
    answer = shown.answers[8][0][0]
    first, second = best_hops(shown, 8, shown.tokens.pieces.index(answer))
    assert rows(app) == {"hop1": (first + 1, 4), "hop2": (second + 1, 4)}
    for key, text in (("first", Scene.text), ("twin", Scene.twin)):
        told = trace(text, architecture="standard")
        one, two = told.layers[0].weights(first), told.layers[1].weights(second)
        np.testing.assert_array_equal(shown_by(app, key)["first"], one)
        np.testing.assert_array_equal(shown_by(app, key)["second"], two)
        product = two_hops(told, first=first, second=second).to_numpy()
        np.testing.assert_array_equal(shown_by(app, key)["product"], product)


def test_heads_can_be_chosen_and_the_best_come_back(on_page, shown_by, rows, choose, main_text, english):
    app = on_page()
    assert english("two_layers.intro", one=1, two=2) in main_text(app)
    assert english("two_layers.standard") in main_text(app)
    assert english("two_layers.standard") not in main_text(on_page(source="random", layers=2))
    best = rows(app)
    assert app.button(key="best_hops").disabled
    other = best["hop1"][0] % 4
    choose(app, hop1=other)
    shown = trace(architecture="standard")
    np.testing.assert_array_equal(shown_by(app)["first"], shown.layers[0].weights(other))
    choose(app, token=2)  # the head that was chosen stays
    assert rows(app)["hop1"] == (other + 1, 4)
    choose(app, token=8)
    assert not app.button(key="best_hops").disabled
    app.button(key="best_hops").click().run()
    assert rows(app) == best
    assert app.button(key="best_hops").disabled
    assert dict(app.query_params) == {"steps_view": "layers"}


def test_the_second_hop_can_be_in_any_layer_after_the_first(on_page, rows, choose, shown_by):
    link = {"source": "random", "layers": 3, "layer": 1, "twin": "", "h": 3, "d_model": 15}
    app = on_page(**link)
    assert rows(app)["layer"] == (2, 2)
    choose(app, layer=1)
    assert rows(app)["layer"] == (3, 2)
    shown = mha.trace(Scene.text, source="random", layers=3, h=3, d_model=15)
    second = rows(app)["hop2"][0] - 1
    np.testing.assert_array_equal(shown_by(app)["second"], shown.layers[2].weights(second))


def test_a_model_of_one_layer_gets_an_offer_of_another(on_page, english, rows):
    app = on_page(source="random", layers=1)
    assert [info.value for info in app.info] == [english("two_layers.one_layer")]
    app.button(key="take_mini").click().run()
    assert not app.info
    assert set(rows(app)) == {"hop1", "hop2"}


def test_there_are_no_two_hops_from_one_text_to_another(on_translation, main_text):
    assert "another" in main_text(on_translation(PAGE))


@pytest.mark.slow
def test_a_long_text_shows_the_part_around_the_token(on_page, heatmaps, strip, main_text):
    text = " ".join(f"word{at}" for at in range(300))
    app = on_page(source="random", layers=2, text=text, token=5, twin="")
    drawn, shown = heatmaps(app, "hops-first"), mha.trace(text, source="random", layers=2, h=4, d_model=64)
    first, second = best_hops(shown, 4, 4)
    one, two = shown.layers[0].weights(first), shown.layers[1].weights(second)
    for name, whole in (("first", one), ("second", two), ("product", two @ one)):
        np.testing.assert_allclose(drawn[name]["values"], whole[:256, :256], rtol=1e-4, atol=1e-7)
        assert (drawn[name]["row"], drawn[name]["start"]) == (4, [0, None])
        assert "tokens 1–256 of 300" in drawn[name]["saved"]["caption"]
    assert "tokens 1–256 of 300" in main_text(app)
    np.testing.assert_allclose(strip(app)["weights"], (two @ one)[4], rtol=1e-3)  # of the whole text


def test_the_view_has_a_model_of_its_own_and_other_pages_keep_theirs(opened_on, rows, main_text, english):
    app = opened_on("understand/steps.py", architecture="latent", h=8)
    before = dict(app.query_params)
    app.segmented_control(key="steps_views").set_value("layers").run()
    assert set(rows(app)) == {"hop1", "hop2"}
    assert english("two_layers.own", architecture="standard", h=4, d_model=64) in main_text(app)
    assert dict(app.query_params) == before | {"steps_view": "layers"}
    app.segmented_control(key="steps_views").set_value("steps").run()
    assert dict(app.query_params) == before
