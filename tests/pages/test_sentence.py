"""The sentences: a second one, words the model never saw, hidden words, examples, and links old and new."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import mha_core as mha
from pages._kit import sentence
from pages._kit.state import Scene
from pages._kit.text import ASSETS, literal

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


def test_an_unknown_word_in_the_second_sentence_warns_and_the_first_stays(opened, tokens, word):
    app = opened(twin=MISSPELT)
    assert not app.exception
    assert not app.error
    [warning] = app.warning
    assert "anmal" in warning.value
    assert word(app) == "it"
    assert len(tokens(app)) == 1
    assert typed(app) == (Scene().text, MISSPELT)


def test_a_second_sentence_that_is_too_long_warns_and_the_first_stays(opened, word):
    app = opened(twin="the " * 40)
    assert not app.error
    assert literal("40 tokens") in app.warning[0].value
    assert word(app) == "it"


# Words that the model has never seen


def test_unknown_words_are_named_and_nothing_is_guessed(opened):
    app = opened(text=UNKNOWN)
    assert not app.exception
    [error] = app.error
    assert "**frend**, **zxqv**" in error.value
    assert "Hello" not in error.value
    assert f"{known_words():,} words" in error.value
    assert not app.main.expander  # nothing is shown that does not belong to what was asked
    assert typed(app)[0] == UNKNOWN


def known_words() -> int:
    with pytest.raises(mha.MhaError) as refused:
        mha.trace(UNKNOWN, source="mini")
    return refused.value.n_words


def test_each_unknown_word_has_suggestions_that_mend_it(opened):
    app = opened(text=UNKNOWN)
    assert [value for value in written(app).split("\n") if "Instead" in value] == [
        "Instead of **frend**:",
        "Instead of **zxqv**:",
    ]
    assert app.button(key="known_0_0").label == "friend"
    app.button(key="known_0_0").click().run()
    assert typed(app)[0] == "Hello my friend, the zxqv is here."
    [error] = app.error
    assert "**zxqv**" in error.value
    assert "frend" not in error.value
    suggestion = app.button(key="known_0_0").label.replace("\\", "").replace("\u2060", "")
    app.button(key="known_0_0").click().run()
    assert typed(app)[0] == f"Hello my friend, the {suggestion} is here."
    assert not app.error
    assert not app.exception


def test_every_suggestion_mends_the_sentence(opened):
    app = opened(text=MISSPELT)
    offered = {button.key: button.label for button in app.button if button.key.startswith("known")}
    assert len(offered) >= 3
    assert "animal" in offered.values()
    for key, label in offered.items():
        app.button(key=key).click().run()
        assert not app.error
        plain = label.replace("\\", "").replace("\u2060", "")
        assert typed(app)[0] == MISSPELT.replace("anmal", plain)
        write(app, MISSPELT)


def test_random_weights_take_the_sentence_as_it_is(opened, english, tokens):
    app = opened(text=UNKNOWN)
    assert labels(app)[-2:] == [english("unknown.random"), english("unknown.model")]
    app.button(key="unknown_random").click().run()
    assert not app.error
    assert app.segmented_control(key="source").value == "random"
    assert typed(app) == (UNKNOWN, "")
    assert tokens(app)[0] == [*mha.words(UNKNOWN).labels]
    assert english("model.random") in written(app)


def test_random_weights_for_an_unknown_word_keep_the_token(opened, word):
    app = opened(token=3)
    assert word(app) == "animal"
    write(app, MISSPELT)
    app.button(key="unknown_random").click().run()
    assert word(app) == "anmal"


def test_an_unknown_word_is_refused_on_every_page(opened):
    app = opened(text=UNKNOWN)
    app.switch_page("understand/steps.py").run()
    assert not app.exception
    assert "**frend**" in app.error[0].value
    app.button(key="unknown_random").click().run()
    assert len(app.subheader) == 9


@pytest.mark.parametrize("text", ["[CLS] the", "<b> * `x` $y$", "动漫"])
def test_what_is_no_word_is_unknown_and_shown_as_typed(opened, said, text):
    app = opened(text=text)
    assert not app.exception
    assert len(app.error) == 1
    assert [words for words in said(app) if re.search(r"(?<!\\)(?:\\\\)*[<`$~]", words)] == []


# Hidden words


@pytest.fixture
def hide(click):
    """`hide(app, 2)`: what the view sends when that word is hidden or given back, from where it looks."""

    def send(app, word: int, panel: int = 0, **chosen: int):
        place = {"layer": 1, "head": 3, "token": word, "panel": panel, "word": word}
        app = click(app, "head_view", place | chosen, "hidden")
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
    assert place(hide(opened(), 2, layer=0, head=1)) == (0, 1, 2)


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
    app = hide(opened(twin=twin), 3, panel=1, token=2)
    assert typed(app) == (TYPED, twin.replace("animal", "[MASK]"))
    assert tokens(app)[1][3] == "[MASK]"
    assert place(app)[2] == 2
    header, _ = eye(app)
    assert header["hides"][1][3] == "Give “animal” back"
    assert "guesses" in header["answers"][1][3]
    assert typed(hide(app, 3, panel=1, token=2)) == (TYPED, twin)


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
    meant = [panel[example["token"]] for panel in tokens(app)]
    assert len(meant) == 1 + ("twin" in example)
    assert word(app) == meant[0]
    assert set(meant) <= {"it", "he", "she", "[MASK]", "booked", "humpty", "How", "它"}


def test_an_example_shows_the_same_word_on_random_weights(opened_on_random, word, tokens, place):
    app = opened_on_random()
    app.selectbox(key="example").select_index(1).run()
    assert place(app)[2] == EXAMPLES[1]["token"] - 1
    assert word(app) == tokens(app)[1][place(app)[2]] == "it"


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
    app.button(key="unknown_random").click().run()
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
    scene = Scene(**link)
    assert app.segmented_control(key="source").value == scene.source
    assert typed(app) == (scene.text, scene.twin)
    if scene.source == "mini":
        assert app.selectbox(key="architecture").value == scene.architecture
    trace = mha.trace(**scene.settings())
    shows(app, trace, layer=min(scene.layer, len(trace.layers)) - 1, head=scene.head - 1)


@pytest.mark.parametrize(
    "link",
    [
        {"source": "unknown", "architecture": "unknown", "run": "unknown"},
        {"source": "run"},
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
    app = opened(text="The <b> was $x$", twin=NASTY)
    names = [literal(name) for name in ("<b>", "$", "x", "$")]
    assert ", ".join(f"**{name}**" for name in names) in app.error[0].value
    shown = [words for words in said(app) if "Instead" in words]
    assert shown == [f"Instead of **{name}**:" for name in names]
    assert [words for words in said(app) if re.search(r"(?<!\\)(?:\\\\)*[<`$~]", words)] == []


def test_marks_in_a_refused_second_sentence_are_shown_as_typed(opened):
    app = opened(twin="The <b>dog</b> was $x$ *tired*")
    [warning] = app.warning
    assert literal("<b>") in warning.value
    assert not re.search(r"(?<!\\)(?:\\\\)*[<`$~*]", warning.value)


# One text that looks at another


def test_the_text_that_is_looked_at_is_shaded(on_translation, translation, main_text, strip):
    app = on_translation("see/token.py")
    row = translation.layers[1].weights(2)[5]
    looks, looked_at = strip(app, "token_strip"), strip(app, "token_strip_keys")
    assert (looks["tokens"], looks["weights"], looks["chosen"]) == (
        [*translation.sides.queries.labels],
        None,
        5,
    )
    assert looked_at["tokens"] == [*translation.sides.keys.labels]
    np.testing.assert_allclose(looked_at["weights"], row)
    assert looked_at["chosen"] == row.argmax()
    assert looked_at["hints"][3].startswith("“dog” → “Katze”")
    assert f"**{translation.sides.keys.labels[row.argmax()]}** {row.max():.2f}" in main_text(app)


def test_the_token_of_a_link_is_marked_in_the_text_that_is_looked_at(on_translation, strip):
    assert strip(on_translation("see/token.py", key_token=11), "token_strip_keys")["chosen"] == 10


def test_a_click_on_a_token_of_either_text_goes_to_it(on_translation, main_text, strip, click):
    app = click(on_translation("see/token.py"), "token_strip_keys", 8)
    assert strip(app, "token_strip_keys")["chosen"] == 8
    assert "**Garten**" in main_text(app)
    app = click(app, "token_strip", 2)
    assert (strip(app, "token_strip")["chosen"], strip(app, "token_strip_keys")["chosen"]) == (2, 8)


def test_a_text_that_looks_at_itself_is_not_two():
    trace = mha.trace("one two three", h=2, d_model=4)
    assert sentence.looked_at(trace, layer=0, head=0, query=2) == 2
