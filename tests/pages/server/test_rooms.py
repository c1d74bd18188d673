"""The rooms of a server between the pages: what is deleted in time, and the version of a room."""

import asyncio
import threading
import time

import pytest
from sqlalchemy import create_engine
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.routing import Route
from starlette.testclient import TestClient

import app
from mha_core.lessons.lesson import shipped
from mha_core.room import rooms as room_module
from pages._server import rooms as server_rooms
from tests import event_loop

LESSON = next(iter(shipped().values()))


@pytest.fixture
def version_of():
    client = TestClient(Starlette(routes=[Route("/rooms/{invitation}", server_rooms.version)]))
    return lambda invitation: client.get(f"/rooms/{invitation}")


def test_rooms_whose_time_is_over_are_deleted_and_the_others_counted_in_the_log(rooms, monkeypatch, caplog):
    key = rooms.open(LESSON, days=1)
    rooms.join(key.code)
    kept = rooms.open(LESSON)
    rooms.enter(kept.code, rooms.join(kept.code, "Ada")).keep(1, 1, "3", language="en")
    later = room_module._now() + 2 * room_module.DAY
    monkeypatch.setattr(room_module, "_now", lambda: later)

    async def run_for_a_moment():
        running = asyncio.create_task(server_rooms.clean())
        while not caplog.records:
            await asyncio.sleep(0.01)
        running.cancel()

    with caplog.at_level("INFO", "headscope"):
        event_loop.run(asyncio.wait_for(run_for_a_moment(), 20))
    [record] = caplog.records
    left = {"rooms": 1, "students": 1, "answers": 1}
    assert (record.msg, record.facts) == ("rooms", {"deleted": 1} | left)
    assert rooms.counts() == left


def test_the_health_of_a_server_tells_whether_its_rooms_can_be_used(rooms, monkeypatch):
    client = TestClient(Starlette(routes=[Route("/health", app.health)]))
    monkeypatch.setattr(server_rooms, "HEALTH_SECONDS", 0.0)

    def health():
        answer = client.get("/health")
        return answer.status_code, answer.json()

    assert health() == (200, {"ready": True, "rooms": True})
    engine = create_engine("postgresql+psycopg://nobody@127.0.0.1:1/none")
    monkeypatch.setattr(rooms, "_engine", engine)  # everything else works without the database
    assert health() == (200, {"ready": True, "rooms": False})
    engine.dispose()
    monkeypatch.setattr(server_rooms, "PATIENCE", 0.05)
    monkeypatch.setattr(type(rooms), "check", lambda _: time.sleep(0.5))
    assert health() == (200, {"ready": True, "rooms": False})
    monkeypatch.delenv(server_rooms.ROOMS)
    assert health() == (200, {"ready": True})


def test_a_room_tells_its_version_by_its_invitation_alone(rooms, version_of, monkeypatch):
    key = rooms.open(LESSON)
    invitation = rooms.invitation(key.code)
    assert version_of(invitation).json() == {"version": 1}
    rooms.desk(key.code, key.secret).reveal(1)
    answer = version_of(invitation)
    assert (answer.status_code, answer.json()) == (200, {"version": 2})
    assert answer.headers["cache-control"] == "no-store"
    for other in (key.code, f"{key.code}-AAAAAAAA", "AAAAAA-AAAAAAAA", "x" * 900):
        assert version_of(other).status_code == 404
    monkeypatch.delenv(server_rooms.ROOMS)  # a server without rooms tells nothing of them
    assert version_of(invitation).status_code == 404


def test_a_database_that_hangs_holds_back_nothing_else(rooms, monkeypatch):
    answers = threading.Event()
    monkeypatch.setattr(server_rooms, "_version", lambda _: answers.wait(60))
    invitation = {"type": "http", "path_params": {"invitation": rooms.invitation(rooms.open(LESSON).code)}}

    async def class_asks() -> None:
        asking = [asyncio.create_task(server_rooms.version(Request(invitation))) for _ in range(60)]
        await asyncio.sleep(0.05)
        await asyncio.wait_for(run_in_threadpool(rooms.counts), 30)  # as files are read
        assert not answers.is_set()
        answers.set()
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    event_loop.run(class_asks())


@pytest.mark.parametrize(
    ("page", "listens", "others"),
    [
        ("http://localhost:8501/lessons", None, "http://192.0.2.7:8501/lessons"),
        ("http://127.0.0.1:8501/lessons", "0.0.0.0", "http://192.0.2.7:8501/lessons"),
        ("http://localhost/lessons", None, "http://192.0.2.7/lessons"),
        ("http://localhost:8501/lessons", "localhost", None),
        ("https://school.example/lessons", None, "https://school.example/lessons"),
    ],
)
def test_a_class_is_never_sent_to_the_teachers_own_machine(monkeypatch, page, listens, others):
    monkeypatch.setattr("mha_core.resources.address", lambda: "192.0.2.7")
    monkeypatch.setattr(server_rooms.st, "get_option", {"server.address": listens}.get)
    found = server_rooms.for_others(page)
    assert (found if server_rooms.is_for_others(found) else None) == others
