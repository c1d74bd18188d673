"""The server's door: headers on every response, and what strangers may have of pages and messages."""

import asyncio
import gc
import json
import logging
import platform
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import streamlit.logger
from starlette.requests import Request
from streamlit import error_util

from mha_core import resources
from mha_core.sources import mini
from mha_core.training import checkpoints
from pages._kit import logs, profile, server, streamlit_parts
from tests import event_loop

ROOT = Path(__file__).parents[2]
PAGE = (b"accept", b"text/html,application/xhtml+xml")


def asked(guard, path="/", header=PAGE):
    """The status and the headers of an answer."""
    messages = []

    async def send(message):
        messages.append(message)

    scope = {"type": "http", "path": path, "headers": [header]}
    event_loop.run(guard(scope, None, send))
    assert [message["type"] for message in messages] == ["http.response.start", "http.response.body"]
    return messages[0]["status"], dict(messages[0]["headers"])


async def answering(scope, receive, send):
    """An application that answers every request, and reads the messages of an open page to its end."""
    if scope["type"] == "websocket":
        while (await receive())["type"] != "websocket.disconnect":
            pass
        return
    headers = [(b"Content-Security-Policy", b"all"), (b"content-type", b"text/html")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize("base", ["", "/base"])
def test_the_first_visit_that_asks_for_nothing_is_sent_to_the_link_that_was_opened(monkeypatch, base):
    monkeypatch.setenv(resources.LINK, "/what-if?text=a")
    monkeypatch.setattr(server.st, "get_option", {"server.baseUrlPath": base}.get)
    door = server.FirstVisit(answering)

    def visit(path: str, query: bytes = b"") -> tuple[int, bytes | None]:
        messages = []

        async def send(message):
            messages.append(message)

        scope = {"type": "http", "method": "GET", "path": path, "query_string": query, "headers": []}
        event_loop.run(door(scope, None, send))
        return messages[0]["status"], dict(messages[0]["headers"]).get(b"location")

    assert visit(f"{base}/steps") == visit(f"{base}/", b"h=8") == (200, None)
    assert visit(f"{base}/") == (307, f"{base}/what-if?text=a".encode())
    assert visit(f"{base}/") == (200, None)
    monkeypatch.delenv(resources.LINK)
    door = server.FirstVisit(answering)
    assert visit(f"{base}/") == (200, None)


@pytest.fixture
def guard(monkeypatch):
    """`guard(hosted=True)`: the door of a server, with an application behind it that answers everything."""

    def make(*, hosted: bool = False, frames: str = ""):
        monkeypatch.setenv(profile.HOSTED, "1" if hosted else "")
        monkeypatch.setenv(profile.FRAMES, frames)
        return server.Guard(answering)

    return make


@pytest.fixture
def recorded():
    """`recorded("headscope", …)`: the records of these loggers from now on."""
    handlers = []

    def record(*names: str) -> list[logging.LogRecord]:
        records, handler = [], logging.Handler()
        handler.emit = records.append
        for name in names:
            logging.getLogger(name).addHandler(handler)
            handlers.append((name, handler))
        return records

    yield record
    for name, handler in handlers:
        logging.getLogger(name).removeHandler(handler)


@pytest.mark.parametrize("hosted", [False, True])
@pytest.mark.parametrize("path", ["/", "/headscope/view.js", "/_stcore/metrics"])
def test_every_answer_has_the_headers_once(guard, hosted, path):
    status, headers = asked(guard(hosted=hosted), path)
    assert status == (404 if hosted and "metrics" in path else 200)
    policy = dict(part.split(" ", 1) for part in headers[b"content-security-policy"].decode().split("; "))
    assert policy["default-src"] == policy["form-action"] == "'none'"
    assert "'unsafe-inline'" not in policy["script-src"]
    assert "'unsafe-eval'" not in policy["script-src"].split()
    assert (headers[b"x-content-type-options"], headers[b"referrer-policy"]) == (b"nosniff", b"no-referrer")
    assert headers[b"x-frame-options"] == b"SAMEORIGIN"
    assert b"Content-Security-Policy" not in headers  # the application's own


def test_a_setting_names_the_sites_that_may_frame_the_app(guard):
    _, headers = asked(guard(frames="https://a.example https://b.example"))
    policy = headers[b"content-security-policy"].decode()
    assert policy.endswith("frame-ancestors 'self' https://a.example https://b.example")
    assert b"x-frame-options" not in headers  # which has no word for it


ARENAS = """
import ctypes, threading
from pages._kit import server
server.begin()
libc, barrier = ctypes.CDLL(None), threading.Barrier(8)
def take():
    libc.free(ctypes.c_void_p(libc.malloc(1000)))
    barrier.wait()
libc.malloc.restype = ctypes.c_void_p
threads = [threading.Thread(target=take) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc.fdopen.restype = ctypes.c_void_p
out = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, out)
libc.fflush(out)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="arenas are those of glibc")
def test_the_threads_of_a_class_share_two_arenas_of_memory():
    told = subprocess.run(
        [sys.executable, "-c", ARENAS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert 1 <= told.stdout.count("<heap nr=") <= 2


def test_a_full_server_asks_the_next_visitor_to_come_back_and_a_page_that_closes_gives_its_place(guard):
    door = guard(hosted=True)
    door.profile = replace(profile.STRANGERS, sessions=2)

    async def open_pages():
        ends = [asyncio.Queue() for _ in range(3)]
        refused = []

        async def send(message):
            refused.append(message["type"])

        pages = [asyncio.create_task(door({"type": "websocket"}, end.get, send)) for end in ends[:2]]
        await asyncio.sleep(0)
        ends[2].put_nowait({"type": "websocket.disconnect"})  # of a door that lets it in
        await door({"type": "websocket"}, ends[2].get, send)
        status, bodies = [], []

        async def note(message):
            status.append(message.get("status"))
            bodies.append(message.get("body", b""))

        for path, header in (("/", PAGE), ("/static/a.js", (b"accept", b"*/*"))):
            await door({"type": "http", "path": path, "headers": [header]}, None, note)
        for end in ends[:2]:
            end.put_nowait({"type": "websocket.disconnect"})
        await asyncio.gather(*pages)
        assert f'http-equiv="refresh" content="{server.RETRY}"' in bodies[1].decode()  # comes back by itself
        return refused, status[::2]

    assert event_loop.run(open_pages()) == (["websocket.close"], [503, 200])
    assert door.pages == 0


def test_a_file_that_is_broken_off_while_it_is_sent_is_no_failure(monkeypatch):
    async def reading(scope, receive, send):
        await Request(scope, receive).body()

    async def receive():
        return {"type": "http.disconnect"}

    sent = []
    scope = {"type": "http", "method": "PUT", "path": "/_stcore/upload_file/a/b", "headers": []}
    event_loop.run(server.Guard(reading)(scope, receive, sent.append))
    assert sent == []


def test_messages_beyond_the_pace_wait_and_none_is_lost(monkeypatch):
    slept, now = [], [0.0]

    async def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(server.asyncio, "sleep", sleep)
    monkeypatch.setattr(server.time, "monotonic", lambda: now[0])
    figures = replace(profile.STRANGERS, messages_per_second=2.0, messages_at_once=3)
    count = iter(range(100))

    async def receive():
        return {"type": "websocket.receive", "bytes": next(count)}

    async def hear(paced, messages):
        return [(await paced())["bytes"] for _ in range(messages)]

    paced = server._paced(receive, figures)
    assert event_loop.run(hear(paced, 3)) == [0, 1, 2]
    assert slept == []
    assert event_loop.run(hear(paced, 4)) == [3, 4, 5, 6]
    assert slept == [0.5] * 4
    now[0] += 60  # a pause gives back no more than what may come at once
    event_loop.run(hear(paced, 4))
    assert slept[4:] == [0.5]


def test_the_log_of_strangers_has_the_places_of_an_error_and_no_word_of_a_text(recorded):
    text = "my secret text"
    records = recorded("headscope", "streamlit.test", "somebody")
    try:
        raise KeyError(text)
    except KeyError as error:
        number = logs.failure(error)
        logging.getLogger("streamlit.test").error("Bad %s", text, exc_info=error)
    logging.getLogger("somebody").error(f"{text} is bad")
    lines = [json.loads(logs.JsonLines().format(record)) for record in records]
    assert text not in json.dumps(lines)
    ours, streamlits, others = lines
    assert (ours["id"], ours["event"], ours["error"]) == (number, "failure", "KeyError")
    assert ours["places"][-1].startswith("tests/pages/test_server.py:")
    assert streamlits["event"] == "Bad %s"
    assert "event" not in others


def test_what_the_web_server_says_stands_in_the_same_log_and_requests_do_not(monkeypatch):
    """Streamlit and the web server leave them so when the app is loaded."""
    loggers = {name: logging.Logger(name) for name in ("uvicorn", "uvicorn.error", "uvicorn.access")}
    for logger in loggers.values():
        logger.propagate = False
    monkeypatch.setattr(logging.root.manager, "loggerDict", dict(loggers))
    monkeypatch.setattr(streamlit.logger, "setup_formatter", streamlit.logger.setup_formatter)
    streamlit_parts.log_to_root()
    assert {name: logger.propagate for name, logger in loggers.items()} == {
        "uvicorn": True,
        "uvicorn.error": True,
        "uvicorn.access": False,
    }


def test_an_error_of_a_page_stands_in_the_log_once_and_with_its_number(recorded, monkeypatch):
    monkeypatch.setattr(
        error_util.config, "get_option", {"logger.enableRich": False}.get
    )  # as `begin` sets it
    streamlit_parts.leave_lines_out()
    records = recorded("headscope", "streamlit.error_util")
    try:
        raise KeyError("secret")
    except KeyError as error:
        error_util.handle_user_script_exception(error, lambda raised: bool(logs.failure(raised)))
    [record] = records
    assert (record.name, record.msg, [*record.facts]) == ("headscope", "failure", ["id"])


def test_what_has_been_imported_is_not_searched_for_garbage_and_the_rest_seldom():
    before = gc.get_threshold()
    server.settle()
    try:
        assert gc.get_freeze_count() > 100_000
        assert len(gc.get_objects()) < 1000
        assert gc.get_threshold()[0] > 5 * server.OF_A_RUN
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


def test_streamlit_collects_no_garbage_after_a_run_and_watches_no_files():
    """Either makes a class wait; the file beside app.py holds wherever it is started (test_wheel.py)."""
    options = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))
    assert (options["runner"]["postScriptGC"], options["server"]["fileWatcherType"]) == (False, "none")


def test_a_server_without_its_models_is_not_ready(monkeypatch, tmp_path):
    assert server.ready()
    monkeypatch.setattr(checkpoints, "load_model", lambda path: pytest.fail("read again"))
    assert server.ready()
    monkeypatch.undo()
    mini._loaded.cache_clear()
    monkeypatch.setattr(checkpoints, "path", lambda plan: tmp_path / "none")
    assert not server.ready()
