"""Trained weights: the first page of the app, and the answers of the model."""

import numpy as np
import pytest

import mha_core as mha
from mha_core.export import head_view
from mha_core.scene.scene import Scene
from mha_core.training import checkpoints

pytestmark = pytest.mark.slow

TIRED, WIDE = Scene().text, Scene().twin
CHINESE = {"text": "小猫没有过马路，因为它太累了。", "twin": "小猫没有过马路，因为它太宽了。"}


def trained(text: str = TIRED, **settings) -> mha.AttentionTrace:
    return mha.trace(**(Scene().settings(text) | settings))


# The first visit


def test_the_controls_start_at_the_scene_and_offer_what_the_model_takes(opened, controls):
    scene, app = Scene(), opened("advanced")
    names = ("text", "twin", "h", "d_model", "architecture")
    assert controls(app) == {name: getattr(scene, name) for name in names} | {"source": scene.source}


def test_the_first_visit_shows_it_looking_at_the_animal_and_at_the_street(opened, eye, english):
    app = opened()
    assert not app.exception
    assert not app.error
    assert not app.warning
    header, panels = eye(app)
    for panel, answers, text, noun in zip(
        panels, header["answers"], (TIRED, WIDE), ("animal", "street"), strict=True
    ):
        it, trace = header["token"], trained(text)
        assert panel["tokens"][it] == "it"
        row = panel["layers"][header["layer"]]["weights"][header["head"], it]
        assert panel["tokens"][row.argmax()] == noun
        word, share = trace.answers[it][0]
        assert word == noun
        (asked, words), (asked_next, decider) = answers[it]
        assert asked == english("answer.pronoun", query="it")
        assert words.startswith(f"{noun} {share:.0%}")
        assert asked_next == english("answer.decider")
        assert decider.startswith(trace.questions["decider"][it][0][0])


def test_the_matrices_are_those_of_the_first_sentence(opened, shows):
    shows(opened(), trained(), layer=1, head=0)


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
    assert (header["layer"], header["head"], header["token"]) == (1, 0, 8)
    assert header["on"] == [0]  # the chosen head alone
    assert header["special"] == [
        [[0], [0]],
        [[0], [0]],
    ]  # of each sentence, those that look and are looked at
    assert header["source"].startswith("mini, glass-box, h=4, d_model=64")


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ({}, "自带的小模型、玻璃箱、h=4、d_model=64"),
        ({"source": "random", "mask": "window"}, "随机权重、h=4、d_model=64、随机种子=0、掩码=窗口"),
    ],
    ids=["trained", "random"],
)
def test_a_caption_names_the_settings_in_the_language_of_the_page(opened, eye, link, said):
    header, _ = eye(opened(lang="zh", text="How are you?", twin="", **link))
    assert header["source"].startswith(said)


def test_opening_a_scene_without_a_token_keeps_the_token(opened, move, place):
    assert place(move(opened(), layer=1, head=1, token="")) == (0, 0, 8)


def test_every_text_of_the_view_arrives_with_its_places_to_fill_in(opened, eye):
    assert eye(opened())[0]["texts"] == head_view.texts("en")


def test_a_second_sentence_may_be_shorter(opened, eye):
    app = opened(twin="The dog was tired.", token=9)
    assert not app.exception
    header, panels = eye(app)
    assert header["token"] == 8
    assert [len(panel["tokens"]) for panel in panels] == [13, 6]


def test_the_measured_roles_of_every_layer_are_under_its_heads(opened, eye, english):
    roles = eye(opened())[0]["roles"]
    assert [len(labels) for labels in roles.values()] == [4, 4]
    assert all(roles["1"])


# What the model is


