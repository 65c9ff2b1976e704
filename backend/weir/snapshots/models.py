from datetime import datetime
from enum import StrEnum
from uuid import UUID

from sqlalchemy import BigInteger, ForeignKey, Identity, Index
from sqlalchemy.orm import Mapped, mapped_column

from weir.kit.models import Base, Timestamps


class Snapshot(Timestamps, Base):
    """What people know of a state that is kept. The branch `branch_id`, which nobody is shown (`Branch.is_snapshot`),
    keeps it: where it begins, when it expires and whether it is there are that branch's. A snapshot that is deleted,
    or has expired, leaves its branch behind for as long as a branch restored from it needs its data."""

    __tablename__ = "snapshots"
    __table_args__ = (Index("ix_snapshots_project", "project_id", "created_at", "id"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    branch_id: Mapped[str] = mapped_column(ForeignKey("branches.id"), unique=True)
    # The branch it was taken of; null where a recovery has not found that one.
    source_branch_id: Mapped[str | None] = mapped_column(ForeignKey("branches.id"))
    name: Mapped[str]
    # The moment it is of; null where nothing was committed by then.
    timestamp: Mapped[datetime | None]
    # By somebody's request and not by a schedule.
    manual: Mapped[bool]
    created_by: Mapped[str]
    delete_requested_at: Mapped[datetime | None]


class Frequency(StrEnum):
    HOURLY = "hourly"
    DAILY = "daily"
    WEEKLY = "weekly"
    MONTHLY = "monthly"


class BackupScheduleItem(Base):
    """One entry of a branch's schedule. Hours and days are in UTC."""

    __tablename__ = "backup_schedule_items"
    __table_args__ = (
        Index("uq_backup_schedule_items_position", "branch_id", "position", unique=True),
        Index("ix_backup_schedule_items_due", "next_at"),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    branch_id: Mapped[str] = mapped_column(ForeignKey("branches.id"))
    position: Mapped[int]
    frequency: Mapped[Frequency]
    hour: Mapped[int | None]
    # Of the week, 1 for Monday to 7 for Sunday, or of the month.
    day: Mapped[int | None]
    retention_seconds: Mapped[int]
    # The first moment that no snapshot has been taken for.
    next_at: Mapped[datetime]
    # Took the newest snapshot; one that failed is repeated before the next time comes.
    operation_id: Mapped[UUID | None] = mapped_column(ForeignKey("operations.id"))
