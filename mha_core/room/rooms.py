"""Rooms in a database: opened by a teacher, entered by a class, and every answer written once.

A `Desk` is what the teacher's secret opens, a `Seat` what a student's token opens. Nothing is kept in memory:
servers that share a database share the rooms. Each act is one transaction; when it returns, it is committed.
"""

import hmac
import math
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, Row, create_engine, delete, event, func, insert, select, update
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from mha_core.cache import Cache
from mha_core.errors import MhaError, shown
from mha_core.lessons.item import Locked
from mha_core.lessons.lesson import Lesson, in_language
from mha_core.lessons.question import MAX_TEXT
from mha_core.room import receipt, schema
from mha_core.room.receipt import ALPHABET, BETWEEN, Receipt
from mha_core.room.schema import answers, lessons, rooms, screens, students

DATABASE = "HEADSCOPE_DATABASE"  # of the environment: the address of the database
CODE_LENGTH = 6
MAX_ROOMS = 1_000  # at the same time
MAX_OPENED = 300  # rooms an hour
MAX_LESSONS = 12  # of a room
MAX_LISTED = 5  # rooms that go on
MAX_STUDENTS = 300  # of a room
MAX_NAME = 40  # characters
MAX_VOTES = 2
# What a late answer comes after: the reveal of its screen, a later vote, a pause, a move to another screen.
LATE = ("revealed", "vote", "paused", "screen")
GRACE = 15  # seconds after an act of the teacher, in which answers may still be on their way
# No database or file can hold half an emoji, and marks of direction would make a name look like another one.
UNWRITABLE = re.compile("[\0\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
PATIENCE = {  # with a database that does not answer, unless its address says another
    "sqlite": {"timeout": "10"},  # seconds
    "postgresql": {"connect_timeout": "5", "tcp_user_timeout": "10000"},  # seconds, milliseconds
}
LOCKED_MS = 10_000  # that a writer of PostgreSQL waits for a lock
POOL_SECONDS = 3  # that a writer waits for a connection; then the browser asks again
DAYS = 30  # a room is kept, if its teacher says no other number
MAX_DAYS = 366
FILE = "file"  # in the information of a connection of SQLite: the identity of its file
EMPTY_SECONDS = 86_400  # a room is kept in which nobody has sat down
CROWDED_SECONDS = 7_200  # it is kept where half of all rooms are taken
DAY = 86_400


class Unavailable(MhaError):
    """The database does not answer now; what was asked can be asked again."""


class Unknown(MhaError):
    """There is no room with that code, or no longer."""


class WrongSecret(MhaError):
    """The secret does not open the teacher's desk of the room, or no longer."""


class RoomKey(NamedTuple):
    """The keys to a new room: the code for the class, and the secret of the teacher's desk."""

    code: str
    secret: str


class Pace(NamedTuple):
    """Where the class is: on one `screen`, or each on their own where it is None; `paused` holds all."""

    screen: int | None = None
    paused: bool = False


@dataclass(frozen=True)
class Room:
    """A room as everybody in it may know it.

    `lesson` is all its `lessons` as one, in which screens are counted, from 1. Nobody else can join one that
    is `closed`. `together` says that what came of an answer is shown when the teacher reveals its screen;
    else each student sees it after their own answer. `votes` has the screens that are voted on again.
    `version` counts the teacher's acts: with the same version the room is the same.
    """

    code: str
    lesson: Lesson
    lessons: tuple[Lesson, ...]
    pace: Pace
    together: bool
    closed: bool
    version: int
    opened: datetime
    expires: datetime
    votes: Mapping[int, int]
    revealed: frozenset[int]

    @property
    def parts(self) -> list[tuple[Lesson, int]]:
        """Each lesson with how many screens come before it."""
        before = accumulate((len(one.screens) for one in self.lessons), initial=0)
        return list(zip(self.lessons, before, strict=False))

    def part(self, screen: int) -> Lesson:
        """The lesson of a screen; beyond the end the last one."""
        return next(lesson for lesson, before in reversed(self.parts) if before < screen)

    def vote(self, screen: int) -> int:
        """Which vote on the screen is open, from 1."""
        return self.votes.get(screen, 1)

    def shows(self, screen: int) -> bool:
        """Whether what came of an answer may be shown to whoever has given one."""
        return not self.together or screen in self.revealed


@dataclass(frozen=True)
class Student:
    """Somebody in a room, by the number in it; `name` is "" without one. `screen` is where they are now."""

    number: int
    name: str
    joined: datetime
    screen: int
    needs_help: bool


@dataclass(frozen=True)
class KeptAnswer:
    """An answer as it was written, with the language in which its question was asked.

    `late` says what it came after, a name in `LATE`; "" if it came in time.
    """

    student: int
    screen: int
    vote: int
    answer: str
    language: str
    at: datetime
    late: str


class Rooms:
    """The rooms of a database, brought to the latest schema. Raises `MhaError` for an address of none.

    `url` is that of SQLAlchemy; without one it is `HEADSCOPE_DATABASE`, else a file of SQLite in the user's
    folder for data.

    >>> from mha_core.lessons.lesson import shipped
    >>> from mha_core.room.rooms import Rooms
    >>> rooms = Rooms("sqlite://")
    >>> key = rooms.open(next(iter(shipped().values())))
    >>> seat = rooms.enter(key.code, rooms.join(key.code, "Ada"))
    >>> seat.keep(1, 1, "3", language="en")
    '3'
    >>> [one.answer for one in rooms.desk(key.code, key.secret).answers()]
    ['3']
    >>> rooms.close()
    """

    def __init__(self, url: str | None = None):
        address = url or os.environ.get(DATABASE) or _file()
        self._engine = _engine(address)
        # Readers have connections of their own: writers wait for each other. In memory there is only one.
        self._readers = _engine(address) if self._engine.url.database else self._engine
        try:
            with _answering():
                schema.upgrade(self._engine)
        except Exception:
            self.close()
            raise

    def open(self, *course: Lesson, together: bool = True, days: int = DAYS) -> RoomKey:
        """Open a room with lessons in their order.

        It is deleted after that many days, or after one in which nobody has joined it. Raises `MhaError`
        where there are too many, and `LessonError` for a lesson that no file can hold.
        """
        if not 1 <= len(course) <= MAX_LESSONS:
            raise MhaError(
                "A room has 1 to {most} lessons; got {count}.", most=MAX_LESSONS, count=len(course)
            )
        _check_days(days)
        secret, now = secrets.token_urlsafe(24), _now()
        files = [(place, one.name, one.write()) for place, one in enumerate(course, start=1)]
        for _, name, text in files:
            Lesson.read(text, name)  # it can be read again
        with self._writing() as act:
            _expire(act, now)
            count = act.scalar(select(func.count()).select_from(rooms)) or 0
            if count >= MAX_ROOMS / 2:
                count -= _expire(act, now, empty_seconds=CROWDED_SECONDS)
            recent = rooms.c.opened_at > now - 3600
            opened = act.scalar(select(func.count()).select_from(rooms).where(recent)) or 0
            if count >= MAX_ROOMS:
                raise MhaError(
                    "This server already has {most:,} rooms, its limit. Try again later.", most=MAX_ROOMS
                )
            if opened >= MAX_OPENED:
                raise MhaError(
                    "{most} rooms were opened here within the last hour, the limit. Try again later.",
                    most=MAX_OPENED,
                )
            taken = set(act.scalars(select(rooms.c.code)))
            code = next(code for code in iter(_new_code, None) if code not in taken)
            room_id = act.scalar(
                insert(rooms)
                .values(
                    code=code,
                    secret_hash=_hash(secret),
                    key=secrets.token_bytes(32),
                    paused=False,
                    together=together,
                    version=1,
                    opened_at=now,
                    expires_at=now + days * DAY,
                )
                .returning(rooms.c.id)
            )
            rows = [{"room_id": room_id, "place": at, "name": name, "text": text} for at, name, text in files]
            act.execute(insert(lessons), rows)
        return RoomKey(code, secret)

    def room(self, code: str) -> Room:
        """The room of a code. Raises `Unknown`."""
        with self._reading() as act:
            return _room(act, _found(act, code))

    def version(self, code: str) -> int:
        """How many acts of its teacher a room has seen. Raises `Unknown`."""
        with self._reading() as act:
            return _found(act, code).version

    def invitation(self, code: str) -> str:
        """The code with a part that cannot be guessed, for links. Raises `Unknown`."""
        with self._reading() as act:
            row = _found(act, code)
            return f"{row.code}{BETWEEN}{receipt.sign(row.key, 'invitation', length=8)}"

    def is_invited(self, text: str) -> bool:
        """Whether that is the invitation of a room."""
        text = text.strip().upper()
        code, _, _ = text.partition(BETWEEN)
        try:
            return hmac.compare_digest(_hash(self.invitation(code)), _hash(text))
        except Unknown:
            return False

    def join(self, code: str, name: str = "", *, asked: str = "") -> str:
        """Sit down in a room: the token that comes back as the same student.

        `asked` is drawn by a browser, up to 40 characters: with the same one it is given the same place, as
        where it has not heard that it has one.

        Raises `Unknown`, and `MhaError` for a long name and a full room.
        """
        name, asked = " ".join(writable(name).split()), writable(asked)[:40]
        if len(name) > MAX_NAME:
            raise MhaError(
                "A name has at most {most} characters; this one has {count}.", most=MAX_NAME, count=len(name)
            )
        with self._writing() as act:
            row = _found(act, code, lock=True)
            same = students.c.room_id == row.id, students.c.asked == asked
            if asked and (number := act.scalar(select(students.c.number).where(*same))):
                return receipt.token(row.key, number)
            if row.closed:
                raise MhaError("The teacher has closed the door of this room: nobody else can join it.")
            here = select(func.count()).select_from(students).where(students.c.room_id == row.id)
            if (act.scalar(here.where(~students.c.removed)) or 0) >= MAX_STUDENTS:
                raise MhaError("A room has at most {most} students; this one is full.", most=MAX_STUDENTS)
            number = (act.scalar(here) or 0) + 1  # the place of a removed student is not given again
            act.execute(
                insert(students).values(
                    room_id=row.id,
                    number=number,
                    name=name,
                    joined_at=_now(),
                    screen=1,
                    needs_help=False,
                    asked=asked or None,
                )
            )
        return receipt.token(row.key, number)

    def enter(self, code: str, token: str) -> "Seat":
        """The seat of a student. Raises `Unknown`, and `MhaError` for a token that the room did not sign."""
        with self._reading() as act:
            row = _found(act, code)
            number = receipt.number_of(row.key, token)
            held = number and act.execute(_student(row.id, number)).first()
            if not held or held.removed:
                raise MhaError("This is not a place in the room, or no longer. Join again with the code.")
            return Seat(self, code, held.number, held.id)

    def desk(self, code: str, secret: str) -> "Desk":
        """The teacher's desk. Raises `Unknown`, and `WrongSecret` for a secret that does not open it."""
        with self._reading() as act:
            row = _found(act, code)
            if not hmac.compare_digest(row.secret_hash, _hash(secret)):
                raise WrongSecret("This link does not open the teacher's desk of the room, or no longer.")
            return Desk(self, code)

    def expire(self) -> int:
        """Delete the rooms whose time is over, with everything in them; how many."""
        with self._writing() as act:
            count = _expire(act, _now())
        self._forget()
        return count

    def check(self) -> None:
        """Raises `Unavailable` where the database takes no answers, has lost a file, or has another schema.

        PostgreSQL writes on into the deleted file of a table until it restarts. It counts the file's size as
        0, though, and that of a table with rows is a page at least.
        """
        with self._writing() as act:
            act.exec_driver_sql("UPDATE alembic_version SET version_num = version_num")
            found = schema.revision(act)
            for table in schema.metadata.sorted_tables if act.dialect.name == "postgresql" else ():
                is_empty = func.pg_relation_size(table.name) == 0
                if act.scalar(select(is_empty & select(table).exists())):
                    raise Unavailable(
                        "The file of the table {table} in the rooms' database was deleted.", table=table.name
                    )
        if found != schema.newest():
            raise Unavailable(
                "The database of the rooms was changed by another version of Headscope (schema {found}).",
                found=found,
            )

    def going_on(self) -> list[tuple[str, datetime, int]]:
        """The latest rooms in which somebody sits: code, day of deletion, and how many students."""
        here = select(rooms.c.code, rooms.c.expires_at, func.count()).join(students).group_by(rooms.c.id)
        kept = here.where(~students.c.removed, rooms.c.expires_at > _now())
        with self._reading() as act:
            found = act.execute(kept.order_by(rooms.c.opened_at.desc()).limit(MAX_LISTED)).all()
        return [(code, _time(expires), count) for code, expires, count in found]

    def counts(self) -> dict[str, int]:
        """How many rooms, students and answers there are, for whoever runs the server."""
        with self._reading() as act:
            return {
                table.name: act.scalar(select(func.count()).select_from(table)) or 0
                for table in (rooms, students, answers)
            }

    def close(self) -> None:
        """Close the connections to the database."""
        self._engine.dispose()
        self._readers.dispose()

    def _forget(self) -> None:
        """Take what is deleted out of the files of SQLite; PostgreSQL does so by itself (autovacuum)."""
        if self._engine.dialect.name == "sqlite":
            with self._reading() as act:
                act.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with _answering(), self._readers.connect() as connection:
            self._check_file(connection)
            yield connection.execution_options(isolation_level="AUTOCOMMIT")

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with _answering(), self._engine.begin() as connection:
            self._check_file(connection)
            yield connection

    def _check_file(self, connection: Connection) -> None:
        """Raises `Unavailable` if the file of SQLite is not the one that a restart would open."""
        opened = connection.connection.info.get(FILE)
        if opened is not None and opened != _identity(str(self._engine.url.database)):
            self._engine.dispose()
            self._readers.dispose()
            raise Unavailable("The file of the rooms' database was deleted or replaced.")


@dataclass(frozen=True)
class Seat:
    """A student's place in a room: what its token may do."""

    _rooms: Rooms
    code: str
    number: int
    _id: int

    def student(self) -> Student:
        """Raises `Unknown` once the room is deleted."""
        with self._rooms._reading() as act:
            return _as_student(self._row(act))

    def keep(self, screen: int, vote: int, answer: str, *, language: str) -> str:
        """Write an answer once; the one that is kept, which is the first that came.

        Raises `Unknown`, and `MhaError` for a screen or a vote that is not open and for a long answer.
        """
        if len(answer) > MAX_TEXT:
            raise MhaError(
                "An answer has at most {most} characters; this one has {count}.",
                most=MAX_TEXT,
                count=len(answer),
            )
        answer = writable(answer)
        with self._rooms._writing() as act:
            self._row(act, lock=True)  # two tabs of one student take turns
            row = _found(act, self.code)
            room, now = _room(act, row), _now()
            _check_screen(room, screen)
            if not 1 <= vote <= room.vote(screen):
                raise MhaError("There is no second vote on screen {screen} yet.", screen=screen)
            same = answers.c.student_id == self._id, answers.c.screen == screen, answers.c.vote == vote
            kept = act.scalar(select(answers.c.answer).where(*same))
            if kept is not None:
                return kept
            act.execute(
                insert(answers).values(
                    student_id=self._id,
                    screen=screen,
                    vote=vote,
                    answer=answer,
                    language=language,
                    answered_at=now,
                    late=_late(act, row, room, screen, vote, now),
                )
            )
        return answer

    def answers(self) -> dict[tuple[int, int], Locked]:
        """The answers of this student, by screen and vote."""
        with self._rooms._reading() as act:
            self._row(act)
            rows = act.execute(select(answers).where(answers.c.student_id == self._id))
            return {(row.screen, row.vote): Locked(row.answer, row.language) for row in rows}

    def late(self) -> int:
        """On how many screens the latest answer of this student came late."""
        with self._rooms._reading() as act:
            return _late_screens(act, self._row(act).id)

    def at(self, screen: int) -> None:
        """The student looks at that screen now."""
        self._update(screen=screen)

    def ask_for_help(self, needs_help: bool) -> None:
        """The student raises a hand, or takes it down."""
        self._update(needs_help=needs_help)

    def receipt(self, day: datetime | None = None) -> str:
        """The code of a receipt for what has been answered until now."""
        count = len({screen for screen, _ in self.answers()})
        with self._rooms._reading() as act:
            row = _found(act, self.code)
        when = (day or datetime.now(UTC)).date()
        return Receipt(row.code, self.number, count, when).written(row.key)

    def _row(self, act: Connection, *, lock: bool = False) -> Row:
        # SQLite gives a free id again.
        of_room = rooms.c.code == self.code, rooms.c.expires_at > _now(), ~students.c.removed
        chosen = select(students).join(rooms).where(students.c.id == self._id, *of_room)
        row = act.execute(chosen.with_for_update(of=students) if lock else chosen).first()
        if row is None:
            raise _unknown(self.code)
        return row

    def _update(self, **values: object) -> None:
        with self._rooms._writing() as act:
            self._row(act)
            act.execute(update(students).where(students.c.id == self._id).values(**values))


@dataclass(frozen=True)
class Desk:
    """The teacher's place: what the secret of a room may do. Everything raises `Unknown` after deletion."""

    _rooms: Rooms
    code: str

    def room(self) -> Room:
        return self._rooms.room(self.code)

    def students(self) -> list[Student]:
        """All who have joined, in that order."""
        with self._rooms._reading() as act:
            room_id = _found(act, self.code).id
            here = students.c.room_id == room_id, ~students.c.removed
            rows = act.execute(select(students).where(*here).order_by(students.c.number))
            return [_as_student(row) for row in rows]

    def answers(self) -> list[KeptAnswer]:
        """All answers, by student, screen and vote."""
        with self._rooms._reading() as act:
            room_id = _found(act, self.code).id
            chosen = (
                select(
                    students.c.number,
                    *answers.c["screen", "vote", "answer", "language", "answered_at", "late"],
                )
                .join(answers, answers.c.student_id == students.c.id)
                .where(students.c.room_id == room_id)
                .order_by(students.c.number, answers.c.screen, answers.c.vote)
            )
            return [
                KeptAnswer(number, screen, vote, answer, language, _time(at), late)
                for number, screen, vote, answer, language, at, late in act.execute(chosen)
            ]

    def answer_count(self) -> int:
        """How many answers there are: with the same number they are the same."""
        with self._rooms._reading() as act:
            room_id = _found(act, self.code).id
            of_room = students.c.id == answers.c.student_id, students.c.room_id == room_id
            return act.scalar(select(func.count()).select_from(answers).where(*of_room)) or 0

    def set_pace(self, pace: Pace) -> None:
        """Take the class to one screen, let it go, or hold it. Raises `MhaError` for no such screen."""
        if pace.screen is not None:
            _check_screen(self.room(), pace.screen)
        self._update(screen=pace.screen, paused=pace.paused, paced_at=_now())

    def set_together(self, together: bool) -> None:
        """Whether answers are revealed by the teacher, or to each after their own."""
        self._update(together=together)

    def close_door(self, closed: bool) -> None:
        """Close the door of the room to others, or open it again."""
        self._update(closed=closed)

    def remove(self, number: int) -> None:
        """Delete a student's name and answers; the student's token opens nothing any more."""
        with self._rooms._writing() as act:
            row = _found(act, self.code, lock=True)
            held = act.execute(_student(row.id, number)).first()
            if held is None:
                raise MhaError("There is no student {number} in this room.", number=number)
            act.execute(delete(answers).where(answers.c.student_id == held.id))
            gone = {"name": "", "needs_help": False, "removed": True, "asked": None}  # who asks again is new
            act.execute(update(students).where(students.c.id == held.id).values(**gone))
            _change(act, row)
        self._rooms._forget()

    def reveal(self, screen: int) -> None:
        """Show what came of their answers on that screen to all who have answered."""
        self._set_screen(screen, revealed=True, revealed_at=_now())

    def conceal(self, screen: int) -> None:
        """Take a reveal back: nobody is shown it any more, and another vote is possible."""
        self._set_screen(screen, revealed=False, revealed_at=None)

    def vote_again(self, screen: int) -> None:
        """Open the second vote on a screen. Raises `MhaError` once the screen is revealed."""
        if screen in self.room().revealed:
            raise MhaError(
                "Screen {screen} has been revealed; vote again on one that has not.", screen=screen
            )
        self._set_screen(screen, vote=MAX_VOTES)

    def helped(self, number: int) -> None:
        """Take down the hand of a student."""
        with self._rooms._writing() as act:
            room_id = _found(act, self.code).id
            same = students.c.room_id == room_id, students.c.number == number
            act.execute(update(students).where(*same).values(needs_help=False))

    def check_receipt(self, text: str) -> Receipt:
        """The receipt of a code. Raises `MhaError` for one that this room did not sign."""
        with self._rooms._reading() as act:
            return Receipt.read(text, _found(act, self.code).key)

    def late(self, number: int) -> int:
        """On how many screens the latest answer of a student came late."""
        with self._rooms._reading() as act:
            row = act.execute(_student(_found(act, self.code).id, number)).first()
            return 0 if row is None else _late_screens(act, row.id)

    def renew(self) -> str:
        """A new secret; the old one opens nothing any more."""
        secret = secrets.token_urlsafe(24)
        self._update(secret_hash=_hash(secret))
        return secret

    def keep_for(self, days: int) -> None:
        """Delete the room that many days from now."""
        _check_days(days)
        self._update(expires_at=_now() + days * DAY)

    def delete(self) -> None:
        """Delete the room with everything in it, now."""
        with self._rooms._writing() as act:
            act.execute(delete(rooms).where(rooms.c.id == _found(act, self.code).id))
        self._rooms._forget()

    def _update(self, **values: object) -> None:
        with self._rooms._writing() as act:
            _change(act, _found(act, self.code, lock=True), **values)

    def _set_screen(self, screen: int, **values: object) -> None:
        _check_screen(self.room(), screen)
        with self._rooms._writing() as act:
            row = _found(act, self.code, lock=True)
            same = screens.c.room_id == row.id, screens.c.screen == screen
            if not act.execute(update(screens).where(*same).values(**values)).rowcount:
                first = {"room_id": row.id, "screen": screen, "vote": 1, "revealed": False}
                act.execute(insert(screens).values(first | values))
            _change(act, row)


def _check_days(days: int) -> None:
    if not 1 <= days <= MAX_DAYS:
        raise MhaError("A room is kept for 1 to {most} days; got {days}.", most=MAX_DAYS, days=days)


def _check_screen(room: Room, screen: int) -> None:
    if not 1 <= screen <= len(room.lesson.screens):
        raise MhaError("This room has no screen {screen}.", screen=screen)


def _found(act: Connection, code: str, *, lock: bool = False) -> Row:
    """The row of a room; `lock` holds further writers of it (in SQLite every writer is alone)."""
    if len(code) != CODE_LENGTH or not set(code) <= set(ALPHABET):
        raise _unknown(code)
    chosen = select(rooms).where(rooms.c.code == code, rooms.c.expires_at > _now())
    row = act.execute(chosen.with_for_update() if lock else chosen).first()
    if row is None:
        raise _unknown(code)
    return row


def _change(act: Connection, room: Row, **values: object) -> None:
    """Write what an act of the teacher changes in the row of a room, and count the act."""
    changed = update(rooms).where(rooms.c.id == room.id)
    act.execute(changed.values(**values, version=rooms.c.version + 1))


def _unknown(code: str) -> Unknown:
    return Unknown(
        "There is no room {code}, or it is closed. Check the six letters and digits with your teacher.",
        code=shown(code),
    )


def _room(act: Connection, row: Row) -> Room:
    of_room = act.execute(select(screens).where(screens.c.room_id == row.id)).all()
    course = _course(act, row)
    return Room(
        code=row.code,
        lesson=course[0],
        lessons=course[1:],
        pace=Pace(row.screen, row.paused),
        together=row.together,
        closed=row.closed,
        version=row.version,
        opened=_time(row.opened_at),
        expires=_time(row.expires_at),
        votes={one.screen: one.vote for one in of_room if one.vote > 1},
        revealed=frozenset(one.screen for one in of_room if one.revealed),
    )


def _late(act: Connection, row: Row, room: Room, screen: int, vote: int, now: int) -> str:
    """The name in `LATE` of an answer that comes late; "" if it is in time, or may have been on its way."""
    told = act.scalar(
        select(screens.c.revealed_at).where(screens.c.room_id == row.id, screens.c.screen == screen)
    )
    if screen in room.revealed:
        return "" if told is not None and now - told <= GRACE else "revealed"
    if now - row.paced_at <= GRACE:
        return ""
    if vote < room.vote(screen):
        return "vote"
    if room.pace.paused:
        return "paused"
    return "" if room.pace.screen in (None, screen) else "screen"


def _late_screens(act: Connection, student_id: int) -> int:
    of_student = select(answers).where(answers.c.student_id == student_id)
    latest = {row.screen: row.late for row in act.execute(of_student.order_by(answers.c.vote))}
    return sum(map(bool, latest.values()))


def _student(room_id: int, number: int) -> Any:
    return select(students).where(students.c.room_id == room_id, students.c.number == number)


def _as_student(row: Row) -> Student:
    return Student(row.number, row.name, _time(row.joined_at), row.screen, row.needs_help)


def _expire(act: Connection, now: int, *, empty_seconds: int = EMPTY_SECONDS) -> int:
    empty = rooms.c.id.not_in(select(students.c.room_id)) & (rooms.c.opened_at <= now - empty_seconds)
    return act.execute(delete(rooms).where((rooms.c.expires_at <= now) | empty)).rowcount


MAX_READ = 64  # rooms whose lessons are kept as they were read, since they never change
_courses: Cache[tuple[Lesson, ...]] = Cache(math.inf, lambda _: 0, max_count=MAX_READ)


def _course(act: Connection, row: Row) -> tuple[Lesson, ...]:
    """All lessons of a room as one, then each of them; they are read once for all who are in it."""

    def read(_key: bytes) -> tuple[Lesson, ...]:
        chosen = select(lessons).where(lessons.c.room_id == row.id).order_by(lessons.c.place)
        parts = [Lesson.read(one.text, one.name) for one in act.execute(chosen)]
        return _joined(parts), *parts

    return _courses.get(row.key, read)


def _joined(parts: Sequence[Lesson]) -> Lesson:
    """Lessons as one, with the screens of all in their order."""
    if len(parts) == 1:
        return parts[0]
    languages = sorted({language for one in parts for language in one.title})
    titles = {language: [in_language(one.title, language) for one in parts] for language in languages}
    return Lesson(
        "+".join(one.name for one in parts),
        sum(one.minutes for one in parts),
        tuple(screen for one in parts for screen in one.screens),
        {language: " · ".join(filter(None, every)) for language, every in titles.items()},
    )


def writable(text: str) -> str:
    """The text without characters that cannot be kept."""
    return UNWRITABLE.sub("", text)


def normalized(code: str) -> str:
    """A code as it is kept, whatever a person typed: spaces, hyphens and small letters."""
    return "".join(character for character in code.upper() if character.isalnum())


def _new_code() -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(CODE_LENGTH))


