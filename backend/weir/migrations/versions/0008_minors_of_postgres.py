"""minors of Postgres

Revision ID: 0008
Revises: 0007
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0008"
down_revision: str | None = "0007"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    # Wanted: null until the first start, which takes the newest there is. Running: as the agent said it last.
    op.add_column("endpoints", sa.Column("postgres_version", sa.String(), nullable=True))
    op.add_column("endpoints", sa.Column("running_postgres_version", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("endpoints", "running_postgres_version")
    op.drop_column("endpoints", "postgres_version")
