"""Lessons: nothing of the truth before the lock; then the answer, run beside the model's own; the link."""

import json
from dataclasses import replace

import numpy as np
import pytest
import streamlit as st

from mha_core import MhaError, resources
from mha_core.differences.check import check
from mha_core.focus.focus import Focus
from mha_core.lessons.item import Item, Locked
from mha_core.lessons.lesson import ANY, Lesson, shipped
from mha_core.lessons.question import KINDS, Cell, Choose, Draw, Point, scene_of
from pages.learn._lessons import library, place, reveal
from tests.differences.modules import solved
from tests.lessons.drill import right_answer
from tests.lessons.items import tracer
from tests.lessons.student import FIELDS, MORE_FIELDS
from tests.pages.conftest import codes

PAGE = "learn/lessons.py"
TIRED = "text=The animal didn't cross the street because it was too tired.&layer=2&head=1&token=it"
WIDE = TIRED.replace("tired", "wide")
# A screen of each kind, with a right answer and a wrong one.
SCREENS = {
    "point": (f'scene = "{TIRED}"', "3", "7"),
    "cell": (f'scene = "{TIRED}"', "9,3", "3,9"),
    "draw": (f'scene = "{TIRED}"', "3:95,7:5", "7:60,3:40"),
    "order": (f'scene = "{TIRED}&heads=1,4&key_token=animal"', "1,4", "4,1"),
    "choose": (f'scene = "{TIRED}"\nother = "{WIDE}"', None, None),
    "estimate": (f'scene = "{TIRED}&key_token=animal"', "0.97", "0.1"),
    "flip": (f'scene = "{TIRED}"', "cut,from=9,to=3", "cut,from=9,to=5"),
    "find": (
        f'scene = "{TIRED}"',
        "The animal didn't cross the street because it was too wide.",
        "It ~ rains.",
    ),
    "why": (f'scene = "{TIRED}"', "It is tired.", None),
}
FILE = 'minutes = 5\ntitle = "Nine kinds"\n' + "".join(
    f'[[screens]]\nkind = "{kind}"\n{scene}\nnotice = "Noticed *{kind}*."\nhints = ["Think."]\n'
    for kind, (scene, _, _) in SCREENS.items()
)
NUMBERS = {kind: number for number, kind in enumerate(SCREENS, start=1)}


@pytest.fixture
def lesson(opened_on, monkeypatch):
    """`lesson(2, answers="2-…")`: the screen of that number of our lesson, opened by a link."""
    monkeypatch.setattr(library, "lessons", lambda: {"nine": Lesson.read(FILE, "nine")})
    return lambda number=1, **link: opened_on(PAGE, lesson="nine", screen=number, twin="", **link)


@pytest.fixture
def act(click):
    """`act(app, do="lock", answer="3")`: what the browser sends when something is done on a screen."""
    return lambda app, key="lesson", **what: click(app, key, what, event="acted")


def told(component, app) -> list[str]:
    return ["".join(pieces) for pieces in component(app, "lesson_reveal")["sentences"]]


def link(app, name: str = "answers") -> str:
    """A field of the address of the page."""
    value = app.query_params[name]
    return value if isinstance(value, str) else value[0]


def drawn(app, key: str) -> bool:
    try:
        app.get_by_key(key)
    except KeyError:
        return False
    return True


def test_the_cards_are_those_of_all_lessons_and_open_them(opened_on, component, act):
    app = opened_on(PAGE)
    cards = component(app, "lesson_cards")["lessons"]
    assert [card["name"] for card in cards] == list(shipped())
    assert [card["count"] for card in cards] == [len(lesson.screens) for lesson in shipped().values()]
    assert all(card["title"] and card["goal"] for card in cards)
    app = act(app, "lesson_cards", name="heads")  # no page sends it
    app = act(app, "lesson_cards", do="open", name="heads", number=2, code="1-3")
    assert component(app, "lesson")["number"] == 2
    assert link(app) == "1-3"


