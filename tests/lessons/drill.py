"""`python -m tests.lessons.drill`: every screen of the shipped lessons, answered in a real browser.

Each screen is answered wrong and then right. Before the first lock nothing of the truth may be on the page
or have come to it. After each lock there are two sentences, the right mark and a drawing; what they say is
in tests/pages/test_lessons.py. A lesson ends at its ending. Printed are, of each lesson, the acts of somebody
who is right at once, the most words before an act, and whatever failed; the last lines are JSON objects.

    python -m tests.lessons.drill heads --language zh --by keys --width 390
"""

import argparse
import json
import re
from typing import NamedTuple

import torch
from playwright.sync_api import Error

from mha_core.errors import MhaError
from mha_core.lessons.item import Item
from mha_core.lessons.lesson import Lesson, Screen, in_language, shipped
from mha_core.lessons.question import Cell, Draw, Estimate, Find, Flip, Order, Why
from mha_core.scene import changes
from tests.bench import chromium
from tests.lessons.items import tracer
from tests.lessons.student import Student

PATIENCE = 60_000  # milliseconds for what is expected on a page
HEIGHTS = {1440: 900, 390: 844}  # of a screen, by its width
MAX_WORDS = {"en": 40, "zh": 80}  # on a screen before the first act; in Chinese characters
LEAST_ACTS = 2  # a minute
REASON = {"en": "Because of the words around it.", "zh": "因为它周围的词。"}
HAN = re.compile(r"[\u4e00-\u9fff]")
# What is to be read on a screen before the act, but for the words of the sentence.
BEFORE = ".st-key-lesson :is(.ask, .act h2, .act p, .act .note, .hints)"


class Drilled(NamedTuple):
    """What came of one lesson."""

    lesson: Lesson
    language: str
    acts: int  # of somebody who is right at once
    words: int  # the most on a screen before the act
    answered: int  # answers that were locked
    failures: list[str]


def drill(student: Student, lesson: Lesson, language: str) -> Drilled:
    """Answer each screen of a lesson, and look at its ending."""
    failures, acts, words, answered, is_open = [], 0, 0, 0, False
    for number, screen in enumerate(lesson.screens, start=1):
        try:
            if not is_open:
                student.open(f"{lesson.name}&screen={number}&lang={language}")
            item = screen.item(language, tracer)
            words = max(words, _words(student, language))
            right = right_answer(item, language)
            for nth, answer in enumerate([*wrong_answers(item), right]):
                if nth:
                    student.again()
                before = student.acts
                given = student.answer(item, answer)
                if nth == 0:
                    notice = in_language(screen.notice, language)
                    failures += [f"{number}: before the lock: {one}" for one in student.leaks(item, notice)]
                student.lock()
                answered += 1
                found = faults(student, screen, item, given, is_right=answer == right)
                failures += [f"{number} {answer}: {one}" for one in found]
                last = student.acts - before
            student.go_on()
            acts += last + 1
            is_open = True
        except (Error, AssertionError, MhaError) as error:
            failures.append(f"{number}: {str(error).strip()[:300]}")
            is_open = False
    if is_open:
        failures += [f"the end: {one}" for one in _faults_of_end(student, lesson, language)]
    return Drilled(lesson, language, acts, words, answered, failures)


def _words(student: Student, language: str) -> int:
    """How many words stand on a screen before the act, besides the sentence."""
    text = " ".join(student.page.locator(BEFORE).all_inner_texts())
    return len(HAN.findall(text)) if language == "zh" else len(text.split())


def wrong_answers(item: Item) -> list[str]:
    """An answer that is not right: a usual mistake, if there is one; none to what is not scored."""
    match item.question:
        case Why():
            return []
        case Find():
            tried = (one for one in item.question.sentences(item) if one != item.scene.text)
        case Cell():  # row and column exchanged, or the diagonal
            row, column = item.key.answers[0].split(",")
            tried = iter([f"{column},{row}", f"{row},{row}"])
        case Draw():
            tried = iter([f"{int(item.row.argmin()) + 1}:100"])
        case Order():
            heads = [*map(str, item.question.heads(item))]
            tried = iter([",".join(heads), ",".join(reversed(heads))])
        case Estimate():
            low, high = item.question.line(item)
            tried = map(str, ((low + high) / 2, high))
        case Flip():
            tried = map(changes.text, item.question.candidates(item))
        case _:
            tried = map(str, range(1, len(item.words) + 1))
    return [next(one for one in tried if item.is_right(one) is False)]


