"""Snapshots that schedules want: taken as somebody's request would take them, of the head."""

from datetime import datetime, timedelta

import structlog
from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from weir.branches.head import Beginning
from weir.branches.models import Branch, BranchState
from weir.errors import ProjectBusyError
from weir.identity import audit
from weir.operations import scopes
from weir.operations.models import Operation, OperationStatus
from weir.snapshots import schedules
from weir.snapshots.models import BackupScheduleItem
from weir.snapshots.taking import Wanted, take
from weir_workflows.common.resources import Resources
from weir_workflows.reconciler.idle import lock_idle

log = structlog.get_logger()

ORIGIN = "schedule"
# In one round; the next ones go on.
BRANCHES_A_ROUND = 50
PAUSE_AFTER_FAILURE = timedelta(minutes=10)


async def take_due(resources: Resources, at: datetime) -> list[str]:
    """Queues one snapshot of each branch of which an entry of its schedule is due at `at`, however many entries are
    and however many times of theirs have passed, and answers with the snapshots' ids. What cannot be taken now, since
    the branch is being restored, say, stays due; one whose operation failed is due again after a pause. A branch that
    is being deleted or that expires is passed over."""
    async with resources.database.transaction() as session:
        statement = (
            select(Branch.id, Branch.project_id)
            .join(BackupScheduleItem, BackupScheduleItem.branch_id == Branch.id)
            .where(*_due(at))
            .group_by(Branch.id, Branch.project_id)
            .order_by(func.min(BackupScheduleItem.next_at), Branch.id)
        )
        found = (await session.execute(statement.limit(BRANCHES_A_ROUND))).all()
    taken: list[str] = []
    for ident, project_id in found:
        try:
            async with resources.database.transaction() as session:
                snapshot = await _take(session, project_id, ident, at)
        except (SQLAlchemyError, ProjectBusyError) as error:
            log.warning("snapshot_postponed", branch_id=ident, error=str(error))
            continue
        taken += [snapshot] if snapshot else []
    return taken


def _due(at: datetime) -> tuple[ColumnElement[bool], ...]:
    failed = select(Operation.id).where(
        Operation.id == BackupScheduleItem.operation_id,
        Operation.status == OperationStatus.FAILED,
        Operation.finished_at <= at - PAUSE_AFTER_FAILURE,
    )
    return (
        or_(BackupScheduleItem.next_at <= at, failed.exists()),
        Branch.deleted_at.is_(None),
        Branch.delete_requested_at.is_(None),
        Branch.expires_at.is_(None),
        Branch.state == BranchState.READY,
    )


async def _take(session: AsyncSession, project_id: str, ident: str, at: datetime) -> str | None:
    if await lock_idle(session, project_id, scopes.history_of(project_id, ident)) is None:
        return None
    # With the project locked, as it is now: another worker may have taken it, or somebody ended the schedule.
    statement = select(BackupScheduleItem).join(Branch, Branch.id == BackupScheduleItem.branch_id)
    due = (await session.scalars(statement.where(*_due(at), Branch.id == ident))).all()
    if not due:
        return None
    branch = await session.get_one(Branch, ident)
    wanted = Wanted(None, at, schedules.expiry(due, at), manual=False, created_by=ORIGIN)
    taken = await take(session, Beginning(branch, None, None, knows_moment=True), wanted, origin=ORIGIN)
    schedules.move_on(due, at, taken.operation.id)
    audit.record_system(
        session, ORIGIN, "snapshot.create", f"snapshot/{taken.snapshot.id}", project_id,
        source_branch_id=ident, frequencies=[item.frequency.value for item in due],
    )  # fmt: skip
    log.info("snapshot_scheduled", snapshot_id=taken.snapshot.id, branch_id=ident, project_id=project_id)
    return taken.snapshot.id
