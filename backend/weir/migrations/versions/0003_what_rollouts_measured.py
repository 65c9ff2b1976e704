"""what rollouts measured

Revision ID: 0003
Revises: 0002
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

_JSON = postgresql.JSONB(astext_type=sa.Text())


def upgrade() -> None:
    op.create_table(
        "rollout_measurements",
        sa.Column("rollout_id", sa.String(), nullable=False),
        sa.Column("endpoint_id", sa.String(), nullable=False),
        sa.Column("before", _JSON, nullable=False),
        sa.Column("after", _JSON, nullable=False),
        sa.Column("series", _JSON, nullable=False),
        sa.Column("measured_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["endpoint_id"], ["endpoints.id"], name=op.f("fk_rollout_measurements_endpoint_id_endpoints")
        ),
        sa.ForeignKeyConstraint(
            ["rollout_id"], ["rollouts.id"], name=op.f("fk_rollout_measurements_rollout_id_rollouts")
        ),
        sa.PrimaryKeyConstraint("rollout_id", "endpoint_id", name=op.f("pk_rollout_measurements")),
    )


def downgrade() -> None:
    op.drop_table("rollout_measurements")
