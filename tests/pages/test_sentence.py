"""The sentences: a second one, unknown words, examples, and links old and new."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import mha_core as mha
from mha_core.focus.token_names import names
from mha_core.scene.scene import Scene
from mha_core.training.language import MAX_WORDS
from mha_core.training.lexicon import lexicon
from pages._kit.answers import in_words
from pages._kit.text import ASSETS
from tests.pages.conftest import OF_TRACE, go_to, infos, keys

BY_LANGUAGE = json.loads((ASSETS / "examples.json").read_text(encoding="utf-8"))
EXAMPLES = BY_LANGUAGE["en"]
TYPED = Scene().text
UNKNOWN = "Hello my frend, the zxqv is here."


def typed_sentences(app) -> tuple[str, str]:
    return tuple(app.text_area(key=key).value for key in ("text", "twin"))


def write(app, text: str, key: str = "text"):
    return app.text_area(key=key).set_value(text).run()


def page_text(app) -> str:
    return "\n".join(element.value for kind in (app.markdown, app.caption) for element in kind)


@pytest.fixture
def word(eye):
    """`word(app)`: the chosen token of the sentence, as the Heads page has it."""

    def read(app) -> str:
        header, panels = eye(app)
        return panels[0]["tokens"][header["token"]]

    return read


def test_a_typed_second_sentence_stays_and_an_empty_one_is_left_out(opened, tokens):
    app = write(opened(), "The dog was wide.", "twin")
    write(app, "The dog was tired.")
    assert typed_sentences(app) == ("The dog was tired.", "The dog was wide.")
    assert "wide" in tokens(app)[1]
    write(app, "", "twin")
    assert not app.warning
    assert len(tokens(app)) == 1


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_second_sentence_of_a_link_stands_beside_the_first_one_of_the_language(opened, language):
    assert typed_sentences(opened(lang=language, twin="我喜欢猫。")) == (
        BY_LANGUAGE[language][0]["text"],
        "我喜欢猫。",
    )


@pytest.mark.parametrize(("language", "nth"), [("en", 0), ("zh", 1)])
def test_the_second_sentence_of_an_example_goes_with_the_first(opened, tokens, english, language, nth):
    """It stays while a word of the first one is changed; later the empty field says why it is empty."""
    example = BY_LANGUAGE[language][nth]
    edited = example["text"].replace("animal", "dog").replace("箱子", "盒子")
    app = write(opened(text=example["text"], twin=example["twin"]), edited)
    assert typed_sentences(app) == (edited, example["twin"])
    write(app, "The dog was tired.")
    assert typed_sentences(app) == ("The dog was tired.", "")
    assert len(tokens(app)) == 1
    assert app.text_area(key="twin").placeholder == english("control.twin_emptied")


def test_a_language_without_examples_begins_with_the_english_ones(opened, monkeypatch):
    """As one that somebody begins to translate into."""
    monkeypatch.setattr("pages._kit.controls.EXAMPLES", {"en": EXAMPLES})
    app = opened("examples", lang="zh")
    assert typed_sentences(app) == (EXAMPLES[0]["text"], EXAMPLES[0]["twin"])
    offered = [button.label for button in app.button if str(button.key).startswith("example_")]
    assert offered == [example["text"] for example in EXAMPLES]


def test_a_link_names_a_token_of_its_second_sentence_in_any_words(opened, eye):
    twin = "The cat saw the dog and the cow."
    header, panels = eye(opened(twin=twin, sentence=2, token="the", pins="cow THE"))
    assert panels[1]["names"][:6] == ["[CLS]", "The", "cat", "saw", "the~1", "dog"]
    assert header["asked"] == {"nth": 1, "query": [["the", 4], ["cow", 8]], "key": [["the", 4], ["cow", 8]]}
    header, _ = eye(opened(twin=twin, sentence=1, token="the"))
    assert "asked" not in header


@pytest.mark.parametrize("text", ["القط على السجادة", "<b> * `x` $y$ [CLS] def f(x): return x ** 2 饕餮和😀"])
def test_any_words_are_read_by_the_trained_model(opened, said, eye, draws, english, text):
    app = opened(text=text, twin="")
    assert typed_sentences(app)[0] == text
    trace = mha.trace(text, source="mini")
    draws(app, trace)
    assert eye(app)[0]["source"].startswith("small trained model")
    assert trace.tokens.unknown
    assert english("unknown.line") in page_text(app)
    assert [words for words in said(app) if re.search(r"(?<!\\)(?:\\\\)*[<`$~]", words)] == []


def test_one_line_explains_dotted_words_on_every_page(opened, english):
    app = opened(text=UNKNOWN, twin=UNKNOWN, layer=2, head=3, token=5)
    assert page_text(app).count(english("unknown.line")) == 1
    for page in OF_TRACE[:-1]:  # the last one has words of its own for it
        go_to(app, page)
        assert page_text(app).count(english("unknown.line")) == 1
    assert english("unknown.line") not in page_text(opened())


@pytest.mark.parametrize(
    ("word", "answers", "guessed"),
    [
        ("it", {"noun": "animal", "decider": "flonk"}, True),
        ("it", {"noun": "animal", "decider": "too"}, False),
        ("flonk", {"noun": "animal"}, True),
        ("flonk", {"before": "too"}, False),  # where it stands is seen
        ("cross", {"doer": "flonk", "object": "flonk"}, True),
        ("cross", {"doer": "animal", "object": "street"}, False),
    ],
)
def test_an_answer_with_a_word_that_the_model_has_never_seen_is_called_a_guess_once(
    english, word, answers, guessed
):
    trace = mha.trace("The animal didn't cross the street because it was too flonk.", source="mini")
    said = in_words(_answering(trace, word, answers, 0.95))[trace.tokens.index(word)]
    notes = " ".join(one.note for one in said)
    assert notes.count(english("answer.guess", word="flonk")) == guessed
    assert said[0].words == ("perhaps " if guessed else "") + f"{next(iter(answers.values()))} 95%"


def test_every_head_that_looks_elsewhere_than_its_answer_is_named(english):
    trace = mha.trace(TYPED, source="mini")
    at = trace.tokens.index("cross")
    head = next(head for head, asked in enumerate(trace.source.questions) if "doer" in asked.split())
    key = trace.tokens.pieces[trace.layers[-1].weights(head, rows=[at])[0].argmax()]
    differs = english("answer.differs", head=head + 1, key=key)
    for answer in (key, "because"):
        said = in_words(_answering(trace, "cross", {"doer": answer, "object": "because"}, 0.95))[at]
        assert said[0].heads == (head,)
        assert (differs in said[0].note) is (answer != key)
        assert "need not be" in said[1].note  # of the head that is asked for the object
    [only] = in_words(_answering(trace, "cross", {"before": "because"}, 0.95))[at]
    assert "need not be" in only.note


def _answering(trace, word, answers, share):
    """The trace with these answers at a word, and nothing found at any other."""
    at, nothing = trace.tokens.index(word), (("[CLS]", 1.0),)
    questions = {
        question: tuple(
            ((answers[question], share),) if here == at and question in answers else nothing
            for here in range(len(trace.tokens))
        )
        for question in trace.questions
    }
    return replace(trace, answers=questions["noun"], questions=questions)


def test_the_map_of_words_leaves_unknown_ones_out(opened, english):
    app = opened(text="The cat saw the zxqv", token=6, twin="")
    app.switch_page("understand/embeddings.py").run()
    assert english("unknown.off_map", words="**zxqv**") in page_text(app)
    assert f"{len(lexicon().known) + 2:,}" in page_text(app)
    write(app, "the animal was tired")
    assert "zxqv" not in page_text(app)


STORY = "The dog chased the cat because he was hungry. " + "The man saw the woman near the house. " * 8


def test_a_long_text_is_read_in_parts(opened, tokens, english):
    parts = lexicon("en").sentences(STORY, limit=MAX_WORDS)
    app = opened(text=STORY, twin="")
    assert typed_sentences(app)[0] == STORY
    assert tokens(app)[0][2] == "dog"
    assert english("instead.long", limit=MAX_WORDS - 1, count=len(parts)) in page_text(app)
    assert len(app.selectbox(key="part_text").options) == len(parts)
    app.selectbox(key="part_text").select_index(1).run()
    assert typed_sentences(app)[0] == parts[1]
    assert tokens(app)[0][2] == "man"
    assert app.selectbox(key="part_text").index == 1
    app.button(key="take_whole_text").click().run()
    assert typed_sentences(app)[0] == STORY
    write(app, "The dog slept.")
    assert "part_text" not in [box.key for box in app.selectbox]
    app = write(app, STORY, "twin")  # and so is a second one
    assert tokens(app)[1][2] == "dog"
    app.selectbox(key="part_twin").select_index(1).run()
    assert typed_sentences(app)[0] == "The dog slept."
    assert tokens(app)[1][2] == "man"


@pytest.mark.parametrize(("source", "text"), [("mini", ""), ("random", " \n\u200b")])
def test_without_a_sentence_the_page_says_what_to_do(opened, source, english, tokens, text):
    app = opened(source=source)
    write(app, text)
    assert not app.error
    assert infos(app) == [english("empty.text")]
    app.button(key="example_text").click().run()
    assert typed_sentences(app)[0] == Scene().text
    assert tokens(app)


def test_a_word_is_typed_over_in_its_own_sentence(opened, click, tokens):
    app = click(opened(), "head_view", {"panel": 1, "word": 11, "text": "very wide"}, "changed")
    assert typed_sentences(app) == (TYPED, Scene.twin.replace("wide", "very wide"))
    assert [len(sentence) for sentence in tokens(app)] == [13, 14]


def test_the_answers_are_those_of_the_page_token_in_words_without_markup(opened, opened_on, eye):
    text = "The [MASK] didn't see the cat because it was tired."
    answers = eye(opened(text=text, twin=""))[0]["answers"][0]
    assert answers[0] == []  # nobody asks about the start
    for token in (1, 2, 8):
        page = opened_on("see/token.py", text=text, twin="", token=token + 1)
        plain = [re.sub(r"\\(.)|\*\*|\u2060", r"\1", element.value) for element in page.markdown]
        said = [
            " ".join([asked, words, *([f":small[{note}]"] if note else [])])
            for asked, words, note, *_ in answers[token]
        ]
        assert said
        assert [line for line in plain if line in said] == said
    assert len({str(said) for said in answers}) > 5


def _told(said):
    """Each question with its answer, and with the guesses of one that is not known."""
    return [(one.asked, one.words, *([one.note] if one.words == UNSURE else [])) for one in said]


def test_an_answer_lists_probable_words_and_isolates_right_to_left_text():
    recorded = mha.trace("The dog slept.", source="mini")
    answers = ((("حيوان", 0.75), ("x", 0.005)), *[None] * (len(recorded.tokens) - 1))
    recorded = replace(recorded, answers=answers, source="arrays", questions={})
    first, second, *_ = in_words(recorded)
    assert [one.words for one in first] == ["\u2068حيوان\u2069 75%"]
    assert second == []


PRONOUN, CUE, NOUN = (
    "What does “it” stand for?",
    "Which word decides that?",
    "Which noun does “tired” belong to?",
)
UNSURE = "the model does not know"
BY_CHANCE = {"noun": (("dog", 0.09), ("he", 0.05))}
GUESSED = (PRONOUN, UNSURE, "dog 9%, he 5%")
BESIDES = (("dog", 0.1), ("cow", 0.1), ("bee", 0.1))
TWO = {"noun": (("animal", 0.97), ("street", 0.03)), "decider": (("tired", 0.99),), "before": (("too", 0.9),)}
ONE = {"noun": (("animal", 0.9),), "decider": (("tired", 0.2),)}
SELF = {"noun": (("street", 0.8),), "doer": (("animal", 0.98),), "object": (("it", 0.97),)}
NO_DOER = {"doer": (("animal", 0.2), ("street", 0.19)), "before": (("it", 0.1),)}
# At a word the answers of the model to its questions, and what is said there.
ANSWERED = [
    ("it", {}, [(PRONOUN, "no word here 100%")]),
    ("it", TWO, [(PRONOUN, "animal 97%"), (CUE, "tired 99%")]),
    ("it", ONE, [(PRONOUN, "animal 90%"), (CUE, UNSURE, "tired 20%")]),
    ("it", BY_CHANCE, [GUESSED]),
    ("it", BY_CHANCE | {"decider": (("tired", 0.2),)}, [GUESSED]),  # one "does not know" is enough
    ("it", {"noun": (("cat", 0.29), *BESIDES)}, [(PRONOUN, UNSURE, "cat 29%, dog 10%, cow 10%")]),
    ("it", {"noun": (("cat", 0.3), *BESIDES)}, [(PRONOUN, "perhaps cat 30%, dog 10%, cow 10%, bee 10%")]),
    (
        "tired",
        TWO | {"noun": (("animal", 0.6), ("[CLS]", 0.4))},
        [(NOUN, "perhaps animal 60%, no word here 40%")],
    ),
    ("tired", {"noun": ((".", 0.6), ("[CLS]", 0.4))}, [(NOUN, "perhaps “.” 60%, no word here 40%")]),
    ("cross", SELF, [("Who does it?", "animal 98%"), ("To whom or what?", "it 97%")]),
    ("cross", NO_DOER, [("Who does it?", UNSURE, "animal 20%, street 19%")]),
    ("animal", {"doer": (("cross", 0.9),)}, [("What does “animal” do?", "cross 90%")]),
    ("animal", {"noun": (("animal", 0.8),)}, [("About “animal”:", "")]),  # never the answer about itself
    ("street", {"object": (("cross", 0.9),)}, [("What is done to “street”?", "cross 90%")]),
    ("because", {}, [("About “because”:", "")]),
    (
        "because",
        {"before": (("it", 0.8),)},
        [("Which word comes before?", "perhaps it 80%")],
    ),  # with no other answer
]


@pytest.mark.parametrize(("word", "answers", "said"), ANSWERED)
def test_the_answers_at_a_word_are_those_that_say_something(english, word, answers, said):
    trace = mha.trace(TYPED, source="mini", h=8, trained=False)
    at, nothing = trace.tokens.index(word), (("[CLS]", 1.0),)
    questions = {
        question: (None, *[answers.get(question, nothing)] * 12)
        for question in ("noun", "doer", "object", "before", "after", "decider")
    }
    said = [(asked, *words) if any(words) else (asked, english("answer.nothing")) for asked, *words in said]
    assert _told(in_words(replace(trace, answers=questions["noun"], questions=questions))[at]) == said


def test_a_word_that_can_be_a_noun_is_a_verb_after_i():
    assert in_words(mha.trace("I love pizza.", source="mini"))[2][0].asked == "Who does it?"


def test_questions_that_the_same_heads_answer_have_one_answer():
    trace = mha.trace(TYPED, source="mini", h=2, trained=False)
    source = replace(trace.source, questions=("noun after", "doer object before decider hidden"))
    answers = {"noun": (("animal", 0.9),), "doer": (("street", 0.8),)}
    answers |= {"after": answers["noun"]} | dict.fromkeys(("object", "before", "decider"), answers["doer"])
    questions = {question: (None, *[answer] * 12) for question, answer in answers.items()}
    said = in_words(replace(trace, source=source, answers=questions["noun"], questions=questions))
    assert _told(said[3]) == [
        ("Which noun does “didn't” belong to? Which word comes after?", "animal 90%"),
        ("Who does it? To whom or what? Which word comes before?", "perhaps street 80%"),
    ]
    assert _told(said[8]) == [
        ("What does “it” stand for?", "animal 90%"),
        ("What is done to “it”? Which word comes before? Which word decides that?", "perhaps street 80%"),
    ]


@pytest.mark.parametrize("number", [3, 4])
def test_an_example_sets_both_sentences_and_the_token_and_can_be_shown(opened, number, tokens, word):
    example = EXAMPLES[number]
    app = opened()
    app.button(key=f"example_{number}").click().run()
    assert typed_sentences(app) == (example["text"], example.get("twin", ""))
    assert word(app) == example["token"]
    assert len(tokens(app)) == 1 + ("twin" in example)


def test_the_token_of_an_example_is_in_both_of_its_sentences():
    for example in (one for examples in BY_LANGUAGE.values() for one in examples):
        texts = filter(None, (example["text"], example.get("twin")))
        first, *other = (mha.trace(text, source="mini").tokens.labels for text in texts)
        at = first.index(example["token"])
        assert {labels[at] for labels in other} <= {example["token"], "she", "她"}


@pytest.mark.parametrize(
    ("asked", "nearest", "buttons"),
    [
        ({"h": 3}, (4, 64), False),  # 64 cannot be split into 3 heads: nobody can have it
        ({"h": 7, "d_model": 56}, (8, 64), True),
    ],
)
def test_without_a_model_of_a_size_the_nearest_is_shown(opened, eye, draws, english, asked, nearest, buttons):
    app = opened(**asked)
    h, d_model = nearest
    sizes = zip(("h", "d_model"), nearest, strict=True)
    shown = ", ".join(f"{name} {value}" for name, value in sizes if asked.get(name, 64) != value)
    wanted = {"architecture": "readable", "h": 4, "d_model": 64} | asked
    why = "indivisible" if wanted["d_model"] % wanted["h"] else "no_model"
    assert english(f"instead.{why}", taken=shown, **wanted) in page_text(app)
    assert eye(app)[0]["source"].startswith(f"small trained model, readable, h {h}, d_model {d_model}")
    draws(app, *(mha.trace(text, source="mini", h=h, d_model=d_model) for text in (TYPED, Scene.twin)))
    links = [link.proto.label for link in app.get("page_link")]
    assert (english("instead.train") in links) is buttons
    assert ("instead_random" in keys(app)) is buttons
    app.button(key="instead_sizes").click().run()
    assert (app.number_input(key="h").value, app.number_input(key="d_model").value) == nearest
    assert "instead_sizes" not in keys(app)
    if buttons:
        app = opened(**asked)
        app.button(key="instead_random").click().run()
        assert app.number_input(key="h").value == asked["h"]


def test_a_hidden_word_is_the_reason_why_no_decoder_reads_the_sentence(opened):
    said = page_text(opened(architecture="decoder", text="The [MASK] slept.", twin=""))
    assert "never read a hidden one" in said
    assert "was trained with" not in said  # there is such a decoder


def test_a_new_sentence_drops_the_chosen_words(opened, move, word):
    app = move(opened(), token="animal")
    app.text_area(key="text").set_value("The old theory was approved by the animal.")
    move(app, token="The", pins="animal")  # both in one message
    assert word(app) == "old"
    assert app.session_state.focus.pins == ""
    app = write(move(opened(), token="because", sentence=2), "The old theory was approved.")
    assert word(app) == "old"
    assert app.session_state.focus.sentence == 1


def test_a_word_that_was_chosen_stays_while_the_sentence_does(opened, move, word, tokens, eye):
    app = opened()
    for source, token in (("random", 8), ("mini", 9)):  # in whose tokens "it" has another place
        app.selectbox(key="shown_source").set_value(source).run()
        assert word(app) == tokens(app)[1][token - 1] == "it"
        assert eye(app)[0]["random"] is (source == "random")
    app = move(app, token="animal")
    app.number_input(key="h").set_value(8).run()
    assert word(app) == "animal"
    app.button(key="example_4").click().run()
    assert word(app) == "booked"  # named with the new sentence, which has a pronoun besides


def test_the_text_that_is_looked_at_is_shaded_and_a_click_on_either_goes_to_its_token(
    on_translation, translation, main_text, strip, choose
):
    app = on_translation("see/token.py")
    row, keys = translation.layers[1].weights(2)[5], translation.sides.keys
    looks, looked_at = strip(app), strip(app, 1)
    assert (looks["weights"], looks["chosen"], looked_at["query"]) == (None, 5, "dog")
    for shown, side in ((looks, translation.sides.queries), (looked_at, keys)):
        assert (shown["tokens"], shown["names"]) == ([*side.labels], [*names(side)])
    np.testing.assert_allclose(looked_at["weights"], row, rtol=1e-3)
    assert looked_at["chosen"] == row.argmax()
    assert f"**{keys.labels[row.argmax()]}** {row.max():.2f}" in main_text(app)
    app = choose(app, key_token=8)
    assert strip(app, 1)["chosen"] == 8
    assert "**Garten**" in main_text(app)
    app = choose(app, token=2)
    assert (strip(app)["chosen"], strip(app, 1)["chosen"]) == (2, 8)
    assert strip(on_translation("see/token.py", key_token=11), 1)["chosen"] == 10  # as a link says


def test_a_guess_at_a_hidden_word_is_never_stated_by_a_small_model(english):
    trace = mha.trace("The [MASK] saw it.", source="mini")
    trace = replace(trace, answers=(*trace.answers[:2], (("dog", 0.99),), *trace.answers[3:]))
    assert _told(in_words(trace)[2]) == [(english("answer.hidden"), UNSURE, "dog 99%")]


def test_a_causal_model_also_guesses_a_hidden_word(english):
    guess = (("cat", 0.5),)
    for settings, answers, kind in (
        ({"mask": "causal"}, (guess,) * 3, "next"),
        ({"mask": "causal"}, (None, None, guess), "next"),  # it was asked at one token alone
        ({"edits": [mha.edits.Mask(mask="causal")]}, (None, None, guess), "any"),
    ):
        trace = mha.trace("the old [MASK]", h=2, d_model=4, **settings)
        said = in_words(replace(trace, answers=answers))
        for word, answer, answers_here in zip(trace.tokens.labels, answers, said, strict=True):
            asked = english(f"answer.{kind}", query=word)
            assert _told(answers_here) == ([(asked, "cat 50%")] if answer else [])
