"""Tables of people. An organisation is a row of `accounts` (`weir.identity.models.Account`)."""

from datetime import datetime
from uuid import UUID, uuid4

from sqlalchemy import BigInteger, ForeignKey, Index, UniqueConstraint, func, text
from sqlalchemy.orm import Mapped, mapped_column

from weir.kit.models import Base
from weir.people.roles import Role


class User(Base):
    """A person. The email is in lower case, and names one person."""

    __tablename__ = "users"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    email: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str]
    # Argon2id as a PHC string. Null: no password opens a session for this person.
    password_hash: Mapped[str | None]
    # Sealed with the installation's encryption key. It counts from `totp_confirmed_at` on.
    totp_secret: Mapped[bytes | None]
    totp_confirmed_at: Mapped[datetime | None]
    # The last step of 30 s whose code was used: neither that step's code nor an older one is taken again.
    totp_last_step: Mapped[int | None] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class Membership(Base):
    __tablename__ = "memberships"
    __table_args__ = (UniqueConstraint("account_id", "user_id"), Index("ix_memberships_user", "user_id"))

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    account_id: Mapped[UUID] = mapped_column(ForeignKey("accounts.id"))
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id"))
    role: Mapped[Role]
    joined_at: Mapped[datetime] = mapped_column(server_default=func.now())


class UserIdentity(Base):
    """A person as an identity provider knows them (`weir.oidc`). The email is that of when they were linked; it may
    have changed there since."""

    __tablename__ = "user_identities"

    issuer: Mapped[str] = mapped_column(primary_key=True)
    subject: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id"), index=True)
    email: Mapped[str]
    linked_at: Mapped[datetime] = mapped_column(server_default=func.now())


class Invitation(Base):
    """Somebody with this email may become a member, once, until a moment, as long as whoever invited them may still
    decide on such a role. Only the hash of the token is kept."""

    __tablename__ = "invitations"
    __table_args__ = (
        Index(
            "uq_invitations_open",
            "account_id",
            "email",
            unique=True,
            postgresql_where=text("accepted_at IS NULL AND revoked_at IS NULL"),
        ),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    account_id: Mapped[UUID] = mapped_column(ForeignKey("accounts.id"))
    email: Mapped[str]
    role: Mapped[Role]
    token_hash: Mapped[bytes] = mapped_column(unique=True)
    # The person who invited, and the API key that was used; of a key that no person made there is the key alone.
    invited_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id"))
    invited_with: Mapped[int | None] = mapped_column(ForeignKey("api_keys.id"))
    invited_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    accepted_at: Mapped[datetime | None]
    accepted_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id"))
    revoked_at: Mapped[datetime | None]


class RecoveryCode(Base):
    """Stands for one code of TOTP, once. Only the hash is kept."""

    __tablename__ = "recovery_codes"

    code_hash: Mapped[bytes] = mapped_column(primary_key=True)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id"), index=True)
    used_at: Mapped[datetime | None]


class SignInAttempts(Base):
    """Failed attempts to sign in, of one address or at one email (`weir.people.throttle`). `subject` is a hash, so
    that the table says of no email that anybody tried it."""

    __tablename__ = "sign_in_attempts"

    subject: Mapped[bytes] = mapped_column(primary_key=True)
    failures: Mapped[int]
    last_at: Mapped[datetime] = mapped_column(index=True)