@pytest.mark.parametrize(("content", "reason"), [("minutes = 5", "1 to 24 screens"), (None, "is missing")])
def test_a_wrong_file_of_the_server_is_named(content, reason, opened_on, component, monkeypatch, tmp_path):
    file = tmp_path / "mine.toml"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    monkeypatch.setenv(resources.LESSON, str(file))
    app = opened_on(PAGE)
    assert reason in app.error[0].value
    assert [card["name"] for card in component(app, "lesson_cards")["lessons"]] == list(shipped())


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("lesson_", shipped().values(), ids=lambda lesson: lesson.name)
def test_no_screen_asks_for_weights_that_an_answer_before_it_has_shown(lesson_, language):
    shown = {}  # a head's row of a scene, or its whole matrix, and on which screen
    for number, screen in enumerate(lesson_.screens, start=1):
        item = screen.item(language, tracer)
        question, of_question = item.question, [item]
        matrices = reveal.matrices_of(question)
        if isinstance(question, Point | Cell | Draw) or getattr(question, "quantity", "") == "weight":
            assert [shown[one] for one in (seen(item), seen(item)[:-1]) if one in shown] == [], number
        if isinstance(question, Choose):
            of_question = question.pictures(item)
        for one in of_question:
            if not matrices or screen.light:
                shown[seen(one)] = number
            elif "weights" in matrices:
                shown[seen(one)[:-1]] = number


def seen(item: Item) -> tuple:
    """Which weights an item is about: of which scene, layer, head and row."""
    return replace(item.scene, focus=Focus()).link(), *item.place


@pytest.mark.parametrize(
    ("lesson_", "screen", "answer", "matrices", "own"),
    [
        ("several-heads", 3, "1", None, "In your picture the weight of it on "),  # of tired and wide
        ("several-heads", 4, "1,2,4", None, "By entropy (spread), the order is head 2 ("),
        ("query-key-value", 1, "32", ["q", "k"], "Each query and each key of this head has 8 numbers."),
        (
            "query-key-value",
            3,
            "1",
            ["scaled"],
            "The score of swim and Fish is 1.179. The products are (−0.07) + ",
        ),
        ("one-number", 3, "1", ["output"], "Weight times value, word by word: "),
        ("one-output", 2, "1", ["concat", "result"], "Product by product: "),
        ("what-is-kept", 1, "64", ["k", "v"], "This layer keeps 128 numbers of each token."),
    ],
)
def test_what_the_model_says_is_said_and_shown_where_the_question_looks(
    lesson_, screen, answer, matrices, own, opened_on, component, act
):
    app = act(opened_on(PAGE, lesson=lesson_, screen=screen), do="lock", answer=answer)
    yours, models = told(component, app)
    assert models.startswith(own)
    assert ("belongs to this sentence" in yours) == (own == "In your picture the weight of it on ")
    if matrices is not None:
        assert [one["name"] for one in component(app, "lesson_view")["matrices"]] == matrices
        app = opened_on(PAGE, lesson=lesson_, screen=screen, projector=1)
        assert component(act(app, do="lock", answer=answer), "lesson_reveal")["sides"] == []


def test_every_kind_of_question_has_a_screen_here():
    assert set(SCREENS) == set(KINDS)


# What is said of the wrong answer, or of the only one, and of the model's own.
TOLD = {
    "point": (
        "You pointed at street. With all the weight there, asked",
        "The model's own row gives animal 0.",
    ),
    "cell": ("You pointed at the cell where animal looks at it.", "The row of it has its largest weight, 0."),
    "draw": ("You gave street 60%, animal 40%. With your row, asked", "The model's own row gives animal 0."),
    "order": ("Your order is head 4", "By weight, the order is head 1 ("),
    "choose": ("You chose picture ", "In your picture the weight of it on "),
    "estimate": ("You said 0.1. With that weight on animal, asked", "The model's own weight on animal is 0."),
    "flip": ("You blocked it from seeing cross. Then asked", "Without the change, the model says animal ("),
    "find": (
        "Your sentence has no it, so there is nothing",
        "In the lesson's sentence the model says animal (",
    ),
    "why": ("You wrote: “It is tired.”", "The model's own row gives animal 0."),
}


