"""Branches and snapshots whose time has come: deleted as by somebody's request, with their computes."""

from datetime import datetime, timedelta

import structlog
from sqlalchemy import ColumnElement, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from weir.branches.models import Branch
from weir.branches.service import deletion_of, enqueue_deletion
from weir.errors import ProjectBusyError
from weir.identity import audit
from weir.operations import scopes
from weir.operations.models import OperationKind
from weir.operations.repository import OperationRepository
from weir_workflows.common.resources import Resources
from weir_workflows.reconciler.idle import lock_idle

log = structlog.get_logger()

ORIGIN = "expiry"
# In one round; the next ones go on.
BRANCHES_A_ROUND = 50
LONGEST_PAUSE_SECONDS = 3600


async def delete_expired(resources: Resources, at: datetime) -> list[str]:
    """Queues the deletion of branches, and of those that hold snapshots, whose `expires_at` is not after `at`, and
    answers with their ids. One that is the default, protected, or has branches that need its data stays, whatever it
    says. A deletion that failed is tried again, after a pause that grows to an hour."""
    async with resources.database.transaction() as session:
        statement = select(Branch.id, Branch.project_id).where(*_expired(at)).order_by(Branch.expires_at, Branch.id)
        found = (await session.execute(statement.limit(BRANCHES_A_ROUND))).all()
    queued: list[str] = []
    for ident, project_id in found:
        try:
            async with resources.database.transaction() as session:
                if await _delete(session, project_id, ident, at):
                    queued.append(ident)
        except (SQLAlchemyError, ProjectBusyError) as error:
            log.warning("expiry_postponed", branch_id=ident, error=str(error))
    return queued


def _expired(at: datetime) -> tuple[ColumnElement[bool], ...]:
    child = aliased(Branch)
    return (
        Branch.expires_at <= at,
        Branch.deleted_at.is_(None),
        Branch.is_default.is_(False),
        Branch.protected.is_(False),
        ~select(child.id).where(child.parent_id == Branch.id, child.deleted_at.is_(None)).exists(),
    )


async def _delete(session: AsyncSession, project_id: str, ident: str, at: datetime) -> bool:
    if await lock_idle(session, project_id, scopes.of_branch(project_id, ident)) is None:
        return False
    # With the project locked, as it is now: somebody may have put it off, protected it, or made a branch of it.
    statement = select(Branch).where(Branch.id == ident, *_expired(at)).with_for_update(of=Branch)
    branch = (await session.scalars(statement)).one_or_none()
    if branch is None:
        return False
    failures, last = await OperationRepository(session).consecutive_failures_of_branch(
        branch.id, OperationKind.DELETE_BRANCH
    )
    if last is not None and at < last + timedelta(seconds=min(LONGEST_PAUSE_SECONDS, 60 * 2**failures)):
        return False
    await enqueue_deletion(session, branch, origin=ORIGIN)
    audit.record_system(
        session, ORIGIN, *deletion_of(branch), project_id,
        expires_at=branch.expires_at.isoformat() if branch.expires_at else None,
    )  # fmt: skip
    log.info("branch_expired", branch_id=branch.id, project_id=project_id)
    return True
