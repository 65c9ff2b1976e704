"""gates, and who asked

Revision ID: 0006
Revises: 0005
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0006"
down_revision: str | None = "0005"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("rollouts", sa.Column("gate", sa.String(), nullable=True))
    op.add_column("rollouts", sa.Column("asked_by", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("rollouts", "asked_by")
    op.drop_column("rollouts", "gate")
