"""Fixtures of the browser tests: a real Chromium and a real server. Without a browser only CI fails."""

import base64
import contextlib
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import IO
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Error, expect, sync_playwright

import mha_core as mha
from mha_core.focus.focus import Focus
from mha_core.scene.places import indices
from mha_core.scene.scene import DEFAULTS
from pages._kit import state

ROOT = Path(__file__).parents[2]
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
OPTIONS = [  # no screen, no root's sandbox, and no calls home
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# A page of a test is soon left: its scripts are not optimised, which takes longer than they then save.
BRIEF = "--js-flags=--no-maglev --no-turbofan"
PHONE = "Mozilla/5.0 (Linux; Android 16) AppleWebKit/537.36 Chrome/150.0.0.0 Mobile Safari/537.36"
MAX_PHONE_WIDTH = 640
# A busy machine may take long for what is expected; this ends a test that waits for nothing.
PATIENCE = 180_000
expect.set_options(timeout=PATIENCE)
# Runs in every page before its own scripts: when it last changed, heard the server, asked for a run and saw
# one finished. That is a message of two bytes, ForwardMsg.script_finished; 2 says that another run begins.
WATCH = """(() => {
    const seen = (window.seen = { changed: 0, heard: 0, asked: -1, finished: -1, settled: -1 });
    window.WebSocket = class extends WebSocket {
        constructor(...how) {
            super(...how);
            this.addEventListener('message', ({ data }) => {
                seen.heard = performance.now();
                if (data.byteLength === 2 && new Uint8Array(data)[1] !== 2) seen.finished = seen.heard;
            });
        }
        send(what) {
            seen.asked = performance.now();
            super.send(what);
        }
    };
    new MutationObserver(() => { seen.changed = performance.now(); })
        .observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
})()"""
# A change in one frame is on the screen in the next.
TWO_FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))"
MAX_FRAMES = 1000
# A click or a key asks the server at once or a moment later; where nothing has been asked since the page
# was last settled, it is given that moment. All in milliseconds.
SETTLED = """([quiet, moment, limit]) => new Promise((resolve, reject) => {
    const { seen } = window, start = performance.now();
    const look = () => {
        const now = performance.now();
        const state = document.querySelector('[data-testid=stApp]')?.dataset.testScriptState;
        const loading = document.querySelector('[data-testid=stSkeleton], [data-testid=stAppSkeleton]');
        const calm = now - Math.max(start, seen.changed, seen.asked, seen.heard);
        const enough = seen.asked > seen.settled ? quiet : moment;
        if (state === 'notRunning' && !loading && seen.finished >= seen.asked && calm >= enough) {
            seen.settled = now;
            resolve();
        } else if (now - start > limit) {
            reject(new Error(`not settled: ${JSON.stringify({ ...seen, now, state, loading: !!loading })}`));
        } else setTimeout(look, 20);
    };
    look();
})"""


def patient(make: Callable) -> Callable:
    """The same function; what it makes waits long for what is expected."""

    def made(**settings):
        waits = make(**settings)
        waits.set_default_timeout(PATIENCE)
        return waits

    return made


@pytest.fixture(scope="session")
def browser():
    found = program()
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("CI must have Chromium; .ci/run installs it")
        pytest.skip("no Chromium or Chrome on this machine")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=[*OPTIONS, BRIEF])
        browser.new_context, browser.new_page = patient(browser.new_context), patient(browser.new_page)
        yield browser
        browser.close()


@pytest.fixture
def serve():
    """`serve(base="a/b")`: start a fresh server, below that path; returns its address."""
    running = []

    def start(**how) -> str:
        running.append(Server(**how))
        return running[-1].address

    yield start
    for server in running:
        server.stop()


@pytest.fixture(scope="session")
def app():
    """The address of one server that most tests share."""
    server = Server()
    yield server.address
    server.stop()


