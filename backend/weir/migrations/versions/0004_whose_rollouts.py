"""whose rollouts

Revision ID: 0004
Revises: 0003
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0004"
down_revision: str | None = "0003"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("accounts", sa.Column("operator", sa.Boolean(), server_default="false", nullable=False))
    # The account whose key lies in the installation's own directory.
    op.execute("UPDATE accounts SET operator = true WHERE name = 'admin'")

    op.add_column("rollouts", sa.Column("account_id", sa.Uuid(), nullable=True))
    op.add_column("rollouts", sa.Column("whole_fleet", sa.Boolean(), server_default="false", nullable=False))
    # A plan chose from its maker's computes only, so the members say who that was; the audit log does otherwise.
    op.execute(
        """
        UPDATE rollouts AS r SET account_id = coalesce(
            (SELECT p.account_id FROM rollout_members AS m JOIN projects AS p ON p.id = m.project_id
             WHERE m.rollout_id = r.id LIMIT 1),
            (SELECT a.account_id FROM audit_log AS a
             WHERE a.resource = 'rollout/' || r.id AND a.account_id IS NOT NULL ORDER BY a.id LIMIT 1),
            (SELECT id FROM accounts ORDER BY created_at, id LIMIT 1))
        """
    )
    op.alter_column("rollouts", "account_id", nullable=False)
    op.create_foreign_key(op.f("fk_rollouts_account_id"), "rollouts", "accounts", ["account_id"], ["id"])
    op.create_index("ix_rollouts_account", "rollouts", ["account_id", "created_at", "id"])


def downgrade() -> None:
    raise NotImplementedError("there is no way back to rollouts that belong to nobody")
