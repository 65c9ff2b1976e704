"""warm starts of endpoints, and the sizes that they may have

Revision ID: 0021
Revises: 0019
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0021"
down_revision: str | None = "0019"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

_SIZES = ("min_cu", "max_cu", "current_cu")


def upgrade() -> None:
    op.add_column("endpoints", sa.Column("prewarm", sa.Boolean(), nullable=False, server_default=sa.true()))
    for name in _SIZES:
        op.add_column("endpoints", sa.Column(name, sa.Float(), nullable=False, server_default="1"))


def downgrade() -> None:
    for name in ("prewarm", *_SIZES):
        op.drop_column("endpoints", name)
