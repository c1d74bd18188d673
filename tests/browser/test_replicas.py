"""Two replicas behind nginx, as assets/deploy has them: one dies under load, and every page goes on."""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.bench.chromium import Server

ROOT = Path(__file__).parents[2]
STUDENTS = 3  # pages without a browser on each replica, which make the load

NAMES = ("replica-1.example", "replica-2.example")

pytestmark = pytest.mark.slow


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def nginx(tmp_path):
    """`nginx([address, …])`: the configuration of assets/deploy in front of these; returns its address."""
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("CI must have nginx; .ci/run installs it")
        pytest.skip("no nginx on this machine")
    running = []

    def start(addresses: list[str]) -> str:
        port = free_port()
        text = (ROOT / "assets" / "deploy" / "nginx.conf").read_text(encoding="utf-8")
        for number, address in enumerate(addresses, 1):
            assert f"headscope-{number}:8501" in text
            text = text.replace(f"headscope-{number}:8501", address.removeprefix("http://"))
        text = text.replace("listen 8080;", f"listen 127.0.0.1:{port};")
        text = text.replace("/dev/stdout", str(tmp_path / "access.log"))
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        http = "\n".join([*(f"{kind}_temp_path {tmp_path};" for kind in kinds), text])
        user = "user root;" if os.getuid() == 0 else ""
        whole = f"{user} daemon off; pid {tmp_path}/pid; error_log {tmp_path}/error.log; events {{}}"
        path = tmp_path / "nginx.conf"
        path.write_text(f"{whole} http {{ {http} }}\n", encoding="utf-8")
        command = [program, "-p", str(tmp_path), "-c", str(path)]
        subprocess.run([*command, "-t"], check=True, capture_output=True)
        running.append(subprocess.Popen(command))
        while running[-1].poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        return f"http://127.0.0.1:{port}"

    yield start
    for process in running:
        process.terminate()
        process.wait(timeout=20)


@pytest.fixture
def replicas(monkeypatch):
    """Two servers for strangers; each names itself among the sites that may frame it, so it can be known."""
    monkeypatch.setenv("HEADSCOPE_HOSTED", "1")
    monkeypatch.setenv("STREAMLIT_SERVER_COOKIE_SECRET", "the same for both")
    servers = []
    for name in NAMES:
        monkeypatch.setenv("HEADSCOPE_FRAMES", f"https://{name}")
        servers.append(Server())
    yield servers
    for server in servers:
        server.stop()


def replica_of(address: str, route: str) -> int:
    """Where the proxy sends who has this route in the cookie."""
    request = urllib.request.Request(address, headers={"Cookie": f"headscope_route={route}"})
    with urllib.request.urlopen(request) as answer:
        policy = answer.headers["Content-Security-Policy"]
    [number] = [number for number, name in enumerate(NAMES) if name in policy]
    return number


class Student(threading.Thread):
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


def test_a_replica_dies_under_load_and_every_page_goes_on_with_its_scene(replicas, nginx, tabs, settled, eye):
    address = nginx([server.address for server in replicas])
    routes = [[], []]
    for number in range(100):
        routes[replica_of(address, f"student-{number}")].append(f"student-{number}")
    chosen = [route for of_replica in routes for route in of_replica[:STUDENTS]]
    students = [Student(address, route, f"The {route.replace('-', ' ')} is here.") for route in chosen]
    assert len(students) == 2 * STUDENTS
    with tabs(viewport={"width": 1440, "height": 900}, color_scheme="light") as page:
        page.goto(f"{address}/?{urlencode({'text': 'Is France cold?', 'twin': '', 'h': 8})}")
        settled(page)
        view = eye(page)
        assert view.words() == ["[CLS]", "Is", "France", "cold", "?"]
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
        expect(page.locator(".panel .strip bdi").nth(2)).to_have_text("it")
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


def test_the_proxy_closes_the_metrics_compresses_scripts_and_logs_no_sentence(replicas, nginx, tmp_path):
    address = nginx([server.address for server in replicas])
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{address}/_stcore/metrics")
    page = urllib.request.urlopen(f"{address}/?text=secret").read().decode()
    [script] = re.findall(r'src="\./(static/js/index[^"]+)"', page)
    request = urllib.request.Request(f"{address}/{script}", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    log = (tmp_path / "access.log").read_text(encoding="utf-8")
    assert script in log
    assert "secret" not in log
