"""rollouts of a fleet

Revision ID: 0002
Revises: 0001
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

_JSON = postgresql.JSONB(astext_type=sa.Text())
_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.add_column("projects", sa.Column("cell", sa.String(), server_default="", nullable=False))
    op.add_column("projects", sa.Column("tags", _JSON, server_default="{}", nullable=False))
    op.execute("UPDATE projects SET cell = region_id || '-1'")
    op.add_column("endpoints", sa.Column("full_page_writes_since", _TIME, nullable=True))

    op.add_column("rollouts", sa.Column("created_by", sa.String(), server_default="", nullable=False))

    op.add_column("rollout_waves", sa.Column("soak_seconds", sa.Integer(), server_default="0", nullable=False))
    op.add_column("rollout_waves", sa.Column("soak_until", _TIME, nullable=True))

    mode = sa.Enum("running", "at_next_start", name="membermode", native_enum=False, length=32)
    wish = sa.Enum("skip", "back", name="wish", native_enum=False, length=32)
    op.add_column("rollout_members", sa.Column("mode", mode, server_default="running", nullable=False))
    op.add_column("rollout_members", sa.Column("org_id", sa.String(), server_default="", nullable=False))
    op.add_column("rollout_members", sa.Column("region_id", sa.String(), server_default="", nullable=False))
    op.add_column("rollout_members", sa.Column("cell", sa.String(), server_default="", nullable=False))
    op.add_column("rollout_members", sa.Column("size_bytes", sa.BigInteger(), nullable=True))
    op.add_column("rollout_members", sa.Column("wal_bytes_per_second", sa.Float(), nullable=True))
    op.add_column("rollout_members", sa.Column("expected_wal_saved_bytes_per_second", sa.Float(), nullable=True))
    op.add_column("rollout_members", sa.Column("batch", sa.Integer(), nullable=True))
    op.add_column("rollout_members", sa.Column("wish", wish, nullable=True))
    op.add_column("rollout_members", sa.Column("wish_by", sa.String(), nullable=True))
    op.add_column("rollout_members", sa.Column("deadline_at", _TIME, nullable=True))
    op.add_column("rollout_members", sa.Column("confirmed_at", _TIME, nullable=True))
    op.add_column("rollout_members", sa.Column("rolled_back_at", _TIME, nullable=True))
    op.add_column("rollout_members", sa.Column("rollback_lsn", sa.String(), nullable=True))
    op.execute("UPDATE rollout_members SET rolled_back_at = updated_at WHERE state = 'rolled_back'")
    op.execute(
        "UPDATE rollout_members AS m SET region_id = p.region_id, cell = p.cell, org_id = p.account_id::text "
        "FROM projects AS p WHERE p.id = m.project_id"
    )
    # Their workflows were of a kind that is gone. Ended ones can be rolled back and planned again.
    op.execute(
        "UPDATE rollouts SET status = 'failed', finished_at = now(), "
        "status_reason = 'begun by an earlier version of Weir; roll it back, or plan it again' "
        "WHERE dispatched_at IS NOT NULL AND status NOT IN ('completed', 'aborted', 'rolled_back', 'failed')"
    )
    op.create_index("ix_rollout_members_state", "rollout_members", ["rollout_id", "wave", "state"])

    op.create_table(
        "rollout_exclusions",
        sa.Column("rollout_id", sa.String(), nullable=False),
        sa.Column("endpoint_id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("region_id", sa.String(), nullable=False),
        sa.Column("cell", sa.String(), nullable=False),
        sa.Column("code", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["endpoint_id"], ["endpoints.id"], name=op.f("fk_rollout_exclusions_endpoint_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_rollout_exclusions_project_id")),
        sa.ForeignKeyConstraint(["rollout_id"], ["rollouts.id"], name=op.f("fk_rollout_exclusions_rollout_id")),
        sa.PrimaryKeyConstraint("rollout_id", "endpoint_id", name=op.f("pk_rollout_exclusions")),
    )
    op.create_index("ix_rollout_exclusions_endpoint", "rollout_exclusions", ["endpoint_id"])
    # What frozen plans left out was kept inside the plan before.
    op.execute(
        "INSERT INTO rollout_exclusions (rollout_id, endpoint_id, project_id, region_id, cell, code, reason) "
        "SELECT r.id, e.id, p.id, p.region_id, p.cell, 'not_covered', x ->> 'reason' "
        "FROM rollouts AS r, jsonb_array_elements(r.plan -> 'excluded') AS x "
        "JOIN endpoints AS e ON e.id = x ->> 'compute_id' JOIN projects AS p ON p.id = e.project_id"
    )
    _summarise_plans()

    op.create_table(
        "rollout_alerts",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("rollout_id", sa.String(), nullable=False),
        sa.Column("endpoint_id", sa.String(), nullable=True),
        sa.Column("wave", sa.Integer(), nullable=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("raised_at", _TIME, nullable=False),
        sa.Column("cleared_at", _TIME, nullable=True),
        sa.ForeignKeyConstraint(["endpoint_id"], ["endpoints.id"], name=op.f("fk_rollout_alerts_endpoint_id")),
        sa.ForeignKeyConstraint(["rollout_id"], ["rollouts.id"], name=op.f("fk_rollout_alerts_rollout_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rollout_alerts")),
    )
    op.create_index(
        "uq_rollout_alerts_open",
        "rollout_alerts",
        ["rollout_id", "kind", "endpoint_id"],
        unique=True,
        postgresql_where="cleared_at IS NULL",
        postgresql_nulls_not_distinct=True,
    )
    op.add_column("rollout_evidence", sa.Column("analysis", _JSON, server_default="{}", nullable=False))


def _summarise_plans() -> None:
    """Frozen plans become their totals, in the shape the API shows."""
    op.execute(
        """
        UPDATE rollouts SET plan = jsonb_build_object(
            'waves', (
                SELECT coalesce(jsonb_agg(jsonb_build_object(
                    'index', w -> 'index', 'name', w -> 'name', 'soak_seconds', 0,
                    'computes', jsonb_array_length(w -> 'compute_ids'), 'by_cell', '{}'::jsonb,
                    'expected_wal_saved_bytes_per_second', NULL)), '[]')
                FROM jsonb_array_elements(plan -> 'waves') AS w),
            'computes_total', jsonb_array_length(plan -> 'computes'),
            'at_next_start_total', 0,
            'excluded_total', jsonb_array_length(plan -> 'excluded'),
            'excluded_by_code', '[]'::jsonb,
            'expected_wal_saved_bytes_per_second', plan -> 'expected_wal_saved_bytes_per_second',
            'created_at', plan -> 'created_at')
        """
    )


def downgrade() -> None:
    raise NotImplementedError("there is no way back to a schema without cells and exclusions")
