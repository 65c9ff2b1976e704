"""Which safekeepers hold a branch's log, and changing that: who is asked to is an operation's payload, and what is,
the log says itself (`weir.branches.log_members`)."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.authz.access import ProjectAccess
from weir.branches.log_members import (
    LogMembers,
    Seen,
    SickKind,
    is_lost,
    marked,
    members_of_log,
    probe,
    sickness,
)
from weir.branches.members import TimelineMember, marks_of, members_of, rows_of
from weir.branches.models import Branch, BranchState
from weir.branches.safekeepers_schemas import BranchSafekeeper, BranchSafekeepers, MemberHealth
from weir.branches.service import refuse_leaving
from weir.branches.voters import check_set, is_so, why_not
from weir.clients.safekeeper import LogStatus, Member, Safekeeper
from weir.config import get_settings
from weir.db import release
from weir.errors import ConflictError, NotBuiltError, PreconditionFailedError
from weir.identity import audit
from weir.kit.ids import parse_lsn
from weir.operations.models import OPEN, Operation, OperationKind, OperationStatus
from weir.operations.service import enqueue
from weir.projects.models import Project


async def show(
    session: AsyncSession, keepers: Sequence[Safekeeper], project: Project, branch: Branch
) -> BranchSafekeepers:
    rows = await rows_of(session, branch.timeline_id)
    stored = await members_of(session, branch.timeline_id, len(keepers))
    last = await _last_replacement(session, branch.id)
    await release(session)
    seen = marked(await probe(keepers, project.tenant_id, branch.timeline_id), marks_of(rows))
    members = members_of_log(seen, stored)
    known = members or LogMembers(0, 0, tuple(Member(number, "", 0, "voter") for number in stored), None)
    furthest = max((_flushed(one.log) for one in seen if known.of(one.number) is not None), default=0)
    asked = {one.number for one in seen}
    seen += [
        Seen(member.node, error=f"the installation has no safekeeper {member.node}")
        for member in known.members
        if member.node not in asked
    ]
    held = [one for one in seen if known.of(one.number) is not None or one.log is not None]
    views = [_view(known, one, rows.get(one.number), furthest) for one in held]
    is_open = last is not None and last.status in OPEN
    wanted: list[int] | None = last.payload["safekeepers"] if last is not None else None
    if not is_open and (last is None or last.status == OperationStatus.FINISHED or sorted(known.voters) == wanted):
        wanted = None
    return BranchSafekeepers(
        generation=None if members is None else members.generation,
        generation_term=None if members is None else members.generation_term,
        reason=_doubt(members),
        members=views,
        operation_id=last.id if last is not None and is_open else None,
        wanted=wanted,
        available=[keeper.number for keeper in keepers if known.of(keeper.number) is None],
    )


def _doubt(members: LogMembers | None) -> str | None:
    if members is None:
        return "no safekeeper shows the log of this branch"
    if members.doubt is None and not members.settled:
        return "a change is not stored by a majority of the voters yet"
    return members.doubt


async def _last_replacement(session: AsyncSession, branch_id: str) -> Operation | None:
    statement = (
        select(Operation)
        .where(Operation.branch_id == branch_id, Operation.kind == OperationKind.REPLACE_SAFEKEEPER)
        .order_by(Operation.sequence.desc())
        .limit(1)
    )
    return (await session.scalars(statement)).one_or_none()


def _flushed(log: LogStatus | None) -> int:
    return 0 if log is None or log.flush_lsn is None else parse_lsn(log.flush_lsn)


def _view(members: LogMembers, one: Seen, row: TimelineMember | None, furthest: int) -> BranchSafekeeper:
    named = members.of(one.number)
    state, reason = _state(members, one, row)
    shown = None if state in {SickKind.LOST, SickKind.UNREACHABLE} else one.log
    identity = named or (one.log.member if one.log is not None else None)
    flushed = None if shown is None else shown.flush_lsn
    return BranchSafekeeper(
        safekeeper_id=one.number,
        role="none" if named is None else "voter" if named.role == "voter" else "learner",
        disk=(identity.disk or None) if identity is not None else None,
        incarnation=identity.incarnation if identity is not None and identity.disk else None,
        state=state,
        reason=reason,
        term=None if shown is None else shown.term,
        flush_lsn=flushed,
        commit_lsn=None if shown is None else shown.commit_lsn,
        lag_bytes=None if flushed is None else max(0, furthest - parse_lsn(flushed)),
        since=None if row is None else row.since,
        sick_since=None if row is None or state == "active" else row.sick_since,
    )


def _state(members: LogMembers, one: Seen, row: TimelineMember | None) -> tuple[MemberHealth, str | None]:
    if is_lost(members, one) and one.log is None and row is not None and row.asked_at is None:
        return SickKind.LOST, "it was away when the log was founded, and is given it by itself"
    found = sickness(members, one)
    return ("active", None) if found is None else (found.kind, found.reason)


async def replace(
    access: ProjectAccess, keepers: Sequence[Safekeeper], project_id: str, ident: str, asked: Sequence[int]
) -> tuple[Branch, list[Operation]]:
    """Queues what makes these safekeepers the log's voters; nothing when they are."""
    if get_settings().compute_runtime == "simulated":
        raise NotBuiltError("this installation's storage is a model; its logs have no members")
    wanted = check_set(asked, len(keepers))
    project = await access.project(project_id)
    branch = await access.branch(project, ident)
    # Before the project is locked: a safekeeper may take seconds not to answer. What follows looks again.
    await release(access.session)
    seen = await probe(keepers, project.tenant_id, branch.timeline_id)
    project, branch = await access.idle_branch(project_id, ident)
    if branch.state != BranchState.READY:
        raise ConflictError(f"branch {branch.id} is {branch.state}; only a ready branch's safekeepers can be changed")
    refuse_leaving(branch)
    stored = await members_of(access.session, branch.timeline_id, len(keepers))
    seen = marked(seen, marks_of(await rows_of(access.session, branch.timeline_id)))
    members = members_of_log(seen, stored)
    reason = why_not(members, seen, wanted)
    if members is None or reason is not None:
        raise PreconditionFailedError(f"the safekeepers of branch {branch.id} stay as they are: {reason}")
    if is_so(members, seen, wanted, stored):
        return branch, []
    operation = await queue(access.session, branch, wanted, request_id=access.principal.request_id)
    audit.record(
        access.session, access.principal, "branch.safekeepers", f"branch/{branch.id}", project.id,
        safekeepers=wanted, before=members.voters,
    )  # fmt: skip
    return branch, [operation]


async def queue(
    session: AsyncSession,
    branch: Branch,
    wanted: Sequence[int],
    *,
    origin: str = "request",
    request_id: str = "",
) -> Operation:
    """With the project locked and the branch idle."""
    return await enqueue(
        session,
        OperationKind.REPLACE_SAFEKEEPER,
        branch.project_id,
        branch_id=branch.id,
        origin=origin,
        request_id=request_id,
        payload={"safekeepers": sorted(wanted)},
    )
