"""A class in a room: is every answer kept, and what does it cost, beside a trivial page in the same run?

Run it with ``python tests/bench/bench_room.py`` (``--students 100``); the last lines are one JSON object
each. Each student is a websocket as in bench_class.py, which does what a browser does in a room
(assets/components/lesson/seat.js): it joins, asks for the version every two seconds, locks an answer, and
sends it again until the room names it as kept. The teacher takes all from screen to screen, opens a second
vote on two of them and reveals both, while a desk is open. Half of the students keep no cookie, as in another
site's frame. The students of a room act in step, since each waits for the teacher; those of the trivial page
and of lessons alone, which are measured in the same run, do not.

    python tests/bench/bench_room.py                                     # one server, 3 minutes
    python tests/bench/bench_room.py --replicas 2 --minutes 10           # one is killed each minute, and the
                                                                         # network is cut for 30 seconds

Two replicas have a PostgreSQL of their own. What must come out: answers sent = acknowledged = in the database
= in the table that a teacher takes along.
"""

import argparse
import asyncio
import contextlib
import json
import math
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import postgresql
import proxy
from bench_class import (
    ANSWERS,
    LIMIT,
    ROOT,
    TARGETS,
    THINK,
    WORDS,
    BenchServer,
    Measured,
    Student,
    connected,
    measure,
    percentile,
    processor,
    told,
    trivial,
)
from chromium import Server
from measuring import report
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.exceptions import WebSocketException

from mha_core.lessons.lesson import shipped
from mha_core.room import export
from mha_core.room.rooms import DATABASE, Pace, Rooms
from mha_core.scene.scene import Scene

ROOMS = "HEADSCOPE_ROOMS"
LOOKS, AGAIN = 2.0, 4.0  # seconds, as in seat.js
# Screens and votes in the order of the lesson; what a screen comes to is revealed after its second vote.
VOTES = [(1, 1), (2, 1), (2, 2), (3, 1), (4, 1), (5, 1), (5, 2), (6, 1), (7, 1)]
DEAD, CUT = 5.0, 30.0  # seconds that a killed replica, and the network, is away
MAX_BESIDE_LESSONS = 2  # times the processor seconds of an answer to a lesson without a class


@dataclass
class Kept:
    """The answers that each student has locked and heard of, by name, screen and vote."""

    sent: dict[tuple[str, int, int], str] = field(default_factory=dict)
    acknowledged: dict[tuple[str, int, int], str] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)  # from one to the other
    connections: int = 0


@dataclass
class Course:
    """Where the class is: the vote that is open, and the version of the room from which on it is."""

    at: tuple[int, int] = (0, 0)
    version: int = 0
    think: float = THINK
    until: float = math.inf  # when the lesson is over, and nobody waits any longer

    @property
    def is_over(self) -> bool:
        return self.until < math.inf


