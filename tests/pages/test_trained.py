"""Trained weights: the first page of the app, and the answers of the model."""

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


def test_the_first_visit_shows_it_looking_at_the_animal_and_at_the_street(opened, eye, english):
    app = opened()
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
        (asked, words, *_), (asked_next, decider, *_) = answers[it]
        assert asked == english("answer.pronoun", query="it")
        assert f"{noun} {share:.0%}" in words
        assert asked_next == english("answer.decider")
        assert decider.startswith(trace.questions["decider"][it][0][0])


def test_the_view_is_given_every_layer_and_head_of_both_sentences(opened, eye, draws, move, place):
    header, panels = eye(app := opened())
    assert [panel["title"] for panel in panels] == [TIRED, WIDE]
    draws(app, trained(TIRED), trained(WIDE))
    assert (header["layers"], header["heads"], place(app)) == (2, 4, (1, 0, 8))
    assert header["on"] is None  # the picture chooses
    assert header["special"] == [[[0], [0]]] * 2  # looks and is looked at
    assert header["source"].startswith("small trained model, readable, h 4, d_model 64")
    assert header["texts"] == head_view.texts("en")  # with their places to fill in
    assert place(move(app, layer=1, head=1, token="")) == (0, 0, 8)  # the token stays


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ({}, "训练过的小模型、可读、h 4、d_model 64"),
        ({"source": "random", "mask": "window"}, "随机权重、h 4、d_model 64、随机种子 0、掩码：窗口"),
    ],
    ids=["trained", "random"],
)
def test_a_caption_names_the_settings_in_the_language_of_the_page(opened, eye, link, said):
    header, _ = eye(opened(lang="zh", text="How are you?", twin="", **link))
    assert header["source"].startswith(said)


@pytest.mark.parametrize(
    "link", [{"h": 8, "d_model": 128, "head": 8}, CHINESE | {"architecture": "standard"}]
)
def test_the_page_describes_the_training_and_its_scores(opened, english, link):
    assert not [one for one in opened(**link).markdown if "right answers" in one.value]
    app = opened("model_more", **link)
    settings = {name: value for name, value in link.items() if name in ("h", "d_model", "architecture")}
    source = trained(link.get("text", TIRED), **settings).source
    entry = checkpoints.manifest()["{architecture}-{language}-h{h}-d{d_model}".format(**vars(source))]
    kind = {name: getattr(source, name) for name in ("architecture", "h", "d_model")}
    captions = [caption.value for caption in app.caption]
    kind["architecture"] = english(f"option.architecture.{kind['architecture']}")
    assert english("model.trained", steps=f"{entry['plan']['steps']:,}", **kind) in captions
    assert english("model.random") not in captions
    said = [markdown.value for markdown in app.markdown]
    [scores] = [words for words in said if f"{100 * entry['scores']['answer']:.0f}% right answers" in words]
    best = f"layer {entry['scores']['layer'] + 1}, head {entry['scores']['head'] + 1},"
    assert best in scores
    assert scores.startswith(english(f"model.{source.architecture}"))


@pytest.mark.parametrize(("text", "lang"), [("The animal didn't cross the", "en"), ("小猫没有过", "zh")])
def test_a_decoder_says_the_next_word_and_its_perplexity_beside_those_of_counts(
    opened, eye, english, text, lang
):
    app = opened("model_more", text=text, twin="", lang=lang, architecture="decoder")
    trace = trained(text, architecture="decoder")
    found = checkpoints.manifest()[checkpoints.name(trace.source)]["scores"]["perplexity"]
    [scores] = [one.value for one in app.markdown if f"{found['words']:,}" in one.value]
    assert all(f"{found[name]:.0f}" in scores for name in ("model", "trigram", "unigram"))
    [[asked, words, *_]] = eye(app)[0]["answers"][0][-1]
    assert lang == "zh" or asked == english("answer.next", query=trace.tokens.labels[-1])
    word, share = trace.answers[-1][0]
    assert f"{word} {share:.0%}" in words


@pytest.mark.parametrize(
    ("kind", "key", "value"), [("selectbox", "shown_architecture", "one-layer"), ("number_input", "h", 8)]
)
def test_controls_choose_the_model_and_layers_say_their_input(opened, shows, eye, english, kind, key, value):
    app = opened("advanced")
    getattr(app, kind)(key=key).set_value(value).run()
    expected = trained(**{key.removeprefix("shown_"): value})
    layers = len(expected.layers)
    shows(app, expected, layer=layers - 1)
    kinds = ("lookup",) if value == "one-layer" else ("block", "lookup")
    said = [english(f"model.layer.{name}", layer=n, layers=layers) for n, name in enumerate(kinds, start=1)]
    assert eye(app)[0]["notes"] == said
