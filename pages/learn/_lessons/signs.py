"""The signs by which a teacher sees the answers of a room; each is computed once, a few at a time."""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mha_core import MhaError
from mha_core.lessons.item import Item
from mha_core.lessons.lesson import Lesson
from pages._kit.text import said, t
from pages.learn._lessons import items

if TYPE_CHECKING:
    from mha_core.room.rooms import KeptAnswer

SECONDS = 0.5  # in which signs are computed before the desk is drawn; the others come with the next drawing
Sign = tuple[str, str]  # its name in desk_table.js, and what it says

Known = dict[tuple[int, str, str], Sign]  # by screen, language and answer


def learn(known: Known, lesson: Lesson, answers: Iterable["KeptAnswer"]) -> None:
    """Compute the signs of answers that have none yet, as far as time allows."""
    until, asked = time.monotonic() + SECONDS, dict[tuple[int, str], Item]()
    for one in answers:
        key = one.screen, one.language, one.answer
        if key in known:
            continue
        if time.monotonic() > until:
            return
        at = one.screen, one.language
        try:
            if at not in asked:
                asked[at] = items.asked(lesson.screens[one.screen - 1], one.language)
            known[key] = _sign(asked[at], one.answer)
        except MhaError as error:
            known[key] = "unchecked", t("room.desk_sign_unchecked", reason=said(error))


def _sign(asked: Item, answer: str) -> Sign:
    """Nothing to check, right, another answer, or misread. Raises `MhaError` for what is no answer."""
    right = items.is_right(asked, answer)
    if right is None:
        return "unchecked", t("room.desk_sign_reason")
    if right:
        return "right", t("room.desk_js_right")
    if asked.misreads(answer):
        return "misread", t(f"room.desk_misread_{asked.question.kind}")
    return "other", t("room.desk_js_other")
