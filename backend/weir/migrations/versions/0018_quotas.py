"""quotas of accounts and projects, and how much storage projects hold

Revision ID: 0018
Revises: 0017
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0018"
down_revision: str | None = "0017"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "quotas",
        sa.Column("owner_kind", sa.String(32), nullable=False),
        sa.Column("owner_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(32), nullable=False),
        # Null: no limit.
        sa.Column("most", sa.BigInteger()),
        sa.Column("set_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("owner_kind", "owner_id", "name", name="pk_quotas"),
    )
    op.create_table(
        "storage_use",
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("measured_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_storage_use_project_id"),
        sa.PrimaryKeyConstraint("project_id", name="pk_storage_use"),
    )


def downgrade() -> None:
    op.drop_table("storage_use")
    op.drop_table("quotas")
