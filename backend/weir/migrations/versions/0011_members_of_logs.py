"""members of logs

Revision ID: 0011
Revises: 0010
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0011"
down_revision: str | None = "0010"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    # Until now every safekeeper was a member for good. Those that were away at a founding have no row yet; the
    # reconciler makes it.
    op.add_column("timeline_members", sa.Column("state", sa.String(32), nullable=False, server_default="member"))
    op.add_column("timeline_members", sa.Column("since", sa.DateTime(timezone=True)))
    op.execute("UPDATE timeline_members SET since = founded_at")
    op.alter_column("timeline_members", "asked_at", nullable=True)
    op.create_index("ix_timeline_members_safekeeper_id", "timeline_members", ["safekeeper_id"])


def downgrade() -> None:
    raise NotImplementedError("without these rows a former member of a log can pass for one")
