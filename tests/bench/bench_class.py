"""A class on one server: its time for each interaction, and a student's wait, against a trivial page.

Run it with ``python tests/bench/bench_class.py`` (``--students 1 20``, ``--seconds 30``); the last lines are
one JSON object each. Each student is a websocket that speaks Streamlit's protocol as the browser does: it
opens Heads, waits for about `THINK` seconds, and types another sentence (40 %), chooses another number of
heads, width or source (20 %), or opens another page (40 %). Actions that the browser handles alone (heads,
words, layers, drawings) cost the server nothing and are not included.

The baseline is a page with one slider and one line, with the same options of Streamlit, in the same run. Each
ratio is the median of `ROUNDS` classes, each followed by one of the baseline, since the speed of a machine
varies. Processor seconds are those of the server's process (Linux). The students share the machine with the
server.
"""

import argparse
import asyncio
import contextlib
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

from chromium import Server
from measuring import ROOT, memory, report
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

# As in .streamlit/config.toml.
OPTIONS = ("--runner.postScriptGC", "false", "--server.fileWatcherType", "none")
TRIVIAL = """
import streamlit as st

st.write(st.slider("number", 0, 1000, key="number"))
"""
THINK = 4.0  # seconds, on average
OPENING = 2.0  # seconds during which all students open the page
LIMIT = 120  # seconds after which an answer counts as an error
ROUNDS = 3
SENTENCES = [
    "The animal didn't cross the street because it was too tired.",
    "The animal didn't cross the street because it was too wide.",
    "The trophy didn't fit in the box because it was too big.",
    "The dog chased the cat because it was hungry.",
    "The child ate the apple because it was sweet.",
    "The teacher read the book because it was short.",
]
SIZES = [("h", 1), ("h", 2), ("h", 4), ("h", 8), ("d_model", 32), ("d_model", 64)]
SOURCES = {"random": "random", "trained": "mini"}  # by what is chosen, in the link
PAGES = ["", "token", "steps", "what-if", "embeddings", "compare"]
# Times the trivial page: processor, median, 95th percentile.
TARGETS = {"processor": 6, "p50": 15, "p95": 30}
ONE_SERVER = 50  # most students for whom the slowest answers have a target ratio
# For the largest class: seconds of the 95th percentile, and the added seconds to the first picture.
MAX_ANSWER, MAX_OPENING = 2, 3
MAX_GROWTH = 1.05  # of the memory, with visits that go (tests/browser/test_class.py)
# One answer to each screen of the first lesson; of the numbers of words any will do.
ANSWERS = ["{}", "{}", "{}", "5,{}", "3:60,7:40", SENTENCES[1], "It finds the noun."]
WORDS = 11  # of the shortest of these sentences, with [CLS] and the stop


class BenchServer(NamedTuple):
    """A server: its script, Streamlit's options, where it runs, whether it is ours, and does a lesson."""

    script: Path
    options: tuple[str, ...]
    folder: Path
    ours: bool
    is_lesson: bool = False


@dataclass
class Measured:
    """The measurements of one class: seconds of each answer, and bytes; opening the page is separate."""

    opened: list[float] = field(default_factory=list)
    answered: list[float] = field(default_factory=list)
    received: int = 0
    errors: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, float]:
        answered = self.answered or [LIMIT]
        return {
            "p50": statistics.median(answered),
            "p95": percentile(answered, 0.95),
            "opened_p95": percentile(self.opened or [LIMIT], 0.95),
            "answers": len(self.opened) + len(self.answered),
            "errors": len(self.errors),
        }


