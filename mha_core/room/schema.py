"""The tables of the rooms, and the way from any earlier schema to this one (migrations/)."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)

from mha_core.errors import MhaError

MIGRATIONS = Path(__file__).with_name("migrations")
LOCK = 0x68656164  # of PostgreSQL, while a schema is being changed

metadata = MetaData()


def _of(table: str) -> Column[int]:
    return Column(f"{table}_id", ForeignKey(f"{table}s.id", ondelete="CASCADE"), primary_key=True)


# Times are seconds since 1970, UTC.
rooms = Table(
    "rooms",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("code", String(6), nullable=False, unique=True),
    Column("secret_hash", LargeBinary, nullable=False),  # of the teacher's secret
    Column("key", LargeBinary, nullable=False),  # signs what students hold
    Column(
        "screen", Integer
    ),  # counted through all lessons: the one that the class is on; NULL where each is on their own
    Column("paused", Boolean, nullable=False),
    Column("together", Boolean, nullable=False),  # the teacher reveals what came of answers
    Column("version", Integer, nullable=False),  # counts the teacher's acts
    Column("closed", Boolean, nullable=False, server_default=false()),  # nobody else may join
    Column("paced_at", BigInteger, nullable=False, server_default="0"),  # the class was moved or paused
    Column("opened_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False, index=True),
)
lessons = Table(
    "lessons",
    metadata,
    _of("room"),
    Column("place", Integer, primary_key=True),  # among the lessons of the room, from 1
    Column("name", Text, nullable=False),
    Column("text", Text, nullable=False),  # of its file
)
screens = Table(
    "screens",
    metadata,
    _of("room"),
    Column("screen", Integer, primary_key=True),
    Column("vote", Integer, nullable=False),
    Column("revealed", Boolean, nullable=False),
    Column("revealed_at", BigInteger),
)
students = Table(
    "students",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("room_id", ForeignKey("rooms.id", ondelete="CASCADE"), nullable=False),
    Column("number", Integer, nullable=False),  # in the room, from 1
    Column("name", Text, nullable=False),
    Column("joined_at", BigInteger, nullable=False),
    Column("screen", Integer, nullable=False),
    Column("needs_help", Boolean, nullable=False),
    Column("removed", Boolean, nullable=False, server_default=false()),  # by the teacher
    Column("asked", String(40)),  # what the browser drew for this place, so that it is given once
    UniqueConstraint("room_id", "number"),
    Index("students_asked", "room_id", "asked", unique=True),
)
answers = Table(
    "answers",
    metadata,
    _of("student"),
    Column("screen", Integer, primary_key=True),
    Column("vote", Integer, primary_key=True),
    Column("answer", Text, nullable=False),
    Column("language", String(8), nullable=False),
    Column("answered_at", BigInteger, nullable=False),
    Column("late", String(8), nullable=False, server_default=""),  # a name in `rooms.LATE`
)


def upgrade(engine: Engine, *, locations: tuple[Path, ...] = ()) -> None:
    """Bring a database to the latest schema, an empty one too; servers that start together take turns.

    `locations` are folders with further revisions. Raises `MhaError` for a database of a newer version.
    """
    config = _config(locations)
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise MhaError(
                "The database of the rooms has a schema that this version does not know: {error}. Install "
                "the version of Headscope that wrote it, or a newer one.",
                error=str(error),
            ) from None


def revision(connection: Connection) -> str | None:
    """The schema that a database has."""
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def newest() -> str | None:
    """The schema of this version."""
    return ScriptDirectory.from_config(_config(())).get_current_head()


def _config(locations: tuple[Path, ...]) -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "newline")
    folders = [MIGRATIONS / "versions", *locations]
    config.set_main_option("version_locations", "\n".join(str(one).replace("%", "%%") for one in folders))
    return config