@pytest.fixture(scope="session")
def school(tmp_path_factory):
    """A server with rooms: `school.server`, their database `school.rooms`, its file, and the server's log.

    Each test opens rooms of its own in it.
    """
    pytest.importorskip("sqlalchemy", reason="the extra [room] is not installed")
    from mha_core.room import rooms
    from pages._server.rooms import ROOMS

    folder = tmp_path_factory.mktemp("school")
    file, log = folder / "rooms.sqlite3", folder / "log.txt"
    with log.open("wb") as written:
        with pytest.MonkeyPatch.context() as environment:  # of this server alone: others have no rooms
            environment.setenv(ROOMS, "1")
            environment.setenv(rooms.DATABASE, f"sqlite:///{file}?timeout=1")
            server = Server(log=written, options=["--logger.level", "debug"])
        with contextlib.closing(rooms.Rooms(f"sqlite:///{file}")) as opened:
            yield SimpleNamespace(server=server, app=server.address, rooms=opened, file=file, log=log)
    server.stop()


@pytest.fixture(scope="session")
def tabs(browser):
    """`with tabs(viewport=…) as page`: a tab on that kind of screen.

    A tab that was given back is reused: compiling the app's scripts takes most of the time of a visit.
    """
    profiles, free = {}, {}

    @contextlib.contextmanager
    def lend(*, viewport: dict, color_scheme: str, **settings):
        key = str(settings)
        if key not in profiles:
            profiles[key] = browser.new_context(**{"locale": "en-US"} | settings)
            profiles[key].add_init_script(WATCH)
        page = free[key].pop() if free.get(key) else profiles[key].new_page()
        page.bring_to_front()  # one behind another tab is painted once a second
        page.set_viewport_size(viewport)
        page.emulate_media(media="null", color_scheme=color_scheme, reduced_motion="null")
        yield page
        # Fails where the page has crashed: it is not lent again.
        page.evaluate("localStorage.clear(), sessionStorage.clear()")
        if page.url.startswith("http"):  # a saved page has nobody to ask and may stay open
            try:  # about:blank would end the process that has compiled the scripts
                page.goto(urljoin(page.url, "/_stcore/health"))
            except Error:  # the server has ended, and the tab with it
                page.close()
                return
        page.context.clear_cookies()  # now that no script of the page can write the chosen language once more
        page.mouse.up()
        page.mouse.move(0, 0)
        for pressed in ("Control", "Shift"):
            page.keyboard.up(pressed)
        free.setdefault(key, []).append(page)

    yield lend
    for context in profiles.values():
        context.close()


@pytest.fixture
def host():
    """`host("<iframe …>")`: the address of a page with this body on another site, localhost."""
    pages = {}

    class Site(BaseHTTPRequestHandler):
        def do_GET(self):
            body = pages.get(self.path, "").encode()
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    def page(body: str) -> str:
        path = f"/{len(pages)}"
        pages[path] = f'<!doctype html><html lang="en"><title>Course</title><body>{body}</body></html>'
        return f"http://localhost:{site.server_port}{path}"

    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        yield page
        site.shutdown()


@pytest.fixture(scope="session")
def strict_browser(browser, tmp_path_factory):
    """A browser that blocks the cookies of other sites, as many now do."""
    profile = tmp_path_factory.mktemp("profile")
    (profile / "Default").mkdir()
    settings = json.dumps({"profile": {"cookie_controls_mode": 1}})
    (profile / "Default" / "Preferences").write_text(settings, encoding="utf-8")
    how = {"args": [*OPTIONS, BRIEF], "locale": "en-US", "viewport": {"width": 1100, "height": 800}}
    context = browser.browser_type.launch_persistent_context(profile, executable_path=program(), **how)
    context.add_init_script(WATCH)
    context.set_default_timeout(PATIENCE)
    yield context
    context.close()


