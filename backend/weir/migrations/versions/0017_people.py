"""people, their organisations and their sessions; keys with a scope

Revision ID: 0017
Revises: 0016

An account, which owned all that exists, is an organisation from here on, under the same id: what it owns stays where
it is, and its API keys may do what they could, as an owner. Nobody is a member yet: `weir-admin user create` makes
the first person.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0017"
down_revision: str | None = "0016"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def _people() -> None:
    op.create_table(
        "users",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("email", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("password_hash", sa.String()),
        sa.Column("totp_secret", sa.LargeBinary()),
        sa.Column("totp_confirmed_at", sa.DateTime(timezone=True)),
        sa.Column("totp_last_step", sa.BigInteger()),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_users"),
        sa.UniqueConstraint("email", name="uq_users_email"),
    )
    op.create_table(
        "memberships",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("account_id", sa.Uuid(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("role", sa.String(length=32), nullable=False),
        sa.Column("joined_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_memberships_account_id"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_memberships_user_id"),
        sa.PrimaryKeyConstraint("id", name="pk_memberships"),
        sa.UniqueConstraint("account_id", "user_id", name="uq_memberships_account_id_user_id"),
    )
    op.create_index("ix_memberships_user", "memberships", ["user_id"])
    op.create_table(
        "recovery_codes",
        sa.Column("code_hash", sa.LargeBinary(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True)),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_recovery_codes_user_id"),
        sa.PrimaryKeyConstraint("code_hash", name="pk_recovery_codes"),
    )
    op.create_index("ix_recovery_codes_user_id", "recovery_codes", ["user_id"])
    op.create_table(
        "sign_in_attempts",
        sa.Column("subject", sa.LargeBinary(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("last_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("subject", name="pk_sign_in_attempts"),
    )
    op.create_index("ix_sign_in_attempts_last_at", "sign_in_attempts", ["last_at"])


def _keys_and_sessions() -> None:
    # Keys that there are may do all, as they could.
    op.add_column("api_keys", sa.Column("role", sa.String(length=32), nullable=False, server_default="owner"))
    op.add_column("api_keys", sa.Column("user_id", sa.Uuid()))
    op.add_column("api_keys", sa.Column("project_id", sa.String()))
    op.add_column("api_keys", sa.Column("read_only", sa.Boolean(), nullable=False, server_default="false"))
    op.add_column("api_keys", sa.Column("expires_at", sa.DateTime(timezone=True)))
    op.create_foreign_key("fk_api_keys_user_id_users", "api_keys", "users", ["user_id"], ["id"])
    op.create_foreign_key("fk_api_keys_project_id_projects", "api_keys", "projects", ["project_id"], ["id"])
    # A session is a person's, or was opened with a key.
    op.alter_column("console_sessions", "account_id", nullable=True)
    op.alter_column("console_sessions", "api_key_id", nullable=True)
    op.add_column("console_sessions", sa.Column("user_id", sa.Uuid()))
    op.add_column(
        "console_sessions",
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.text("now()")),
    )
    op.add_column("console_sessions", sa.Column("address", sa.String(), nullable=False, server_default=""))
    op.create_foreign_key("fk_console_sessions_user_id_users", "console_sessions", "users", ["user_id"], ["id"])
    op.create_index("ix_console_sessions_user_id", "console_sessions", ["user_id"])
    op.create_check_constraint(
        op.f("ck_console_sessions_whose"), "console_sessions", "(user_id IS NULL) <> (api_key_id IS NULL)"
    )


def upgrade() -> None:
    _people()
    _keys_and_sessions()


def downgrade() -> None:
    # Without the columns that narrow them, such keys would be let in to everything.
    op.execute(
        "UPDATE api_keys SET revoked_at = coalesce(revoked_at, now()) WHERE role <> 'owner' OR read_only "
        "OR project_id IS NOT NULL OR expires_at IS NOT NULL OR user_id IS NOT NULL"
    )
    op.execute("DELETE FROM console_sessions WHERE user_id IS NOT NULL OR account_id IS NULL")
    op.drop_constraint("ck_console_sessions_whose", "console_sessions")
    op.drop_column("console_sessions", "address")
    op.drop_column("console_sessions", "last_seen_at")
    op.drop_column("console_sessions", "user_id")
    op.alter_column("console_sessions", "api_key_id", nullable=False)
    op.alter_column("console_sessions", "account_id", nullable=False)
    for column in ("expires_at", "read_only", "project_id", "user_id", "role"):
        op.drop_column("api_keys", column)
    for table in ("sign_in_attempts", "recovery_codes", "memberships", "users"):
        op.drop_table(table)
