"""Two replicas behind nginx, as assets/deploy has them: one dies under load, and every page goes on."""

import asyncio
import contextlib
import os
import re
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.bench import proxy as proxies
from tests.bench.chromium import Server

CLASS, CONNECTIONS, FILES = 100, 6, 10  # of each browser, and files of each of its connections
STUDENTS = 3  # pages without a browser on each replica, which make the load

NAMES = ("replica-1.example", "replica-2.example")

pytestmark = pytest.mark.slow


@pytest.fixture
def replicas():
    """Two servers for strangers; each names itself among the sites that may frame it, so it can be known."""
    servers = []
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("HEADSCOPE_HOSTED", "1")
        environment.setenv("STREAMLIT_SERVER_COOKIE_SECRET", "the same for both")
        for name in NAMES:
            environment.setenv("HEADSCOPE_FRAMES", f"https://{name}")
            servers.append(Server())
    yield servers
    for server in servers:
        server.stop()


@pytest.fixture
def proxy(replicas):
    """The address of nginx in front of the replicas, and the file of its log."""
    if proxies.program() is None:
        if os.environ.get("CI"):
            pytest.fail("CI must have nginx; .ci/run installs it")
        pytest.skip("no nginx on this machine")
    with proxies.nginx([server.address for server in replicas]) as (address, log):
        yield address, log


def replica_of(address: str, route: str) -> int:
    """Where the proxy sends who has this route in the cookie."""
    request = urllib.request.Request(address, headers={"Cookie": f"headscope_route={route}"})
    with urllib.request.urlopen(request) as answer:
        policy = answer.headers["Content-Security-Policy"]
    [number] = [number for number, name in enumerate(NAMES) if name in policy]
    return number


class Visitor(threading.Thread):
    """An open page that asks for its scene again and again, and connects anew when it is cut off."""

    def __init__(self, address: str, route: str, text: str):
        super().__init__(daemon=True)
        self.address, self.route, self.text = address.replace("http", "ws") + "/_stcore/stream", route, text
        self.seen: list[str] = []  # the sentence in its control, of each answer
        self.connections, self.end, self.answered = 0, threading.Event(), threading.Condition()

    def run(self) -> None:
        while not self.end.is_set():
            with contextlib.suppress(ConnectionClosed), self._connection() as page:
                self.connections += 1
                while not self.end.is_set():
                    text = self._ask(page)
                    with self.answered:
                        self.seen.append(text)
                        self.answered.notify_all()

    def _connection(self):
        cookie = {"Cookie": f"headscope_route={self.route}"}
        return connect(self.address, subprotocols=["streamlit"], max_size=None, additional_headers=cookie)

    def _ask(self, page) -> str:
        question = BackMsg()
        question.rerun_script.query_string = urlencode({"text": self.text, "twin": ""})
        page.send(question.SerializeToString())
        text = ""
        while True:
            message = ForwardMsg.FromString(page.recv())
            element = message.delta.new_element
            assert element.WhichOneof("type") != "exception", element.exception.message
            if element.WhichOneof("type") == "text_area" and element.text_area.id.endswith("-text"):
                text = element.text_area.value or element.text_area.default
            if message.WhichOneof("type") == "script_finished":
                return text

    def hears_more(self, answers: int = 2) -> None:
        """Wait for so many further answers."""
        with self.answered:
            enough = len(self.seen) + answers
            self.answered.wait_for(lambda: len(self.seen) >= enough or not self.is_alive())
        assert self.is_alive()