@pytest.fixture
def strict(strict_browser):
    """A tab of that browser."""
    page = strict_browser.new_page()
    yield page
    page.close()
    strict_browser.clear_cookies()


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """`folder("gpt2")`: the path of a folder with a tiny model of that architecture, made once."""
    from tests.sources import tiny  # transformers

    return tiny.folders(tmp_path_factory)


@pytest.fixture
def model(visit, app, folder):
    """`model("bert", "model", head=2)`: a page on that model."""

    def open_(family: str, page: str = "", *, width: int = 1440, **link):
        asked = urlencode({"source": "model", "model": folder(family), "twin": ""} | link)
        return visit(f"{app}/{page}?{asked}", width=width)

    return open_


@pytest.fixture
def visit(tabs):
    """Open an address in a tab of its own and wait until the page has been drawn; without one, an empty tab.

    `sent` and `heard` collect the messages to and from the server. A `first` visit has an empty browser
    cache, and until the page is drawn a processor that is so many times `slower`. At the end of the test no
    script of the page may have failed.
    """
    failures = []

    def failed(error) -> None:
        failures.append(str(error))

    def told(message) -> None:
        if broken(message):
            failures.append(message.text)

    def open_page(
        address: str = "",
        *,
        theme: str = "light",
        width: int = 1440,
        height: int = 900,
        touch: bool = False,
        scale: int = 1,
        first: bool = False,
        slower: int = 1,
        sent: list | None = None,
        heard: list | None = None,
    ):
        screen = {"width": width, "height": height}
        of = {"viewport": screen, "color_scheme": theme, "has_touch": touch, "device_scale_factor": scale}
        if width <= MAX_PHONE_WIDTH:
            of["user_agent"] = PHONE
        page = lent.enter_context(tabs(**of))

        def connected(socket) -> None:
            for event, messages in (("framesent", sent), ("framereceived", heard)):
                if messages is not None:
                    socket.on(event, lambda frame, messages=messages: messages.append(frame))

        for event, listener in (("pageerror", failed), ("console", told), ("websocket", connected)):
            page.on(event, listener)
            lent.callback(page.remove_listener, event, listener)
        if first:
            page.goto("about:blank")
            session = page.context.new_cdp_session(page)
            session.send("Network.enable")
            session.send("Network.setCacheDisabled", {"cacheDisabled": True})
            session.send("Emulation.setCPUThrottlingRate", {"rate": slower})
            lent.callback(session.detach)
        if address:
            page.goto(address)
            settle(page)
        if first:
            session.send("Emulation.setCPUThrottlingRate", {"rate": 1})
        return page

    with contextlib.ExitStack() as lent:
        yield open_page
    assert failures == []


@pytest.fixture
def alone(tabs):
    """Open a saved page without a network; at the end it must have had no errors and no requests."""
    failures, asked = [], []

    def open_page(
        file: Path, *, theme: str = "light", width: int = 1100, height: int = 900, touch: bool = False
    ):
        screen = {"width": width, "height": height}
        page = lent.enter_context(tabs(viewport=screen, color_scheme=theme, has_touch=touch, offline=True))
        listeners = {
            "pageerror": lambda error: failures.append(str(error)),
            "console": lambda message: failures.append(message.text) if message.type == "error" else None,
            "request": lambda request: asked.append(request.url),
        }
        for event, listener in listeners.items():
            page.on(event, listener)
            lent.callback(page.remove_listener, event, listener)
        page.goto(file.as_uri())
        page.locator(".view .panel .status span").first.wait_for()
        return page

    with contextlib.ExitStack() as lent:
        yield open_page
    assert failures == []
    assert [url for url in asked if not url.startswith(("file:", "blob:", "data:"))] == []


