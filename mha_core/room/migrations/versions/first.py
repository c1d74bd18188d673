"""Rooms, their screens, students and answers."""

import sqlalchemy as sa
from alembic import op

revision = "first"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "rooms",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("code", sa.String(6), nullable=False, unique=True),
        sa.Column("lesson_name", sa.Text, nullable=False),
        sa.Column("lesson", sa.Text, nullable=False),
        sa.Column("secret_hash", sa.LargeBinary, nullable=False),
        sa.Column("key", sa.LargeBinary, nullable=False),
        sa.Column("screen", sa.Integer),
        sa.Column("paused", sa.Boolean, nullable=False),
        sa.Column("together", sa.Boolean, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("opened_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False, index=True),
    )
    op.create_table(
        "screens",
        _of_room(primary_key=True),
        sa.Column("screen", sa.Integer, primary_key=True),
        sa.Column("vote", sa.Integer, nullable=False),
        sa.Column("revealed", sa.Boolean, nullable=False),
    )
    op.create_table(
        "students",
        sa.Column("id", sa.Integer, primary_key=True),
        _of_room(),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("joined_at", sa.BigInteger, nullable=False),
        sa.Column("screen", sa.Integer, nullable=False),
        sa.Column("needs_help", sa.Boolean, nullable=False),
        sa.UniqueConstraint("room_id", "number"),
    )
    op.create_table(
        "answers",
        sa.Column(
            "student_id", sa.Integer, sa.ForeignKey("students.id", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("screen", sa.Integer, primary_key=True),
        sa.Column("vote", sa.Integer, primary_key=True),
        sa.Column("answer", sa.Text, nullable=False),
        sa.Column("language", sa.String(8), nullable=False),
        sa.Column("answered_at", sa.BigInteger, nullable=False),
    )


def _of_room(*, primary_key: bool = False) -> sa.Column:
    room = sa.ForeignKey("rooms.id", ondelete="CASCADE")
    return sa.Column("room_id", sa.Integer, room, primary_key=primary_key, nullable=False)


def downgrade() -> None:
    for name in ("answers", "students", "screens", "rooms"):
        op.drop_table(name)
