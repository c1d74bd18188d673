"""The visitor's place in a lesson, as the link gives it: the lesson, the screen and the locked answers.

A link has the answers as ``1.zh-9~2.en-3:60,7:40``: each with the number of its screen and the language of
its question; older links have no language.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import streamlit as st

from mha_core.focus.fields import MAX_CHARACTERS
from mha_core.focus.token_names import as_number
from mha_core.lessons.item import Locked
from mha_core.lessons.lesson import Lesson, Screen
from pages._kit import state
from pages._kit.text import language
from pages.learn._lessons import library

if TYPE_CHECKING:  # rooms are an extra
    from mha_core.room.rooms import Room

NEW = "new"  # in place of a room's code: one is being opened
MAKE = "make"  # in place of a lesson's name: one is being made
BETWEEN = "~"  # answers in a link
ANSWER = re.compile(r"(\d+)(?:\.([a-z]{2}))?-(.+)", re.DOTALL)
ESCAPES = {"%": "%25", BETWEEN: "%7E"}  # in an answer that is a sentence


@dataclass(frozen=True)
class Place:
    """A lesson, the number of its screen from 1, and the answers that are locked, by screens.

    One number beyond the last screen is the end of the lesson. `like` is the number of a like case of the
    screen, 0 for the screen itself, and `like_answer` the answer that is locked there.

    With a class it is a place in a `room`, whose database has the answers; `lesson` is then all of the room's
    lessons as one, and `first` are the answers of a vote before the one that is open.
    """

    lesson: Lesson
    number: int
    answers: Mapping[int, Locked]
    like: int = 0
    like_answer: str | None = None
    room: "Room | None" = None
    first: Mapping[int, Locked] = field(default_factory=dict)

    @property
    def screen(self) -> Screen:
        return self.lesson.screens[self.number - 1]

    @property
    def part(self) -> Lesson:
        """The lesson of this screen, which in a room may be one of several."""
        return self.room.part(self.number) if self.room else self.lesson

    @property
    def answer(self) -> str | None:
        """The locked answer of this screen, or of its like case."""
        locked = self.answers.get(self.number)
        return self.like_answer if self.like else locked and locked.answer

    @property
    def language(self) -> str:
        """The language of this screen: that in which its answer was locked, else the reader's."""
        locked = self.answers.get(self.number)
        return (locked and locked.language) or language()

    @property
    def is_shown(self) -> bool:
        """Whether the outcome of the answer is shown now; a like case is always the student's own."""
        return self.room is None or self.like > 0 or self.room.shows(self.number)


def opened() -> Place | None:
    """The place that the link names; None for the cards of all lessons."""
    name = st.query_params.get("lesson")
    if not name or name == MAKE:
        return None
    lesson = library.lessons().get(name)
    if lesson is None:
        if name != library.OWN:  # the cards say where that has gone
            state.say_instead("lesson", None)
        return None
    locked = read_answers(st.query_params.get("answers", ""))
    locked = {at: answer for at, answer in locked.items() if at <= len(lesson.screens)}
    return Place(lesson, number_in(lesson), locked, *like_case())


def read_answers(code: str) -> dict[int, Locked]:
    """The answers of a link by the numbers of their screens; an invalid part is left out."""
    found = {}
    for part in code[:MAX_CHARACTERS].split(BETWEEN):
        if (match := ANSWER.fullmatch(part)) and (at := as_number(match[1])):
            answer = match[3]
            for character, escape in reversed(ESCAPES.items()):
                answer = answer.replace(escape, character)
            found[at] = Locked(answer, match[2] or "")
    return found


def write_answers(answers: Mapping[int, Locked]) -> str:
    """The answers as a link has them; if the link would be too long, the longest are left out."""
    parts = {}
    for number, (answer, spoken) in sorted(answers.items()):
        for character, escape in ESCAPES.items():
            answer = answer.replace(character, escape)
        parts[number] = f"{number}.{spoken}-{answer}" if spoken else f"{number}-{answer}"
    while len(code := BETWEEN.join(parts.values())) > MAX_CHARACTERS:
        del parts[max(parts, key=lambda number: len(parts[number]))]
    return code


def number_in(lesson: Lesson) -> int:
    """The number of the screen of a lesson that the link names."""
    asked = as_number(st.query_params.get("screen", "1")) or 0
    number = min(max(asked, 1), len(lesson.screens) + 1)
    if number != asked:
        state.say_instead("screen", number)
    return number


def like_case() -> tuple[int, str | None]:
    """The number of the like case that the link names, 0 for none, and the answer that is locked there.

    Before it is answered the link has the number alone, ``2``, and then as answers of screens: ``2-9``.
    """
    code = st.query_params.get("like", "")
    for number, locked in read_answers(code).items():
        return number, locked.answer
    return as_number(code) or 0, None


def room_code() -> str:
    """The code or invitation of the room that the link names; "" for none."""
    return st.query_params.get("room", "")


def desk_code() -> str | None:
    """The code of the room whose teacher's desk the link opens, or `NEW`."""
    return st.query_params.get("desk")


def page_address() -> str:
    """The address of this page, to which the fields of a link are added."""
    return (st.context.url or "lessons").partition("?")[0].partition("#")[0]


def projected() -> bool:
    """Whether the page is shown to a class: large, without a frame."""
    return st.query_params.get("projector") == "1"


def go(**fields: object) -> None:
    """Write fields of the link, "" for none; for callbacks."""
    written = {name: str(value) for name, value in fields.items() if value != ""}
    for name in fields.keys() - written.keys():
        st.query_params.pop(name, None)
    st.query_params.update(written)


def now(place: Place) -> dict:
    """The state of this screen until it is left, such as the hints that were asked for."""
    return until_left("lesson_now", (place.lesson.name, place.number))


def until_left(name: str, at: object, **first: object) -> dict:
    """The state of one screen or one desk until it is left, which begins with the `first` values."""
    held = st.session_state.get(name)
    if held is None or held["at"] != at:
        held = st.session_state[name] = {"at": at, **first}
    return held
