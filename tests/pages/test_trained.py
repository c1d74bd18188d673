"""Trained weights: what the app opens on, what the model answers, which rows mean something."""

import json

import numpy as np
import pytest

import mha_core as mha
from mha_core.export import head_view
from mha_core.training import checkpoints
from pages._kit.state import Scene
from pages._kit.text import literal

pytestmark = pytest.mark.slow

TIRED, WIDE = Scene().text, Scene().twin
BOTH = {"token_strip": TIRED, "twin_strip": WIDE}
CHINESE = {"text": "小猫没有过马路，因为它太累了。", "twin": "小猫没有过马路，因为它太宽了。"}
MATRICES = ("q", "k", "v", "scores", "weights", "output")


def trained(text: str = TIRED, **settings) -> mha.AttentionTrace:
    return mha.trace(**(Scene().settings(text) | settings))


def largest(shown: dict) -> str:
    """The word that the chosen token of a strip looks at most."""
    return shown["tokens"][int(np.argmax(shown["weights"]))]


def controls(app) -> dict:
    kinds = ("text_area", "number_input", "selectbox", "toggle", "segmented_control")
    return {widget.key: widget.value for kind in kinds for widget in getattr(app.sidebar, kind)}


def veiled(app, key: str) -> list[int]:
    """The rows of a heatmap that lie under grey, by the shapes that plotly is given."""
    spec = json.loads(app.get_by_key(key).proto.spec)
    shapes = spec["layout"].get("shapes", [])
    rows = [(shape["y0"] + shape["y1"]) / 2 for shape in shapes if "fillcolor" in shape]
    assert all(row == int(row) for row in rows)
    return [int(row) for row in rows]


# The first visit


def test_the_controls_start_at_the_scene_and_offer_what_the_model_takes(opened):
    scene, app = Scene(), opened()
    names = ("text", "twin", "source", "h", "d_model", "architecture", "layer", "head", "token", "key_token")
    assert controls(app) == {name: getattr(scene, name) for name in names} | {"example": None}
    assert (app.number_input(key="layer").max, app.number_input(key="head").max) == (2, 4)
    assert app.number_input(key="token").max == 13


def test_the_first_visit_shows_it_looking_at_the_animal_and_at_the_street(opened, strip):
    app = opened()
    assert not app.exception
    assert not app.error
    assert not app.warning
    assert [largest(strip(app, key)) for key in BOTH] == ["animal", "street"]
    for key, text in BOTH.items():
        shown, trace = strip(app, key), trained(text)
        assert tuple(shown["tokens"]) == trace.tokens.labels
        assert shown["tokens"][shown["chosen"]] == "it"
        np.testing.assert_allclose(shown["weights"], trace.layers[1].weights(3)[8], rtol=1e-6)


def test_the_first_visit_says_whom_it_looks_at_and_what_the_model_answers(opened, english):
    said = [markdown.value for markdown in opened().markdown]
    for text, noun in ((TIRED, "animal"), (WIDE, "street")):
        trace = trained(text)
        weight = trace.layers[1].weights(3)[8, trace.tokens.labels.index(noun)]
        item = english("token.looks_item", key=noun, weight=f"{weight:.2f}")
        assert any(words.startswith(f"In head 4, **it** looks at {item}") for words in said)
        word, share = trace.answers[8][0]
        assert word == noun
        item = english("token.looks_item", key=noun, weight=f"{share:.2f}")
        assert english("answer.pronoun", query="it", list=item) in said


def test_the_matrices_are_those_of_the_first_sentence(opened, drawn):
    app, layer = opened(), trained().layers[1]
    expected = (layer.q[3], layer.k[3], layer.v[3], layer.scores(3), layer.weights(3), layer.output(3))
    for name, matrix in zip(MATRICES, expected, strict=True):
        np.testing.assert_array_equal(drawn(app, f"matrix-{name}"), matrix, err_msg=name)