@pytest.mark.parametrize(
    "link",
    [{}, {"h": 8, "d_model": 128, "head": 8}, {"architecture": "standard"}, CHINESE],
    ids=["glass-box", "wide", "standard", "Chinese"],
)
def test_the_page_describes_the_training_and_its_scores(opened, english, link):
    assert not [one for one in opened(**link).markdown if "right answers" in one.value]
    app = opened("model_more", **link)
    settings = {name: value for name, value in link.items() if name in ("h", "d_model", "architecture")}
    source = trained(link.get("text", TIRED), **settings).source
    entry = checkpoints.manifest()["{architecture}-{language}-h{h}-d{d_model}".format(**vars(source))]
    kind = {name: getattr(source, name) for name in ("architecture", "h", "d_model")}
    captions = [caption.value for caption in app.caption]
    assert english("model.trained", steps=f"{entry['plan']['steps']:,}", **kind) in captions
    assert english("model.random") not in captions
    said = [markdown.value for markdown in app.markdown]
    [scores] = [words for words in said if f"{100 * entry['scores']['answer']:.0f}% right answers" in words]
    best = f"layer {entry['scores']['layer'] + 1}, head {entry['scores']['head'] + 1},"
    assert best in scores
    assert scores.startswith(english(f"model.{source.architecture}"))


@pytest.mark.parametrize(
    ("link", "kinds"), [({}, ("block", "lookup")), ({"architecture": "standard"}, ("block", "block"))]
)
def test_each_layer_names_its_input_and_what_follows(opened, eye, english, link, kinds):
    notes = eye(opened(**link))[0]["notes"]
    said = [english(f"model.layer.{kind}", layer=n, layers=2) for n, kind in enumerate(kinds, start=1)]
    assert notes == said


def test_the_architecture_changes_what_is_computed(opened, shows):
    app = opened("advanced")
    app.selectbox(key="shown_architecture").set_value("standard").run()
    expected = trained(architecture="standard")
    shows(app, expected, layer=1, head=0)
    assert not np.array_equal(expected.layers[1].weights(0), trained().layers[1].weights(0))


def test_the_one_layer_model_gives_both_sentences_the_same_answer(opened, shows, eye):
    app = opened("advanced")
    app.selectbox(key="shown_architecture").set_value("one-layer").run()
    assert not app.exception
    assert not app.error
    shows(app, trained(architecture="one-layer"))
    header, _ = eye(app)
    assert (header["layers"], header["layer"]) == (1, 0)


@pytest.mark.parametrize("h", [2, 8])
def test_the_number_of_heads_changes_what_is_computed(opened, shows, h):
    app = opened()
    app.number_input(key="h").set_value(h).run()
    assert not app.error
    shows(app, trained(h=h), layer=1, head=0)


def test_chinese_goes_to_the_chinese_model(opened, eye):
    app = opened(**CHINESE, token=8)
    assert not app.exception
    assert not app.error
    assert not app.warning
    header, panels = eye(app)
    assert [panel["tokens"][header["token"]] for panel in panels] == ["它", "它"]
    answers = [trained(text).answers[7][0][0] for text in CHINESE.values()]
    assert answers == ["小猫", "马路"]
    said = [of_sentence[7][0][1] for of_sentence in header["answers"]]
    assert [words.startswith(answer) for answer, words in zip(answers, said, strict=True)] == [True] * 2


# What is not shipped


@pytest.mark.parametrize(
    ("link", "h", "d_model"),
    [
        ({"h": 6, "d_model": 60}, 8, 64),
        ({"h": 8, "architecture": "standard"}, 4, 64),
        ({"h": 4, "d_model": 32, "architecture": "one-layer"}, 4, 64),
        ({"h": 16} | CHINESE, 8, 64),
    ],
    ids=["sizes", "standard", "one-layer", "Chinese"],
)
def test_without_a_model_of_this_size_the_nearest_is_shown(opened, eye, link, h, d_model):
    app = opened(**link)
    assert not app.exception
    assert not app.error
    header, panels = eye(app)
    assert header["source"].startswith(f"mini, {link.get('architecture', 'glass-box')}, h={h}")
    assert len(panels[0]["layers"]) == (1 if "one" in str(link) else 2)
    [line] = [element.value for element in app.markdown if "No trained" in element.value]
    assert f"h = {link['h']} and d_model = {link.get('d_model', 64)}" in line
    app.button(key="instead_sizes").click().run()
    assert not app.error
    assert "instead_sizes" not in [button.key for button in app.button]
    assert eye(app)[0]["source"] == header["source"]


# A text that is too long


def test_a_text_too_long_for_a_model_is_fine_for_random_weights(opened, tokens):
    app = opened(text="the animal was tired and " * 8)
    app.selectbox(key="shown_source").set_value("random").run()
    assert not app.error
    assert len(tokens(app)[0]) == 40