@pytest.fixture
def view_of(alone, tmp_path):
    """`view_of()`: the first view of Heads, at head 4, or that of another scene, as a saved page.

    The view behaves as in the app, and opens at once.
    """

    def open_view(*, touch: bool = False, **changed) -> Eye:
        focus = Focus.of_link({"head": "4"} | changed)
        controls = {name: value for name, value in changed.items() if name in state.CONTROLS}
        scene = replace(DEFAULTS, focus=focus, **controls)
        traces = [mha.trace(**scene.settings(text)) for text in (scene.text, scene.twin) if text]
        layer, head, token = indices(traces[0], scene.focus)
        view = traces[0].view(layer=layer, head=head, token=token, beside=(*traces, None)[1])
        others = [other for other in range(traces[0].layers[layer].n_heads) if other != head]
        view.header["on"] = sorted([head, *others[-1:]])
        view.save(tmp_path / "view.html")
        shown = Eye(alone(tmp_path / "view.html", width=1300, height=1500, touch=touch))
        shown.boxes("query")
        return shown

    return open_view


# Movements, on the page and in its components, that take long enough to be seen.
MOVING = """all => all.flatMap((e) => e.getAnimations().map(({ effect }) =>
    [e.outerHTML.slice(0, 80), effect.getComputedTiming().activeDuration])).filter(([, ms]) => ms > 1)"""


def matrix_of(page, name: str) -> np.ndarray:
    """The numbers of a picture on Steps, NaN where they are hidden."""
    page.locator(".heatmaps canvas").first.wait_for()
    return numbers_of(page.locator(".heatmaps"), name)


def numbers_of(root, name: str) -> np.ndarray:
    """The numbers of a picture in a head view, or in the pictures of a page."""
    rows, columns, values = root.evaluate(
        """(root, name) => {
            const { gallery } = root.heatmaps ?? root.view.matrices;
            const { rows, columns, values } = gallery.pictures[name].map.numbers;
            return [rows.length, columns.length, [...values].map((x) => Number.isNaN(x) ? null : x)];
        }""",
        name,
    )
    return np.float32([np.nan if value is None else value for value in values]).reshape(rows, columns)


def cell_box(canvas, row: int, column: int) -> list[float]:
    """Where a cell of a matrix is on its canvas, behind the labels above and to the left: left, top, size."""
    return canvas.evaluate(
        """(canvas, [row, column]) => {
            const root = canvas.closest('.view, .heatmaps');
            const { enlarged, pictures } = (root.heatmaps ?? root.view.matrices).gallery;
            const all = [enlarged, ...Object.values(pictures).map(({ map }) => map)];
            const { left, above, viewport: { cell, high } } = all.find((one) => one.canvas === canvas);
            return [left + column * cell, above + row * high, cell, high];
        }""",
        [row, column],
    )


def over_cell(canvas, row: int, column: int) -> None:
    """Hover over a cell of a matrix."""
    left, top, wide, high = cell_box(canvas, row, column)
    canvas.hover(position={"x": left + wide / 2, "y": top + high / 2})


def click_cell(canvas, row: int, column: int) -> None:
    """Click on a cell of a matrix."""
    over_cell(canvas, row, column)
    canvas.page.mouse.down()
    canvas.page.mouse.up()


def link_of(page) -> dict[str, str]:
    """The values of the link of a page, without the edition of the trained weights."""
    values = parse_qs(urlsplit(page.url).query, keep_blank_values=True)
    return {name: last for name, [*_, last] in values.items() if name != "weights"}


def pixels(picture) -> np.ndarray:
    """Red, green, blue and opacity of a file, of the picture in an address, or of a canvas."""
    if not isinstance(picture, bytes):
        address = picture if isinstance(picture, str) else picture.evaluate("canvas => canvas.toDataURL()")
        picture = base64.b64decode(address.partition(",")[2])
    return np.array(Image.open(io.BytesIO(picture)).convert("RGBA")).astype(int)


@pytest.fixture(scope="session")
def eye():
    """`eye(page)`: the head view on a page."""
    return Eye


