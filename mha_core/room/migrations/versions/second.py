"""Students have what their browser drew when it asked for a place."""

import sqlalchemy as sa
from alembic import op

revision = "second"
down_revision = "first"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("students", sa.Column("asked", sa.String(40)))
    op.create_index("students_asked", "students", ["room_id", "asked"], unique=True)


def downgrade() -> None:
    op.drop_index("students_asked", "students")
    op.drop_column("students", "asked")
