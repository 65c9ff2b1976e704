"""where logs were founded

Revision ID: 0010
Revises: 0009
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0010"
down_revision: str | None = "0009"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    # Timelines made before have no rows; the reconciler takes them for founded on every safekeeper.
    op.create_table(
        "timeline_members",
        sa.Column("timeline_id", sa.String(), primary_key=True),
        sa.Column("safekeeper_id", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("founded_at", sa.DateTime(timezone=True)),
        sa.Column("lost_at", sa.DateTime(timezone=True)),
    )


def downgrade() -> None:
    raise NotImplementedError("without these rows an empty safekeeper can pass for a new one")