def _hash(secret: str) -> bytes:
    return sha256(secret.encode(errors="surrogatepass")).digest()


def _now() -> int:
    return int(time.time())


def _time(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


@contextmanager
def _answering() -> Iterator[None]:
    """Raises `Unavailable` where the database does not do what it is asked."""
    try:
        yield
    except IntegrityError:
        raise  # a mistake of ours
    except (DBAPIError, PoolTimeout) as error:
        cause = getattr(error, "orig", error)  # SQLite has one class for a full disk, a lock and all else
        reason = getattr(cause, "sqlite_errorname", type(cause).__name__)
        raise Unavailable(
            "The database of the rooms does not answer now ({reason}).", reason=reason
        ) from error


def _file() -> str:
    folder = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "headscope"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MhaError(
            "The database of the rooms cannot be in {folder} ({reason}). {name} names another place, as "
            "sqlite:////data/rooms.sqlite3.",
            folder=str(folder),
            reason=type(error).__name__,
            name=DATABASE,
        ) from None
    return f"sqlite:///{folder / 'rooms.sqlite3'}"


def _engine(url: str) -> Engine:
    try:
        address = make_url(url)
        name = address.get_backend_name()
        if name not in PATIENCE:
            raise ArgumentError
        if name == "postgresql":  # by the driver that comes with the extra
            address = address.set(drivername="postgresql+psycopg")
        waiting = {"pool_timeout": POOL_SECONDS} if address.database else {}
        engine = create_engine(
            address.set(query=PATIENCE[name] | address.query), pool_pre_ping=True, **waiting
        )
    except (ArgumentError, NoSuchModuleError):
        raise MhaError(
            "{name} is the address of a database of SQLite or PostgreSQL, as sqlite:///rooms.sqlite3 or "
            "postgresql://user:password@host/name.",
            name=DATABASE,
        ) from None
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _settle)
        event.listen(engine, "begin", _begin)
    else:
        event.listen(engine, "connect", _wait_for_locks)
    return engine


def _identity(path: str) -> tuple[int, int] | None:
    """The identity of a file, which another one of the same name does not have; None without a file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _settle(connection: Any, record: Any) -> None:
    """A connection of SQLite: it writes before it says so, and deletes what belongs."""
    [_, _, path] = connection.execute("PRAGMA database_list").fetchone()
    if path:
        record.info[FILE] = _identity(path)
    connection.isolation_level = None  # transactions begin below
    for setting in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON"):
        connection.execute(f"PRAGMA {setting}")


def _wait_for_locks(connection: Any, _record: Any) -> None:
    """A connection of PostgreSQL: it waits for others as long as one of SQLite, and not for ever."""
    connection.execute(f"SET lock_timeout = {LOCKED_MS}")
    connection.commit()


def _begin(connection: Connection) -> None:
    """A writer of SQLite waits its turn at once; who only reads begins nothing, and waits for nobody."""
    if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
        connection.exec_driver_sql("BEGIN IMMEDIATE")
