"""Replacing members of logs that have been sick for too long, where the installation's policy says so.

What is queued is the operation that people ask for. Before that the member is looked at once more, and the control
plane has to have seen it sick for a while itself: what is stored says nothing of the night in which nothing ran, and
after it everything starts at once, the safekeepers not always first.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.branches.log_members import Seen, Sickness, marked, members_of_log, probe, seen_of, sickness
from weir.branches.members import MemberState, TimelineMember, marks_of, members_of, rows_of
from weir.branches.models import Branch, BranchState
from weir.branches.safekeepers import queue
from weir.branches.voters import voters_without
from weir.clients.http import RemoteError
from weir.clients.safekeeper import Safekeeper
from weir.identity import audit
from weir.kit.clock import now
from weir.operations import scopes
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
        # Why one of these stays.
        self._said: dict[Member, str] = {}

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
        # All at once, and before any project is locked: a safekeeper may take seconds not to answer.
        looks = await asyncio.gather(
            *(probe(self._r.safekeepers, one.project.tenant_id, one.branch.timeline_id) for one in due)
        )
        queued: list[str] = []
        for one, seen in zip(due, looks, strict=True):
            if len(queued) == free:
                break
            wanted = await self._replace(one, seen, spares, load)
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
        self._said = {member: reason for member, reason in self._said.items() if member in self._seen}

    def _has_seen(self, member: Member, seconds: float) -> bool:
        return self._clock() - self._seen.get(member, self._clock()) >= min(seconds, SEEN_SECONDS)

    def _say(self, one: _Candidate, reason: str) -> None:
        """Once, as long as it stays the reason."""
        if self._said.get(one.member) != reason:
            self._said[one.member] = reason
            log.warning("safekeeper_not_replaced", branch_id=one.branch.id, safekeeper_id=one.number, reason=reason)

    async def _well(self, numbers: set[int]) -> list[int]:
        async def answers(keeper: Safekeeper) -> bool:
            try:
                await keeper.healthy()
            except RemoteError as error:
                log.info("no_spare", safekeeper_id=keeper.number, error=str(error))
                return False
            return True

        keepers = self._r.numbered(numbers)
        answered = await asyncio.gather(*map(answers, keepers))
        return [keeper.number for keeper, is_well in zip(keepers, answered, strict=True) if is_well]

    async def _replace(
        self, one: _Candidate, seen: list[Seen], spares: list[int], load: dict[int, int]
    ) -> list[int] | None:
        """The voters that are asked for; None when nothing is."""
        async with self._r.database.transaction() as session:
            scope = scopes.of_branch(one.project.id, one.branch.id)
            project = await lock_idle(session, one.project.id, scope)
            branch = await session.get(Branch, one.branch.id) if project is not None else None
            if project is None or branch is None or not _is_ready(branch):
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
                self._say(one, reason)
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


def _is_ready(branch: Branch) -> bool:
    leaves = branch.deleted_at is not None or branch.delete_requested_at is not None
    return branch.state == BranchState.READY and not leaves


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
