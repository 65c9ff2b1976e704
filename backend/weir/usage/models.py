from datetime import datetime
from enum import StrEnum
from uuid import UUID

from sqlalchemy import BigInteger, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from weir.kit.models import Base


class Grain(StrEnum):
    """How long a period of usage is."""

    HOUR = "hour"
    DAY = "day"


class Used:
    """What was used in one hour or day (UTC), and is held since."""

    # Of all computes together: two that run for an hour are two hours.
    active_seconds: Mapped[float] = mapped_column(default=0.0)
    # Each second counted with the compute's size.
    unit_seconds: Mapped[float] = mapped_column(default=0.0)
    # Of processors that computes kept busy, where they told their load.
    processor_seconds: Mapped[float] = mapped_column(default=0.0)
    written_bytes: Mapped[int] = mapped_column(BigInteger, default=0)
    # Bytes held, times the hours that they were held.
    root_byte_hours: Mapped[float] = mapped_column(default=0.0)
    child_byte_hours: Mapped[float] = mapped_column(default=0.0)
    snapshot_byte_hours: Mapped[float] = mapped_column(default=0.0)
    history_byte_hours: Mapped[float] = mapped_column(default=0.0)
    # Held when storage was asked last in the period; null where it was not.
    logical_bytes: Mapped[int | None] = mapped_column(BigInteger)
    history_bytes: Mapped[int | None] = mapped_column(BigInteger)


class UsagePeriod(Used, Base):
    """What a project used in one hour or one day (UTC), for the organisation that it was of then. Each measurement is
    added to its hour and to its day, so that neither is made of the other, and hours can go sooner than days. A
    project that is deleted or transferred keeps what it used."""

    __tablename__ = "usage_periods"
    __table_args__ = (
        Index("ix_usage_periods_grain", "grain", "starts_at"),
        Index("ix_usage_periods_project", "project_id", "grain", "starts_at"),
    )

    account_id: Mapped[UUID] = mapped_column(ForeignKey("accounts.id"), primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), primary_key=True)
    grain: Mapped[Grain] = mapped_column(primary_key=True)
    starts_at: Mapped[datetime] = mapped_column(primary_key=True)


class BranchUsagePeriod(Used, Base):
    """What one branch had of what its project used. It is written in the transaction that adds to the project's, and
    never for a snapshot, whose data counts with its project alone: its `snapshot_byte_hours` are 0."""

    __tablename__ = "usage_branch_periods"
    __table_args__ = (Index("ix_usage_branch_periods_grain", "grain", "starts_at"),)

    account_id: Mapped[UUID] = mapped_column(ForeignKey("accounts.id"), primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), primary_key=True)
    branch_id: Mapped[str] = mapped_column(ForeignKey("branches.id"), primary_key=True)
    grain: Mapped[Grain] = mapped_column(primary_key=True)
    starts_at: Mapped[datetime] = mapped_column(primary_key=True)


class EndpointMeter(Base):
    """Up to when a compute's time is counted. Written in the transaction that counts it."""

    __tablename__ = "usage_endpoint_meters"

    endpoint_id: Mapped[str] = mapped_column(ForeignKey("endpoints.id"), primary_key=True)
    measured_to: Mapped[datetime]
    # The size and the processors in use when it was last seen running.
    units: Mapped[float]
    processors: Mapped[float | None]


class TimelineMeter(Base):
    """Up to which LSN a timeline's WAL is counted, which never goes back, and the bytes of data and of history that
    it held when its project was measured last (`StorageMeter.measured_to`); null where that was before Weir counted
    by branch."""

    __tablename__ = "usage_timeline_meters"

    timeline_id: Mapped[str] = mapped_column(primary_key=True)
    lsn: Mapped[int] = mapped_column(BigInteger)
    data_bytes: Mapped[int | None] = mapped_column(BigInteger)
    history_bytes: Mapped[int | None] = mapped_column(BigInteger)


class StorageMeter(Base):
    """Up to when what a project holds is counted, and what it held then, in bytes: the data of root branches, of
    other branches and of snapshots, and the WAL of the history of all of them."""

    __tablename__ = "usage_storage_meters"

    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), primary_key=True)
    measured_to: Mapped[datetime]
    root_bytes: Mapped[int] = mapped_column(BigInteger)
    child_bytes: Mapped[int] = mapped_column(BigInteger)
    snapshot_bytes: Mapped[int] = mapped_column(BigInteger)
    history_bytes: Mapped[int] = mapped_column(BigInteger)

    @property
    def bytes(self) -> int:
        """In all."""
        return self.root_bytes + self.child_bytes + self.snapshot_bytes + self.history_bytes
