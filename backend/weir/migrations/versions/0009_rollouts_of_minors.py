"""rollouts of minors

Revision ID: 0009
Revises: 0008
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0009"
down_revision: str | None = "0008"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("rollout_members", sa.Column("previous_version", sa.String(), nullable=True))
    op.add_column("rollout_members", sa.Column("target_version", sa.String(), nullable=True))
    op.add_column("rollout_members", sa.Column("downtime_seconds", sa.Float(), nullable=True))
    op.add_column("rollout_members", sa.Column("back_downtime_seconds", sa.Float(), nullable=True))


def downgrade() -> None:
    for name in ("back_downtime_seconds", "downtime_seconds", "target_version", "previous_version"):
        op.drop_column("rollout_members", name)
