"""A class on one server: its time for each interaction, and a student's wait, against a trivial page.

Run it with ``python tests/bench/bench_class.py`` (``--students 1 20``, ``--seconds 30``); the last lines are
one JSON object each. Each student is a websocket that speaks Streamlit's protocol as the browser does: it
opens Heads, waits for about `THINK` seconds, and types another sentence (40 %), chooses another number of
heads, width or source (20 %), or opens another page (40 %). Actions that the browser handles alone (heads,
words, layers, drawings) cost the server nothing and are not included.

The baseline is a page with one slider and one line, with the same options of Streamlit, in the same run; the
same page with Streamlit's defaults is printed beside it. Each ratio is the median of `--rounds` lessons, each
followed by one of the baseline, since the speed of a machine varies. Processor seconds are those of the
server's process (Linux). The students share the machine with the server.

    python tests/bench/bench_class.py                  # 1, 20, 50 and 100 students, 17 minutes
    python tests/bench/bench_class.py --lang zh        # in Chinese
    python tests/bench/bench_class.py --lesson         # all do the first lesson: a screen, its answer, …
    python tests/bench/bench_class.py --soak 600       # does the memory of a server with 50 students grow?
    python tests/bench/bench_class.py --behind         # how long a short text waits behind a long one
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

from chromium import Server
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = (
    "--runner.postScriptGC",
    "false",
    "--server.fileWatcherType",
    "none",
)  # as in .streamlit/config.toml
TRIVIAL = """
import streamlit as st

st.write(st.slider("number", 0, 1000, key="number"))
"""
THINK = 4.0  # seconds, on average
OPENING = 2.0  # seconds during which all students open the page
LIMIT = 120  # seconds after which an answer counts as an error
SENTENCES = [
    "The animal didn't cross the street because it was too tired.",
    "The animal didn't cross the street because it was too wide.",
    "The trophy didn't fit in the box because it was too big.",
    "The trophy didn't fit in the box because it was too small.",
    "The dog chased the cat because it was hungry.",
    "The man lost the key because it was small.",
    "The child ate the apple because it was sweet.",
    "The teacher read the book because it was short.",
]
SIZES = [
    ("h", 1),
    ("h", 2),
    ("h", 4),
    ("h", 8),
    ("d_model", 32),
    ("d_model", 64),
    ("shown_source", "random"),
    ("shown_source", "trained"),
]
SOURCES = {"random": "random", "trained": "mini"}  # in the link
PAGES = ["", "token", "steps", "what-if", "embeddings", "compare"]
MAX_SECONDS, MAX_MIDDLE, MAX_SLOW = (
    6,
    15,
    30,
)  # times the trivial page: processor, median, 95th percentile
# For the largest class: seconds of the 95th percentile, and the added seconds to the first picture.
MAX_ANSWER, MAX_OPENING = 2, 3
# Students, seconds before memory is measured, and its growth. After a minute the cache of traces is full; the
# results computed from them follow, until about 3,000 answers.
SOAKING, WARM, MAX_GROWTH = 50, 240, 1.05
# One answer to each screen of the first lesson; of the numbers of words any will do.
LESSON = {"lesson": "heads"}
ANSWERS = ["{}", "{}", "{}", "5,{}", "3:60,7:40", SENTENCES[1], "It finds the noun."]
LONG_TEXT = "word " * 4096
ONE_SERVER = 50  # most students for whom the slowest answers have a target ratio
MAX_BEHIND = 2  # multiples of the usual time


class BenchServer(NamedTuple):
    """A server: its script, Streamlit's options, where it runs, whether it is ours; what its links say."""

    script: Path
    options: tuple[str, ...]
    folder: Path
    ours: bool
    link: tuple[tuple[str, str], ...] = ()
    is_lesson: bool = False


@dataclass
class Measured:
    """The measurements of one class: seconds of each answer, and bytes; opening the page is separate."""

    opened: list[float] = field(default_factory=list)
    answered: list[float] = field(default_factory=list)
    received: int = 0
    errors: list[str] = field(default_factory=list)


