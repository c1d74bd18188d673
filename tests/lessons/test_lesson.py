"""Lesson files: what they say, what is wrong in them and on which line, and the lessons that are shipped."""

import random
import re
import string
from collections import Counter
from dataclasses import replace

import pytest

from mha_core import resources
from mha_core.lessons import lesson as lessons
from mha_core.lessons.lesson import ANY, MAX_WORDS, Lesson, LessonError, in_language, shipped
from mha_core.lessons.question import KINDS, Flip, Why
from mha_core.scene.scene import EXAMPLES
from mha_core.training.checkpoints import manifest
from tests.house.test_texts import faults_of_style
from tests.lessons.items import tracer

SCENE = 'scene = "text=How are you?&source=random&layer=1&token=are"'
ONE = f'minutes = 5\n[[screens]]\nkind = "point"\n{SCENE}\n'
MAX_CHARACTERS = 80  # of a Chinese one
HAN = re.compile(r"[\u4e00-\u9fff]")


def test_a_lesson_of_its_own_needs_four_lines():
    lesson = Lesson.read(ONE, "greeting")
    assert (lesson.name, lesson.minutes, len(lesson.screens)) == ("greeting", 5, 1)
    item = lesson.screens[0].item("en")
    assert item.words == ("How", "are", "you", "?")


def test_a_language_has_its_own_texts_and_scenes_and_else_those_for_all_or_english():
    text = ONE + 'ask.en = "Where?"\nask.zh = "哪里？"\nnotice = "Look."\n'
    screen = Lesson.read(text).screens[0]
    assert [in_language(screen.ask, one) for one in ("zh", "en", "fr")] == ["哪里？", "Where?", "Where?"]
    assert in_language(screen.notice, "zh") == "Look."
    assert in_language(screen.hints, "zh") == ""