@pytest.mark.parametrize("kind", SCREENS)
def test_nothing_of_the_truth_is_told_before_the_lock_and_then_the_answer_is_run_and_in_the_link(
    kind, lesson, component, act, english, draws, heatmaps
):
    right, wrong = SCREENS[kind][1:]
    before = lesson(NUMBERS[kind])
    data = component(before, "lesson")
    assert set(data["question"]) == FIELDS | MORE_FIELDS.get(kind, set())
    assert data["question"]["query"] == (None if kind == "cell" else 8)
    assert "answer" not in data
    assert "Noticed" not in json.dumps(data)
    assert not drawn(before, "lesson_view")
    assert not drawn(before, "lesson_reveal")
    item = Lesson.read(FILE).screens[NUMBERS[kind] - 1].item("en", tracer)
    if kind == "choose":
        right = item.key.answers[0]
        wrong = "2" if right == "1" else "1"
    marks = {right: "lessons.right", wrong: "lessons.other"}
    for app, answer in ((before, right), (lesson(NUMBERS[kind]), wrong or right)):
        app = act(app, do="lock", answer=answer)
        assert place.read_answers(link(app)) == {NUMBERS[kind]: (answer, "en")}
        reveal = component(app, "lesson_reveal")
        assert reveal["mark"] == ("" if kind == "why" else english(marks[answer]))
        assert reveal["notice"] == f"Noticed *{kind}*."
        run = item.run(answer)
        traces = [one for one in (run.executed, run.own) if one is not None]
        if kind in ("cell", "choose"):
            if kind == "choose":
                traces = [one.trace for one in item.question.pictures(item)]
            matrices = heatmaps(app, "lesson_view-weights").values()
            for matrix, trace in zip(matrices, traces, strict=True):
                np.testing.assert_allclose(matrix["values"], trace.layers[1].weights(0), atol=1e-5)
        else:
            draws(app, *traces, key="lesson_view")
    yours, own = told(component, app)
    assert (yours.startswith(TOLD[kind][0]), own.startswith(TOLD[kind][1])) == (True, True)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("The dog didn't cross the street because it was too tired.", "still in the same place"),
        ("The animal didn't cross the road because it was too tired.", "still in the same place"),
        (
            "The dog didn't cross the street because it was too wide.",
            "You changed 2 words; the question allows one.",
        ),
    ],
)
def test_a_found_sentence_that_does_not_move_the_answer_or_changes_two_words_is_told_so(
    answer, said, lesson, component, act
):
    app = act(lesson(NUMBERS["find"]), do="lock", answer=answer)
    assert said in told(component, app)[0]
    assert not component(app, "lesson_reveal")["right"]


def test_a_worksheet_has_every_question_without_its_answer_and_the_key(opened_on, component):
    app = opened_on(PAGE, lesson="query-key-value", worksheet=1)
    sheet = component(app, "lesson_worksheet")
    told = [(one["question"]["kind"], one["answer"]) for one in sheet["screens"]]
    assert told[:4] == [("estimate", "8"), ("point", "wall"), ("estimate", "1.179"), ("choose", "Picture 2")]
    assert told[5:] == [("order", "head 3, head 1, head 2"), ("why", "")]
    assert sheet["screens"][2]["question"]["given"]["rows"][0]["values"] == [
        "−0.17",
        "−0.31",
        "−1.11",
        "0.74",
    ]
    app = opened_on(PAGE, lesson="query-key-value", worksheet=1, lang="zh")
    assert component(app, "lesson_worksheet")["screens"][1]["answer"] == "作业"


def test_the_editor_joins_and_copies_screens_and_writes_two_languages(opened_on):
    app = opened_on(PAGE, lesson="make")
    for name, numbers in (("several-heads", [1, 2]), ("heads", [4])):
        app.selectbox(key="copy_lesson").select(name).run()
        app.button_group(key=f"copy_screens_{name}").set_value(numbers).run()
        app.button(key="copy_add").click().run()
    app.button(key="draft_0_en_again_0").click().run()
    made = app.session_state[library.DRAFT]
    assert [one.question.kind for one in made.screens] == ["estimate", "estimate", "point", "cell"]
    assert [one.ask.keys() for one in made.screens] == [{"en", "zh"}] * 4
    assert made.title == shipped()["several-heads"].title
    app.text_input(key="draft_1_en_title").input("Two lessons").run()
    app.selectbox(key="draft_1_en_head_3").select(3).run()
    made = app.session_state[library.DRAFT]
    assert made.title == {"en": "Two lessons", "zh": shipped()["several-heads"].title["zh"]}
    assert [scene_of(link).focus.head for link in made.screens[3].scenes.values()] == [3, 3]
    app.checkbox(key="draft_1_en_both").uncheck().run()
    made = app.session_state[library.DRAFT]
    assert (made.title, made.screens[0].scenes.keys()) == ({ANY: "Two lessons"}, {ANY})


