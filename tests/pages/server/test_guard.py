"""The server's guard: headers on every response, and limits of pages and messages for strangers."""

import asyncio
import contextvars
from dataclasses import replace

import pytest
from starlette.requests import Request

from mha_core import resources
from pages._server import guard, limits
from tests import event_loop

PAGE = (b"accept", b"text/html,application/xhtml+xml")


def response(door, path="/", header=PAGE):
    """The status and the headers of an answer."""
    messages = []

    async def send(message):
        messages.append(message)

    scope = {"type": "http", "path": path, "headers": [header]}
    event_loop.run(door(scope, None, send))
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
def test_a_first_visit_without_a_link_opens_the_link_of_the_command(monkeypatch, base):
    monkeypatch.setenv(resources.LINK, "/what-if?text=a")
    monkeypatch.setattr(guard.st, "get_option", {"server.baseUrlPath": base}.get)
    door = guard.FirstVisit(answering)

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
    door = guard.FirstVisit(answering)
    assert visit(f"{base}/") == (200, None)


@pytest.fixture
def door(monkeypatch):
    """`door(hosted=True)`: the door of a server, with an application behind it that answers everything."""

    def make(*, hosted: bool = False, frames: str = ""):
        monkeypatch.setenv(limits.HOSTED, "1" if hosted else "")
        monkeypatch.setenv(limits.FRAMES, frames)
        return guard.Guard(answering)

    return make


@pytest.mark.parametrize("hosted", [False, True])
@pytest.mark.parametrize("path", ["/", "/headscope/view.js", "/_stcore/metrics"])
def test_every_answer_has_the_headers_once(door, hosted, path):
    status, headers = response(door(hosted=hosted), path)
    assert status == (404 if hosted and "metrics" in path else 200)
    policy = dict(part.split(" ", 1) for part in headers[b"content-security-policy"].decode().split("; "))
    assert policy["default-src"] == policy["form-action"] == "'none'"
    assert "'unsafe-inline'" not in policy["script-src"]
    assert "'unsafe-eval'" not in policy["script-src"].split()
    assert (headers[b"x-content-type-options"], headers[b"referrer-policy"]) == (b"nosniff", b"no-referrer")
    assert b"Content-Security-Policy" not in headers  # the application's own


@pytest.mark.parametrize(
    ("hosted", "frames", "rule"),
    [
        (True, "https://a.example https://b.example", "'self' https://a.example https://b.example"),
        (True, "", ""),  # every site
        (False, "", "'self' http://localhost:* http://127.0.0.1:* file:"),
        (False, "https://a.example", "'self' https://a.example"),
    ],
)
def test_who_may_show_the_app_in_a_frame(door, hosted, frames, rule):
    _, headers = response(door(hosted=hosted, frames=frames))
    assert headers[b"content-security-policy"].decode().partition("frame-ancestors ")[2] == rule
    assert b"x-frame-options" not in headers  # which has no word for other sites


def test_a_full_server_refuses_visitors_until_a_page_closes(door):
    door = door(hosted=True)
    door.limits = replace(limits.STRANGERS, sessions=2)

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
            await door({"type": "http", "path": path, "headers": [header], "query_string": b""}, None, note)
        for end in ends[:2]:
            end.put_nowait({"type": "websocket.disconnect"})
        await asyncio.gather(*pages)
        assert f'http-equiv="refresh" content="{guard.RETRY}"' in bodies[1].decode()  # comes back by itself
        return refused, status[::2]

    assert event_loop.run(open_pages()) == (["websocket.close"], [503, 200])
    assert door.pages == 0


@pytest.mark.parametrize(
    ("query", "headers", "code"),
    [
        (b"", {}, "en"),
        (b"", {b"accept-language": b"fr, zh-CN;q=0.9, en;q=0.8"}, "zh-CN"),
        (b"", {b"accept-language": b"en-US,en;q=0.9,zh;q=0.8"}, "en"),
        (b"", {b"accept-language": b"en", b"cookie": b"headscope_language=zh"}, "zh-CN"),
        (b"text=a&lang=en", {b"accept-language": b"zh", b"cookie": b"headscope_language=zh"}, "en"),
        (b"lang=xx", {b"accept-language": b"zh;q=0.9"}, "zh-CN"),
    ],
)
def test_a_full_server_speaks_the_language_of_its_visitor(query, headers, code):
    scope = {"type": "http", "path": "/", "query_string": query, "headers": [*headers.items()]}
    page = contextvars.Context().run(guard.full_page, scope).decode()
    assert f'<html lang="{code}">' in page
    assert ("满员" in page) == (code == "zh-CN")
    assert "{" not in page.partition("</style>")[2]


def test_a_file_that_is_broken_off_while_it_is_sent_is_no_failure():
    async def reading(scope, receive, send):
        await Request(scope, receive).body()

    async def receive():
        return {"type": "http.disconnect"}

    sent = []
    scope = {"type": "http", "method": "PUT", "path": "/_stcore/upload_file/a/b", "headers": []}
    event_loop.run(guard.Guard(reading)(scope, receive, sent.append))
    assert sent == []


def test_messages_above_the_rate_wait_and_none_is_lost(monkeypatch):
    slept, now = [], [0.0]

    async def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(guard.asyncio, "sleep", sleep)
    monkeypatch.setattr(guard.time, "monotonic", lambda: now[0])
    figures = replace(limits.STRANGERS, messages_per_second=2.0, messages_at_once=3)
    count = iter(range(100))

    async def receive():
        return {"type": "websocket.receive", "bytes": next(count)}

    async def received(paced, messages):
        return [(await paced())["bytes"] for _ in range(messages)]

    paced = guard.paced(receive, figures)
    assert event_loop.run(received(paced, 3)) == [0, 1, 2]
    assert slept == []
    assert event_loop.run(received(paced, 4)) == [3, 4, 5, 6]
    assert slept == [0.5] * 4
    now[0] += 60  # a pause gives back no more than what may come at once
    event_loop.run(received(paced, 4))
    assert slept[4:] == [0.5]
