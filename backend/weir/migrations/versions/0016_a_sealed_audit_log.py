"""an audit log that is only appended to, and a chain of hashes over it

Revision ID: 0016
Revises: 0015
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0016"
down_revision: str | None = "0015"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

_SEALED = ("audit_log", "audit_seals")


def upgrade() -> None:
    # From where, and with which key; empty and null for what no request did.
    op.add_column("audit_log", sa.Column("address", sa.String(), nullable=False, server_default=""))
    op.add_column("audit_log", sa.Column("api_key_id", sa.BigInteger()))
    op.create_index("ix_audit_log_at", "audit_log", ["at"])
    op.create_table(
        "audit_seals",
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("entry_id", sa.BigInteger(), nullable=False),
        sa.Column("sealed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("position", name="pk_audit_seals"),
        sa.UniqueConstraint("entry_id", name="uq_audit_seals_entry_id"),
    )
    # Entries that have no seal yet: a queue, written with the entry.
    op.create_table(
        "audit_pending",
        sa.Column("entry_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("entry_id", name="pk_audit_pending"),
    )
    op.execute("INSERT INTO audit_pending SELECT id FROM audit_log")
    op.execute(
        """
        CREATE FUNCTION audit_entry_is_pending() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            INSERT INTO audit_pending (entry_id) VALUES (NEW.id);
            RETURN NULL;
        END $$
        """
    )
    op.execute(
        "CREATE TRIGGER audit_log_pending AFTER INSERT ON audit_log "
        "FOR EACH ROW EXECUTE FUNCTION audit_entry_is_pending()"
    )
    op.execute(
        """
        CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION 'the audit log is only appended to: % of % is refused', TG_OP, TG_TABLE_NAME
                USING ERRCODE = 'insufficient_privilege';
        END $$
        """
    )
    for table in _SEALED:
        op.execute(
            f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only()"
        )


def downgrade() -> None:
    for table in _SEALED:
        op.execute(f"DROP TRIGGER {table}_append_only ON {table}")
    op.execute("DROP FUNCTION audit_is_append_only()")
    op.execute("DROP TRIGGER audit_log_pending ON audit_log")
    op.execute("DROP FUNCTION audit_entry_is_pending()")
    op.drop_table("audit_pending")
    op.drop_table("audit_seals")
    op.drop_index("ix_audit_log_at", "audit_log")
    op.drop_column("audit_log", "api_key_id")
    op.drop_column("audit_log", "address")