class Student:
    """One open page: the state that a browser keeps and the messages it sends."""

    def __init__(self, kind: BenchServer, measured: Measured, seed: int):
        self.kind, self.measured, self.draw = kind, measured, random.Random(seed)
        self.ids: dict[str, str] = {}  # of the controls on the page, by their keys
        self.values: dict[str, dict] = {}  # what was chosen in them, by their ids
        self.query: dict[str, str] = {}
        self.pages: dict[str, str] = {}
        self.page = ""
        self.cached: set[str] = set()
        self.steps = 0  # of the lesson: each screen is opened, then answered

    async def attend(self, address: str, until: float) -> None:
        """Open the page, and interact until the lesson ends."""
        try:
            async with connected(address) as socket:
                self.measured.opened.append(await self.ask(socket))
                while (pause := self.draw.uniform(0.5, 1.5) * THINK) + time.monotonic() < until:
                    await asyncio.sleep(pause)
                    self.choose()
                    self.measured.answered.append(await self.ask(socket))
        except (WebSocketException, OSError, TimeoutError, RuntimeError) as error:
            self.measured.errors.append(repr(error))

    def choose(self) -> None:
        act = self.draw.random()
        if not self.kind.ours:
            self.set("number", double_array_value={"data": [self.draw.randrange(1000)]})
        elif self.kind.is_lesson:
            self.go_on()
        elif act < 0.4 and "text" in self.ids:
            self.query["text"] = self.draw.choice(SENTENCES)
            self.set("text", string_value=self.query["text"])
        elif act < 0.5 and "shown_source" in self.ids:
            chosen = self.draw.choice([*SOURCES])
            self.query["source"] = SOURCES[chosen]
            self.set("shown_source", string_value=chosen)
        elif act < 0.6 and "h" in self.ids:
            name, value = self.draw.choice([size for size in SIZES if size[0] in self.ids])
            self.query[name] = str(value)
            self.set(name, double_value=value)
        else:
            self.page = self.draw.choice([page for page in PAGES if page != self.page])
            self.values.clear()  # they are in the link now
            self.ids.clear()

    def go_on(self) -> None:
        """Open the next screen of the lesson, or lock in an answer to the one that is open."""
        screen, is_answered = divmod(self.steps, 2)
        screen %= len(ANSWERS)
        self.steps += 1
        self.page = "lessons"
        self.query = {"lesson": "heads", "screen": str(screen + 1)}
        if is_answered:
            answer = ANSWERS[screen].format(self.draw.randint(1, WORDS))
            self.query["answers"] = f"{screen + 1}-{answer}"

    def set(self, key: str, **value) -> None:
        self.values[self.ids[key]] = value

    async def ask(self, socket, *, fragment: str = "") -> float:
        """Send the chosen values; returns the seconds until the page, or this fragment, has run."""
        message = BackMsg()
        state = message.rerun_script
        state.fragment_id, state.is_auto_rerun = fragment, bool(fragment)
        state.query_string = urlencode(self.query)
        state.page_script_hash = self.pages.get(self.page, "")
        state.page_name = "" if self.pages else self.page  # of a visit that begins there
        state.cached_message_hashes.extend(self.cached)
        for key, value in self.values.items():
            name, content = next(iter(value.items()))
            widget = state.widget_states.widgets.add(id=key)
            if isinstance(content, dict):
                getattr(widget, name).data.extend(content["data"])
            else:
                setattr(widget, name, content)
        start = time.perf_counter()
        await socket.send(message.SerializeToString())
        async with asyncio.timeout(LIMIT):
            await self._receive(socket)
        return time.perf_counter() - start

    async def _receive(self, socket) -> None:
        heard: set[str] = set()
        while True:
            data = await socket.recv()
            self.measured.received += len(data)
            message = ForwardMsg.FromString(data)
            if message.metadata.cacheable or message.ref_hash:
                heard.add(message.ref_hash or message.hash)
            what = message.WhichOneof("type")
            self.hear(message)
            if what == "delta":
                self._note(message.delta.new_element)
            elif what == "navigation":
                self.pages = {
                    page.url_pathname: page.page_script_hash for page in message.navigation.app_pages
                }
            elif what == "script_finished" and message.script_finished != ForwardMsg.FINISHED_EARLY_FOR_RERUN:
                self.cached = heard
                return

    def hear(self, message: ForwardMsg) -> None:
        """What else a kind of student takes from a message."""

    def _note(self, element) -> None:
        what = element.WhichOneof("type")
        if what == "exception":
            raise RuntimeError(f"{element.exception.type}: {element.exception.message}")
        key = getattr(getattr(element, what), "id", "") if what else ""
        self.ids |= {key.rpartition("-")[2]: key} if key else {}


