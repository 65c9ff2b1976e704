"""deleted roles and databases, and branches that expire

Revision ID: 0014
Revises: 0013
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0014"
down_revision: str | None = "0013"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "dropped_names",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("branch_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("owner_name", sa.String()),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("requested_at", sa.DateTime(timezone=True), nullable=False),
        # Null: Postgres may still have it.
        sa.Column("dropped_at", sa.DateTime(timezone=True)),
        sa.ForeignKeyConstraint(["branch_id"], ["branches.id"], name="fk_dropped_names_branch_id_branches"),
        sa.PrimaryKeyConstraint("id", name="pk_dropped_names"),
    )
    op.create_index("ix_dropped_names_branch", "dropped_names", ["branch_id"])
    # Null: never.
    op.add_column("branches", sa.Column("expires_at", sa.DateTime(timezone=True)))
    op.add_column("branches", sa.Column("last_reset_at", sa.DateTime(timezone=True)))
    op.create_index(
        "ix_branches_expiring",
        "branches",
        ["expires_at"],
        postgresql_where=sa.text("expires_at IS NOT NULL AND deleted_at IS NULL"),
    )


def downgrade() -> None:
    op.drop_index("ix_branches_expiring", "branches")
    for column in ("last_reset_at", "expires_at"):
        op.drop_column("branches", column)
    op.drop_table("dropped_names")