def closes_the_metrics_compresses_scripts_and_logs_no_sentence(address: str, log: Path) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{address}/_stcore/metrics")
    page = urllib.request.urlopen(f"{address}/?text=secret").read().decode()
    [script] = re.findall(r'src="\./(static/js/index[^"]+)"', page)
    request = urllib.request.Request(f"{address}/{script}", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    while script not in (lines := log.read_text(encoding="utf-8")):  # written after the answer
        time.sleep(0.05)
    assert "GET / 200" in lines
    assert "secret" not in lines


async def first_visit(port: int, files: list[str]) -> list[int]:
    """The answers that a browser gets which opens the app for the first time and keeps it open."""

    async def asked(*requests: str) -> list[int]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        codes = []
        for request in requests:
            writer.write(f"GET {request}\r\nHost: localhost\r\n\r\n".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            codes.append(int(head.split()[1]))
            if size := re.search(r"content-length: (\d+)", head, re.IGNORECASE):
                await reader.readexactly(int(size[1]))
        connections.append(writer)
        return codes

    connections = []
    stream = (
        "/_stcore/stream HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    )
    parts = (files[at::CONNECTIONS][:FILES] for at in range(CONNECTIONS))
    codes = await asyncio.gather(asked(stream), *(asked(*(f"/{file} HTTP/1.1" for file in p)) for p in parts))
    await asyncio.sleep(2)  # the others come meanwhile
    for writer in connections:
        writer.close()
    return [code for some in codes for code in some]


def opens_for_a_class_behind_one_address_and_refuses_nobody(address: str) -> None:
    page = urllib.request.urlopen(address).read().decode()
    files = re.findall(r'(?:src|href)="\./(static/[^"]+)"', page)
    assert len(files) >= CONNECTIONS * FILES

    async def all_at_once() -> list[list[int]]:
        port = int(address.rpartition(":")[2])
        return await asyncio.gather(*(first_visit(port, files) for _ in range(CLASS)))

    with ThreadPoolExecutor() as thread:  # the browser's own loop runs in this one
        visits = thread.submit(asyncio.run, all_at_once()).result()
    for codes in visits:
        assert codes == [101] + [200] * CONNECTIONS * FILES


def goes_on_with_every_scene_when_a_replica_dies(address: str, replicas, tabs, settled, eye) -> None:
    routes = [[], []]
    for number in range(100):
        routes[replica_of(address, f"student-{number}")].append(f"student-{number}")
    chosen = [route for of_replica in routes for route in of_replica[:STUDENTS]]
    students = [Visitor(address, route, f"The {route.replace('-', ' ')} is here.") for route in chosen]
    assert len(students) == 2 * STUDENTS
    with tabs(viewport={"width": 1440, "height": 900}, color_scheme="light") as page:
        page.goto(f"{address}/?{urlencode({'text': 'Is Liechtenstein cold?', 'twin': '', 'h': 8})}")
        settled(page)
        view = eye(page)
        assert view.words() == ["[CLS]", "Is", "Liechtenstein", "cold", "?"]
        [route] = [one["value"] for one in page.context.cookies(address) if one["name"] == "headscope_route"]
        dying = replica_of(address, route)
        for student in students:
            student.start()
        for student in students:
            student.hears_more()
        with page.expect_websocket():
            replicas[dying].process.kill()
        for student in students:
            student.hears_more()
        settled(page)
        page.get_by_role("textbox", name="Sentence", exact=True).fill("Is it warm there?")
        page.keyboard.press("Control+Enter")
        expect(page.locator(".view .strip bdi").nth(2)).to_have_text("it")
        settled(page)
        assert view.words() == ["[CLS]", "Is", "it", "warm", "there", "?"]
        assert view.pictures().count() == 8  # of the link
        assert replica_of(address, route) == 1 - dying
        page.context.clear_cookies()
    for number, student in enumerate(students):
        student.end.set()
        student.join()
        assert set(student.seen) == {student.text}
        assert student.connections == (2 if number // STUDENTS == dying else 1)


def test_two_replicas_behind_nginx_serve_a_class_and_outlive_one_another(replicas, proxy, tabs, settled, eye):
    address, log = proxy
    closes_the_metrics_compresses_scripts_and_logs_no_sentence(address, log)
    opens_for_a_class_behind_one_address_and_refuses_nobody(address)
    goes_on_with_every_scene_when_a_replica_dies(address, replicas, tabs, settled, eye)