def test_the_editor_brings_back_the_language_that_it_put_aside(opened_on):
    app = opened_on(PAGE, lesson="make")
    app.selectbox(key="copy_lesson").select("heads").run()
    app.button(key="copy_add").click().run()
    both = app.session_state[library.DRAFT]
    app.checkbox(key="draft_0_en_both").uncheck().run()
    app.checkbox(key="draft_0_en_both").check().run()
    assert app.session_state[library.DRAFT] == both
    app.checkbox(key="draft_0_en_both").uncheck().run()
    app.text_input(key="draft_0_en_title").input("Mine").run()
    app.button(key="draft_0_en_remove_0").click().run()
    app.selectbox(key="draft_1_en_head_0").select(4).run()
    app.button(key="draft_add").click().run()
    app.button(key="draft_1_en_down_0").click().run()
    app.checkbox(key="draft_2_en_both").check().run()
    made = app.session_state[library.DRAFT]
    assert made.title == {"en": "Mine", "zh": both.title["zh"]}
    assert [one.ask.get("zh") for one in made.screens] == [
        both.screens[at].ask["zh"] for at in (2, 1, *range(3, len(both.screens)))
    ] + [None]
    was, now = (scene_of(one.scenes["zh"]) for one in (both.screens[1], made.screens[1]))
    assert now == replace(was, focus=replace(was.focus, head=4))


def test_the_editor_keeps_a_title_without_a_question_through_a_reload(opened_on):
    app = opened_on(PAGE, lesson="make")
    app.text_input(key="draft_0_en_title").input("Mine").run()
    kept = link(app, library.FILE)
    app = opened_on(PAGE, lesson="make", lesson_file=kept)
    assert app.text_input(key="draft_0_en_title").value == "Mine"
    assert drawn(opened_on(PAGE, lesson=library.OWN, lesson_file=kept), "lesson_cards")  # no lesson yet


def test_the_editor_keeps_every_hint_that_is_typed_and_no_other(opened_on):
    def hints(*typed: tuple[int, str]):
        app = opened_on(PAGE, lesson="make")
        app.button(key="draft_add").click().run()
        for nth, text in typed:
            app.text_input(key=f"draft_0_en_hint_0_{nth}").input(text).run()
        return app.session_state[library.DRAFT].screens[0].hints

    assert hints((1, "second"), (0, "first")) == {ANY: ("first", "second")}
    assert hints((0, "first"), (1, "second"), (0, ""), (1, "other")) == {ANY: ("other",)}


def test_the_link_of_the_editor_opens_on_other_machines_or_says_that_it_does_not(
    opened_on, monkeypatch, english
):
    monkeypatch.setattr(place, "page_address", lambda: "http://localhost:8501/lessons")
    told = {"192.0.2.7": english("editor.link"), "127.0.0.1": english("editor.link_here")}
    for address, caption in told.items():
        monkeypatch.setattr(resources, "address", lambda address=address: address)
        app = opened_on(PAGE, lesson="make")
        app.button(key="draft_add").click().run()
        assert codes(app)[-1].startswith(f"http://{address}:8501/lessons?lesson=own&")
        assert caption in [one.value for one in app.caption]


def test_the_editor_does_not_say_that_a_reason_is_run(opened_on, english):
    app = opened_on(PAGE, lesson="make")
    app.button(key="draft_add").click().run()
    said = []
    for kind in ("find", "why"):
        app.selectbox(key="draft_0_en_kind_0").select(kind).run()
        said.append([one.value for one in app.caption if one.value.startswith("This question works")])
    assert said == [[english("editor.clear")], [english("editor.clear_why")]]


def test_in_the_editor_whatever_cannot_be_asked_can_be_mended(opened_on):
    app = opened_on(PAGE, lesson="make")
    app.button(key="draft_add").click().run()
    app.text_area(key="draft_0_en_ask_0").input("Where?").run()
    app.text_input(key="draft_0_en_text_0").input("word " * 64).run()
    assert "up to 63" in app.error[0].value
    app.text_input(key="draft_0_en_text_0").input(f"{'a' * 2000} cat").run()
    assert "at most 2,000" in app.error[0].value.replace("\\", "")
    assert not drawn(app, "draft_try")
    app.text_input(key="draft_0_en_text_0").input("A dog barks.").run()
    assert (len(app.error), app.text_area(key="draft_0_en_ask_0").value) == (0, "Where?")
    file = 'minutes = 5\n[[screens]]\nkind = "point"\nscene = "text=How are you?&layer=9&token=you"\n'
    app = opened_on(PAGE, lesson="make", lesson_file=library.code(Lesson.read(file)))
    app.selectbox(key="draft_0_en_kind_0").select("order").run()
    assert "2 layers of 4 heads" in app.warning[0].value


