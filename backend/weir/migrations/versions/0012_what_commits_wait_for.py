"""what commits wait for

Revision ID: 0012
Revises: 0011
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0012"
down_revision: str | None = "0011"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    # `flush` is what computes of branches made before were given.
    op.add_column(
        "branches",
        sa.Column("durability", sa.String(length=32), server_default="flush", nullable=False),
    )


def downgrade() -> None:
    op.drop_column("branches", "durability")