def right_answer(item: Item, language: str) -> str:
    if isinstance(item.question, Why):
        return REASON[language]
    if isinstance(item.question, Find):
        return next(one for one in item.question.sentences(item) if item.is_right(one))
    return item.key.answers[0]


def faults(student: Student, screen: Screen, item: Item, answer: str, *, is_right: bool) -> list[str]:
    """What is wrong on the page after the lock."""
    found, told, run = [], student.told(), item.run(answer)
    expected = None if isinstance(item.question, Why) else is_right
    if item.is_right(answer) != expected:
        found.append(f"{answer} came out, which is not the answer that was meant")
    if (mark := student.mark()) != expected:
        found.append(f"the mark is {mark}")
    if len(told) != 2:
        found.append(f"{len(told)} sentences: {told}")
    if run.refusal is not None and not hides(item):
        found.append(f"it did not run: {run.refusal}")
    if not student.has_drawing():
        found.append("nothing is drawn beside it")
    if screen.light and not student.has_path():
        found.append("the way of the number is not drawn")
    return found


def hides(item: Item) -> bool:
    """Whether the question is about a word that a mask hides: more weight on it than 0 cannot be run."""
    layer, head, token = item.place
    allowed = item.trace.layers[layer].allowed(head, rows=[token])[0]
    return isinstance(item.question, Estimate) and not allowed.all() and not allowed[item.looked_at]


def _faults_of_end(student: Student, lesson: Lesson, language: str) -> list[str]:
    found, page = [], student.page
    heading = page.locator(".st-key-lesson_end h1").inner_text()
    if in_language(lesson.title, language) not in heading:
        found.append(f"the heading is {heading}")
    answered = page.locator(".scenes .answered").count()
    if answered != len(lesson.screens):
        found.append(f"{answered} of {len(lesson.screens)} are answered")
    if student.has_lost_the_keyboard():
        found.append("the keyboard has lost its place")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("lessons", nargs="*", help=f"some of {', '.join(shipped())}; else all")
    parser.add_argument("--language", nargs="*", default=[*MAX_WORDS], choices=[*MAX_WORDS])
    parser.add_argument("--by", default="mouse", choices=("mouse", "keys"))
    parser.add_argument("--width", type=int, default=1440, choices=[*HEIGHTS], help="of the screen")
    options = parser.parse_args()
    torch.set_num_threads(1)
    drilled = []
    with chromium.app() as address:
        for name in options.lessons or shipped():
            for language in options.language:
                one = _in_browser(shipped()[name], language, address, options)
                print(f"{name} ({language}): {one.acts} acts, at most {one.words} words before an act")
                print(*one.failures, sep="\n", flush=True)
                drilled.append(one)
    figures = {
        "drill_failures": (sum(len(one.failures) for one in drilled), 0),
        "drill_answers": (sum(one.answered for one in drilled), None),
        "drill_acts_a_minute": (min(one.acts / one.lesson.minutes for one in drilled), LEAST_ACTS),
    }
    for language in options.language:
        words = max(one.words for one in drilled if one.language == language)
        figures[f"drill_words_{language}"] = words, MAX_WORDS[language]
    for name, (value, target) in figures.items():
        print(json.dumps({"name": name, "value": round(value, 2), "target": target}))


def _in_browser(lesson: Lesson, language: str, address: str, options: argparse.Namespace) -> Drilled:
    """One lesson in a browser of its own, which knows no answer of it."""
    screen = {"width": options.width, "height": HEIGHTS[options.width]}
    is_phone = options.width <= chromium.MAX_PHONE_WIDTH
    how = {"viewport": screen, "has_touch": is_phone, "locale": "en-US"}
    if is_phone:
        how["user_agent"] = chromium.PHONE
    errors = []

    def note(said) -> None:
        if chromium.broken(said):
            errors.append(f"console: {said.text}")

    with chromium.chromium() as browser, browser.new_context(**how) as context:
        context.add_init_script(chromium.WATCH)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(f"a script: {error}"))
        page.on("console", note)
        student = Student(page, address, chromium.settle, keys=options.by == "keys")
        drilled = drill(student, lesson, language)
    return drilled._replace(failures=[*drilled.failures, *errors])


if __name__ == "__main__":
    main()
