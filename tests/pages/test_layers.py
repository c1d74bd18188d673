"""The strip of a model's layers: their kinds, clicks, and the picture of a mixer."""

import numpy as np
import pytest

pytest.importorskip("transformers", reason="Hugging Face models come with an extra")

import torch
import transformers

from mha_core.focus.focus import Focus
from mha_core.scene.scene import Scene
from mha_core.sources.huggingface import model as huggingface
from tests.parity import tiny as parity
from tests.sources.tiny import fast

PAGE = "models/real.py"
# What differs from the tiny models of tests/parity.
CHANGED = {
    "qwen3_next": {
        "num_hidden_layers": 4,
        "layer_types": ["linear_attention", "full_attention"] * 2,
        "linear_num_value_heads": 4,
    },
    "deepseek_v32": {"index_topk": 5},
    "mamba": {},
}

pytestmark = pytest.mark.filterwarnings("ignore")  # inside of other people's models


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """`folder("mamba")`: the path of a folder with a tiny model, made once."""
    made = {}

    def make(name: str) -> str:
        if name not in made:
            config = parity.config(name)
            for key, value in {"vocab_size": 557, **CHANGED[name]}.items():
                setattr(config, key, value)
            torch.manual_seed(3)
            model = transformers.AutoModel.from_config(config)
            parity.enliven(model)
            made[name] = str(tmp_path_factory.mktemp(name))
            model.save_pretrained(made[name])
            fast("sentence_piece").save_pretrained(made[name])
        return made[name]

    return make


@pytest.fixture
def on(on_folder, folder):
    """`on("mamba")`: the page about a model, opened on that model."""
    return lambda name, page=PAGE, **link: on_folder(folder(name), page, **link)


def traced(folder, name: str):
    return huggingface.follow(huggingface.load(folder(name)), Scene.text)


@pytest.mark.slow
def test_a_layer_without_softmax_shows_its_matrix_and_sums(on, folder, english, heatmaps, drawn, click):
    app = on("qwen3_next")
    app.get_by_key("place").set_value(3).run()
    app.number_input(key="mixer_head").set_value(4).run()
    matrix = traced(folder, "qwen3_next").mixers[1].mixing(3)
    pictures = heatmaps(app, "mixing")
    shown = pictures["mixing"]["values"]
    assert (shown < 0).any()
    np.testing.assert_array_equal(np.nan_to_num(shown), matrix)
    assert np.isnan(shown[~np.tri(len(matrix), dtype=bool)]).all()
    assert pictures["mixing"]["masked"] == english("layers.later")
    np.testing.assert_allclose(pictures["sums"]["values"], matrix.sum(1, keepdims=True), atol=1e-6)
    click(app, "mixing", {"row": 4, "column": None})
    assert {picture["row"] for picture in heatmaps(app, "mixing").values()} == {4}
    app.get_by_key("place").set_value(2).run()
    assert drawn(app, "gate").shape == (len(matrix), parity.config("qwen3_next").head_dim)


@pytest.mark.slow
def test_a_click_moves_to_that_layer_and_the_strip_follows_other_controls(on):
    app = on("qwen3_next")
    app.get_by_key("place").set_value(2).run()
    assert app.session_state.focus.layer == 1
    app.session_state.focus = Focus(layer=2)
    app.run()
    assert app.get_by_key("place").value == 4
    app.get_by_key("place").set_value(3).run()
    assert app.query_params["place"] == "3"
    assert app.session_state.focus.layer == 2  # no other page has a layer without softmax
    app.session_state.focus = Focus(layer=1)
    app.run()
    assert app.get_by_key("place").value == 2
    assert "place" not in app.query_params
    assert on("qwen3_next", place=3).get_by_key("place").value == 3  # as the link says


def test_the_strip_names_every_layer_and_heads_has_a_link_for_one_without_weights(on, said, place, english):
    app = on("qwen3_next", "see/heads.py")
    strip, linear = app.get_by_key("place"), english("layers.kind_linear")
    gated = f"{english('layers.kind_full')}, {english('layers.trait_gated')}"
    assert strip.options == [f"1 {linear}", f"2 {gated}", f"3 {linear}", f"4 {gated}"]
    assert (strip.value, strip.options) == (4, on("qwen3_next").get_by_key("place").options)
    strip.set_value(2).run()
    assert place(app)[:2] == (0, 0)
    assert not [link for link in app.get("page_link") if link.proto.page == "model"]
    app.get_by_key("place").set_value(3).run()
    [link] = [link for link in app.get("page_link") if link.proto.page == "model"]
    assert link.proto.query_string == "place=3"
    assert any("mixing matrix" in text for text in said(app))


@pytest.mark.slow
def test_a_model_without_attention_has_a_page_and_others_explain(on, said, english):
    app = on("mamba")
    assert app.get_by_key("place").options == [f"{n} {english('layers.kind_linear')}" for n in (1, 2)]
    assert app.number_input(key="mixer_head").max > 6
    hybrid = on("qwen3_next", "see/heads.py")
    assert english("real.mixers", count=2, rules="gated delta rule") in said(hybrid)
    heads = on("mamba", "see/heads.py")
    assert any("No layer of this model has attention weights" in text for text in said(heads))


@pytest.mark.slow
def test_an_index_has_three_pictures_and_its_share_of_the_weight(on, folder, heatmaps, english, said):
    app = on("deepseek_v32", layer=2, head=3, token=9)
    latent = english("layers.trait_latent")
    assert app.get_by_key("place").options[1] == f"2 {english('layers.kind_index', size=5)}, {latent}"
    layer = traced(folder, "deepseek_v32").layers[1]
    chosen = layer.index.chosen[0]
    shown = {name: picture["values"] for name, picture in heatmaps(app, "index").items()}
    np.testing.assert_array_equal(shown["chosen"], chosen)
    assert chosen[-1].sum() == 5
    np.testing.assert_array_equal(np.nan_to_num(shown["taken"]), layer.weights(2) * chosen)
    known = np.isfinite(layer.index.scores[0])
    np.testing.assert_array_equal(np.isfinite(shown["scores"]), known)
    np.testing.assert_array_equal(shown["scores"][known], layer.index.scores[0][known])
    share = f"{layer.index.share(2)[8]:.1%}"
    words = english("layers.index", count=5, share=share, head=3)
    assert words in said(app)