def test_the_view_is_given_every_layer_and_head_of_both_sentences(opened, eye):
    header, panels = eye(opened())
    for panel, text in zip(panels, (TIRED, WIDE), strict=True):
        trace = trained(text)
        assert (panel["title"], tuple(panel["tokens"])) == (text, trace.tokens.labels)
        assert [layer["number"] for layer in panel["layers"]] == [0, 1]
        for shown, layer in zip(panel["layers"], trace.layers, strict=True):
            assert shown["heads"] == [0, 1, 2, 3]
            np.testing.assert_allclose(shown["weights"], layer.weights(), atol=2e-5)
    assert (header["layers"], header["heads"]) == (2, 4)
    assert (header["layer"], header["head"], header["token"]) == (1, 3, 8)
    assert 3 in header["on"]  # the chosen head
    assert len(header["on"]) == 2
    assert header["special"] == [
        [[0], [0]],
        [[0], [0]],
    ]  # of each sentence, those that look and are looked at
    assert header["source"].startswith("mini, glass-box, h=4, d_model=64")


def test_what_is_opened_in_the_view_moves_the_scene(opened, click, strip, eye):
    app = click(opened(), "head_view", {"layer": 0, "token": 2, "head": 1}, "opened")
    assert not app.exception
    assert [app.number_input(key=key).value for key in ("layer", "head", "token")] == [1, 2, 3]
    assert [strip(app, key)["chosen"] for key in BOTH] == [2, 2]
    header, _ = eye(app)
    assert (header["layer"], header["head"], header["token"]) == (0, 1, 2)


def test_what_is_opened_without_a_token_keeps_the_token(opened, click):
    app = click(opened(), "head_view", {"layer": 0, "token": None, "head": 0}, "opened")
    assert not app.exception
    assert [app.number_input(key=key).value for key in ("layer", "head", "token")] == [1, 1, 9]


def test_the_numbers_stay_the_same_bytes_while_only_the_scene_moves(opened, click):
    app = opened()
    before = app.get_by_key("head_view_blob").proto.bytes
    app = click(app, "head_view", {"layer": 0, "token": 2, "head": 1}, "opened")
    assert app.get_by_key("head_view_blob").proto.bytes == before


def test_every_text_of_the_view_arrives_with_its_places_to_fill_in(opened, eye):
    assert eye(opened())[0]["texts"] == head_view.texts("en")


def test_choosing_a_token_of_the_second_sentence_moves_it_in_both(opened, click, strip):
    app = click(opened(), "twin_strip", 6)
    assert [strip(app, key)["chosen"] for key in BOTH] == [6, 6]


def test_a_second_sentence_may_be_shorter(opened, strip, eye):
    app = opened(twin="The dog was tired.", token=9)
    assert not app.exception
    assert [strip(app, key)["chosen"] for key in BOTH] == [8, 5]
    header, panels = eye(app)
    assert header["token"] == 8
    assert [len(panel["tokens"]) for panel in panels] == [13, 6]


def test_long_texts_have_the_view_too(opened):
    app = opened(source="random", text=" ".join(["word"] * 200))
    assert not app.exception
    assert json.loads(app.get_by_key("head_view").proto.json)["heads"] == 4


# What the model is


@pytest.mark.parametrize(
    "link",
    [{}, {"h": 8, "d_model": 256, "head": 8}, {"architecture": "standard"}, CHINESE],
    ids=["glass-box", "wide", "standard", "Chinese"],
)
def test_the_page_says_what_was_trained_and_how_well_it_does(opened, english, link):
    app = opened(**link)
    settings = {name: value for name, value in link.items() if name in ("h", "d_model", "architecture")}
    source = trained(link.get("text", TIRED), **settings).source
    entry = checkpoints.manifest()["{architecture}-{language}-h{h}-d{d_model}".format(**vars(source))]
    kind = {name: literal(getattr(source, name)) for name in ("architecture", "h", "d_model")}
    captions = [caption.value for caption in app.caption]
    assert english("model.trained", steps=f"{entry['plan']['steps']:,}", **kind) in captions
    assert english("model.random") not in captions
    said = [markdown.value for markdown in app.markdown]
    assert english(f"model.{source.architecture}") in said
    [scores] = [words for words in said if f"{100 * entry['scores']['answer']:.0f} % right answers" in words]
    best = f"layer {entry['scores']['layer'] + 1}, head {entry['scores']['head'] + 1},"
    assert best in scores