def connected(address: str, **headers):
    """The socket of a page of a server."""
    url = address.replace("http", "ws") + "/_stcore/stream"
    how = {"subprotocols": ["streamlit"], "max_size": None, "open_timeout": LIMIT}
    return connect(url, additional_headers=headers, **how)


async def lesson(kind: BenchServer, address: str, students: int, seconds: float) -> Measured:
    """This many students for this many seconds after all have opened the page."""
    measured, until = Measured(), time.monotonic() + OPENING + seconds

    async def come(number: int) -> None:
        await asyncio.sleep(OPENING * number / students)
        await Student(kind, measured, number).attend(address, until)

    await asyncio.gather(*(come(number) for number in range(students)))
    return measured


@contextlib.contextmanager
def running(kind: BenchServer) -> Iterator[Server]:
    server = Server(kind.script, options=kind.options, folder=kind.folder)
    try:
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def trivial() -> Iterator[BenchServer]:
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.py"
        page.write_text(TRIVIAL, encoding="utf-8")
        yield BenchServer(page, OPTIONS, Path(folder), False)


def processor(pid: int) -> float:
    """Processor seconds that a process has used."""
    parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def percentile(seconds: list[float], share: float) -> float:
    return sorted(seconds)[min(int(share * len(seconds)), len(seconds) - 1)]


def told(name: str, figures: dict[str, float], measured: Measured) -> None:
    print(name, "  ".join(f"{what} {value:,.3f}" for what, value in figures.items()), flush=True)
    for error in measured.errors[:3]:
        print("   ", error[:300])


def measure(name: str, kind: BenchServer, students: int, seconds: float) -> dict[str, float]:
    """One class on a fresh server after one visit."""
    with running(kind) as server:
        pid = server.process.pid
        asyncio.run(lesson(kind, server.address, 1, 2.5 * THINK))  # warm up the server
        before = processor(pid)
        measured = asyncio.run(lesson(kind, server.address, students, seconds))
        found = measured.summary()
        count = max(found["answers"], 1)
        found |= {"processor": (processor(pid) - before) / count, "MB": memory(pid) / 1e6}
        found["kB"] = measured.received / count / 1000
    told(f"{name:18} {students:3}", found, measured)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--students", type=int, nargs="+", default=[1, 20, 50, 100])
    parser.add_argument("--seconds", type=float, default=20)
    args = parser.parse_args()
    ours, rounds = BenchServer(ROOT / "app.py", (), ROOT, True), {}
    with trivial() as page:
        for students in args.students:
            ways = {"ours": ours, "trivial": page}
            rounds[students] = [
                [measure(name, kind, students, args.seconds) for name, kind in ways.items()]
                for _ in range(ROUNDS)
            ]
    for students, pairs in rounds.items():
        for what, target in TARGETS.items():
            ratio = statistics.median(mine[what] / theirs[what] for mine, theirs in pairs)
            large = what == "p95" and students > ONE_SERVER  # it has a limit in seconds, below
            report(f"class_{students}_{what}", ratio, None if large else target)

    def ours_with(students: int, what: str) -> float:
        return statistics.median(mine[what] for mine, _ in rounds[students])

    least, most = min(rounds), max(rounds)
    report(f"class_{most}_p95_seconds", ours_with(most, "p95"), MAX_ANSWER)
    opening = ours_with(most, "opened_p95") - ours_with(least, "opened_p95")
    report(f"class_{most}_opening_seconds", opening, MAX_OPENING)
    report("class_errors", sum(mine["errors"] for pairs in rounds.values() for mine, _ in pairs), 0)


if __name__ == "__main__":
    main()
