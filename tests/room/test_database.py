"""The database of the rooms: its schema, what deleting leaves, and when it does not answer."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, event, inspect, text

from mha_core import MhaError
from mha_core.room import rooms as module
from mha_core.room import schema
from mha_core.room.receipt import token
from mha_core.room.rooms import DATABASE, Rooms, Unavailable

LATER = '''
"""Students may say in which group they are."""
import sqlalchemy as sa
from alembic import op

revision = "later"
down_revision = "fourth"
branch_labels = None
depends_on = None


def upgrade():
    with op.batch_alter_table("students") as students:
        students.add_column(sa.Column("team", sa.Text, nullable=False, server_default="none"))
'''


@pytest.fixture
def filled(rooms, key, desk, sit):
    """A room with an answer."""
    sit("Ada").keep(1, 1, "3", language="en")
    desk.reveal(1)
    return rooms


# The schema


def test_the_tables_are_what_the_migrations_make(rooms):
    with rooms._engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), schema.metadata) == []
        assert schema.revision(connection) == schema.newest() == "fourth"
    keys = inspect(rooms._engine).get_foreign_keys("answers")
    assert [key["options"].get("ondelete") for key in keys] == ["CASCADE"]


def test_a_later_schema_keeps_what_is_there(filled, key, desk, tmp_path):
    (tmp_path / "later.py").write_text(LATER, encoding="utf-8")
    before = desk.room(), desk.students(), desk.answers()
    schema.upgrade(filled._engine, locations=(tmp_path,))
    assert (desk.room(), desk.students(), desk.answers()) == before
    with filled._engine.connect() as connection:
        assert schema.revision(connection) == "later"
        assert connection.execute(text("SELECT team FROM students")).scalars().all() == ["none"]
    seat = filled.enter(key.code, filled.join(key.code, "Bob"))  # by servers that are still of before
    seat.keep(1, 1, "4", language="en")
    assert [one.answer for one in desk.answers()] == ["3", "4"]
    schema.upgrade(filled._engine, locations=(tmp_path,))
    desk.delete()
    assert set(filled.counts().values()) == {0}


def test_a_database_of_the_first_schema_is_brought_to_this_one(url, lesson):
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    config, signing = schema._config(()), b"x" * 32
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "first")
        row = "(1, 'K7QM2X', 'cats', :lesson, :signing, :signing, NULL, FALSE, TRUE, 1, 1, 99999999999)"
        known = {"lesson": lesson.write(), "signing": signing}
        connection.execute(text(f"INSERT INTO rooms VALUES {row}"), known)
        connection.execute(text("INSERT INTO students VALUES (1, 1, 1, 'Ada', 1, 1, FALSE)"))
        connection.execute(text("INSERT INTO answers VALUES (1, 1, 1, '3', 'en', 1)"))
    engine.dispose()
    rooms = Rooms(url)
    assert rooms.counts() == {"rooms": 1, "students": 1, "answers": 1}
    seat = rooms.enter("K7QM2X", token(signing, 1))
    assert (seat.student().name, seat.answers()) == ("Ada", {(1, 1): ("3", "en")})
    assert rooms.room("K7QM2X").lesson == lesson
    rooms.close()


def test_a_migration_that_fails_leaves_the_schema_as_it_was(filled, desk, tmp_path):
    broken = LATER + "    op.execute('this is not SQL')\n"
    (tmp_path / "later.py").write_text(broken, encoding="utf-8")
    before = desk.students()
    with pytest.raises(Exception, match="this is not SQL"):
        schema.upgrade(filled._engine, locations=(tmp_path,))
    with filled._engine.connect() as connection:
        assert schema.revision(connection) == "fourth"
    assert "team" not in {column["name"] for column in inspect(filled._engine).get_columns("students")}
    assert desk.students() == before


def test_a_database_of_a_newer_version_is_refused_and_stays_as_it_is(filled, url, desk):
    with filled._engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'of_2030'"))
    with pytest.raises(MhaError, match=r"this version does not know: .*of_2030.*newer one"):
        Rooms(url)
    assert len(desk.answers()) == 1


TWO = """
import os, sys
from mha_core.room.rooms import Rooms
other = os.fork()
print(Rooms(sys.argv[1]).counts(), flush=True)
sys.exit(bool(other and os.waitpid(other, 0)[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_servers_that_start_together_make_the_schema_once(url):
    how = {"capture_output": True, "text": True, "cwd": Path(__file__).parents[2]}
    done = subprocess.run([sys.executable, "-c", TWO, url], **how)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == 2 * "{'rooms': 0, 'students': 0, 'answers': 0}\n"


def test_an_address_of_no_database_is_refused_with_two_that_work(monkeypatch):
    for address in ("x", "mysql://a/b", "-", "sqlite3:///a"):
        monkeypatch.setenv(DATABASE, address)
        with pytest.raises(
            MhaError, match=r"HEADSCOPE_DATABASE is the address .* sqlite:///.* postgresql://"
        ):
            Rooms()


def test_the_database_is_a_file_of_the_user_unless_named(monkeypatch, tmp_path):
    monkeypatch.delenv(DATABASE, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    Rooms().close()
    assert (tmp_path / "data" / "headscope" / "rooms.sqlite3").exists()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    with pytest.raises(MhaError, match="HEADSCOPE_DATABASE"):
        Rooms()


def test_a_file_that_is_no_database_is_left_alone_and_an_empty_one_becomes_one(tmp_path):
    path, content = tmp_path / "rooms.sqlite3", b"not a database at all" * 100
    path.write_bytes(content)
    with pytest.raises(Unavailable, match="SQLITE_NOTADB"):
        Rooms(f"sqlite:///{path}")
    assert path.read_bytes() == content
    path.write_bytes(b"")
    rooms = Rooms(f"sqlite:///{path}")
    assert rooms.counts()["rooms"] == 0
    rooms.close()


# What deleting leaves

NAME, ANSWER = "Ada Lovelace of Marylebone", "the green caterpillar slept because it was full"


def bytes_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob("rooms.sqlite3*"))


@pytest.mark.parametrize("how", ["by the teacher", "in time"])
def test_nothing_of_a_deleted_room_is_left_in_the_file(file, how, lesson, tmp_path, later):
    key = file.open(lesson)
    desk = file.desk(*key)
    for number in range(40):
        seat = file.enter(key.code, file.join(key.code, f"{NAME} {number}"))
        seat.keep(1, 1, f"{ANSWER} {number}", language="en")
    assert all(words.encode() in bytes_of(tmp_path) for words in (NAME, ANSWER, "the old cat saw it"))
    if how == "in time":
        later(31 * 86_400)
        assert file.expire() == 1
    else:
        desk.delete()
    left = bytes_of(tmp_path)
    assert not [words for words in (NAME, ANSWER, "the old cat saw it") if words.encode() in left]


# When it does not answer


def test_nothing_is_lost_while_the_database_restarts(postgres, lesson):
    rooms = Rooms(postgres.database())
    key = rooms.open(lesson)
    desk, seat = rooms.desk(*key), rooms.enter(key.code, rooms.join(key.code, "Ada"))
    seat.keep(1, 1, "3", language="en")
    postgres.stop()
    try:
        for ask in (
            desk.answers,
            seat.answers,
            rooms.counts,
            rooms.expire,
            lambda: seat.keep(2, 1, "4", language="en"),
            lambda: rooms.join(key.code),
            lambda: rooms.is_invited("A-B"),
            lambda: Rooms(str(rooms._engine.url)),
        ):
            with pytest.raises(Unavailable, match="does not answer now"):
                ask()
    finally:
        postgres.start()
    assert seat.keep(1, 1, "9", language="en") == "3"
    assert seat.keep(2, 1, "4", language="en") == "4"
    assert [(one.screen, one.answer) for one in desk.answers()] == [(1, "3"), (2, "4")]
    assert len(desk.students()) == 1
    rooms.close()


def test_a_deleted_file_of_a_table_is_told_while_the_database_runs(postgres, lesson):
    rooms = Rooms(postgres.database())
    rooms.check()
    key = rooms.open(lesson)
    seat = rooms.enter(key.code, rooms.join(key.code))
    seat.keep(1, 1, "3", language="en")
    rooms.check()
    with rooms._engine.connect() as connection:
        file = connection.exec_driver_sql("SELECT pg_relation_filepath('answers')").scalar()
    away = (postgres.data / file).rename(postgres.data / "away")
    try:
        with pytest.raises(Unavailable, match="file of the table answers in"):
            rooms.check()
    finally:
        away.rename(postgres.data / file)  # the server of the other tests writes it once more
    rooms.close()


def test_a_full_disk_is_told_and_leaves_nothing_half_written(file, lesson, tmp_path):
    key = file.open(lesson)
    desk = file.desk(*key)
    seats = [file.enter(key.code, file.join(key.code)) for _ in range(60)]
    with file._engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
    file._engine.dispose()

    def limit(connection, _record) -> None:
        connection.execute(f"PRAGMA max_page_count={pages + 2}")

    def answer(seat) -> str:
        return seat.keep(1, 1, f"{seat.number} {'x' * 500}", language="en")

    event.listen(file._engine, "connect", limit)
    kept, refused = [], []
    for seat in seats:
        try:
            kept.append(answer(seat))
        except Unavailable as error:
            refused.append(str(error))
    assert kept
    assert set(refused) == {"The database of the rooms does not answer now (SQLITE_FULL)."}
    assert [one.answer for one in desk.answers()] == kept
    event.remove(file._engine, "connect", limit)
    file._engine.dispose()  # there is room again
    for seat in seats:
        answer(seat)
    assert len(desk.answers()) == 60
    with sqlite3.connect(tmp_path / "rooms.sqlite3") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_database_that_is_held_by_another_program_is_waited_for_and_then_told(file, lesson, tmp_path):
    key = file.open(lesson)
    file._engine.dispose()
    event.listen(file._engine, "connect", lambda one, _: one.execute("PRAGMA busy_timeout=100"))
    other = sqlite3.connect(tmp_path / "rooms.sqlite3", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="SQLITE_BUSY"):
        file.join(key.code)
    assert file.room(key.code).code == key.code  # who only reads does not wait
    other.execute("ROLLBACK")
    assert file.join(key.code)
    other.close()


def test_a_table_of_postgresql_that_is_locked_is_waited_for_and_then_told(postgres, lesson, monkeypatch):
    monkeypatch.setattr(module, "LOCKED_MS", 100)
    rooms = Rooms(address := postgres.database())
    key = rooms.open(lesson)
    with psycopg.connect(address) as other:
        other.execute("LOCK TABLE students IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(Unavailable, match="LockNotAvailable"):
            rooms.join(key.code)
    assert rooms.join(key.code)
    rooms.close()
