"""The texts of a lesson in the reader's language; what its file leaves out is said for it."""

from mha_core.lessons.lesson import Lesson, in_language
from pages._kit.language import language
from pages._kit.text import t
from pages.learn._lessons.place import Place


def title(lesson: Lesson) -> str:
    return in_language(lesson.title, language()) or t("lessons.untitled")


def goal(lesson: Lesson) -> str:
    """What one can do after it; "" where it does not say."""
    return in_language(lesson.goal, language())


def paper(lesson: Lesson) -> str:
    """The question on paper for a week later; "" where there is none."""
    return in_language(lesson.paper, language())


def ask(place: Place) -> str:
    """What the screen asks: what its kind of question asks of any scene where it does not say."""
    return in_language(place.screen.ask, language()) or t(f"lessons.ask_{place.screen.question.kind}")


def notice(place: Place) -> str:
    """What to notice after the answer; "" where it does not say."""
    return in_language(place.screen.notice, language())


def hints(place: Place) -> tuple[str, ...]:
    return tuple(in_language(place.screen.hints, language()) or ())