class Pupil(Student):
    """A student in a room: what the browser holds of it, and what it hears of its teacher."""

    def __init__(self, course: Course, measured: Measured, kept: Kept, number: int, invitation: str):
        super().__init__(BenchServer(Path(), (), Path(), True), measured, number)
        self.course, self.kept, self.invitation = course, kept, invitation
        self.name, self.keeps_cookies = f"student {number}", number % 2 == 0
        self.page, self.query = "lessons", {"room": invitation}
        self.token, self.cookie = "", ""
        self.outbox: dict[tuple[int, int], str] = {}
        self.locked: dict[tuple[int, int], float] = {}
        self.due: dict[tuple[int, int], float] = {}
        self.room: dict = {}

    async def attend(self, address: str, until: float = 0) -> None:
        while self._is_there():
            try:
                await self._sit(address)
            except (WebSocketException, OSError, TimeoutError):
                await asyncio.sleep(self.draw.uniform(0.5, 1.5))
            except RuntimeError as error:
                self.measured.errors.append(repr(error))
                return

    def _is_there(self) -> bool:
        """Until the lesson is over, and what has been locked is kept."""
        return not self.course.is_over or bool(self.outbox and time.monotonic() < self.course.until)

    async def _sit(self, address: str) -> None:
        """One connection: come in, and do what is open until it is cut off or the lesson is over."""
        self.values.clear()
        self.room, self.cached = {}, set()
        async with connected(address, **({"Cookie": self.cookie} if self.cookie else {})) as socket:
            self.kept.connections += 1
            given = socket.response.headers.get("Set-Cookie", "")
            if self.keeps_cookies and given.startswith("headscope_route="):
                self.cookie = given.partition(";")[0]
            self.measured.opened.append(await self.ask(socket))
            sent_at = looked_at = 0.0
            while self._is_there():
                now = time.monotonic()
                if "token" not in self.room:  # at the door
                    what = {"do": "enter", "token": self.token} if self.token else None
                    join = {"do": "join", "name": self.name, "asked": self.invitation + self.name}
                    await self._act(socket, what or join)
                    self.token = self.room.get("token", self.token)
                    continue
                self._answer(now)
                if self.outbox and now - sent_at > AGAIN:
                    (screen, vote), answer = next(iter(self.outbox.items()))
                    sent_at = now
                    what = {"do": "lock", "screen": screen, "vote": vote, "answer": answer, "language": "en"}
                    await self._act(socket, what)
                    if (screen, vote) not in self.outbox:
                        sent_at = 0.0
                elif now - looked_at > LOOKS * self.draw.uniform(0.9, 1.1):
                    looked_at = now
                    version = await self._version(address)
                    if version is not None and version != self.room["version"]:
                        self.query["screen"] = str(self.course.at[0])
                        await self._act(socket, {"do": "look"})
                await asyncio.sleep(0.1)

    def _answer(self, now: float) -> None:
        """Lock an answer to what is open, some time after it was seen."""
        at = self.course.at
        if at == (0, 0) or at in self.locked or self.room["version"] < self.course.version:
            return
        if now < self.due.setdefault(at, now + self.course.think * self.draw.uniform(0.1, 1.5)):
            return
        self.outbox[at] = ANSWERS[at[0] - 1].format(self.draw.randint(1, WORDS))
        self.locked[at] = now
        self.kept.sent[(self.name, *at)] = self.outbox[at]

    async def _send(self, socket, component: str, what: dict) -> None:
        """Send an act of a component as its script does."""
        trigger = f"$$STREAMLIT_INTERNAL_KEY_{self.ids[component]}__events"
        self.values[trigger] = {"json_trigger_value": json.dumps([{"event": "acted", "value": what}])}
        try:
            self.measured.answered.append(await self.ask(socket))
        finally:
            del self.values[trigger]

    async def _act(self, socket, what: dict) -> None:
        """Send an act of the seat, and hear what the room has kept."""
        await self._send(socket, "room", what)
        for key, answer in self.room.get("kept", {}).items():
            screen, vote = map(int, key.split("."))
            if self.outbox.pop((screen, vote), None) is not None:
                self.kept.acknowledged[(self.name, screen, vote)] = answer
                self.kept.seconds.append(time.monotonic() - self.locked[screen, vote])
        if refused := self.room.get("not_taken"):
            raise RuntimeError(f"refused: {refused}")

    async def _version(self, address: str) -> int | None:
        """The version of the room, as a browser asks for it; None where nobody answers."""
        try:
            async with asyncio.timeout(10):
                host = urlsplit(address)
                reader, writer = await asyncio.open_connection(host.hostname, host.port)
                lines = [f"GET /headscope/rooms/{self.invitation} HTTP/1.1", f"Host: {host.netloc}"]
                lines += [f"Cookie: {self.cookie}"] if self.cookie else []
                try:
                    writer.write("\r\n".join([*lines, "Connection: close", "", ""]).encode())
                    answer = await reader.read()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return None
        head, _, body = answer.decode().partition("\r\n\r\n")
        return json.loads(body)["version"] if head.startswith("HTTP/1.1 200") else None

    def _note(self, element) -> None:
        super()._note(element)
        component = element.bidi_component  # empty in other elements
        if component.id.rpartition("-")[2] == "room":
            [self.room] = json.loads(component.json or component.mixed.json)


