from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from weir.kit.models import Base
from weir.quotas.names import OwnerKind, QuotaName


class Quota(Base):
    """What an owner, or a project, may have of one thing, where somebody has said so."""

    __tablename__ = "quotas"

    owner_kind: Mapped[OwnerKind] = mapped_column(primary_key=True)
    # An account's id, or a project's.
    owner_id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[QuotaName] = mapped_column(primary_key=True)
    # Null: no limit, whatever the installation says of others.
    most: Mapped[int | None] = mapped_column(BigInteger)
    set_at: Mapped[datetime]


class StorageUse(Base):
    """How much a project held when storage was asked last. Only of projects for which there is a quota of it."""

    __tablename__ = "storage_use"

    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), primary_key=True)
    bytes: Mapped[int] = mapped_column(BigInteger)
    measured_at: Mapped[datetime]