class Eye:
    """Reads and operates a head view; heads, layers and tokens count from 0."""

    def __init__(self, page, key: str = ""):
        self.page = page
        self.view = page.locator(f".st-key-{key} .view" if key else ".view")
        self.view.locator(".panel").first.wait_for()

    def drawn(self) -> None:
        """Wait until the latest changes of the page are drawn."""
        self.page.evaluate(TWO_FRAMES)

    def pooled(self) -> None:
        """Wait until the matrix has all its numbers: they are computed between frames."""
        self.until(lambda: self.view.evaluate("v => v.view.drawings[0].drawing.pooled.done"))

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait this many frames until a condition is true, however slow the machine is."""
        for _ in range(MAX_FRAMES):
            if condition():
                return
            self.drawn()
        raise AssertionError(f"not so after {2 * MAX_FRAMES} frames")

    def away(self) -> None:
        """The pointer leaves the view."""
        self.page.mouse.move(0, 0)

    def panel(self, number: int = 0):
        return self.view.locator(".panel").nth(number)

    def stage(self, number: int = 0):
        return self.view.locator(".stage").nth(number)

    def strip(self, number: int = 0):
        """The words of a sentence above its drawing."""
        return self.view.locator(".strip").nth(number)

    def listbox(self, number: int = 0):
        """The list of tokens that a drawing is to the keyboard and to a screen reader."""
        return self.stage(number).get_by_role("listbox")

    def token(self, at: int, side: str = "query", number: int = 0):
        return self.stage(number).locator(f".token.{side}[data-at='{at}']")

    def words(self, number: int = 0) -> list[str]:
        self.strip(number).locator("bdi").first.wait_for()
        return self.strip(number).locator("bdi").all_inner_texts()

    def word(self, at: int, number: int = 0):
        return self.strip(number).locator(f".token[data-at='{at}']")

    def chosen_word(self, number: int = 0) -> str:
        return self.strip(number).locator(".token[aria-selected=true] bdi").inner_text()

    def pictures(self):
        """The pictures of all heads: each is a button."""
        self.view.locator(".all-heads .grid button").first.wait_for()
        return self.view.locator(".all-heads .grid button")

    def title(self) -> str:
        """The title of the six matrices."""
        return self.view.locator(".under h2").inner_text()

    def matrix(self, name: str) -> np.ndarray:
        """The numbers of one of the six matrices that are drawn: q, k, v, scores, weights, output."""
        return numbers_of(self.view, name)

    def boxes(self, side: str = "token", number: int = 0) -> list[dict]:
        """Where the tokens of a drawing are, all at one time, when it is no longer drawn anew."""
        every = self.stage(number).locator(f".token.{side}")
        read = """all => all.sort((a, b) => a.dataset.at - b.dataset.at)
            .map((e) => e.getBoundingClientRect().toJSON())"""
        before = None
        while before != (now := every.evaluate_all(read)):
            self.drawn()
            before = now
        return now

    def chip(self, name: str):
        """The switch of "head 3", or of "all"."""
        head = name.removeprefix("head ")
        return self.view.locator(".chip.every" if name == "all" else f".chip[data-head='{int(head) - 1}']")

    def button(self, name: str):
        return self.view.get_by_role("button", name=name, exact=True)

    def menu(self, name: str):
        self.view.locator("summary", has_text=name).click()
        return self.view.locator("details[open] .inside")

    def on(self) -> list[int]:
        pressed = self.view.locator(".chip:not(.every)").evaluate_all(
            "all => all.map((chip) => chip.getAttribute('aria-pressed') === 'true')"
        )
        return [head for head, yes in enumerate(pressed) if yes]

    def said(self, number: int = 0) -> str:
        return self.panel(number).locator(".status").inner_text()

    def answered(self, number: int = 0) -> str:
        """The question about the word in focus, and the answer of the model."""
        return " ".join(self.view.locator(".head .answers").nth(number).inner_text().split())

    def lines(self, number: int = 0) -> list[tuple[int, int, int, float]]:
        """The drawn lines: head, query, key, weight."""
        drawn = self.view.evaluate(
            """(view, number) => view.view.drawings[number].drawing.curves
                .map(({ head, query, key, weight }) => [head, query, key, weight])""",
            number,
        )
        return sorted(map(tuple, drawn))

    def place(self, line: tuple[int, int, int], number: int = 0, at: float = 0.5) -> tuple[float, float]:
        """Where a line is on the screen."""
        return self.view.evaluate(
            """(view, [number, [head, query, key], t]) => {
                const { drawing } = view.view.drawings[number];
                const box = drawing.canvas.getBoundingClientRect();
                const { points: p } = drawing.curves.find(
                    (c) => c.head === head && c.query === query && c.key === key
                );
                const s = 1 - t;
                const mix = (i) => s*s*s*p[i] + 3*s*s*t*p[i+2] + 3*s*t*t*p[i+4] + t*t*t*p[i+6];
                return [box.left + mix(0), box.top + mix(1)];
            }""",
            [number, line, at],
        )

    def colours(self, kind: str = "categorical") -> list[str]:
        read = "(v, name) => getComputedStyle(v).getPropertyValue(name).trim()"
        return re.split(r",\s*", self.view.evaluate(read, f"--st-chart-{kind}-colors"))

    def inked(self, colour: str, number: int = 0) -> bool:
        """Is anything on the canvas of a drawing in that colour (#rrggbb), as far as one can see?"""
        drawn = pixels(self.stage(number).locator("canvas"))
        same = np.abs(drawn[..., :3] - [int(colour[i : i + 2], 16) for i in (1, 3, 5)]) <= 3
        return bool((same.all(-1) & (drawn[..., 3] > 128)).any())


def program() -> str | None:
    """The browser on this machine, if there is one."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


def broken(message) -> bool:
    """An error that is ours: Streamlit probes /steps/_stcore/* before it finds its base path."""
    return message.type == "error" and "Failed to load resource" not in message.text


@pytest.fixture(scope="session")
def settled():
    """`settle` for tests that have clicked or typed."""
    return settle


def settle(page) -> None:
    """Wait until the server has answered and nothing on the page changes any more."""
    while True:
        try:
            page.evaluate(SETTLED, [300, 800, PATIENCE])
            return
        except Error as error:
            if "context was destroyed" not in str(error):
                raise
            page.wait_for_load_state()  # another document came meanwhile


class Server:
    """`streamlit run` of the app, or of another script, on a port of this machine, by default a free one.

    Streamlit reads its settings in the folder where it runs.
    """

    def __init__(
        self,
        script: Path = ROOT / "app.py",
        base: str = "",
        options: Sequence[str] = (),
        folder: Path = ROOT,
        port: int = 0,
        log: int | IO = subprocess.DEVNULL,
    ):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # of a server that has just ended
            probe.bind(("127.0.0.1", port))
            port = probe.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}/{base}".rstrip("/")
        place = f"--server.port {port} --server.address 127.0.0.1 --server.headless true".split()
        command = [sys.executable, "-m", "streamlit", "run", str(script), *place, *options]
        self.command, self.folder, self.log = [*command, "--server.baseUrlPath", base], folder, log
        self.environment = os.environ | {"OMP_NUM_THREADS": "1"}  # as the tests: threads wait for each other
        self.start()

    def start(self) -> None:
        """Start it, also anew on the same port once it has ended."""
        self.process = subprocess.Popen(
            self.command,
            cwd=self.folder,
            env=self.environment,
            stdout=self.log,
            stderr=self.log,
        )
        while self.process.poll() is None:  # as long as it may still come
            try:
                with urllib.request.urlopen(f"{self.address}/_stcore/health") as answer:
                    if answer.status == 200:
                        return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError(f"the server ended with the exit code {self.process.returncode}")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=20)
