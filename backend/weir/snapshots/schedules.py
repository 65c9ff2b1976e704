"""The schedules that people set, and what of one is due."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from weir.authz.access import ProjectAccess
from weir.errors import BadRequestError
from weir.identity import audit
from weir.kit.clock import now
from weir.snapshots.calendar import next_after
from weir.snapshots.models import BackupScheduleItem, Frequency
from weir.snapshots.repository import SnapshotRepository
from weir.snapshots.schemas import ScheduleItem
from weir.snapshots.taking import refuse_source


def checked(items: Sequence[ScheduleItem]) -> None:
    """Raises BadRequestError for an entry that says what its frequency has not."""
    for number, item in enumerate(items):
        wrong = [
            field
            for field, fits in (
                ("hour", item.frequency != Frequency.HOURLY),
                ("day", item.frequency in {Frequency.WEEKLY, Frequency.MONTHLY}),
                ("month", False),
            )
            # 0 is what clients send whose language has no absent number.
            if not fits and getattr(item, field)
        ]
        if wrong:
            raise BadRequestError(f"schedule[{number}]: {' and '.join(wrong)} cannot be said of {item.frequency}")
        if item.frequency == Frequency.WEEKLY and (item.day or 0) > 7:
            raise BadRequestError(f"schedule[{number}]: day {item.day} is no day of a week; Monday is 1, Sunday 7")


def row_of(branch_id: str, position: int, item: ScheduleItem, after: datetime) -> BackupScheduleItem:
    hour = None if item.frequency == Frequency.HOURLY else item.hour or 0
    day = None
    if item.frequency == Frequency.WEEKLY:
        # 0 said aloud is Sunday, as everywhere that counts so.
        day = 1 if item.day is None else item.day or 7
    elif item.frequency == Frequency.MONTHLY:
        day = item.day or 1
    return BackupScheduleItem(
        branch_id=branch_id,
        position=position,
        frequency=item.frequency,
        hour=hour,
        day=day,
        retention_seconds=item.retention_seconds,
        next_at=next_after(item.frequency, hour, day, after),
    )


async def replace(access: ProjectAccess, project_id: str, branch_id: str, items: Sequence[ScheduleItem]) -> None:
    checked(items)
    project, branch = await access.branch_to_write(project_id, branch_id)
    if items:
        refuse_source(branch)
    at = now()
    rows = [row_of(branch.id, position, item, at) for position, item in enumerate(items)]
    await SnapshotRepository(access.session).replace_schedule(branch.id, rows)
    audit.record(
        access.session, access.principal, "branch.backup_schedule", f"branch/{branch.id}", project.id,
        schedule=[item.model_dump(mode="json", exclude_none=True) for item in items],
    )  # fmt: skip


def expiry(due: Sequence[BackupScheduleItem], at: datetime) -> datetime:
    """Until when the one snapshot is kept that is taken for all of these entries."""
    return at + timedelta(seconds=max(item.retention_seconds for item in due))


def move_on(due: Sequence[BackupScheduleItem], at: datetime, operation_id: UUID) -> None:
    """To the first time after `at`, once the operation is to take a snapshot: what was missed is not made up for."""
    for item in due:
        item.operation_id = operation_id
        item.next_at = next_after(item.frequency, item.hour, item.day, at)