class Watcher(Pupil):
    """The teacher's desk on a screen of its own, which is drawn anew every two seconds."""

    def __init__(self, course: Course, kept: Kept, code: str, secret: str):
        super().__init__(course, Measured(), kept, 0, "")
        self.query, self.secret, self.fragment = {"desk": code}, secret, ""

    async def _sit(self, address: str) -> None:
        async with connected(address) as socket:
            self.fragment, self.cached = "", set()
            await self.ask(socket)
            await self._send(socket, "desk_door", {"secret": self.secret})
            while not self.course.is_over:
                await asyncio.sleep(LOOKS)
                await self.ask(socket, fragment=self.fragment)

    def hear(self, message: ForwardMsg) -> None:
        if message.WhichOneof("type") == "auto_rerun":
            self.fragment = message.auto_rerun.fragment_id


async def lesson(
    address: str, rooms: Rooms, students: int, seconds: float, troubles=()
) -> tuple[Measured, Kept, dict]:
    """A class through the whole lesson, each vote open so many seconds at least; what is in the database."""
    key = rooms.open(next(iter(shipped().values())))
    desk, invitation = rooms.desk(*key), rooms.invitation(key.code)
    course, measured, kept = Course(think=max(THINK, 0.6 * seconds)), Measured(), Kept()
    pupils = [Pupil(course, measured, kept, number, invitation) for number in range(students)]
    attending = [asyncio.create_task(pupil.attend(address)) for pupil in pupils]
    watching = asyncio.create_task(Watcher(course, kept, *key).attend(address))
    troubling = [asyncio.create_task(trouble) for trouble in troubles]
    while len(await asyncio.to_thread(desk.students)) < students and not measured.errors:
        await asyncio.sleep(0.2)
    for screen, vote in VOTES:
        await asyncio.to_thread(desk.vote_again, screen) if vote == 2 else None
        await asyncio.to_thread(desk.set_pace, Pace(screen))
        course.version = (await asyncio.to_thread(desk.room)).version
        course.at = screen, vote
        opened = time.monotonic()
        while time.monotonic() < opened + seconds or not all((screen, vote) in one.locked for one in pupils):
            if measured.errors:
                break
            await asyncio.sleep(0.1)
        if vote == 2:
            await asyncio.to_thread(desk.reveal, screen)
    course.until = time.monotonic() + LIMIT
    await asyncio.gather(*attending, watching)
    for task in troubling:
        task.cancel()
    await asyncio.gather(*troubling, return_exceptions=True)
    names = {one.number: one.name for one in desk.students()}
    found = {
        "students": len(names),
        "database": {(names[one.student], one.screen, one.vote): one.answer for one in desk.answers()},
        "rows": len(desk.answers()),
        "table": {
            (row["name"], row["screen"], row["vote"]): row["answer"] for row in export.rows(desk, Scene.trace)
        },
    }
    desk.delete()
    return measured, kept, found


def judged(students: int, measured: Measured, kept: Kept, found: dict) -> dict[str, int]:
    """How many answers were locked, heard of as kept, and found; how many are lost, doubled or changed."""
    sent, database = kept.sent, found["database"]
    return {
        "sent": len(sent),
        "acknowledged": len(kept.acknowledged),
        "in_database": found["rows"],
        "in_table": len(found["table"]),
        "lost": len(sent.keys() - database.keys()) + len(sent.keys() - kept.acknowledged.keys()),
        "doubled": found["rows"] - len(database) + max(0, found["students"] - students),
        "changed": sum(database.get(key) != answer for key, answer in sent.items())
        + sum(kept.acknowledged.get(key) != answer for key, answer in sent.items())
        + (found["table"] != database),
        "missing": len(VOTES) * students - len(sent),
        "errors": len(measured.errors),
        "connections": kept.connections,
    }


