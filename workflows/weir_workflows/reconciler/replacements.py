"""Replacing members of logs that have been sick for too long, where the installation's policy says so.

What is queued is the operation that people ask for. Before that the member is looked at once more, and the control
plane has to have seen it sick for a while itself: what is stored says nothing of the night in which nothing ran, and
after it everything starts at once, the safekeepers not always first.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.branches.log_members import Seen, Sickness, look, marked, members_of_log, seen_of, sickness
from weir.branches.members import MemberState, TimelineMember, marks_of, members_of, rows_of
from weir.branches.models import Branch, BranchState
from weir.branches.safekeepers import queue
from weir.branches.voters import voters_without
from weir.clients.http import RemoteError
from weir.identity import audit
from weir.kit.clock import now
from weir.operations.models import OPEN, Operation, OperationKind
from weir.operations.repository import OperationRepository
from weir.projects.models import Project
from weir_workflows.common.resources import Resources
from weir_workflows.reconciler.idle import lock_idle
from weir_workflows.reconciler.sick import Member

log = structlog.get_logger()

ORIGIN = "reconciler"
# Replacements that are open at the same time, and members that are looked at in one round.
AT_MOST_OPEN = 16
LOOKS_A_ROUND = 32
# For how long this process has to have seen a member sick, at least, and without such a pause between its looks.
SEEN_SECONDS = 300.0
LONGEST_PAUSE_SECONDS = 120.0
FIRST_BACKOFF = timedelta(minutes=5)
LONGEST_BACKOFF = timedelta(hours=6)


@dataclass(frozen=True)
class _Candidate:
    branch: Branch
    project: Project
    number: int

    @property
    def member(self) -> Member:
        return self.branch.timeline_id, self.number


def backoff(failures: int) -> timedelta:
    """How long after the last failure in a row nothing is asked for again."""
    return min(LONGEST_BACKOFF, FIRST_BACKOFF * 2 ** min(failures - 1, 16))


class Replacements:
    """`clock`: seconds that never go back."""

    def __init__(self, resources: Resources, clock: Callable[[], float] = time.monotonic) -> None:
        self._r = resources
        self._clock = clock
        self._last_round = -LONGEST_PAUSE_SECONDS
        # Since when each member has been seen sick in every round.
        self._seen: dict[Member, float] = {}

    async def replace_sick(self) -> list[str]:
        """Ids of branches whose log is to have another member. What is stored of sick members has just been
        renewed."""
        minutes = self._r.settings.safekeepers_replace_after_minutes
        if minutes == 0 or self._r.settings.compute_runtime == "simulated":
            return []
        async with self._r.database.transaction() as session:
            await self._note(session)
            free = AT_MOST_OPEN - await _open(session)
            found = await _candidates(session, now() - timedelta(minutes=minutes)) if free > 0 else []
            load, unwell = await _loads(session)
        due = [one for one in found if self._has_seen(one.member, 60.0 * minutes)]
        if not due:
            return []
        spares = await self._well({keeper.number for keeper in self._r.safekeepers} - unwell)
        queued: list[str] = []
        for one in due:
            if len(queued) == free:
                break
            wanted = await self._replace(one, spares, load)
            if wanted is not None:
                queued.append(one.branch.id)
                for number in wanted:
                    load[number] = load.get(number, 0) + 1
        return queued

    async def _note(self, session: AsyncSession) -> None:
        at = self._clock()
        if at - self._last_round > LONGEST_PAUSE_SECONDS:
            self._seen.clear()
        self._last_round = at
        columns = select(TimelineMember.timeline_id, TimelineMember.safekeeper_id)
        rows = await session.execute(columns.where(TimelineMember.sick_since.is_not(None)))
        self._seen = {(row[0], row[1]): self._seen.get((row[0], row[1]), at) for row in rows.all()}

    def _has_seen(self, member: Member, seconds: float) -> bool:
        return self._clock() - self._seen.get(member, self._clock()) >= min(seconds, SEEN_SECONDS)

    async def _well(self, numbers: set[int]) -> list[int]:
        well: list[int] = []
        for keeper in self._r.numbered(numbers):
            try:
                await keeper.healthy()
            except RemoteError as error:
                log.info("no_spare", safekeeper_id=keeper.number, error=str(error))
            else:
                well.append(keeper.number)
        return well

    async def _replace(self, one: _Candidate, spares: list[int], load: dict[int, int]) -> list[int] | None:
        """The voters that are asked for; None when nothing is."""
        # Asked before the project is locked: a safekeeper may take seconds not to answer.
        seen = await look(self._r.safekeepers, one.project.tenant_id, one.branch.timeline_id)
        async with self._r.database.transaction() as session:
            branch = await session.get(Branch, one.branch.id, populate_existing=True)
            project = await lock_idle(session, one.project.id) if branch is not None else None
            if branch is None or project is None or branch.state != BranchState.READY:
                return None
            rows = await rows_of(session, branch.timeline_id)
            row = rows.get(one.number)
            if row is None or row.state != MemberState.MEMBER or row.sick_since is None:
                return None
            failures, last = await OperationRepository(session).consecutive_failures_of_branch(
                branch.id, OperationKind.REPLACE_SAFEKEEPER
            )
            if last is not None and now() < last + backoff(failures):
                return None
            stored = await members_of(session, branch.timeline_id, len(self._r.safekeepers))
            seen = marked(seen, marks_of(rows))
            found = _still_sick(seen, stored, one.number)
            if found is None:
                return None
            wanted, reason = voters_without(seen, stored, one.number, spares, load)
            if reason is not None:
                log.warning("safekeeper_not_replaced", branch_id=branch.id, safekeeper_id=one.number, reason=reason)
                return None
            await queue(session, branch, wanted, origin=ORIGIN)
            audit.record_system(
                session,
                ORIGIN,
                "branch.safekeepers",
                f"branch/{branch.id}",
                project.id,
                safekeepers=wanted,
                before=stored,
                reason=f"safekeeper {one.number} is {found.kind} since {row.sick_since.isoformat()}: {found.reason}",
            )
        log.warning(
            "safekeeper_replaced", branch_id=branch.id, safekeeper_id=one.number, kind=found.kind.value, wanted=wanted
        )
        return wanted


def _still_sick(seen: list[Seen], stored: list[int], number: int) -> Sickness | None:
    """None as well where the safekeeper may still repair it by itself."""
    found = sickness(members_of_log(seen, stored), seen_of(seen, number))
    return None if found is None or found.mends else found


async def _open(session: AsyncSession) -> int:
    statement = select(func.count()).where(
        Operation.kind == OperationKind.REPLACE_SAFEKEEPER,
        Operation.status.in_(OPEN),
        Operation.origin == ORIGIN,
    )
    return (await session.scalars(statement)).one()


async def _loads(session: AsyncSession) -> tuple[dict[int, int], set[int]]:
    """Of each safekeeper, how many branches have it as a member; and those with sick members."""
    statement = (
        select(TimelineMember.safekeeper_id, func.count(), func.count(TimelineMember.sick_since))
        .join(Branch, Branch.timeline_id == TimelineMember.timeline_id)
        .where(TimelineMember.state != MemberState.REMOVED, Branch.deleted_at.is_(None))
        .group_by(TimelineMember.safekeeper_id)
    )
    rows = (await session.execute(statement)).all()
    return {row[0]: row[1] for row in rows}, {row[0] for row in rows if row[2] > 0}


async def _candidates(session: AsyncSession, before: datetime) -> list[_Candidate]:
    """Any of them: some that are refused again and again must not stand before the others."""
    statement = (
        select(Branch, Project, TimelineMember.safekeeper_id)
        .join(TimelineMember, TimelineMember.timeline_id == Branch.timeline_id)
        .join(Project, Project.id == Branch.project_id)
        .where(
            TimelineMember.state == MemberState.MEMBER,
            TimelineMember.sick_since <= before,
            Branch.state == BranchState.READY,
            Branch.deleted_at.is_(None),
            Branch.delete_requested_at.is_(None),
        )
        .order_by(func.random())
        .limit(LOOKS_A_ROUND)
    )
    rows = (await session.execute(statement)).all()
    return [_Candidate(row[0], row[1], row[2]) for row in rows]
