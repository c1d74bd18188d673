"""The table of a room: one row an answer, each with its question's key and whether it is right."""

from datetime import datetime

import pytest

from mha_core import Scene
from mha_core.lessons.lesson import Lesson

pytest.importorskip("sqlalchemy", reason="the extra [room] is not installed")

from mha_core.room.export import rows
from mha_core.room.rooms import Rooms
from tests.lessons.items import tracer

TIRED = "text=The animal didn't cross the street because it was too tired.&layer=2&head=1&token=it"
CLOSE = TIRED.replace("head=1", "head=3")
FILE = f"""
minutes = 5
[[screens]]
kind = "point"
scene.en = "{TIRED}"
scene.zh = "text=动物没有过马路，因为它太累了。&layer=2&head=1&token=它"
[[screens]]
kind = "why"
scene = "{TIRED}"
[[screens]]
kind = "point"
scene = "{CLOSE}"
"""


def test_every_answer_is_a_row_with_what_is_right_in_its_own_language():
    rooms = Rooms("sqlite://")
    key = rooms.open(Lesson.read(FILE))
    desk = rooms.desk(key.code, key.secret)
    ada, other = (rooms.enter(key.code, rooms.join(key.code, name)) for name in ("=Ada", ""))
    ada.keep(1, 1, "3", language="en")
    desk.vote_again(1)
    ada.keep(1, 2, "7", language="en")
    ada.keep(2, 1, "It is tired.", language="en")
    other.keep(1, 1, "2", language="zh")
    other.keep(3, 1, "3", language="en")

    table = rows(desk, tracer)
    told = [
        (row["name"], row["screen"], row["vote"], row["answer"], row["right"], row["key"]) for row in table
    ]
    assert told == [
        ("=Ada", 1, 1, "3", True, "3"),
        ("=Ada", 1, 2, "7", False, "3"),
        ("=Ada", 2, 1, "It is tired.", None, None),
        ("", 1, 1, "2", True, "2"),
        ("", 3, 1, "3", None, None),  # the question is ambiguous
    ]
    first = table[0]
    assert (first["room"], first["student"], first["kind"], first["language"]) == (key.code, 1, "point", "en")
    assert first["margin"] > 0.9
    assert Scene.of_link(first["scene"]).scene.text.startswith("The animal")
    assert datetime.fromisoformat(first["answered_at"]).tzinfo is not None
    assert Scene.of_link(table[3]["scene"]).scene.text.startswith("动物")
    assert desk.answer_count() == len(table)
