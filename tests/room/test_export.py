"""The table of a room: one row an answer, each with its question's key and whether it is right."""

from datetime import datetime

import pytest

from mha_core import Scene
from mha_core.lessons.item import Item
from mha_core.lessons.lesson import Lesson
from mha_core.lessons.question import Cell, Draw, Why, in_words

pytest.importorskip("sqlalchemy", reason="the extra [room] is not installed")

from mha_core.room.export import rows, students
from mha_core.room.rooms import Rooms
from tests.lessons.items import tracer

TIRED = "text=The animal didn't cross the street because it was too tired.&layer=2&head=1&token=it"
CLOSE = TIRED.replace("head=1", "head=3")
FILE = f"""
minutes = 5
[[screens]]
kind = "point"
ask = "Where does it look?"
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
    assert [row["answer_in_words"] for row in table] == ["animal", "street", "It is tired.", "动物", "animal"]
    assert (first["key_in_words"], first["question"] != "") == ("animal", True)

    absent = rooms.enter(key.code, rooms.join(key.code, "Eve"))
    told = [(one["name"], one["answered"], one["right"], one["screen_1"]) for one in students(desk, table)]
    assert told == [("=Ada", 2, 0, "wrong"), ("", 2, 1, "right"), ("Eve", 0, 0, "")]
    last = students(desk, table)[2]
    assert last["student"] == absent.number
    assert [name for name in last if name.startswith("screen")] == ["screen_1", "screen_2", "screen_3"]


@pytest.mark.parametrize(
    ("kind", "answer", "words"),
    [
        (Cell(), "5,3", "cross → animal"),
        (Cell(), "5,99", "5,99"),
        (Draw(), "3:60,7:40", "animal 60%, street 40%"),
        (Draw(), "3:60", "3:60"),
        (Why(), "why", "why"),
    ],
)
def test_an_answer_is_told_in_the_words_of_its_sentence(kind, answer, words):
    item = Item(
        kind, Scene.of_link("text=The animal didn't cross the street.&layer=2&head=2&token=cross").scene
    )
    assert in_words(item, answer) == words