def test_what_is_no_answer_is_said_and_is_not_locked(lesson, component, act):
    app = act(lesson(NUMBERS["draw"]), do="lock", answer="3:60")
    assert "sum to 100" in component(app, "lesson")["problem"]
    assert "answers" not in app.query_params
    app = lesson(NUMBERS["point"], answers="1-99~2-9,3")
    assert "from 1 to 13; got" in component(app, "lesson")["problem"]
    assert not drawn(app, "lesson_reveal")
    app = act(app, do="go", number=2)
    assert component(app, "lesson_reveal")["right"]  # the other answer of the link holds


def test_hints_come_when_they_are_asked_for_and_the_last_one_is_another_sentence(lesson, component, act):
    app = lesson(NUMBERS["point"])
    assert component(app, "lesson")["hints"] == []
    app = act(app, do="hint")
    assert component(app, "lesson")["hints"] == [{"text": "Think."}]
    app = act(app, do="hint")
    data = component(app, "lesson")
    assert "animal" not in "".join(data["hints"][1]["pieces"])
    assert not data["more_hints"]
    app = act(act(app, do="go", number=2), do="go", number=1)
    assert component(app, "lesson")["hints"] == []


def test_a_like_case_asks_of_another_sentence_and_does_not_count(lesson, component, act, english):
    app = act(act(lesson(NUMBERS["point"]), do="lock", answer="7"), "lesson_reveal", do="like")
    data = component(app, "lesson")
    assert data["like"] == 1
    assert link(app, "like") == "1"  # it is there after a reload, too
    again = lesson(NUMBERS["point"], like=1, answers="1-7")
    assert component(again, "lesson")["question"] == data["question"]
    assert "animal" not in data["question"]["words"]
    assert f"“{data['question']['queries'][data['question']['query']]}”" in data["ask"]
    app = act(app, do="lock", answer="1")
    assert component(app, "lesson_reveal")["like"]
    assert link(app) == "1.en-7"
    assert link(app, "like") == "1-1"  # so is its answer
    again = lesson(NUMBERS["point"], like="1-1", answers="1-7")
    assert told(component, again) == told(component, app)
    again = act(again, "lesson_reveal", do="again")
    assert component(again, "lesson")["like"] == 1
    assert not drawn(again, "lesson_reveal")
    app = act(app, "lesson_reveal", do="back")
    assert told(component, app)[0].startswith("You pointed at street.")
    app = act(app, "lesson_reveal", do="again")
    assert "answers" not in app.query_params
    for kind in ("choose", "why"):
        app = lesson(NUMBERS[kind], answers=f"{NUMBERS[kind]}-1")
        assert component(app, "lesson_reveal")["texts"]["like"] == ""
        assert not component(lesson(NUMBERS[kind], like=1), "lesson")["like"]
        app = act(app, "lesson_reveal", do="like")
        assert component(app, "lesson")["problem"] == english("lessons.no_like")


@pytest.mark.parametrize(
    ("link", "reason"),
    [
        (f"{TIRED}&edits=temperature,layer=2,by=1000", "is nearly even"),
        ("text=A cat&source=model&model=no/such&token=cat", "no/such is not on this machine"),
    ],
)
def test_a_question_that_cannot_be_asked_is_named(link, reason, opened_on, component, monkeypatch, act):
    first = f'minutes = 5\n[[screens]]\nkind = "draw"\nscene = "{link}"\n'
    read = Lesson.read(first + FILE.partition('"\n')[2], "other")
    monkeypatch.setattr(library, "lessons", lambda: {"other": read})
    app = opened_on(PAGE, lesson="other")
    assert reason in component(app, "lesson")["refusal"]
    app = act(app, do="go", number=2)
    assert component(app, "lesson")["question"]["kind"] == "point"


