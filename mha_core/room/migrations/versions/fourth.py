"""A room has several lessons, in their order."""

import sqlalchemy as sa
from alembic import op

revision = "fourth"
down_revision = "third"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "lessons",
        sa.Column("room_id", sa.Integer, sa.ForeignKey("rooms.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("place", sa.Integer, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
    )
    op.execute(
        "INSERT INTO lessons (room_id, place, name, text) SELECT id, 1, lesson_name, lesson FROM rooms"
    )
    for name in ("lesson_name", "lesson"):
        op.drop_column("rooms", name)


def downgrade() -> None:
    """A room of several lessons has only the first one left."""
    for name in ("lesson_name", "lesson"):
        op.add_column("rooms", sa.Column(name, sa.Text, nullable=False, server_default=""))
    first = "FROM lessons WHERE room_id = rooms.id AND place = 1"
    op.execute(f"UPDATE rooms SET lesson_name = (SELECT name {first}), lesson = (SELECT text {first})")
    op.drop_table("lessons")
