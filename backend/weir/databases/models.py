from sqlalchemy import BigInteger, ForeignKey, Identity, UniqueConstraint
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
