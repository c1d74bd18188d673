"""Two replicas behind nginx, as in assets/deploy: one dies under load, and every page continues."""

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


@pytest.fixture
def replicas():
    """Two servers for strangers; each names itself among the sites that may frame it, so it can be known."""
    servers = []
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("HEADSCOPE_HOSTED", "1")
        environment.setenv("STREAMLIT_SERVER_COOKIE_SECRET", "the same for both")
        for name in NAMES:
            environment.setenv("HEADSCOPE_FRAMES", f"https://{name} http://localhost:*")
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
    """The replica that the proxy chooses for this route cookie."""
    request = urllib.request.Request(address, headers={"Cookie": f"headscope_route={route}"})
    with urllib.request.urlopen(request) as answer:
        return replica_in(answer.headers)


def replica_in(headers) -> int:
    """Which one has answered with these headers."""
    policy = headers["Content-Security-Policy"]
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
                    text = self._request_page(page)
                    with self.answered:
                        self.seen.append(text)
                        self.answered.notify_all()

    def _connection(self):
        cookie = {"Cookie": f"headscope_route={self.route}"}
        return connect(self.address, subprotocols=["streamlit"], max_size=None, additional_headers=cookie)

    def _request_page(self, page) -> str:
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


def replica_without_cookie(address: str, browser: str) -> int:
    """Where the proxy sends a browser of that name that keeps no cookie, with every request."""
    stream = address.replace("http", "ws") + "/_stcore/stream"
    with connect(stream, subprotocols=["streamlit"], user_agent_header=browser) as page:
        found = {replica_in(page.response.headers)}
    for _ in range(5):
        request = urllib.request.Request(address, headers={"User-Agent": browser})
        with urllib.request.urlopen(request) as answer:
            found.add(replica_in(answer.headers))
    [number] = found
    return number


def keeps_a_browser_without_cookies_on_one_replica(address: str) -> None:
    """Each browser stays where it is, and both get some: one too busy to answer comes back after 10 s."""
    found = set()
    for number in range(1000):
        found.add(replica_without_cookie(address, f"browser {number}"))
        if found == {0, 1}:
            return
    raise AssertionError(f"a thousand browsers went to {found}")


def sends_a_cookie_that_comes_back_where_it_can(address: str) -> None:
    def written(**headers: str) -> list[str]:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers)) as answer:
            return answer.headers["Set-Cookie"].split("; ")[1:]

    assert written() == ["Path=/", "HttpOnly", "SameSite=Lax"]
    assert written(**{"X-Forwarded-Proto": "https"}) == [
        "Path=/",
        "HttpOnly",
        "SameSite=None",
        "Secure",
        "Partitioned",
    ]


def keeps_a_frame_of_another_site_on_its_replica(address: str, host, strict) -> None:
    """With the cookies of other sites blocked, and though the browser asks for a download without any."""
    strict.set_extra_http_headers({"X-Forwarded-Proto": "https"})  # as behind a proxy with a certificate
    elsewhere = replica_without_cookie(address, strict.evaluate("navigator.userAgent"))
    there = host(f'<iframe src="{address}/?embed=true" width=1000 height=700></iframe>')
    while True:
        strict.goto(there)
        cookies = [one for one in strict.context.cookies() if one.get("partitionKey") == "http://localhost"]
        [route] = [one["value"] for one in cookies if one["name"] == "headscope_route"]
        if replica_of(address, route) != elsewhere:
            break
        strict.context.clear_cookies()
    frame = strict.frame_locator("iframe")
    frame.locator(".st-key-numbers summary").click()
    with strict.expect_download() as download:
        frame.get_by_role("button", name="Download CSV").click()
    assert "animal" in download.value.path().read_text(encoding="utf-8")


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


def test_two_replicas_behind_nginx_serve_a_class_when_one_dies(
    replicas, proxy, host, strict, tabs, settled, eye
):
    address, log = proxy
    closes_the_metrics_compresses_scripts_and_logs_no_sentence(address, log)
    opens_for_a_class_behind_one_address_and_refuses_nobody(address)
    sends_a_cookie_that_comes_back_where_it_can(address)
    keeps_a_browser_without_cookies_on_one_replica(address)
    keeps_a_frame_of_another_site_on_its_replica(address, host, strict)
    goes_on_with_every_scene_when_a_replica_dies(address, replicas, tabs, settled, eye)
