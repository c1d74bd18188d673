"""The answers of a room as a table, one row an answer."""

import math
from collections.abc import Callable

from mha_core.errors import MhaError
from mha_core.lessons.item import Item, Tracer
from mha_core.room.rooms import Desk


def rows(desk: Desk, tracer: Tracer) -> list[dict[str, object]]:
    """One row an answer: who, which screen and vote, whether it is right, the key, its scene's link, when.

    `right`, `key` and `margin` are None where nothing is scored or the question cannot be asked here; `late`
    is what a late answer came after, a name in `rooms.LATE`.
    """
    room, names = desk.room(), {one.number: one.name for one in desk.students()}
    posed: dict[tuple[int, str], tuple[Item | None, str | None, float | None]] = {}
    judged: dict[tuple[int, str, str], bool | None] = {}
    table: list[dict[str, object]] = []
    for one in desk.answers():
        screen = room.lesson.screens[one.screen - 1]
        at = one.screen, one.language
        if at not in posed:
            posed[at] = _posed(screen.item, one.language, tracer)
        item, key, margin = posed[at]
        if (*at, one.answer) not in judged:
            judged[*at, one.answer] = _is_right(item, one.answer)
        table.append(
            {
                "room": room.code,
                "student": one.student,
                "name": names.get(one.student, ""),
                "screen": one.screen,
                "vote": one.vote,
                "kind": screen.question.kind,
                "answer": one.answer,
                "right": judged[*at, one.answer],
                "key": key,
                "margin": margin,
                "language": one.language,
                "scene": _link(item),
                "answered_at": one.at.isoformat(),
                "late": one.late,
            }
        )
    return table


def _posed(
    pose: Callable[[str, Tracer], Item], language: str, tracer: Tracer
) -> tuple[Item | None, str | None, float | None]:
    """A question with its key and the margin of that, where there are."""
    try:
        item: Item = pose(language, tracer)
    except MhaError:
        return None, None, None
    try:
        answers, margin = item.key
    except MhaError:
        return item, None, None
    return item, answers[0] if answers else None, margin if math.isfinite(margin) else None


def _is_right(item: Item | None, answer: str) -> bool | None:
    try:
        return item.is_right(answer) if item else None
    except MhaError:
        return None


def _link(item: Item | None) -> str:
    return item.scene.link() if item else ""
