"""snapshots, and the schedules that take them

Revision ID: 0019
Revises: 0018
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0019"
down_revision: str | None = "0018"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    # A branch that holds a snapshot is shown to nobody as a branch.
    op.add_column("branches", sa.Column("is_snapshot", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("branches", sa.Column("restored_from", sa.String()))
    op.add_column("branches", sa.Column("restored_as", sa.String()))
    op.create_table(
        "snapshots",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("branch_id", sa.String(), nullable=False),
        sa.Column("source_branch_id", sa.String()),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("timestamp", sa.DateTime(timezone=True)),
        sa.Column("manual", sa.Boolean(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("delete_requested_at", sa.DateTime(timezone=True)),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_snapshots_project_id_projects"),
        sa.ForeignKeyConstraint(["branch_id"], ["branches.id"], name="fk_snapshots_branch_id_branches"),
        sa.ForeignKeyConstraint(["source_branch_id"], ["branches.id"], name="fk_snapshots_source_branch_id_branches"),
        sa.PrimaryKeyConstraint("id", name="pk_snapshots"),
        sa.UniqueConstraint("branch_id", name="uq_snapshots_branch_id"),
    )
    op.create_index("ix_snapshots_project", "snapshots", ["project_id", "created_at", "id"])
    op.create_table(
        "backup_schedule_items",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("branch_id", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("frequency", sa.String(32), nullable=False),
        sa.Column("hour", sa.Integer()),
        sa.Column("day", sa.Integer()),
        sa.Column("retention_seconds", sa.Integer(), nullable=False),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("operation_id", sa.Uuid()),
        sa.ForeignKeyConstraint(["branch_id"], ["branches.id"], name="fk_backup_schedule_items_branch_id_branches"),
        sa.ForeignKeyConstraint(
            ["operation_id"], ["operations.id"], name="fk_backup_schedule_items_operation_id_operations"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_backup_schedule_items"),
    )
    op.create_index(
        "uq_backup_schedule_items_position", "backup_schedule_items", ["branch_id", "position"], unique=True
    )
    op.create_index("ix_backup_schedule_items_due", "backup_schedule_items", ["next_at"])


def downgrade() -> None:
    op.drop_table("backup_schedule_items")
    op.drop_table("snapshots")
    for column in ("restored_as", "restored_from", "is_snapshot"):
        op.drop_column("branches", column)
