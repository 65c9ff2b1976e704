"""sick members

Revision ID: 0013
Revises: 0012
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0013"
down_revision: str | None = "0012"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    # Null: well, as far as is known; the reconciler finds out within half a minute.
    op.add_column("timeline_members", sa.Column("sick_kind", sa.String(32)))
    op.add_column("timeline_members", sa.Column("sick_reason", sa.String()))
    op.add_column("timeline_members", sa.Column("sick_since", sa.DateTime(timezone=True)))


def downgrade() -> None:
    for column in ("sick_since", "sick_reason", "sick_kind"):
        op.drop_column("timeline_members", column)
