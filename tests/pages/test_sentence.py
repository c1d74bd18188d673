"""The sentences: a second one, words the model never saw, hidden words, examples, and links old and new."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import mha_core as mha
from mha_core.sources import mini
from mha_core.training.lexicon import lexicon
from pages._kit import chooser, compute, sentence
from pages._kit.state import CONTROLS, Focus, Scene
from pages._kit.text import ASSETS, isolated, literal

EXAMPLES = json.loads((ASSETS / "examples.json").read_text(encoding="utf-8"))
MISSPELT = "The anmal didn't cross the street because it was too tired."
TYPED = Scene().text
UNKNOWN = "Hello my frend, the zxqv is here."


def typed(app) -> tuple[str, str]:
    return tuple(app.text_area(key=key).value for key in ("text", "twin"))


def write(app, text: str, key: str = "text"):
    return app.text_area(key=key).set_value(text).run()


def written(app) -> str:
    return "\n".join(element.value for kind in (app.markdown, app.caption) for element in kind)


def labels(app) -> list[str]:
    return [button.label for button in app.button]


def keys(app) -> list[str]:
    return [button.key for button in app.button]


@pytest.fixture
def word(eye):
    """`word(app)`: the chosen token of the sentence, as the Heads page has it."""

    def read(app) -> str:
        header, panels = eye(app)
        return panels[0]["tokens"][header["token"]]

    return read


# The second sentence


def test_an_empty_second_sentence_leaves_one(opened, tokens):
    app = opened()
    assert len(tokens(app)) == 2
    write(app, "", "twin")
    assert not app.error
    assert not app.warning
    assert len(tokens(app)) == 1


def test_a_link_without_a_second_sentence_leaves_one(opened, tokens):
    app = opened(twin="")
    assert typed(app) == (Scene().text, "")
    assert len(tokens(app)) == 1


def test_a_second_sentence_has_the_same_settings(opened_on_random, eye):
    _, [_, panel] = eye(opened_on_random(twin="one two three", seed=3))
    trace = mha.trace(**Scene(source="random", seed=3).settings("one two three"))
    assert (panel["title"], panel["tokens"]) == ("one two three", [*trace.tokens.labels])
    np.testing.assert_array_equal(panel["layers"][0]["q"], trace.layers[0].q)
    np.testing.assert_allclose(panel["layers"][0]["weights"], trace.layers[0].weights(), atol=2e-5)


def test_the_second_sentence_of_the_start_goes_with_the_first(opened, tokens):
    app = write(opened(), "The dog was tired.")
    assert typed(app) == ("The dog was tired.", "")
    assert len(tokens(app)) == 1


def test_a_second_sentence_of_ones_own_stays(opened, tokens):
    app = write(opened(), "The dog was wide.", "twin")
    write(app, "The dog was tired.")
    assert typed(app) == ("The dog was tired.", "The dog was wide.")
    assert "wide" in tokens(app)[1]


def test_a_link_shows_its_second_sentence(opened, tokens):
    app = opened(text="The dog was tired.", twin="The dog was wide.", token=3)
    assert typed(app) == ("The dog was tired.", "The dog was wide.")
    assert tokens(app)[1] == ["[CLS]", "The", "dog", "was", "wide", "."]
    app.run()
    assert typed(app) == ("The dog was tired.", "The dog was wide.")


@pytest.mark.slow
@pytest.mark.parametrize("text", ["The dog was tired.", "humpty dumpty sat on"])
def test_an_old_link_shows_its_sentence_and_nothing_that_was_left_over(opened, text, tokens):
    app = opened(text=text, h=8, head=2, token=3)
    assert typed(app) == (text, "")
    assert len(tokens(app)) == 1
    assert not app.error
    assert tokens(app)[0] == ["[CLS]", *mha.words(text).labels]
    app.run()
    assert typed(app) == (text, "")


# Sentences that the small model cannot read


LINE = ":material/casino:"
PAGES = ("see/token.py", "understand/steps.py", "understand/hops.py", "see/compare.py")


def lines(app) -> list[str]:
    """What stands above the picture on sentences that cannot be read."""
    assert not app.exception
    assert not app.error
    assert not app.warning
    return [element.value for element in app.markdown if element.value.startswith(LINE)]


UNREADABLE = {
    "unknown": "The capital of Liechtenstein is Vaduz",
    "Arabic": "القط على السجادة",
    "emoji": "I like it😀",
    "marks": "<b> * `x` $y$ [CLS]",
    "Chinese": "国王没有饕餮",
    "long": "the animal was tired and " * 8,
    "both": "the aardvark was tired and " * 8,
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_a_sentence_that_cannot_be_read_is_shown_with_random_weights(opened, said, eye, english, text):
    app = opened(text=text)
    [line] = lines(app)
    assert "these weights are random and mean nothing" in line
    assert typed(app)[0] == text
    assert app.segmented_control(key="source").value == "mini"
    header, [panel] = eye(app)
    stand_in = mini.stand_in(text, h=4, d_model=64, layers=2, language=mini.language(text))
    assert panel["tokens"] == list(stand_in.tokens.labels)
    for mine, layer in zip(panel["layers"], stand_in.layers, strict=True):
        np.testing.assert_allclose(mine["weights"], layer.weights(), atol=2e-5)
    # Nothing that only a trained model has, and the source wherever it is named.
    assert panel["title"] == f"random weights · \u2068{text}\u2069"
    assert "random" in header["source"]
    assert "stand_in_for=mini" in header["source"]
    assert header["answers"] == header["untrained"] == [[]]
    assert not any(label for labels in header["roles"].values() for label in labels)
    assert [fold.label for fold in app.main.expander] == [english("why.title"), english("heads.numbers")]
    assert [words for words in said(app) if re.search(r"(?<!\\)(?:\\\\)*[<`$~]", words)] == []


def test_the_line_stands_on_every_page(opened):
    app = opened(text=UNKNOWN, layer=2, head=3, token=5)
    for page in PAGES:
        app.switch_page(page).run()
        [line] = lines(app)
        assert "**frend**, **zxqv**" in line
        assert "random and mean nothing" in line
        assert "Hello" not in line
    assert typed(app) == (UNKNOWN, "")


def test_on_the_map_of_words_an_unknown_one_is_missing_and_the_others_stand(opened):
    app = opened(text="The cat saw the zxqv", token=6, twin="")
    app.switch_page("understand/embeddings.py").run()
    assert lines(app) == [f"{LINE} The small model does not know **zxqv**: not on this map."]
    assert f"{lexicon().n_words:,}" in written(app)
    write(app, "the animal was tired and " * 8)
    assert not lines(app)


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("anmal", ["animal"]),
        ("tierd", ["tired"]),
        ("wiide", ["wide"]),
        ("strret", ["street"]),
        ("Liechtenstein", []),
        ("Tuvalu", []),
        ("xe", []),
    ],
)
def test_only_words_one_slip_away_are_near(word, near):
    with pytest.raises(mini.UnknownWords) as refused:
        mha.trace(f"the {word} was tired", source="mini")
    assert list(refused.value.unknown[0].near) == near


def test_a_near_word_mends_the_sentence(opened, english, tokens):
    app = opened(text=MISSPELT)
    assert app.button(key="near_text_0_0").label == literal(english("instead.take", word="animal"))
    app.button(key="near_text_0_0").click().run()
    assert typed(app)[0] == MISSPELT.replace("anmal", "animal")
    assert not lines(app)
    assert "near_text_0_0" not in keys(opened(text="The capital of Liechtenstein is Vaduz"))

    # Of several words it is said which one; not more are offered than can be read.
    app = opened(text="Le chat saw the anmal")
    offered = [app.button(key=key).label for key in keys(app) if key.startswith("near_text")]
    for unknown, word in (("chat", "cat"), ("anmal", "animal")):
        assert literal(english("instead.take_for", unknown=isolated(unknown), word=word)) in offered
    assert len(offered) <= 3  # one for each of the three


def test_any_known_word_can_be_taken(opened):
    app = opened("words_text", text="The Liechtenstein was tired.")
    choice = app.selectbox(key="known_text_0")
    assert {"it", "tired", "street"} < set(choice.options)
    assert "[CLS]" not in choice.options
    choice.select("street").run()
    assert typed(app)[0] == "The street was tired."
    assert not lines(app)


def test_unknown_words_are_hidden_and_come_back(opened, hide, eye):
    text = "The zxqv saw the street because it was tired"
    app = opened(text=text)
    assert eye(app)[0]["hides"][0][2] == "Hide “zxqv”"
    app.button(key="hide_text").click().run()
    assert typed(app)[0] == text.replace("zxqv", "[MASK]")
    assert not lines(app)
    assert eye(app)[0]["answers"][0][2]
    hide(app, 2)
    assert typed(app)[0] == text
    assert lines(app)


def test_who_hid_an_unknown_word_once_need_not_do_it_again(opened, hide):
    app = opened(text="The zxqv saw the street because it was tired")
    write(app, "The qvzx was tired.")
    assert typed(app)[0] == "The qvzx was tired."  # nobody has asked for it yet
    app.button(key="hide_text").click().run()
    assert typed(app)[0] == "The [MASK] was tired."
    write(app, "The xqvz didn't cross the vqzx.")
    assert typed(app)[0] == "The [MASK] didn't cross the [MASK]."
    assert not lines(app)
    app.text_area(key="twin").set_value("The zxqv slept.").run()
    assert typed(app)[1] == "The [MASK] slept."
    hide(app, 2)  # gives the word back, and all unknown words from now on
    assert typed(app)[0] == "The xqvz didn't cross the [MASK]."
    write(app, "The qvzx was tired.")
    assert typed(app)[0] == "The qvzx was tired."
    assert lines(app)


def test_random_weights_take_the_sentence_as_it_is(opened, english, tokens):
    app = opened(text=UNKNOWN)
    assert labels(app)[-3:-1] == [english("instead.random"), english("instead.model")]
    app.button(key="instead_random").click().run()
    assert not lines(app)
    assert app.segmented_control(key="source").value == "random"
    assert typed(app) == (UNKNOWN, "")
    assert tokens(app)[0] == [*mha.words(UNKNOWN).labels]
    assert english("model.random") in written(app)


def test_random_weights_for_an_unknown_word_keep_the_token(opened, word):
    app = opened(token=3)
    assert word(app) == "animal"
    write(app, MISSPELT)
    assert word(app) == "anmal"
    app.button(key="instead_random").click().run()
    assert word(app) == "anmal"


def test_a_long_sentence_is_cut_on_request(opened, tokens, english):
    text = UNREADABLE["long"]
    app = opened(text=text)
    assert app.button(key="nearest_text_0").label == english("instead.keep", count=31)
    app.button(key="nearest_text_0").click().run()
    assert typed(app)[0].split() == text.split()[:31]
    assert len(tokens(app)[0]) == 32
    assert not lines(app)


@pytest.mark.slow
def test_beyond_every_limit_the_beginning_is_shown(opened, opened_on_random, monkeypatch, tokens):
    monkeypatch.setitem(compute.MAX_TOKENS, "random", 60)
    text = " ".join(f"w{number}" for number in range(104))
    app = opened_on_random(text=text)
    assert not app.error
    assert len(tokens(app)[0]) == 60
    assert any("first 60 tokens" in caption.value for caption in app.caption)
    assert typed(app)[0] == text
    app = opened(text="the " * 5000)
    assert "The first 4,096 tokens are shown" in lines(app)[0]
    assert len(tokens(app)[0]) == 4096


@pytest.mark.parametrize("text", ["", " \n\t", "\u200b"])
@pytest.mark.parametrize("source", ["mini", "random"])
def test_without_a_sentence_the_page_says_what_to_do(opened, source, english, tokens, text):
    app = opened(source=source)
    write(app, text)
    assert not app.error
    assert [info.value for info in app.info] == [english("empty.text")]
    app.button(key="example_text").click().run()
    assert typed(app)[0] == Scene().text
    assert tokens(app)


def test_a_second_sentence_that_cannot_be_read_stands_marked_beside_the_first(opened, eye, word):
    app = opened(twin=MISSPELT)
    [line] = lines(app)
    assert line.startswith(f"{LINE} Second sentence: ")
    assert "**anmal**" in line
    header, panels = eye(app)
    assert word(app) == "it"
    assert panels[0]["title"] == TYPED
    assert panels[1]["title"] == f"random weights · \u2068{MISSPELT}\u2069"
    assert header["brief"] is False  # so that the titles stand in the view
    assert header["answers"][0][header["token"]]
    assert header["answers"][1] == []
    assert header["roles"] == {}
    app.button(key="near_twin_0_0").click().run()
    assert typed(app) == (TYPED, MISSPELT.replace("anmal", "animal"))
    assert not lines(app)
    header, panels = eye(opened(h=32, d_model=512))  # no such model: of both it is said once
    assert all(panel["title"].startswith("random weights · ") for panel in panels)
    assert header["brief"] is True


def test_both_sentences_say_what_they_have(opened):
    app = opened(text=UNKNOWN, twin="the " * 40)
    first, second = lines(app)
    assert "**frend**" in first
    assert "Second sentence" in second
    assert keys(app).count("instead_random") == 1
    assert {"nearest_twin_0", "hide_text"} < set(keys(app))


# Hidden words


@pytest.fixture
def hide(click, move):
    """`hide(app, 2)`: what the view sends when that word is hidden or given back; it looks there then."""

    def send(app, word: int, panel: int = 0, **chosen: int):
        move(app, token=word + 1, sentence=panel + 1, **chosen)
        app = click(app, "head_view", {"panel": panel, "word": word}, "hidden")
        assert not app.exception
        assert not app.error
        return app

    return send


def test_a_word_is_hidden_and_the_model_guesses_it(opened, hide, english, word, eye):
    app = hide(opened(), 2)
    hidden = TYPED.replace("animal", "[MASK]")
    assert typed(app) == (hidden, Scene().twin)
    assert word(app) == "[MASK]"
    guesses = mha.trace(hidden, source="mini").answers[2]
    items = [english("token.looks_item", key=guess, weight=f"{share:.2f}") for guess, share in guesses]
    header, _ = eye(app)
    assert header["answers"][0][2] == english("answer.hidden", query="[MASK]", list=", ".join(items))
    assert header["answers"][1][2] == english("answer.none", query="animal")  # the other one still says it


def test_hiding_moves_to_where_the_view_looks(opened, hide, place):
    assert place(hide(opened(), 2, layer=1, head=2)) == (0, 1, 2)


def test_the_answers_are_those_of_the_page_token_in_words_without_markup(opened, opened_on, eye):
    text = "The [MASK] didn't see the cat because it was tired."
    answers = eye(opened(text=text, twin=""))[0]["answers"][0]
    for token in (0, 1, 2, 8):
        page = opened_on("see/token.py", text=text, twin="", token=token + 1)
        plain = [re.sub(r"\\(.)|\*\*|\u2060", r"\1", element.value) for element in page.markdown]
        assert answers[token] in plain
    assert len(set(answers)) > 5


def test_an_answer_names_what_is_worth_a_word_and_isolates_what_is_written_from_the_right():
    recorded = mha.trace("The dog slept.", source="mini")
    answers = ((("حيوان", 0.75), ("x", 0.005)), *[None] * (len(recorded.tokens) - 1))
    first, second, *_ = sentence.answers(replace(recorded, answers=answers))
    assert first.endswith("\u2068حيوان\u2069 0.75.")
    assert "“The”" in second


@pytest.mark.slow
def test_words_are_given_back_in_any_order(opened, hide):
    app = opened()
    for token in (7, 1, 8):  # because, The, it: none is as long as [MASK]
        hide(app, token)
    text = "{} animal didn't cross the street {} {} was too tired."
    assert typed(app)[0] == text.format(*3 * ["[MASK]"])
    assert typed(hide(app, 7))[0] == text.format("[MASK]", "because", "[MASK]")
    assert typed(hide(app, 1))[0] == text.format("The", "because", "[MASK]")
    assert typed(hide(app, 8))[0] == TYPED


def test_the_second_sentence_hides_its_own_words(opened, hide, eye, tokens, place):
    """Also where the same word stands elsewhere in the first one, at which the pictures then look."""
    twin = "A big animal didn't cross the street because it was too wide."
    app = hide(opened(twin=twin), 3, panel=1)
    assert typed(app) == (TYPED, twin.replace("animal", "[MASK]"))
    assert tokens(app)[1][3] == "[MASK]"
    assert place(app)[2] == 3
    header, _ = eye(app)
    assert header["hides"][1][3] == "Give “animal” back"
    assert "guesses" in header["answers"][1][3]
    assert typed(hide(app, 3, panel=1)) == (TYPED, twin)


def test_a_link_with_a_hidden_word_keeps_the_second_sentence(opened):
    hidden = TYPED.replace("tired.", "[MASK].")
    assert typed(opened(text=hidden)) == (hidden, Scene().twin)
    assert typed(opened(text="The [MASK] slept.")) == ("The [MASK] slept.", "")


def test_each_token_says_what_hiding_it_is_called(opened, hide, english, eye):
    hides = eye(hide(opened(), 2))[0]["hides"][0]
    assert hides[0] is None  # the start of the sentence is no word
    assert hides[2] == english("hide.back", word="animal")
    assert hides[3] == english("hide.hint", word="didn't")


@pytest.mark.slow
def test_a_mask_that_was_typed_stays(opened, hide, eye):
    app = write(opened(token=5), "The hungry dog [MASK] the old bread.")
    assert eye(app)[0]["hides"][0][4] is None
    assert typed(hide(app, 4))[0] == "The hungry dog [MASK] the old bread."
    assert typed(hide(app, 2))[0] == "The [MASK] dog [MASK] the old bread."
    assert typed(hide(app, 2))[0] == "The hungry dog [MASK] the old bread."


@pytest.mark.slow
def test_another_sentence_begins_with_all_its_words(opened, hide, eye):
    app = hide(opened(), 2)
    write(app, "The dog [MASK] the cat.")
    assert eye(app)[0]["hides"][0][3] is None


def test_a_mask_can_be_typed(opened, eye, word):
    app = write(opened(token=5), "The hungry dog [MASK] the old bread.")
    assert not app.error
    assert word(app) == "[MASK]"
    best = mha.trace("The hungry dog [MASK] the old bread.", source="mini").answers[4][0][0]
    assert f"guesses the hidden word: {best}" in eye(app)[0]["answers"][0][4]


def test_hiding_takes_the_very_word_that_was_chosen(opened, hide):
    app = hide(opened(text="The dog saw the cat and the bird."), 7)  # the last "the"
    assert typed(app)[0] == "The dog saw the cat and [MASK] bird."


@pytest.mark.slow
def test_the_start_of_the_sentence_cannot_be_hidden(opened, hide, word):
    app = hide(opened(token=9), 0)
    assert typed(app)[0] == TYPED
    assert word(app) == "[CLS]"


def test_random_weights_guess_nothing(opened_on_random, eye):
    header, _ = eye(opened_on_random(text="one [MASK] three", token=2))
    assert (header["answers"], header["hides"]) == ([[]], [[]])


def test_a_pronoun_that_stands_for_no_noun_says_so(opened, english, eye):
    [(first, share), *_] = mha.trace("He booked a room at a hotel.", source="mini").answers[1]
    assert first == "he"
    item = english("token.looks_item", key="he", weight=f"{share:.2f}")
    answers = eye(opened(text="He booked a room at a hotel.", token=2))[0]["answers"]
    assert answers[0][1] == english("answer.itself", query="He", list=item)


# Examples


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_sets_both_sentences_and_the_token_and_can_be_shown(opened, number, tokens, word):
    example = EXAMPLES[number]
    app = opened()
    app.selectbox(key="example").select_index(number).run()
    assert not app.exception
    assert not app.error
    assert not app.warning
    assert typed(app) == (example["text"], example.get("twin", ""))
    assert app.selectbox(key="example").value is None
    assert word(app) == example["token"]
    assert len(tokens(app)) == 1 + ("twin" in example)
    at = tokens(app)[0].index(example["token"])
    assert {panel[at] for panel in tokens(app)} <= {example["token"], "she"}


def test_an_example_shows_the_same_word_on_random_weights(opened_on_random, word, tokens, place):
    app = opened_on_random()
    app.selectbox(key="example").select_index(1).run()
    assert word(app) == tokens(app)[1][place(app)[2]] == EXAMPLES[1]["token"]


@pytest.mark.parametrize(("h", "d_model", "offered"), [(7, 56, True), (4, 4, False)])
def test_a_training_is_offered_only_where_the_page_train_can_do_it(opened, english, h, d_model, offered):
    app = opened(h=h, d_model=d_model)
    assert app.button(key="nearest_text_0")
    labels = [link.proto.label for link in app.get("page_link")]
    assert (english("instead.train") in labels) == offered


def test_in_place_of_a_pronoun_that_is_gone_the_one_of_the_new_sentence_is_looked_at(opened, word):
    text = "The dog chased the cat because he was hungry."
    assert word(opened(text=text)) == "he"
    app = opened()
    app.text_area(key="text").set_value(text).run()
    assert word(app) == "he"


def test_in_place_of_another_word_that_is_gone_the_one_that_stands_there_is_looked_at(opened, word):
    app = opened(token="animal")
    app.text_area(key="text").set_value("The dog didn't cross the street because it was too tired.").run()
    assert word(app) == "dog"


# Another source


def test_the_chosen_word_stays_when_the_source_changes(opened, tokens, word):
    app = opened()
    for source, token in (("random", 8), ("mini", 9), ("random", 8)):
        app.segmented_control(key="source").set_value(source).run()
        assert not app.error
        assert word(app) == tokens(app)[1][token - 1] == "it"


def test_the_chosen_word_of_a_link_stays_when_the_source_changes(opened_on_random, word):
    app = opened_on_random(token=2)
    assert word(app) == "animal"
    app.segmented_control(key="source").set_value("mini").run()
    assert word(app) == "animal"


def test_the_chosen_word_stays_on_the_way_back_from_random_weights(opened, word):
    app = write(opened(token=6), MISSPELT)
    app.button(key="instead_random").click().run()
    write(app, Scene().text)
    assert word(app) == "the"
    app.segmented_control(key="source").set_value("mini").run()
    assert word(app) == "the"


def test_a_source_without_models_is_not_offered(opened):
    assert "run" not in opened().segmented_control(key="source").options


# Links


@pytest.mark.parametrize(
    "link",
    [
        {"source": "random", "token": 3},
        {"source": "mini", "twin": "The dog was wide."},
        {"architecture": "standard", "head": 2, "layer": 1},
        {"source": "random", "architecture": "standard", "twin": "a b c", "seed": 4},
    ],
    ids=lambda link: " ".join(link),
)
def test_a_link_sets_what_it_names(opened, shows, link):
    app = opened(**link)
    assert not app.exception
    assert not app.error
    scene = Scene(**{key: value for key, value in link.items() if key in CONTROLS}, focus=Focus.of_link(link))
    assert app.segmented_control(key="source").value == scene.source
    assert typed(app) == (scene.text, scene.twin)
    if scene.source == "mini":
        assert app.selectbox(key="architecture").value == scene.architecture
    trace = mha.trace(**scene.settings())
    shows(app, trace, layer=min(scene.focus.layer, len(trace.layers)) - 1, head=scene.focus.head - 1)


@pytest.mark.parametrize(
    "link",
    [
        {"source": "unknown", "architecture": "unknown", "run": "unknown"},
        {"layer": "3", "head": "5", "token": "14"},
    ],
    ids=" ".join,
)
def test_a_link_with_a_value_that_makes_no_sense_opens_the_start(opened, shows, link):
    app = opened(**link)
    assert not app.exception
    assert not app.error
    shows(app, mha.trace(**Scene().settings()), layer=1, head=3)


# Text stays text

NASTY = "<s> <b>x</b> $x$ *a* **b** [x](y) `c` :red[d] :smile: &lt; ~~e~~"


@pytest.mark.parametrize("token", [3, 20])
def test_marks_in_both_sentences_are_shown_as_typed(opened_on_random, said, token, tokens):
    app = opened_on_random(text=NASTY, twin=NASTY[::-1], token=token)
    assert not app.exception
    assert not app.error
    assert not app.warning
    assert typed(app) == (NASTY, NASTY[::-1])
    assert tokens(app) == [[*mha.words(text).labels] for text in (NASTY, NASTY[::-1])]
    # Of the marks that make text something else, our own words use none of these.
    assert [words for words in said(app) if re.search(r"(?<!\\)(?:\\\\)*[<`$~]", words)] == []


def test_marks_that_the_model_does_not_know_are_named_as_typed(opened, said):
    app = opened(text="The <b> was $x$", twin="The <b>dog</b> was $x$ *tired*")
    names = [literal(name) for name in ("<b>", "$", "x")]
    assert ", ".join(f"**{name}**" for name in names) in lines(app)[0]
    assert [words for words in said(app) if re.search(r"(?<!\\)(?:\\\\)*[<`$~]", words)] == []


# One text that looks at another


def test_the_text_that_is_looked_at_is_shaded(on_translation, translation, main_text, strip):
    app = on_translation("see/token.py")
    row = translation.layers[1].weights(2)[5]
    looks, looked_at = strip(app), strip(app, 1)
    assert (looks["tokens"], looks["weights"], looks["chosen"]) == (
        [*translation.sides.queries.labels],
        None,
        5,
    )
    assert looked_at["tokens"] == [*translation.sides.keys.labels]
    np.testing.assert_allclose(looked_at["weights"], row, rtol=1e-3)
    assert looked_at["chosen"] == row.argmax()
    assert looked_at["query"] == "dog"
    assert f"**{translation.sides.keys.labels[row.argmax()]}** {row.max():.2f}" in main_text(app)


def test_the_token_of_a_link_is_marked_in_the_text_that_is_looked_at(on_translation, strip):
    assert strip(on_translation("see/token.py", key_token=11), 1)["chosen"] == 10


def test_a_click_on_a_token_of_either_text_goes_to_it(on_translation, main_text, strip, choose):
    app = choose(on_translation("see/token.py"), key_token=8)
    assert strip(app, 1)["chosen"] == 8
    assert "**Garten**" in main_text(app)
    app = choose(app, token=2)
    assert (strip(app)["chosen"], strip(app, 1)["chosen"]) == (2, 8)


def test_a_text_that_looks_at_itself_is_not_two():
    trace = mha.trace("one two three", h=2, d_model=4)
    assert chooser.key_of(trace, layer=0, head=0, query=2) == 2


def test_a_model_that_guesses_a_hidden_word_guesses_it_also_where_it_may_not_look_ahead():
    guess = (("cat", 0.5),)
    for settings, answers, said in (
        ({"mask": "causal"}, (guess,) * 3, "After"),
        ({"mask": "causal"}, (None, None, guess), "After"),  # it was asked at one token alone
        ({"edits": [mha.edits.Mask(mask="causal")]}, (None, None, guess), "At"),
    ):
        trace = mha.trace("the old [MASK]", h=2, d_model=4, **settings)
        lines = sentence.answers(replace(trace, answers=answers))
        assert {line.partition(" ")[0] for line in lines if line} == {said}