@pytest.mark.parametrize(
    ("link", "kinds"), [({}, ("block", "lookup")), ({"architecture": "standard"}, ("block", "block"))]
)
def test_each_layer_says_what_comes_in_and_what_follows(opened, english, link, kinds):
    for layer, kind in enumerate(kinds, start=1):
        captions = [caption.value for caption in opened(layer=layer, **link).caption]
        for other in ("block", "lookup"):
            note = english(f"model.layer.{other}", layer=layer, layers=2)
            assert (note in captions) == (other == kind)


def test_steps_say_of_which_layer_the_values_are_embeddings(opened, english):
    app = opened()
    app.switch_page("understand/steps.py").run()
    assert not app.exception
    assert english("steps.project.values") in [markdown.value for markdown in app.main.markdown]
    assert english("model.layer.lookup", layer=2, layers=2) in [caption.value for caption in app.caption]
    app.number_input(key="layer").set_value(1).run()
    assert english("steps.project.values") not in [markdown.value for markdown in app.main.markdown]


def test_the_architecture_changes_what_is_computed(opened, drawn):
    app = opened()
    app.selectbox(key="architecture").set_value("standard").run()
    expected = trained(architecture="standard").layers[1].weights(3)
    np.testing.assert_array_equal(drawn(app, "matrix-weights"), expected)
    assert not np.array_equal(expected, trained().layers[1].weights(3))


def test_one_layer_has_one_layer_and_its_answers_know_no_difference(opened, drawn, english):
    app = opened()
    app.selectbox(key="architecture").set_value("one-layer").run()
    assert not app.exception
    assert not app.error
    assert "layer" not in [widget.key for widget in app.number_input]
    assert english("heads.all", layer=1) in [subheader.value for subheader in app.subheader]
    expected = trained(architecture="one-layer").layers
    assert len(expected) == 1
    np.testing.assert_array_equal(drawn(app, "matrix-weights"), expected[0].weights(3))
    assert veiled(app, "matrix-weights") == [row for row in range(13) if row != 8]


@pytest.mark.parametrize("h", [2, 8])
def test_the_number_of_heads_changes_what_is_computed(opened, drawn, h):
    app = opened()
    app.number_input(key="h").set_value(h).run()
    assert not app.error
    assert app.number_input(key="head").value == min(4, h)
    expected = trained(h=h).layers[1].weights(min(4, h) - 1)
    np.testing.assert_array_equal(drawn(app, "matrix-weights"), expected)


def test_chinese_goes_to_the_chinese_model(opened, strip):
    app = opened(**CHINESE, token=8)
    assert not app.exception
    assert not app.error
    assert not app.warning
    shown = [strip(app, key) for key in BOTH]
    assert [sentence["tokens"][sentence["chosen"]] for sentence in shown] == ["它", "它"]
    answers = [trained(text).answers[7][0][0] for text in CHINESE.values()]
    assert answers == ["小猫", "马路"]
    said = [markdown.value for markdown in app.markdown if "stand for" in markdown.value]
    assert ["小猫" in said[0], "马路" in said[1]] == [True, True]


# Which rows mean something


def test_rows_that_no_answer_was_asked_of_are_veiled_in_the_last_layer(opened):
    app = opened()
    others = [row for row in range(13) if row != 8]
    assert {name: veiled(app, f"matrix-{name}") for name in MATRICES} == {
        name: [] if name in ("k", "v") else others for name in MATRICES
    }


