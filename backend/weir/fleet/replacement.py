"""Replacing a safekeeper for all branches that have it as a member: a disk that is lost, a machine that goes."""

import asyncio
from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.authz.principal import Principal
from weir.branches.log_members import Seen, marked, probe
from weir.branches.members import MemberState, TimelineMember, marks_of, members_of, rows_of
from weir.branches.models import Branch, BranchState
from weir.branches.safekeepers import queue
from weir.branches.safekeepers_schemas import QueuedReplacement, ReplacementNotQueued, SafekeeperReplacement
from weir.branches.voters import voters_with
from weir.clients.http import RemoteError
from weir.clients.safekeeper import Safekeeper
from weir.config import get_settings
from weir.db import release
from weir.errors import BadRequestError, NotBuiltError, PreconditionFailedError
from weir.identity import audit
from weir.operations import scopes
from weir.operations.locks import holder
from weir.operations.models import OPEN, Operation, OperationKind
from weir.projects.models import Project

# Branches that one request looks at, and how many of them at the same time.
AT_MOST = 200
LOOKS_AT_ONCE = 16


async def replace_everywhere(
    session: AsyncSession, principal: Principal, keepers: Sequence[Safekeeper], number: int, by: int, after: str
) -> SafekeeperReplacement:
    """Queues a replacement for each branch that is idle."""
    if get_settings().compute_runtime == "simulated":
        raise NotBuiltError("this installation's storage is a model; its logs have no members")
    known = {keeper.number: keeper for keeper in keepers}
    for named in (number, by):
        if named not in known:
            raise BadRequestError(f"there is no safekeeper {named}; the installation has 1 to {len(keepers)}")
    await release(session)
    try:
        await known[by].healthy()
    except RemoteError as error:
        raise PreconditionFailedError(f"safekeeper {by} cannot take over: {error}") from None
    found = await _branches(session, number, after)
    remaining = max(0, len(found) - AT_MOST)
    found = found[:AT_MOST]
    following = found[-1][0].id if remaining else None
    answer = SafekeeperReplacement(queued=0, remaining=remaining, next=following, operations=[], not_queued=[])
    await release(session)
    looks = await _look_at(keepers, found)
    locked: set[str] = set()
    for (branch, project), seen in zip(found, looks, strict=True):
        stored = await members_of(session, branch.timeline_id, len(keepers))
        marks = marks_of(await rows_of(session, branch.timeline_id))
        wanted, reason = voters_with(marked(seen, marks), stored, number, by)
        queued = reason or await _queue(session, principal, branch, project, wanted, locked)
        if isinstance(queued, str):
            row = ReplacementNotQueued(branch_id=branch.id, project_id=project.id, reason=queued)
            answer.not_queued.append(row)
        else:
            row = QueuedReplacement(branch_id=branch.id, project_id=project.id, operation_id=queued.id)
            answer.operations.append(row)
    answer.queued = len(answer.operations)
    audit.record(
        session, principal, "safekeeper.replace", f"safekeeper/{number}", replaced_by=by, queued=answer.queued
    )
    return answer


async def _branches(session: AsyncSession, number: int, after: str) -> list[tuple[Branch, Project]]:
    """Those with the safekeeper as a member, as stored, which no replacement is open for, by their ids."""
    under_way = select(Operation.branch_id).where(
        Operation.kind == OperationKind.REPLACE_SAFEKEEPER,
        Operation.status.in_(OPEN),
        Operation.branch_id.is_not(None),
    )
    statement = (
        select(Branch, Project)
        .join(TimelineMember, TimelineMember.timeline_id == Branch.timeline_id)
        .join(Project, Project.id == Branch.project_id)
        .where(
            TimelineMember.safekeeper_id == number,
            TimelineMember.state == MemberState.MEMBER,
            Branch.state == BranchState.READY,
            Branch.deleted_at.is_(None),
            Branch.delete_requested_at.is_(None),
            Branch.id.not_in(under_way),
            Branch.id > after,
        )
        .order_by(Branch.id)
    )
    return [(row[0], row[1]) for row in (await session.execute(statement)).all()]


async def _look_at(keepers: Sequence[Safekeeper], found: Sequence[tuple[Branch, Project]]) -> list[list[Seen]]:
    turns = asyncio.Semaphore(LOOKS_AT_ONCE)

    async def one(branch: Branch, project: Project) -> list[Seen]:
        async with turns:
            return await probe(keepers, project.tenant_id, branch.timeline_id)

    return await asyncio.gather(*(one(branch, project) for branch, project in found))


async def _queue(
    session: AsyncSession,
    principal: Principal,
    branch: Branch,
    project: Project,
    wanted: list[int],
    locked: set[str],
) -> Operation | str:
    """The reason where the branch is busy. `locked`: projects whose rows this request has locked."""
    if project.id not in locked:
        statement = select(Project).where(
            Project.id == project.id, Project.deleted_at.is_(None), Project.delete_requested_at.is_(None)
        )
        if (await session.scalars(statement.with_for_update(skip_locked=True))).one_or_none() is None:
            return "somebody works on the project, or it is being deleted; ask again"
        locked.add(project.id)
    scope = scopes.of_branch(project.id, branch.id)
    held = await holder(session, [scope])
    if held is not None:
        what = f"operation {held.operation_id} ({held.action}) is {held.status}"
        return f"{scopes.named(scope)} is busy: {what}; ask again"
    return await queue(session, branch, wanted, request_id=principal.request_id)
