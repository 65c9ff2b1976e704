"""What is kept of sign-ins by providers beside `user_identities` (`weir.people.models`)."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from weir.kit.models import Base


class ProviderSession(Base):
    """Which session at a provider a session of the console came from. It goes with the console's session."""

    __tablename__ = "provider_sessions"
    __table_args__ = (
        Index("ix_provider_sessions_sid", "issuer", "sid"),
        Index("ix_provider_sessions_subject", "issuer", "subject"),
    )

    session_id: Mapped[UUID] = mapped_column(ForeignKey("console_sessions.id", ondelete="CASCADE"), primary_key=True)
    issuer: Mapped[str]
    subject: Mapped[str]
    # Null: the provider names no sessions.
    sid: Mapped[str | None]
    # Sealed with the installation's encryption key; the provider is shown it when the person signs out there.
    id_token: Mapped[bytes]


class UsedOnce(Base):
    """What has counted and is not to count again: a `state`, or the id of a logout token. `mark` is a hash."""

    __tablename__ = "used_once"

    mark: Mapped[bytes] = mapped_column(primary_key=True)
    # Afterwards it would be refused for its age.
    until: Mapped[datetime] = mapped_column(index=True)
