"""what branches use, by hours and days; organisations that end

Revision ID: 0024
Revises: 0023
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0024"
down_revision: str | None = "0023"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

_SUMS = (
    "active_seconds",
    "unit_seconds",
    "processor_seconds",
    "root_byte_hours",
    "child_byte_hours",
    "snapshot_byte_hours",
    "history_byte_hours",
)


def upgrade() -> None:
    op.create_table(
        "usage_branch_periods",
        sa.Column("account_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("branch_id", sa.String(), nullable=False),
        sa.Column("grain", sa.String(32), nullable=False),
        sa.Column("starts_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("written_bytes", sa.BigInteger(), nullable=False),
        *(sa.Column(name, sa.Float(), nullable=False) for name in _SUMS),
        # Null: storage was not asked in this period.
        sa.Column("logical_bytes", sa.BigInteger()),
        sa.Column("history_bytes", sa.BigInteger()),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_usage_branch_periods_account_id"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_usage_branch_periods_project_id"),
        sa.ForeignKeyConstraint(["branch_id"], ["branches.id"], name="fk_usage_branch_periods_branch_id"),
        sa.PrimaryKeyConstraint(
            "account_id", "project_id", "branch_id", "grain", "starts_at", name="pk_usage_branch_periods"
        ),
    )
    op.create_index("ix_usage_branch_periods_grain", "usage_branch_periods", ["grain", "starts_at"])
    # Null: what the timeline held when it was measured before this migration is not known.
    op.add_column("usage_timeline_meters", sa.Column("data_bytes", sa.BigInteger()))
    op.add_column("usage_timeline_meters", sa.Column("history_bytes", sa.BigInteger()))
    # Null: the organisation is there. The name of one that has ended is free again.
    op.add_column("accounts", sa.Column("deleted_at", sa.DateTime(timezone=True)))
    op.drop_constraint("uq_accounts_name", "accounts", type_="unique")
    op.create_index(
        "uq_accounts_name", "accounts", ["name"], unique=True, postgresql_where=sa.text("deleted_at IS NULL")
    )


def downgrade() -> None:
    op.drop_index("uq_accounts_name", table_name="accounts")
    # Names have to be one organisation's again; rows of those that have ended stay for the audit log.
    op.execute("UPDATE accounts SET name = name || ' (ended ' || id || ')' WHERE deleted_at IS NOT NULL")
    op.create_unique_constraint("uq_accounts_name", "accounts", ["name"])
    op.drop_column("accounts", "deleted_at")
    op.drop_column("usage_timeline_meters", "history_bytes")
    op.drop_column("usage_timeline_meters", "data_bytes")
    op.drop_table("usage_branch_periods")