@pytest.mark.parametrize(
    ("code", "heading", "can"),
    [
        ("1-3", "“What is a head?”: 1 of 7 answered", "After this lesson"),
        ("~".join(f"{at}-3" for at in range(1, 8)), "“What is a head?” is done", "What you can do now"),
    ],
)
def test_the_end_claims_what_was_done(code, heading, can, opened_on, component):
    data = component(opened_on(PAGE, lesson="heads", screen=8, answers=code), "lesson_end")
    assert (data["heading"], data["can"]) == (heading, [can, shipped()["heads"].goal["en"]])


def test_the_end_says_where_to_look_around(opened_on, component):
    count = len(shipped()["heads"].screens)
    app = opened_on(PAGE, lesson="heads", screen=count + 1, answers="1-3")
    data = component(app, "lesson_end")
    assert [one["answered"] for one in data["screens"]] == [True] + [False] * (count - 1)
    assert (data["screens"][0]["own"], data["screens"][0]["right"]) == ("You said: truck", True)
    assert data["screens"][1]["own"] == "No answer yet."
    assert "answers=1-3" in codes(app)[0]
    assert all(len(one["links"]) == 2 for one in data["screens"])
    assert data["then"]["name"] == [*shipped()][1]


@pytest.mark.parametrize(
    "texts", [{1: "3", 2: "3:60,7:40"}, {3: "a ~ b % c-d", 12: "cut,from=9,to=3"}, {7: "因为它累了。"}, {}]
)
@pytest.mark.parametrize("language", ["zh", ""])
def test_answers_are_read_as_they_were_written(texts, language):
    locked = {number: Locked(text, language) for number, text in texts.items()}
    assert place.read_answers(place.write_answers(locked)) == locked


def test_a_code_has_bounds_and_what_is_none_is_left_out():
    long = dict.fromkeys(range(1, 25), Locked("why " * 150, "en"))
    assert len(place.write_answers(long)) <= 10_000
    assert len(place.read_answers(place.write_answers(long))) > 10
    assert place.read_answers("x~1~-3~0-2~2-~ 3-4~1.e-2~5-6") == {5: ("6", "")}


def test_a_locked_answer_keeps_its_sentence_in_another_language(opened_on, component, english, act):
    app = opened_on(PAGE, lesson="heads", answers="1.zh-2", lang="en")
    data = component(app, "lesson")
    assert (data["question"]["words"][1], "**它**" in data["ask"]) == ("卡车", True)
    assert component(app, "lesson_reveal")["mark"] == english("lessons.right")
    app = act(app, do="go", number=2)
    assert component(app, "lesson")["question"]["words"][1] == "The"
    assert link(act(app, do="lock", answer="7")) == "1.zh-2~2.en-7"


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_of_each_kind_is_judged_on_the_sentence_that_it_was_given_on(kind, opened_on, component):
    name, number, screen = next(
        (lesson.name, number, screen)
        for lesson in shipped().values()
        for number, screen in enumerate(lesson.screens, start=1)
        if screen.question.kind == kind
    )
    item = screen.item("zh", tracer)
    answer = right_answer(item, "zh")
    app = opened_on(PAGE, lesson=name, screen=number, answers=f"{number}.zh-{answer}", lang="en")
    assert component(app, "lesson")["question"]["words"] == list(item.words)
    marks = {True: "Right", None: ""}
    assert component(app, "lesson_reveal")["mark"].startswith(marks[item.is_right(answer)])


@pytest.mark.parametrize(
    ("screen", "answer", "reason"),
    [
        (5, "10", "it cannot see sweet: it comes later."),
        (6, "0.5", "it cannot see hammer: the mask hides it."),
    ],
)
def test_a_word_that_the_mask_hides_is_named_as_the_reason(screen, answer, reason, opened_on, component):
    app = opened_on(PAGE, lesson="order-and-masks", screen=screen, answers=f"{screen}.en-{answer}")
    assert reason in told(component, app)[0].replace("\u2068", "").replace("\u2069", "")


def test_the_exercise_to_download_is_one_that_the_command_beside_it_checks(opened_on, monkeypatch, tmp_path):
    offered = {}
    monkeypatch.setattr(
        st, "download_button", lambda _, data, **of: offered.update({of["file_name"]: data()})
    )
    app = opened_on(PAGE)
    [(name, data)] = offered.items()
    assert any(f"`headscope check {name}`" in text.value for text in app.main.markdown)
    file = tmp_path / name
    file.write_bytes(data)
    with pytest.raises(MhaError, match="NotImplementedError"):
        check(file)
    file.write_text(solved(data.decode()), encoding="utf-8")
    assert check(file).equal