# What is wrong in a file, the line that is named, and words of the message.
WRONG = {
    "not TOML": ("minutes = 5\nx = = 2", 2, "TOML"),
    "no screens": ("minutes = 5", 1, "1 to 24 screens"),
    "too many screens": ("minutes = 5\n" + "[[screens]]\n" * 25, 1, "1 to 24 screens"),
    "screens of another type": ("minutes = 5\nscreens = [1]", 2, "1 to 24 screens"),
    "no minutes": (ONE.replace("minutes = 5\n", ""), 1, "minutes"),
    "minutes in words": (ONE.replace("5", '"five"'), 1, "minutes"),
    "a true number of minutes": (ONE.replace("5", "true"), 1, "minutes"),
    "an unknown field": (ONE + "colour = 1", 5, "colour"),
    "an unknown field of the lesson": ("points = 3\n" + ONE, 1, "points"),
    "an unknown kind": (ONE.replace("point", "quiz"), 3, "quiz"),
    "a kind that is a table": (ONE.replace('kind = "point"', "kind = {}"), 3, "kind"),
    "no scene": (ONE.replace(SCENE, ""), 3, "scene"),
    "a scene with a value that cannot be": (ONE.replace("layer=1", "h=9999"), 4, "h='9999'"),
    "a scene that only this app has": (ONE.replace("source=random", "source=run"), 4, "run"),
    "a scene with words exchanged": (ONE.replace("layer=1", "edits=swap,from=1,to=2"), 4, "order"),
    "a setting that there is not": (ONE + 'by = "weight"', 5, "by"),
    "a setting with a wrong value": (ONE.replace('"point"', '"order"') + 'by = "size"', 5, "size"),
    "a setting of the wrong type": (ONE.replace('"point"', '"order"') + "by = [1]", 5, "by"),
    "changes that there are not": (ONE.replace('"point"', '"flip"') + 'changes = ["swap"]', 5, "swap"),
    "changes that are a number": (ONE.replace('"point"', '"flip"') + "changes = 3", 5, "changes"),
    "no second picture": (ONE.replace('"point"', '"choose"'), 3, "other"),
    "a text that is none": (ONE + "ask = 3", 5, "ask"),
    "a blank text": (ONE + 'ask = "  "', 5, "ask"),
    "a text that is too long": (ONE + f'ask = "{"x" * 601}"', 5, "600"),
    "three hints": (ONE + 'hints = ["a", "b", "c"]', 5, "hints"),
    "hints that are a text": (ONE + 'hints = "a"', 5, "hints"),
    "a language that is none": (ONE + 'ask."<b>" = "a"', 5, "<b>"),
    "light that is a text": (ONE + 'light = "yes"', 5, "light"),
    "the second of two screens": (ONE + f'[[screens]]\nkind = "cell"\n{SCENE}\nask = 1', 8, "ask"),
    "too many bytes": (ONE + "#" * 64_000, 1, "64,000 bytes"),
    "deep nesting": ("x = " + "[" * 5_000, 1, "TOML"),
    "a number of many digits": (f"minutes = {'9' * 5_000}", 1, ""),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_in_a_file_is_named_with_its_line(name):
    text, line, words = WRONG[name]
    with pytest.raises(LessonError) as refusal:
        Lesson.read(text)
    first = refusal.value.problems[0]
    assert first.line == line
    assert words in str(first.message)
    assert f"line {line}: " in str(refusal.value)


def test_a_file_of_another_editor_is_read_or_refused_with_the_reason(tmp_path):
    text = ONE.replace("[[", 'title = "Déjà vu"\n[[', 1)
    file = tmp_path / "lesson.toml"
    file.write_text(text, encoding="utf-8-sig")  # as Notepad writes it
    assert Lesson.open(file).title == {ANY: "Déjà vu"}
    file.write_text(text, encoding="latin-1")
    with pytest.raises(LessonError, match="line 2: A lesson is a text file in UTF-8"):
        Lesson.open(file)


def test_all_that_is_wrong_is_named_at_once():
    text = ONE.replace("5", "0").replace("point", "quiz") + f'[[screens]]\nkind = "cell"\n{SCENE}\nask = 1'
    with pytest.raises(LessonError) as refusal:
        Lesson.read(text)
    assert [one.line for one in refusal.value.problems] == [1, 3, 8]


def test_no_file_of_a_stranger_gives_anything_but_a_lesson_or_its_problems():
    rng, whole = random.Random(0), next(iter(shipped().values())).write()
    for _ in range(300):
        text = list(whole[: rng.randrange(len(whole))] if rng.random() < 0.3 else whole)
        for _ in range(rng.randrange(1, 8)):
            at = rng.randrange(len(text) + 1)
            text[at : at + rng.randrange(12)] = rng.choice(
                ["", "\0", "\u202e", "=", '"', "[", "\n", "9" * 20, "{"]
            )
        try:
            lesson = Lesson.read("".join(text))
        except LessonError:
            continue
        else:
            assert Lesson.read(lesson.write(), lesson.name) == lesson


NASTY = string.printable.strip() + '注意力"\\\u007f\u0001é'


@pytest.mark.parametrize("lesson", shipped().values(), ids=lambda lesson: lesson.name)
def test_a_written_lesson_is_read_as_it_was(lesson):
    words, hints = {ANY: NASTY}, {"zh": (NASTY, "x")}
    screens = (replace(one, ask=words, hints=hints, notice={}, light=not one.light) for one in lesson.screens)
    lesson = replace(lesson, screens=tuple(screens), goal=words, title={"en": NASTY, "zh": "x"}, paper={})
    assert Lesson.read(lesson.write(), lesson.name) == lesson


@pytest.mark.parametrize("name", shipped())
@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_question_of_a_shipped_lesson_is_ambiguous(name, language):
    assert shipped()[name].check(language, tracer) == ()


@pytest.mark.parametrize("lesson", shipped().values(), ids=lambda lesson: lesson.name)
def test_a_shipped_lesson_says_everything_in_both_languages_in_few_words_and_in_our_style(lesson):
    for words in (lesson.title, lesson.goal, lesson.paper):
        assert words.keys() == {"en", "zh"}
    for screen in lesson.screens:
        assert screen.ask.keys() == screen.notice.keys() == screen.hints.keys() == {"en", "zh"}
        assert len(screen.ask["en"].split()) <= MAX_WORDS
        assert len(HAN.findall(screen.ask["zh"])) <= MAX_CHARACTERS
        assert {len(hints) for hints in screen.hints.values()} == {2}
    assert len({screen.question.kind for screen in lesson.screens}) >= 4
    assert isinstance(lesson.screens[-1].question, Why)
    assert 5 <= lesson.minutes <= 10
    texts = [lesson.title, lesson.goal, lesson.paper]
    for screen in lesson.screens:
        texts += [screen.ask, screen.notice, *({"zh": hint} for hint in screen.hints["zh"])]
    plain = (words["zh"].replace("*", "") for words in texts)
    assert {words: rules for words in plain if (rules := faults_of_style(words))} == {}


def test_a_screen_whose_scene_is_gone_is_named_and_the_others_go_on():
    gone = 'scene = "text=How are you?&source=model&model=nobody/nowhere&token=are"'
    text = ONE + f'[[screens]]\nkind = "point"\n{gone}'
    lesson = Lesson.read(text)
    ((number, error),) = lesson.check("en")
    assert number == 2
    assert "nobody/nowhere" in str(error)


# The teacher's page

READMES = {"en": resources.path("assets", "lessons", "README.md")}
READMES["zh"] = READMES["en"].with_name("README.zh.md")


@pytest.mark.parametrize("language", READMES)
def test_the_teachers_page_has_a_whole_lesson_and_names_all_lessons_kinds_and_settings(language):
    page = READMES[language].read_text(encoding="utf-8")
    (block,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    lesson = Lesson.read(block)
    assert lesson.check(language, tracer) == ()
    for words in (lesson.title, lesson.goal, lesson.paper, lesson.screens[0].ask, lesson.screens[0].hints):
        assert words.keys() == {ANY}
    for lesson in shipped().values():
        assert f"| {lesson.title[language]} | {lesson.minutes} |" in page
    for kind, question in KINDS.items():
        assert f"| `{kind}` |" in page
        for setting in lessons.settings_of(question):
            assert f"`{setting} = " in page


SHARES = {
    "en": (201, 83),
    "zh": (192, 81),
}  # questions about sentences written by hand, and right ones in a hundred


def test_the_shipped_lessons_use_many_sentences_and_pose_no_task_twice():
    for language in ("en", "zh"):
        items = [one.item(language, tracer) for lesson in shipped().values() for one in lesson.screens]
        asked = [one for one in items if not isinstance(one.question, Why)]
        assert max(Counter(one.scene.text for one in items).values()) <= 15
        tasks = Counter((one.question, one.scene.link()) for one in asked)
        assert max(tasks.values()) == 1
        examples = {one["text"] for ones in EXAMPLES.values() for one in ones}
        shown = [one for one in asked if one.scene.text in examples and plain_model(one.scene)]
        assert [one.scene.text for one in shown] == []  # the page Heads has these rows one click away


def plain_model(scene):
    """Whether the page Heads shows the scene's model when one of its examples is chosen."""
    settings = scene.source, scene.architecture, scene.h, scene.d_model, scene.edits
    return settings == ("mini", "glass-box", 4, 64, "")


def words_said(name: str, number: int, answers: list[str]) -> Counter:
    """What the model says with each of these answers to a screen of a lesson."""
    item = shipped()[name].screens[number - 1].item("en", tracer)
    return Counter(item.answer_in(item.run(one).executed)[0][0] for one in answers)


def test_what_the_teachers_page_says_of_wrong_answers_is_so():
    every = [str(at) for at in range(1, 14)]
    assert words_said("heads", 1, every) == {"[CLS]": 10, "truck": 1, "bridge": 2}
    said = words_said("heads", 3, every)  # "the" is there twice
    assert len(said) == 12
    assert words_said("does-a-weight-decide", 1, ["0", "0.1", "0.2", "0.3"]) == {"rabbit": 4}
    assert words_said("does-a-weight-decide", 1, ["0.4", "0.7", "1"]) == {"fox": 3}
    for language, share in SHARES.items():
        scores = manifest()[f"glass-box-{language}-h4-d64"]["scores"]["written"]
        assert (scores["asked"], round(100 * scores["right"])) == share
        page = READMES[language].read_text(encoding="utf-8")
        assert all(f"{share[1]}%" in page and str(share[0]) in page for share in SHARES.values())
    standard = shipped()["does-a-weight-decide"].screens[3].item("en", tracer)
    cuts = [f"cut,from={standard.place[2] + 1},to={at}" for at in every]
    offs = [f"off,layer={layer},head={head}" for layer in (1, 2) for head in range(1, 5)]
    both = replace(standard, question=Flip())
    assert {both.answer_in(both.run(cut).executed)[0][0] for cut in cuts} == {"animal"}
    assert [standard.is_right(off) for off in offs].count(True) == 1
    many = shipped()["does-a-weight-decide"].screens[4].item("en", tracer)
    assert len(many.key.answers) == 1
