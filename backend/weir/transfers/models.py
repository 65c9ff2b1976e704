from datetime import datetime
from uuid import UUID, uuid4

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from weir.kit.models import Base


class TransferRequest(Base):
    """An offer of a project: whoever is told its id may take the project, once and until it expires, as long as the
    project still is the organisation's that has offered it, and whoever made it could still make it. The hash of the
    id is kept, as of a key."""

    __tablename__ = "transfer_requests"
    __table_args__ = (Index("ix_transfer_requests_project", "project_id"),)

    id_hash: Mapped[bytes] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    account_id: Mapped[UUID] = mapped_column(ForeignKey("accounts.id"))
    # Who made it: a person, a key, or a key that a person made.
    user_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id"))
    api_key_id: Mapped[int | None] = mapped_column(ForeignKey("api_keys.id"))
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime]


def new_id() -> UUID:
    """Of 122 random bits."""
    return uuid4()