class Student:
    """One open page: the state that a browser keeps and the messages it sends."""

    def __init__(self, kind: BenchServer, measured: Measured, seed: int, think: float = THINK):
        self.kind, self.measured, self.draw, self.think = kind, measured, random.Random(seed), think
        self.ids: dict[str, str] = {}  # of the controls on the page, by their keys
        self.values: dict[str, dict] = {}  # what was chosen in them, by their ids
        self.query: dict[str, str] = dict(kind.link)
        self.pages: dict[str, str] = {}
        self.page = ""
        self.cached: set[str] = set()
        self.steps = 0  # of the lesson: each screen is opened, then answered

    async def attend(self, address: str, until: float) -> None:
        """Open the page, and interact until the lesson ends."""
        try:
            url = address.replace("http", "ws") + "/_stcore/stream"
            async with connect(url, subprotocols=["streamlit"], max_size=None, open_timeout=LIMIT) as socket:
                self.measured.opened.append(await self.ask(socket))
                while (pause := self.draw.uniform(0.5, 1.5) * self.think) + time.monotonic() < until:
                    await asyncio.sleep(pause)
                    self.choose()
                    self.measured.answered.append(await self.ask(socket))
        except (WebSocketException, OSError, TimeoutError, RuntimeError) as error:
            self.measured.errors.append(repr(error))

    def choose(self) -> None:
        if not self.kind.ours:
            self.set("number", double_array_value={"data": [self.draw.randrange(1000)]})
            return
        if self.kind.is_lesson:
            self.go_on()
            return
        act = self.draw.random()
        if act < 0.4 and "text" in self.ids:
            sentence = self.draw.choice(SENTENCES)
            self.query["text"] = sentence
            self.set("text", string_value=sentence)
        elif act < 0.6 and "shown_source" in self.ids:
            name, value = self.draw.choice(SIZES)
            if name not in self.ids:
                return
            if name == "shown_source":
                self.query["source"] = SOURCES[value]
                self.set(name, string_value=value)
            else:
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
        self.query = dict(self.kind.link) | LESSON | {"screen": str(screen + 1)}
        if is_answered:
            answer = ANSWERS[screen].format(self.draw.randint(1, 13))
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
        heard = set()
        while True:
            data = await socket.recv()
            self.measured.received += len(data)
            message = ForwardMsg.FromString(data)
            heard.add(
                message.ref_hash or message.hash if message.metadata.cacheable or message.ref_hash else ""
            )
            what = message.WhichOneof("type")
            self.hear(message)
            if what == "delta":
                self._note(message.delta.new_element)
            elif what == "navigation":
                self.pages = {
                    page.url_pathname: page.page_script_hash for page in message.navigation.app_pages
                }
            elif what == "script_finished" and message.script_finished != ForwardMsg.FINISHED_EARLY_FOR_RERUN:
                self.cached = heard - {""}
                return

    def hear(self, message: ForwardMsg) -> None:
        """What else a kind of student takes from a message."""

    def _note(self, element) -> None:
        what = element.WhichOneof("type")
        if what == "exception":
            raise RuntimeError(f"{element.exception.type}: {element.exception.message}")
        key = getattr(getattr(element, what), "id", "") if what else ""
        name = key.rpartition("-")[2]
        if key and name in ("text", "shown_source", "h", "d_model", "number"):
            self.ids[name] = key


async def lesson(
    kind: BenchServer, address: str, students: int, seconds: float, *, think: float = THINK
) -> Measured:
    """This many students for this many seconds after all have opened the page."""
    measured, until = Measured(), time.monotonic() + OPENING + seconds

    async def come(number: int) -> None:
        await asyncio.sleep(OPENING * number / students)
        await Student(kind, measured, number, think).attend(address, until)

    await asyncio.gather(*(come(number) for number in range(students)))
    return measured


@contextlib.contextmanager
def running(kind: BenchServer) -> Iterator[Server]:
    server = Server(kind.script, options=kind.options, folder=kind.folder)
    try:
        yield server
    finally:
        server.stop()