class Replicas:
    """Servers that share a database, behind nginx; they are killed and come back, and the network is cut."""

    def __init__(self, count: int):
        self.servers = [Server() for _ in range(count)]
        self.stack = contextlib.ExitStack()
        self.kills = 0
        self.connect_network()

    def connect_network(self, port: int = 0) -> None:
        addresses = [server.address for server in self.servers]
        self.address, _ = self.stack.enter_context(proxy.nginx(addresses, port))

    async def die_in_turn(self, every: float) -> None:
        while True:
            await asyncio.sleep(every)
            number = self.kills % len(self.servers)
            dying = self.servers[number]
            dying.process.kill()
            dying.process.wait()
            self.kills += 1
            await asyncio.sleep(DEAD)
            await asyncio.to_thread(self._start_again, number)  # to its end, also when this ends

    def _start_again(self, number: int) -> None:
        self.servers[number] = Server(port=urlsplit(self.servers[number].address).port)

    async def lose_the_network(self, after: float, seconds: float = CUT) -> None:
        await asyncio.sleep(after)
        await asyncio.to_thread(self.stack.close)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(self.connect_network, urlsplit(self.address).port)

    def stop(self) -> None:
        self.stack.close()
        for server in self.servers:
            server.stop()


@contextlib.contextmanager
def database(replicas: int) -> Iterator[Rooms]:
    """The rooms of a database that servers started from here share."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        url = f"sqlite:///{folder}/rooms.sqlite3"
        if replicas > 1:
            url = stack.enter_context(postgresql.running()).database()
        os.environ |= {DATABASE: url, ROOMS: "1"}
        yield stack.enter_context(contextlib.closing(Rooms()))


def with_kills(
    students: int, minutes: float, every: float, rooms: Rooms, *, cut: float = CUT
) -> dict[str, int]:
    """The lesson on two replicas, one of which is killed every so many seconds; the network is cut once."""
    replicas = Replicas(2)
    try:
        troubles = [replicas.die_in_turn(every), replicas.lose_the_network(30 * minutes, cut)]
        seconds = 60 * minutes / len(VOTES)
        measured, kept, found = asyncio.run(lesson(replicas.address, rooms, students, seconds, troubles))
    finally:
        replicas.stop()
    told(f"{students} students, answers kept after", _seconds(kept), measured)
    return judged(students, measured, kept, found) | {"kills": replicas.kills}


def alone(students: int, rooms: Rooms) -> tuple[dict[str, float], dict[str, int]]:
    """The lesson on one server: its figures, and what was kept."""
    server = Server()
    try:
        asyncio.run(lesson(server.address, rooms, 1, 0.5))  # warm up the server
        before, start = processor(server.process.pid), time.monotonic()
        measured, kept, found = asyncio.run(lesson(server.address, rooms, students, 0))
        figures = measured.summary() | {"seconds": time.monotonic() - start}
        figures["processor"] = (processor(server.process.pid) - before) / max(figures["answers"], 1)
    finally:
        server.stop()
    told(f"room {students:12}", figures | _seconds(kept), measured)
    return figures, judged(students, measured, kept, found)


def _seconds(kept: Kept) -> dict[str, float]:
    taken = sorted(kept.seconds) or [math.nan]
    return {f"kept_{name}": percentile(taken, at) for name, at in (("p50", 0.5), ("p95", 0.95), ("last", 1))}


def tell(name: str, found: dict[str, int]) -> None:
    print("  ".join(f"{what} {number}" for what, number in found.items()), flush=True)
    for what in ("lost", "doubled", "changed", "missing", "errors"):
        report(f"{name}_{what}", found[what], 0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--students", type=int, default=100)
    parser.add_argument("--replicas", type=int, choices=[1, 2], default=1)
    parser.add_argument("--minutes", type=float, default=10, help="of the lesson on two replicas")
    args = parser.parse_args()
    with database(args.replicas) as rooms:
        if args.replicas > 1:
            os.environ |= {"STREAMLIT_SERVER_COOKIE_SECRET": "the same for both", "HEADSCOPE_HOSTED": "1"}
            tell("room_killed", with_kills(args.students, args.minutes, 60, rooms))
            return
        mine, found = alone(args.students, rooms)
    with trivial() as page:
        theirs = measure("trivial", page, args.students, mine["seconds"])
    lessons = BenchServer(ROOT / "app.py", (), ROOT, True, is_lesson=True)
    without = measure("lessons alone", lessons, args.students, mine["seconds"])
    tell("room", found)
    for what, target in TARGETS.items():
        report(f"room_{args.students}_{what}", mine[what] / theirs[what], target)
    cost = mine["processor"] / without["processor"]
    report(f"room_{args.students}_beside_lessons", cost, MAX_BESIDE_LESSONS)


if __name__ == "__main__":
    main()