def test_no_row_of_an_earlier_layer_is_veiled(opened):
    app = opened(layer=1)
    assert [name for name in MATRICES if veiled(app, f"matrix-{name}")] == []


def test_the_row_of_a_hidden_word_is_not_veiled(opened):
    app = opened(text="The [MASK] was tired because it was late.", token=3)
    assert not app.error
    tokens = trained("The [MASK] was tired because it was late.").tokens.pieces
    meant = {tokens.index("[MASK]"), tokens.index("it")}
    assert set(veiled(app, "matrix-weights")) == set(range(len(tokens))) - meant


def test_random_weights_veil_nothing(opened_on_random):
    app = opened_on_random()
    assert [name for name in MATRICES if veiled(app, f"matrix-{name}")] == []


# What is not shipped


@pytest.mark.parametrize(
    ("link", "offered"),
    [
        ({"h": 3, "d_model": 48}, None),
        ({"h": 8, "architecture": "standard"}, [{"h": 4, "d_model": 64}]),
        ({"h": 4, "d_model": 32, "architecture": "one-layer"}, [{"h": 4, "d_model": 64}]),
        ({"h": 16} | CHINESE, None),
    ],
    ids=["sizes", "standard", "one-layer", "Chinese"],
)
def test_a_model_that_is_not_shipped_is_refused_with_those_that_are(opened, link, offered):
    app = opened(**link)
    assert not app.exception
    [error] = app.error
    assert literal(f"h {link['h']} and d_model {link.get('d_model', 64)} comes with Headscope") in error.value
    language = "zh" if "text" in link else "en"
    architecture = link.get("architecture", "glass-box")
    for plan in checkpoints.PLANS:
        if (plan.language, plan.architecture) == (language, architecture):
            assert literal(f"d_model {plan.d_model} with h") in error.value
    labels = [button.label for button in app.button]
    assert 1 <= len(labels) <= 3
    if offered is not None:
        assert labels == [literal(f"Use h {fix['h']}, d_model {fix['d_model']}") for fix in offered]
    assert not app.subheader  # nothing is shown that does not belong to what was asked


@pytest.mark.parametrize("fix", range(3))
def test_every_offered_model_sets_both_sizes_and_works(opened, drawn, fix):
    app = opened(h=6, d_model=60)
    plans = [(4, 64), (8, 64), (2, 64)]
    labels = [literal(f"Use h {h}, d_model {d_model}") for h, d_model in plans]
    assert [button.label for button in app.button] == labels
    h, d_model = plans[fix]
    app.button[fix].click().run()
    assert not app.error
    assert not app.exception
    assert [app.number_input(key=key).value for key in ("h", "d_model")] == [h, d_model]
    expected = trained(h=h, d_model=d_model).layers[1].weights(min(4, h) - 1)
    np.testing.assert_array_equal(drawn(app, "matrix-weights"), expected)


# A text that is too long


def test_a_text_that_is_too_long_for_the_model_is_refused_and_shortened(opened, english):
    text = "the animal was tired and " * 8
    app = opened(text=text)
    [error] = app.error
    assert error.value == literal("The text has 40 tokens; the small models read up to 31.")
    [button] = app.button
    assert button.label == english("error.text")
    assert app.text_area(key="text").value == text
    button.click().run()
    assert not app.error
    assert app.text_area(key="text").value.split() == text.split()[:31]
    assert app.number_input(key="token").max == 32


@pytest.mark.parametrize("text", ["the " * 1500, "小猫" * 200], ids=["English", "Chinese"])
def test_a_text_that_is_far_too_long_is_shortened_in_one_go(opened, text):
    app = opened(text=text)
    assert len(app.error) == 1
    app.button[0].click().run()
    assert not app.error
    assert app.number_input(key="token").max == 32


def test_a_text_that_is_too_long_for_a_model_is_not_for_random_weights(opened):
    app = opened(text="the animal was tired and " * 8)
    app.segmented_control(key="source").set_value("random").run()
    assert not app.error
    assert app.number_input(key="token").max == 40