def processor(pid: int) -> float:
    """Processor seconds that a process has used."""
    parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> float:
    """Resident memory of a process in megabytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def percentile(seconds: list[float], share: float) -> float:
    return sorted(seconds)[min(int(share * len(seconds)), len(seconds) - 1)]


def measure(name: str, kind: BenchServer, students: int, seconds: float) -> dict:
    """One class on a fresh server after one visit."""
    with running(kind) as server:
        pid = server.process.pid
        asyncio.run(lesson(kind, server.address, 1, 2.5 * THINK))  # warm up the server
        before = processor(pid)
        measured = asyncio.run(lesson(kind, server.address, students, seconds))
        count = len(measured.opened) + len(measured.answered)
        found = {
            "processor": (processor(pid) - before) / max(count, 1),
            "p50": statistics.median(measured.answered or [LIMIT]),
            "p95": percentile(measured.answered or [LIMIT], 0.95),
            "opened_p95": percentile(measured.opened or [LIMIT], 0.95),
            "kB": measured.received / max(count, 1) / 1000,
            "MB": memory(pid),
            "answers": count,
            "errors": len(measured.errors),
        }
    figures = "  ".join(
        f"{what} {value:,.3f}" if isinstance(value, float) else f"{what} {value}"
        for what, value in found.items()
    )
    print(f"{name:18} {students:3}  {figures}", flush=True)
    for error in measured.errors[:3]:
        print("   ", error[:300])
    return found


async def soak(kind: BenchServer, server: Server, students: int, warm: float, seconds: float, **more) -> dict:
    """Megabytes of a server after the warm-up and at the end, each the mean of ten samples; and errors."""
    samples: list[tuple[float, float]] = []

    async def sample() -> None:
        while True:
            samples.append((time.monotonic(), memory(server.process.pid)))
            await asyncio.sleep(seconds / 100)

    start, sampling = time.monotonic(), asyncio.create_task(sample())
    measured = await lesson(kind, server.address, students, warm + seconds, **more)
    sampling.cancel()
    after = [megabytes for moment, megabytes in samples if moment > start + warm]
    before, end = statistics.mean(after[:10]), statistics.mean(after[-10:])
    return {"before": before, "end": end, "errors": measured.errors, "answers": len(measured.answered)}


async def behind(kind: BenchServer, address: str) -> float:
    """The median time of a short text while long ones are computed, as a multiple of its time alone."""
    options = {"uri": address.replace("http", "ws") + "/_stcore/stream", "subprotocols": ["streamlit"]}
    sizes = {"source": "random", "twin": "", "h": "8", "d_model": "512"}
    numbers = iter(range(10**6))

    async def short() -> float:
        student.set("text", string_value=f"a short text, number {next(numbers)}")
        return await student.ask(socket)

    async def long(seed: int) -> float:
        """A long text that nobody has computed, opened by its link: a session takes its link once."""
        other = Student(kind, Measured(), seed)
        other.query = sizes | {"text": LONG_TEXT, "seed": str(seed)}
        async with connect(**options, max_size=None) as own:
            return await other.ask(own)

    student = Student(kind, Measured(), 0)
    student.query = sizes
    async with connect(**options, max_size=None) as socket:
        await student.ask(socket)
        alone = [await short() for _ in range(30)]
        together, long_ones = [], []
        for seed in range(5):
            task = asyncio.create_task(long(seed))
            while not task.done():
                together.append(await short())
            long_ones.append(task.result())
    medians = (statistics.median(seconds) for seconds in (alone, together, long_ones))
    print(
        "short text alone {:.3f} s, behind long ones {:.3f} s; a long one {:.1f} s".format(*medians),
        flush=True,
    )
    return statistics.median(together) / statistics.median(alone)


def line(name: str, value: float, target: float) -> None:
    print(json.dumps({"name": name, "value": round(value, 2), "target": target}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--students", type=int, nargs="+", default=[1, 20, 50, 100])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lang", help="the language of the class, as zh; the sentences stay English")
    parser.add_argument("--lesson", action="store_true", help="all do the first lesson")
    parser.add_argument("--soak", type=float, metavar="SECONDS", help="measure memory alone, this long")
    parser.add_argument("--behind", action="store_true", help="measure a short text behind a long one alone")
    args = parser.parse_args()
    link = (("lang", args.lang),) if args.lang else ()
    ours = BenchServer(ROOT / "app.py", (), ROOT, True, link, args.lesson)
    if args.soak:
        with running(ours) as server:
            found = asyncio.run(soak(ours, server, SOAKING, WARM, args.soak))
        print(f"{found['before']:.0f} MB warm, {found['end']:.0f} MB at the end, {found['answers']} answers")
        line("class_memory_growth", found["end"] / found["before"], MAX_GROWTH)
        line("class_soak_errors", len(found["errors"]), 0)
        return
    if args.behind:
        with running(ours) as server:
            line("class_short_behind_long", asyncio.run(behind(ours, server.address)), MAX_BEHIND)
        return
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.py"
        page.write_text(TRIVIAL, encoding="utf-8")
        trivial = BenchServer(page, OPTIONS, Path(folder), False)
        rounds: dict[int, list[tuple[dict, dict]]] = {}
        for students in args.students:
            rounds[students] = [
                (
                    measure("ours", ours, students, args.seconds),
                    measure("trivial", trivial, students, args.seconds),
                )
                for _ in range(args.rounds)
            ]
            measure("trivial, defaults", trivial._replace(options=()), students, args.seconds)
    name = "lesson" if args.lesson else "class"
    for students, pairs in rounds.items():
        slow = MAX_SLOW if students <= ONE_SERVER else None  # larger classes have a limit in seconds, below
        for what, target in (("processor", MAX_SECONDS), ("p50", MAX_MIDDLE), ("p95", slow)):
            ratio = statistics.median(mine[what] / theirs[what] for mine, theirs in pairs)
            line(f"{name}_{students}_{what}", ratio, target)

    def ours_with(students: int, what: str) -> float:
        return statistics.median(mine[what] for mine, _ in rounds[students])

    least, most = min(rounds), max(rounds)
    line(f"{name}_{most}_p95_seconds", ours_with(most, "p95"), MAX_ANSWER)
    opening = ours_with(most, "opened_p95") - ours_with(least, "opened_p95")
    line(f"{name}_{most}_opening_seconds", opening, MAX_OPENING)
    line(f"{name}_errors", sum(mine["errors"] for pairs in rounds.values() for mine, _ in pairs), 0)


if __name__ == "__main__":
    sys.exit(main())
