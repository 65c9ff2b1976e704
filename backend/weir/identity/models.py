from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Identity, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from weir.kit.models import Base
from weir.people.roles import Role

# The organisation of a person who is a member of none: no organisation has this id.
NOWHERE = UUID(int=0)


class Account(Base):
    """An organisation: it owns projects, rollouts and API keys, and people are its members."""

    __tablename__ = "accounts"
    __table_args__ = (Index("uq_accounts_name", "name", unique=True, postgresql_where=text("deleted_at IS NULL")),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    name: Mapped[str]
    email: Mapped[str]
    # Runs the installation: sees every account's computes and rollouts, and may roll out over all of them. Other
    # accounts' projects, branches, databases and passwords stay theirs alone.
    operator: Mapped[bool] = mapped_column(default=False, server_default="false")
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    # When it ended. The row stays for the audit log and for what its projects used; nobody acts in it any more, and
    # its name is free again.
    deleted_at: Mapped[datetime | None]


class ApiKey(Base):
    """Only the hash is kept; the key itself is shown once, when it is made."""

    __tablename__ = "api_keys"

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    account_id: Mapped[UUID] = mapped_column(ForeignKey("accounts.id"))
    name: Mapped[str]
    key_hash: Mapped[bytes] = mapped_column(unique=True)
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    last_used_at: Mapped[datetime | None]
    last_used_from_addr: Mapped[str] = mapped_column(server_default="")
    revoked_at: Mapped[datetime | None]
    # What it may do at most. Of a key that a person made, whatever that person may still do there limits it too.
    role: Mapped[Role] = mapped_column(default=Role.OWNER, server_default="owner")
    user_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id"))
    # The only project it is for; null: all of the organisation.
    project_id: Mapped[str | None] = mapped_column(ForeignKey("projects.id"))
    read_only: Mapped[bool] = mapped_column(default=False, server_default="false")
    expires_at: Mapped[datetime | None]


class ConsoleSession(Base):
    """A person's session, or one that was opened with an API key and may do what the key may."""

    __tablename__ = "console_sessions"
    __table_args__ = (CheckConstraint("(user_id IS NULL) <> (api_key_id IS NULL)", name="whose"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    # The organisation that a person acts in where a request names none. Whether they may is asked at each request.
    account_id: Mapped[UUID | None] = mapped_column(ForeignKey("accounts.id"))
    api_key_id: Mapped[int | None] = mapped_column(ForeignKey("api_keys.id"))
    user_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id"), index=True)
    token_hash: Mapped[bytes] = mapped_column(unique=True)
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    # To the minute, as `last_used_at` of a key.
    last_seen_at: Mapped[datetime] = mapped_column(server_default=func.now())
    # Of the client that signed in.
    address: Mapped[str] = mapped_column(default="", server_default="")
    expires_at: Mapped[datetime]


class AuditEntry(Base):
    """Who changed what, or was shown a secret. Written in the transaction of the change itself, never updated: the
    database refuses it (migration 0016)."""

    __tablename__ = "audit_log"
    __table_args__ = (Index("ix_audit_log_resource", "resource", "id"), Index("ix_audit_log_at", "at"))

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    at: Mapped[datetime] = mapped_column(server_default=func.now())
    account_id: Mapped[UUID | None] = mapped_column(ForeignKey("accounts.id"))
    actor: Mapped[str]
    request_id: Mapped[str]
    action: Mapped[str]
    resource: Mapped[str]
    project_id: Mapped[str | None]
    detail: Mapped[dict[str, Any]] = mapped_column(default=dict)
    # Of the request: the address it came from, and the key it was made with or that opened its session.
    address: Mapped[str] = mapped_column(default="", server_default="")
    api_key_id: Mapped[int | None] = mapped_column(BigInteger)


class AuditSeal(Base):
    """One link of the chain of hashes over the audit log (`weir.identity.seals`)."""

    __tablename__ = "audit_seals"

    position: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    entry_id: Mapped[int] = mapped_column(BigInteger, unique=True)
    sealed_at: Mapped[datetime]
    hash: Mapped[bytes]


class AuditPending(Base):
    """An entry without a seal; a trigger of `audit_log` writes it with the entry."""

    __tablename__ = "audit_pending"

    entry_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
