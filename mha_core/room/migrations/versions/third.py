"""The room knows what comes late: when it was paced and revealed; a door can be closed, a student removed."""

import sqlalchemy as sa
from alembic import op

revision = "third"
down_revision = "second"
branch_labels = None
depends_on = None

ADDED = (
    ("rooms", sa.Column("closed", sa.Boolean, nullable=False, server_default=sa.false())),
    ("rooms", sa.Column("paced_at", sa.BigInteger, nullable=False, server_default="0")),
    ("screens", sa.Column("revealed_at", sa.BigInteger)),
    ("students", sa.Column("removed", sa.Boolean, nullable=False, server_default=sa.false())),
    ("answers", sa.Column("late", sa.String(8), nullable=False, server_default="")),
)


def upgrade() -> None:
    for table, column in ADDED:
        op.add_column(table, column)


def downgrade() -> None:
    for table, column in ADDED:
        op.drop_column(table, column.name)
