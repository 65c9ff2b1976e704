"""sign-ins by identity providers, and invitations

Revision ID: 0022
Revises: 0021
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0022"
down_revision: str | None = "0021"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

_TABLES = ("invitations", "used_once", "provider_sessions", "user_identities")


def _providers() -> None:
    op.create_table(
        "user_identities",
        sa.Column("issuer", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("email", sa.String(), nullable=False),
        sa.Column("linked_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_user_identities_user_id"),
        sa.PrimaryKeyConstraint("issuer", "subject", name="pk_user_identities"),
    )
    op.create_index("ix_user_identities_user_id", "user_identities", ["user_id"])
    op.create_table(
        "provider_sessions",
        sa.Column("session_id", sa.Uuid(), nullable=False),
        sa.Column("issuer", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("sid", sa.String()),
        sa.Column("id_token", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"], ["console_sessions.id"], name="fk_provider_sessions_session_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("session_id", name="pk_provider_sessions"),
    )
    op.create_index("ix_provider_sessions_sid", "provider_sessions", ["issuer", "sid"])
    op.create_index("ix_provider_sessions_subject", "provider_sessions", ["issuer", "subject"])
    op.create_table(
        "used_once",
        sa.Column("mark", sa.LargeBinary(), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("mark", name="pk_used_once"),
    )
    op.create_index("ix_used_once_until", "used_once", ["until"])


def _invitations() -> None:
    op.create_table(
        "invitations",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("account_id", sa.Uuid(), nullable=False),
        sa.Column("email", sa.String(), nullable=False),
        sa.Column("role", sa.String(length=32), nullable=False),
        sa.Column("token_hash", sa.LargeBinary(), nullable=False),
        sa.Column("invited_by", sa.Uuid()),
        sa.Column("invited_with", sa.BigInteger()),
        sa.Column("invited_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("accepted_at", sa.DateTime(timezone=True)),
        sa.Column("accepted_by", sa.Uuid()),
        sa.Column("revoked_at", sa.DateTime(timezone=True)),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_invitations_account_id"),
        sa.ForeignKeyConstraint(["invited_by"], ["users.id"], name="fk_invitations_invited_by"),
        sa.ForeignKeyConstraint(["invited_with"], ["api_keys.id"], name="fk_invitations_invited_with"),
        sa.ForeignKeyConstraint(["accepted_by"], ["users.id"], name="fk_invitations_accepted_by"),
        sa.PrimaryKeyConstraint("id", name="pk_invitations"),
        sa.UniqueConstraint("token_hash", name="uq_invitations_token_hash"),
    )
    op.create_index(
        "uq_invitations_open",
        "invitations",
        ["account_id", "email"],
        unique=True,
        postgresql_where=sa.text("accepted_at IS NULL AND revoked_at IS NULL"),
    )


def upgrade() -> None:
    _providers()
    _invitations()


def downgrade() -> None:
    # People whom a provider made have no password; sessions that a provider opened could not be ended by it any more.
    op.execute("DELETE FROM console_sessions WHERE id IN (SELECT session_id FROM provider_sessions)")
    for table in _TABLES:
        op.drop_table(table)
