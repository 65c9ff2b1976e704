"""what operations hold, and when one was asked to stop

Revision ID: 0015
Revises: 0014
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0015"
down_revision: str | None = "0014"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

# Operations that were open before held their whole project, one request at a time.
_CHAINS_OF_OPEN = """
UPDATE operations SET chain = first.id, holds = ARRAY[operations.project_id || '/']
FROM (
    SELECT DISTINCT ON (project_id) project_id, id FROM operations
    WHERE status IN ('scheduling', 'running', 'cancelling') ORDER BY project_id, sequence
) AS first
WHERE operations.project_id = first.project_id AND status IN ('scheduling', 'running', 'cancelling')
"""
_LOCKS_OF_OPEN = """
INSERT INTO operation_locks (path, chain, project_id)
SELECT DISTINCT project_id || '/', chain, project_id FROM operations
WHERE status IN ('scheduling', 'running', 'cancelling')
"""


def upgrade() -> None:
    op.add_column("operations", sa.Column("chain", sa.Uuid()))
    op.add_column(
        "operations", sa.Column("holds", sa.ARRAY(sa.Text()), nullable=False, server_default=sa.text("'{}'"))
    )
    op.add_column("operations", sa.Column("cancel_asked_at", sa.DateTime(timezone=True)))
    op.create_foreign_key("fk_operations_chain_operations", "operations", "operations", ["chain"], ["id"])
    op.create_index("ix_operations_chain", "operations", ["chain"])
    # Paths are compared byte by byte, whatever the database's collation: so those that begin alike lie together.
    op.execute('CREATE TYPE weir_scope AS RANGE (subtype = text, collation = "C")')
    op.create_table(
        "operation_locks",
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("chain", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["chain"], ["operations.id"], name="fk_operation_locks_chain_operations"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_operation_locks_project_id_projects"),
        sa.PrimaryKeyConstraint("path", name="pk_operation_locks"),
    )
    # `P/B/` holds every path that begins so: the texts from `P/B/` up to `P/B0`, `0` being what follows `/`.
    op.execute(
        "ALTER TABLE operation_locks ADD CONSTRAINT ex_operation_locks_overlap "
        "EXCLUDE USING gist (weir_scope(path, left(path, -1) || '0') WITH &&)"
    )
    op.create_index("ix_operation_locks_project", "operation_locks", ["project_id"])
    op.create_index("ix_operation_locks_chain", "operation_locks", ["chain"])
    of_account = ["account_id", "created_at", "id"]
    op.create_index("ix_projects_account", "projects", of_account, postgresql_where=sa.text("deleted_at IS NULL"))
    op.execute(_CHAINS_OF_OPEN)
    op.execute(_LOCKS_OF_OPEN)


def downgrade() -> None:
    op.drop_index("ix_projects_account", "projects")
    op.drop_table("operation_locks")
    op.execute("DROP TYPE weir_scope")
    op.drop_index("ix_operations_chain", "operations")
    op.drop_constraint("fk_operations_chain_operations", "operations")
    for column in ("cancel_asked_at", "holds", "chain"):
        op.drop_column("operations", column)
