"""The texts of a lesson in the reader's language, with defaults for those that its file leaves out.

Those of a screen are in the language in which its answer was locked, as its sentence is.
"""

from mha_core import MhaError
from mha_core.lessons.item import Item, Question
from mha_core.lessons.lesson import Lesson, in_language
from mha_core.lessons.question import Estimate, Find, Order, in_words
from mha_core.scene import changes
from mha_core.scene.scene import Scene
from pages._kit.text import joined, language, t
from pages.learn._lessons.place import Place


def title(lesson: Lesson) -> str:
    return in_language(lesson.title, language()) or t("lessons.untitled")


def goal(lesson: Lesson) -> str:
    """The goal of a lesson, as something that one can do; "" if its file gives none."""
    return in_language(lesson.goal, language())


def paper(lesson: Lesson) -> str:
    """The question on paper for a week later; "" where there is none."""
    return in_language(lesson.paper, language())


def ask(place: Place) -> str:
    """The question of a screen, in the words of its file or else of its kind of question.

    "" if that depends on a scene that cannot be computed.
    """
    try:
        asked = in_language(place.screen.ask, place.language)
        return asked or ask_of(place.screen.question, place.screen.scene(place.language))
    except MhaError:
        return ""


def ask_of(question: Question, scene: Scene) -> str:
    """The text of a question about any scene, such as a like case, whose words are not the lesson's."""
    looks = {"head": scene.focus.head, "query": scene.focus.token, "key": scene.focus.key_token}
    match question:
        case Order():
            return t("lessons.ask_order", measure=t(f"lessons.measure_{question.by}", **looks))
        case Estimate():
            return t("lessons.ask_estimate", quantity=t(f"lessons.measure_{question.quantity}", **looks))
        case Find():
            return t(f"lessons.ask_{question.condition}", **looks)
        case _:
            return t(f"lessons.ask_{question.kind}", **looks)


def answer(item: Item, given: str) -> str:
    """An answer in words of the sentence, as a person would say it."""
    match item.question.kind:
        case "flip":
            values = changes.values_of(changes.read(given)[0][0])
            if "from" not in values:
                return t("lessons.js_off", **values)
            query, key = item.queries[values["from"] - 1], item.words[values["to"] - 1]
            return t("lessons.js_cut", query=query, key=key)
        case "order":
            return joined(t("lessons.js_head", head=head) for head in given.split(","))
        case "choose":
            return t("lessons.js_picture", number=given)
        case _:
            return in_words(item, given)


def key(item: Item) -> str:
    """The model's own answer in words; "" where only running an answer tells whether it is right."""
    return answer(item, item.key.answers[0]) if item.key.answers else ""


def notice(place: Place) -> str:
    """A hint on what to notice after the answer; "" if the file gives none."""
    return in_language(place.screen.notice, place.language)


def hints(place: Place) -> tuple[str, ...]:
    return tuple(in_language(place.screen.hints, place.language) or ())
