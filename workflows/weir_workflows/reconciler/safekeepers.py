"""Which safekeepers hold the logs of which branches, and what to do about one that lacks a log.

A safekeeper that was down when a timeline was made has never been asked to found its log, and is asked now. One that
held the log and lacks it has lost it: its disk was replaced, or is another's. It is reported and never given an empty
log, which would vote as if nothing had been acknowledged there.
"""

import asyncio
from collections.abc import Iterable, Sequence

import structlog
from prometheus_client import Gauge
from sqlalchemy import ColumnElement, and_, exists, func, select, true, tuple_, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from weir.branches.members import TimelineMember
from weir.branches.models import Branch, BranchState
from weir.clients.http import RemoteError
from weir.clients.safekeeper import Safekeeper
from weir.kit.clock import now
from weir_workflows.common.resources import Resources
from weir_workflows.reconciler.idle import lock_idle
from weir_workflows.storage.founding import LogFacts, found

log = structlog.get_logger()

LOST = Gauge("weir_safekeeper_lost_timelines", "Logs that a safekeeper held and lacks now", ["safekeeper_id"])
_READY = and_(Branch.state == BranchState.READY, Branch.deleted_at.is_(None), Branch.delete_requested_at.is_(None))
_MEMBER = tuple_(TimelineMember.timeline_id, TimelineMember.safekeeper_id)
# Members in one statement.
_CHUNK = 5_000

_Member = tuple[str, int]


async def repair_safekeepers(resources: Resources) -> list[str]:
    """Ids of branches whose log was founded on a safekeeper that had never been asked to."""
    keepers = resources.safekeepers
    held = dict(zip((k.number for k in keepers), await asyncio.gather(*map(_held, keepers)), strict=True))
    async with resources.database.transaction() as session:
        await _take_old_ones_for_founded(session, list(held))
        branches = (await session.execute(select(Branch.id, Branch.timeline_id).where(_READY))).all()
    answering = {number: timelines for number, timelines in held.items() if timelines is not None}
    lacking = {
        timeline: [number for number, timelines in answering.items() if timeline not in timelines]
        for _, timeline in branches
    }
    lost = await _known_members(resources, [(t, number) for t, numbers in lacking.items() for number in numbers])
    await _record(resources, lost, held)
    repaired: list[str] = []
    for branch_id, timeline in branches:
        never_asked = [k for k in keepers if k.number in lacking[timeline] and (timeline, k.number) not in lost]
        if never_asked and await _found(resources, branch_id, never_asked):
            repaired.append(branch_id)
    return repaired


async def _held(keeper: Safekeeper) -> set[str] | None:
    """Timelines of a safekeeper; None when it does not say."""
    try:
        return {item["timeline_id"] for item in await keeper.timelines()}
    except RemoteError:
        return None


async def _take_old_ones_for_founded(session: AsyncSession, numbers: Sequence[int]) -> None:
    """Timelines made before this was stored: each safekeeper of today may have held them."""
    unknown = _READY & ~exists().where(TimelineMember.timeline_id == Branch.timeline_id)
    # Each number for each of the timelines, spelt as a join: a product is what is meant here.
    number = func.unnest(list(numbers)).table_valued("number").render_derived("safekeepers")
    rows = (
        select(Branch.timeline_id, number.c.number, Branch.created_at, Branch.created_at)
        .join(number, true())
        .where(unknown)
    )
    columns = ["timeline_id", "safekeeper_id", "asked_at", "founded_at"]
    await session.execute(insert(TimelineMember).from_select(columns, rows).on_conflict_do_nothing())


async def _known_members(resources: Resources, members: Sequence[_Member]) -> set[_Member]:
    """Those of the members that were asked to found the log before, whether or not they were heard to do it."""
    known: set[_Member] = set()
    async with resources.database.transaction() as session:
        for begin in range(0, len(members), _CHUNK):
            known |= await _members(session, _MEMBER.in_(members[begin : begin + _CHUNK]))
    return known


async def _members(session: AsyncSession, condition: ColumnElement[bool]) -> set[_Member]:
    statement = select(TimelineMember.timeline_id, TimelineMember.safekeeper_id).where(condition)
    return {(timeline, number) for timeline, number in (await session.execute(statement)).all()}


async def _record(resources: Resources, lost: set[_Member], held: dict[int, set[str] | None]) -> None:
    """Stores which members have lost their log, since when, and which are seen with it."""
    async with resources.database.transaction() as session:
        reported = await _members(session, TimelineMember.lost_at.is_not(None))
        unsure = await _members(session, TimelineMember.founded_at.is_(None))
        await _set(session, lost - reported, lost_at=now())
        await _set(session, [member for member in reported if _holds(held, member)], lost_at=None)
        await _set(session, [member for member in unsure if _holds(held, member)], founded_at=now())
    for timeline, number in sorted(lost - reported):
        log.error(
            "safekeeper_lost_timeline",
            timeline_id=timeline,
            safekeeper_id=number,
            remedy="bring its disk back; until then the timeline has a member less, and no empty one takes its place",
        )
    for number, timelines in held.items():
        if timelines is not None:
            LOST.labels(str(number)).set(sum(of == number for _, of in lost))


def _holds(held: dict[int, set[str] | None], member: _Member) -> bool:
    timeline, number = member
    return timeline in (held.get(number) or ())


async def _set(session: AsyncSession, members: Iterable[_Member], **values: object) -> None:
    chosen = list(members)
    for begin in range(0, len(chosen), _CHUNK):
        await session.execute(
            update(TimelineMember).where(_MEMBER.in_(chosen[begin : begin + _CHUNK])).values(**values)
        )


async def _found(resources: Resources, branch_id: str, keepers: list[Safekeeper]) -> bool:
    """With the project locked and idle, so that no deletion can overtake it."""
    async with resources.database.transaction() as session:
        branch = await session.get(Branch, branch_id)
        project = await lock_idle(session, branch.project_id) if branch is not None else None
        if branch is None or project is None:
            return False
        try:
            timeline = await resources.pageserver.timeline(project.tenant_id, branch.timeline_id)
        except RemoteError as error:
            log.warning("safekeeper_not_repaired", branch_id=branch.id, error=str(error))
            return False
        if timeline is None:
            return False
        facts = LogFacts(timeline.start_lsn, timeline.system_identifier, timeline.pg_version)
        answers = await found(resources.database, project.tenant_id, branch.timeline_id, facts, keepers)
    failed = [answer for answer in answers if answer is not None]
    for error in failed:
        log.warning("safekeeper_not_repaired", branch_id=branch_id, error=str(error))
    if not failed:
        log.info("safekeeper_repaired", branch_id=branch_id, safekeepers=[keeper.base_url for keeper in keepers])
    return not failed
