"""Which safekeepers hold a timeline's log, as far as the control plane has asked them to.

Who counts is what the log itself says (docs/consensus.md, `weir.branches.log_members`). What is stored here says
where a compute, the pageserver and the control plane ask. It is never written into a log.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from sqlalchemy import Index, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Mapped, mapped_column

from weir.branches.log_members import SickKind
from weir.clients.pageserver import SickMark
from weir.kit.models import Base

# Of the installation's safekeepers the first so many get the logs of new branches; the others are spares.
MEMBERS_OF_NEW_LOGS = 3


class MemberState(StrEnum):
    MEMBER = "member"
    # Asked to hold the log beside its members, and none of them yet.
    JOINING = "joining"
    # No member any more. Its log is kept, and counts for nothing.
    REMOVED = "removed"


class TimelineMember(Base):
    """One safekeeper of one timeline. A log is founded there once: a safekeeper that lacks it later has lost it, and
    an empty log in its place would vote as if it had never held anything.

    `asked_at`: when the safekeeper was first asked to found the log; null while it never was, or has certainly not
    done it; without `founded_at` nobody knows whether it did. `lost_at`: since when it has been seen without the
    log; null again once it shows it. `since`: when it became what `state` says; null where that is not known.
    `sick_kind`, `sick_reason` and `sick_since`: what is wrong with the member, in words, and since when something
    is, whatever it was first; null while it is well."""

    __tablename__ = "timeline_members"
    # Of what a safekeeper is a member, for its replacement.
    __table_args__ = (Index("ix_timeline_members_safekeeper_id", "safekeeper_id"),)

    timeline_id: Mapped[str] = mapped_column(primary_key=True)
    # The safekeeper's number in the installation, from 1; its `--id`.
    safekeeper_id: Mapped[int] = mapped_column(primary_key=True)
    state: Mapped[MemberState] = mapped_column(default=MemberState.MEMBER)
    since: Mapped[datetime | None]
    asked_at: Mapped[datetime | None]
    founded_at: Mapped[datetime | None]
    lost_at: Mapped[datetime | None]
    sick_kind: Mapped[SickKind | None]
    sick_reason: Mapped[str | None]
    sick_since: Mapped[datetime | None]


WELL = {"sick_kind": None, "sick_reason": None, "sick_since": None}


def of_new_logs(safekeeper_count: int) -> list[int]:
    return list(range(1, min(MEMBERS_OF_NEW_LOGS, safekeeper_count) + 1))


async def rows_of(session: AsyncSession, timeline_id: str) -> dict[int, TimelineMember]:
    """By safekeeper, those that are no members any more included."""
    statement = select(TimelineMember).where(TimelineMember.timeline_id == timeline_id)
    rows = await session.scalars(statement.order_by(TimelineMember.safekeeper_id))
    return {row.safekeeper_id: row for row in rows}


def marks_of(rows: Mapping[int, TimelineMember]) -> dict[int, SickMark]:
    """By safekeeper, what the pageserver or it itself said of its WAL when the reconciler last asked."""
    marks: dict[int, SickMark] = {}
    for number, row in rows.items():
        mark = mark_of(row.timeline_id, row.sick_kind, row.sick_reason)
        if mark is not None:
            marks[number] = mark
    return marks


def mark_of(timeline_id: str, kind: SickKind | None, reason: str | None) -> SickMark | None:
    if kind == SickKind.DIVERGED:
        return SickMark(timeline_id, "", "diverged", reason or "", None)
    if kind == SickKind.DAMAGED:
        return SickMark(timeline_id, "", "damaged", reason or "", None)
    return None


async def members_of(session: AsyncSession, timeline_id: str, safekeeper_count: int) -> list[int]:
    """Numbers of the safekeepers to ask for this log, lowest first. Of a timeline of which nothing is stored, those
    that get the logs of new branches."""
    rows = await rows_of(session, timeline_id)
    members = [number for number, row in rows.items() if row.state == MemberState.MEMBER]
    return members or of_new_logs(safekeeper_count)
