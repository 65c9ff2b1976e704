"""what projects use of computes and storage, by hours and days; offers of projects to other organisations

Revision ID: 0023
Revises: 0022
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0023"
down_revision: str | None = "0022"
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
_HELD = ("root_bytes", "child_bytes", "snapshot_bytes", "history_bytes")


def upgrade() -> None:
    op.create_table(
        "usage_periods",
        sa.Column("account_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("grain", sa.String(32), nullable=False),
        sa.Column("starts_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("written_bytes", sa.BigInteger(), nullable=False),
        *(sa.Column(name, sa.Float(), nullable=False) for name in _SUMS),
        # Null: storage was not asked in this period.
        sa.Column("logical_bytes", sa.BigInteger()),
        sa.Column("history_bytes", sa.BigInteger()),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_usage_periods_account_id"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_usage_periods_project_id"),
        sa.PrimaryKeyConstraint("account_id", "project_id", "grain", "starts_at", name="pk_usage_periods"),
    )
    op.create_index("ix_usage_periods_grain", "usage_periods", ["grain", "starts_at"])
    op.create_index("ix_usage_periods_project", "usage_periods", ["project_id", "grain", "starts_at"])
    op.create_table(
        "usage_endpoint_meters",
        sa.Column("endpoint_id", sa.String(), nullable=False),
        sa.Column("measured_to", sa.DateTime(timezone=True), nullable=False),
        sa.Column("units", sa.Float(), nullable=False),
        sa.Column("processors", sa.Float()),
        sa.ForeignKeyConstraint(["endpoint_id"], ["endpoints.id"], name="fk_usage_endpoint_meters_endpoint_id"),
        sa.PrimaryKeyConstraint("endpoint_id", name="pk_usage_endpoint_meters"),
    )
    op.create_table(
        "usage_timeline_meters",
        sa.Column("timeline_id", sa.String(), nullable=False),
        sa.Column("lsn", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("timeline_id", name="pk_usage_timeline_meters"),
    )
    op.create_table(
        "usage_storage_meters",
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("measured_to", sa.DateTime(timezone=True), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in _HELD),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_usage_storage_meters_project_id"),
        sa.PrimaryKeyConstraint("project_id", name="pk_usage_storage_meters"),
    )
    op.create_table(
        "transfer_requests",
        sa.Column("id_hash", sa.LargeBinary(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("account_id", sa.Uuid(), nullable=False),
        sa.Column("user_id", sa.Uuid()),
        sa.Column("api_key_id", sa.BigInteger()),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_transfer_requests_project_id"),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_transfer_requests_account_id"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_transfer_requests_user_id"),
        sa.ForeignKeyConstraint(["api_key_id"], ["api_keys.id"], name="fk_transfer_requests_api_key_id"),
        sa.PrimaryKeyConstraint("id_hash", name="pk_transfer_requests"),
    )
    op.create_index("ix_transfer_requests_project", "transfer_requests", ["project_id"])
    op.add_column("projects", sa.Column("transferred_at", sa.DateTime(timezone=True)))


def downgrade() -> None:
    op.drop_column("projects", "transferred_at")
    op.drop_table("transfer_requests")
    for name in ("usage_storage_meters", "usage_timeline_meters", "usage_endpoint_meters", "usage_periods"):
        op.drop_table(name)
