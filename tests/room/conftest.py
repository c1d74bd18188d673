"""Rooms in both databases, each test with an empty one of its own."""

import os

import pytest

from mha_core.lessons.lesson import Lesson
from mha_core.room import rooms as module
from mha_core.room.rooms import Rooms
from tests.bench import postgresql

SCREEN = """
[[screens]]
kind = "point"
scene = "text=the old cat saw it&source=random&h=2&layer=1&token=it"
"""
LESSON = Lesson.read("minutes = 5\n" + 3 * SCREEN, "cats")


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL for all tests of this process."""
    if postgresql.program() is None:
        if os.environ.get("CI"):
            pytest.fail("CI must have PostgreSQL; .ci/run installs it")
        pytest.skip("no PostgreSQL on this machine")
    with postgresql.running() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    """The address of an empty database, of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'rooms.sqlite3'}"
    return request.getfixturevalue("postgres").database()


@pytest.fixture
def rooms(url):
    opened = Rooms(url)
    yield opened
    opened.close()


@pytest.fixture
def file(tmp_path):
    """The rooms in a file, `rooms.sqlite3` in the folder of the test."""
    rooms = Rooms(f"sqlite:///{tmp_path / 'rooms.sqlite3'}")
    yield rooms
    rooms.close()


@pytest.fixture
def key(rooms):
    """What opens a room in which nobody sits yet."""
    return rooms.open(LESSON)


@pytest.fixture
def desk(rooms, key):
    return rooms.desk(key.code, key.secret)


@pytest.fixture
def sit(rooms, key):
    """`sit("Ada")`: the seat of a new student."""
    return lambda name="": rooms.enter(key.code, rooms.join(key.code, name))


@pytest.fixture
def later(monkeypatch):
    """`later(3600)`: from now on it is so many seconds later."""

    def wait(seconds: int) -> None:
        then = module._now() + seconds
        monkeypatch.setattr(module, "_now", lambda: then)

    return wait


@pytest.fixture
def lesson():
    return LESSON
