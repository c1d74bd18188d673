"""The answers of a room as two tables: one row an answer, and one row a student."""

import math
from collections import Counter
from collections.abc import Sequence

from mha_core.errors import MhaError
from mha_core.lessons.item import Item, Tracer
from mha_core.lessons.lesson import Screen, in_language
from mha_core.lessons.question import in_words
from mha_core.room.rooms import Desk


def rows(desk: Desk, tracer: Tracer) -> list[dict[str, object]]:
    """One row an answer: who, the question, the answer in words, whether it is right, the key, and when.

    `right`, `key` and `margin` are None where nothing is scored or the question cannot be asked here;
    `misread` is true of a wrong answer that is right to the question that is asked by mistake for this one;
    `late` is what a late answer came after, a name in `rooms.LATE`.
    """
    room, names = desk.room(), {one.number: one.name for one in desk.students()}
    posed: dict[tuple[int, str], tuple[Item | None, str | None, float | None]] = {}
    judged: dict[tuple[int, str, str], tuple[bool | None, bool]] = {}
    table: list[dict[str, object]] = []
    for one in desk.answers():
        screen = room.lesson.screens[one.screen - 1]
        at = one.screen, one.language
        if at not in posed:
            posed[at] = _posed(screen, one.language, tracer)
        item, key, margin = posed[at]
        if (*at, one.answer) not in judged:
            judged[*at, one.answer] = _judged(item, one.answer)
        right, misread = judged[*at, one.answer]
        table.append(
            {
                "room": room.code,
                "student": one.student,
                "name": names.get(one.student, ""),
                "lesson": room.part(one.screen).name,
                "screen": one.screen,
                "vote": one.vote,
                "kind": screen.question.kind,
                "question": in_language(screen.ask, one.language),
                "answer": one.answer,
                "answer_in_words": in_words(item, one.answer),
                "right": right,
                "misread": misread,
                "key": key,
                "key_in_words": in_words(item, key or ""),
                "margin": margin,
                "language": one.language,
                "scene": item.scene.link() if item else "",
                "answered_at": one.at.isoformat(),
                "late": one.late,
            }
        )
    return table


def students(desk: Desk, table: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """One row a student, also for those who have not answered: the latest vote on each screen, and sums.

    `table` has the rows of `rows`. A screen is "right", "wrong", "misread", "answered" where nothing is
    scored, and "" without an answer.
    """
    latest = {(row["student"], row["screen"]): row for row in table}  # votes are in their order
    numbers, told = range(1, len(desk.room().lesson.screens) + 1), []
    for one in desk.students():
        signs = {f"screen_{number}": _sign(latest.get((one.number, number))) for number in numbers}
        counts = Counter(signs.values())
        sums = {"answered": len(signs) - counts[""], "right": counts["right"]}
        told.append({"student": one.number, "name": one.name, **sums, **signs})
    return told


def _sign(row: dict[str, object] | None) -> str:
    if row is None:
        return ""
    if row["right"] is None:
        return "answered"
    return "right" if row["right"] else "misread" if row["misread"] else "wrong"


def _posed(screen: Screen, language: str, tracer: Tracer) -> tuple[Item | None, str | None, float | None]:
    """A question with its key and the margin of that, where there are."""
    item = None
    try:
        item = screen.item(language, tracer)
        answers, margin = item.key
    except MhaError:
        return item, None, None
    return item, answers[0] if answers else None, margin if math.isfinite(margin) else None


def _judged(item: Item | None, answer: str) -> tuple[bool | None, bool]:
    """Whether an answer is right, and whether the question was misread."""
    try:
        right = item.is_right(answer) if item else None
        return right, item is not None and right is False and item.misreads(answer)
    except MhaError:
        return None, False
