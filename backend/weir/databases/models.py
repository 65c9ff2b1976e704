from datetime import datetime
from enum import StrEnum

from sqlalchemy import BigInteger, ForeignKey, Identity, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from weir.kit.models import Base, Timestamps


class Role(Timestamps, Base):
    """A login role that Weir manages. The password is encrypted; computes are given the verifier only. Without the
    two, after a recovery, Postgres alone knows the password, and keeps it until it is reset."""

    __tablename__ = "roles"

    branch_id: Mapped[str] = mapped_column(ForeignKey("branches.id"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    password_sealed: Mapped[bytes | None]
    scram_verifier: Mapped[str | None]


class BranchDatabase(Timestamps, Base):
    __tablename__ = "databases"
    __table_args__ = (UniqueConstraint("branch_id", "name"),)

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    branch_id: Mapped[str] = mapped_column(ForeignKey("branches.id"))
    name: Mapped[str]
    owner_name: Mapped[str]


class DroppedKind(StrEnum):
    ROLE = "role"
    DATABASE = "database"


class DroppedName(Base):
    """A role or a database that somebody has deleted. Until `dropped_at` a compute of the branch has yet to drop it;
    after that the row says what branches of the states before had."""

    __tablename__ = "dropped_names"
    __table_args__ = (Index("ix_dropped_names_branch", "branch_id"),)

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    branch_id: Mapped[str] = mapped_column(ForeignKey("branches.id"))
    kind: Mapped[DroppedKind]
    name: Mapped[str]
    # Of a database.
    owner_name: Mapped[str | None]
    # When it was made, when its deletion was asked for, and when Postgres was seen to have it no more.
    made_at: Mapped[datetime]
    requested_at: Mapped[datetime]
    dropped_at: Mapped[datetime | None]
