"""Keeping what is stored of each log's safekeepers true, and giving a log to a safekeeper that was away when the
branch was made.

A member that was never asked to found the log lacks nothing that was acknowledged, so it is founded there. One that
was asked and lacks it has lost it: its disk was replaced, or is another's. It is reported, and never given an empty
log here, which would vote as if nothing had been acknowledged there; replacing it is an operation
(`storage.replace`).

Who the members are, the log says. What is stored follows it, as after a database that was put back from a backup.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import structlog
from prometheus_client import Gauge
from sqlalchemy import and_, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from weir.branches.log_members import LogMembers, Seen, SickKind, Sickness, is_lost, members_of_log, sickness
from weir.branches.members import WELL, MemberState, TimelineMember, mark_of, members_of, of_new_logs
from weir.branches.models import Branch, BranchState
from weir.clients.http import RemoteError
from weir.clients.safekeeper import LogStatus, Safekeeper
from weir.kit.clock import now
from weir.operations import scopes
from weir.projects.models import Project
from weir_workflows.common.resources import Resources
from weir_workflows.reconciler.idle import lock_idle
from weir_workflows.reconciler.sick import (
    CHUNK,
    Marks,
    Member,
    StoredSickness,
    marks_of_pageserver,
    record_sick,
    set_of,
    show_sick,
)
from weir_workflows.storage.founding import LogFacts, found

log = structlog.get_logger()

LOST = Gauge("weir_safekeeper_lost_timelines", "Logs that a safekeeper held and lacks now", ["safekeeper_id"])
_READY = and_(Branch.state == BranchState.READY, Branch.deleted_at.is_(None), Branch.delete_requested_at.is_(None))

# Of what the members are; a next round goes on.
TELLS = 4

# Looked at at once: more would take longer than a round may.
LOGS_A_ROUND = 2_500

# By timeline, what a safekeeper says that it holds, as it says it; why not when it does not say.
_Held = dict[int, dict[str, dict[str, Any]] | str]


@dataclass(frozen=True)
class _Row:
    state: MemberState
    asked: bool
    founded: bool
    lost: bool
    sick: StoredSickness | None = None


@dataclass
class _Log:
    """One branch's log: what is stored of its safekeepers, and what these say."""

    branch_id: str
    timeline: str
    created_at: datetime
    rows: dict[int, _Row] = field(default_factory=dict[int, _Row])
    seen: list[Seen] = field(default_factory=list[Seen])

    @property
    def stored(self) -> list[int]:
        return [number for number, row in self.rows.items() if row.state == MemberState.MEMBER]

    # What `members` has found, and for which stored ones. `seen` is set once, before anybody asks.
    _found: tuple[list[int], LogMembers | None] | None = None

    def members(self) -> LogMembers | None:
        """As the log itself names them; None when it does not, or not for sure."""
        stored = self.stored
        if self._found is None or self._found[0] != stored:
            members = members_of_log(self.seen, stored)
            sure = members is not None and members.generation > 0 and members.doubt is None and members.settled
            self._found = stored, members if sure else None
        return self._found[1]


@dataclass(frozen=True)
class Repaired:
    """Ids of branches whose log was founded on a safekeeper that had never been asked to. `seen_to`: the last branch
    that was looked at, empty when that was the last one there is."""

    branches: list[str]
    seen_to: str


async def repair_safekeepers(resources: Resources) -> list[str]:
    """Of all branches."""
    found = await repair_part(resources, "")
    repaired = found.branches
    while found.seen_to:
        found = await repair_part(resources, found.seen_to)
        repaired += found.branches
    return repaired


async def repair_part(resources: Resources, after: str) -> Repaired:
    """Of the next branches by id."""
    keepers = resources.safekeepers
    held: _Held = dict(zip((k.number for k in keepers), await asyncio.gather(*map(_held, keepers)), strict=True))
    marks = await marks_of_pageserver(resources)
    async with resources.database.transaction() as session:
        logs = await _logs(session, held, marks, after)
        await _add_missing(session, logs, of_new_logs(len(keepers)))
    await _follow(resources, logs)
    lost = {(one.timeline, number) for one in logs for number in _lost(one)}
    sick = {(one.timeline, number): found for one in logs for number, found in _sick(one)}
    await _record(resources, logs, lost, held, sick)
    await _show(resources, held)
    repaired: list[str] = []
    for one in logs:
        lacking = {seen.number for seen in one.seen if seen.error is None and seen.log is None}
        never_asked = [k for k in keepers if k.number in lacking and _is_member(one, k.number, asked=False)]
        if never_asked and await _found(resources, one.branch_id, never_asked):
            repaired.append(one.branch_id)
    return Repaired(repaired, logs[-1].branch_id if len(logs) == LOGS_A_ROUND else "")


def _is_member(one: _Log, number: int, *, asked: bool) -> bool:
    row = one.rows.get(number)
    return row is not None and row.state == MemberState.MEMBER and row.asked == asked


def _lost(one: _Log) -> list[int]:
    """Safekeepers that held the log and answer without it, or with another one in its place."""
    members = one.members()
    return [
        seen.number
        for seen in one.seen
        if _is_member(one, seen.number, asked=True)
        and seen.error is None
        and (seen.log is None or (members is not None and is_lost(members, seen)))
    ]


def _sick(one: _Log) -> Iterable[tuple[int, Sickness]]:
    """Members that are not well. One that was never asked to found the log lacks nothing."""
    members = one.members()
    for seen in one.seen:
        row = one.rows.get(seen.number)
        if row is None or row.state != MemberState.MEMBER:
            continue
        never_asked = not row.asked and seen.error is None and seen.log is None
        found = None if never_asked else sickness(members, seen)
        if found is not None:
            yield seen.number, found


async def _held(keeper: Safekeeper) -> dict[str, dict[str, Any]] | str:
    try:
        return {item["timeline_id"]: item for item in await keeper.timelines()}
    except RemoteError as error:
        return str(error)


async def _logs(session: AsyncSession, held: _Held, marks: Marks | None, after: str) -> list[_Log]:
    part = select(Branch.id, Branch.timeline_id, Branch.created_at).where(_READY, Branch.id > after)
    branches = (await session.execute(part.order_by(Branch.id).limit(LOGS_A_ROUND))).all()
    if not branches:
        return []
    logs = {row[1]: _Log(row[0], row[1], row[2]) for row in branches}
    columns = (
        TimelineMember.timeline_id,
        TimelineMember.safekeeper_id,
        TimelineMember.state,
        TimelineMember.asked_at.is_not(None),
        TimelineMember.founded_at.is_not(None),
        TimelineMember.lost_at.is_not(None),
        TimelineMember.sick_kind,
        TimelineMember.sick_reason,
    )
    joined = select(*columns).join(Branch, Branch.timeline_id == TimelineMember.timeline_id)
    joined = joined.where(_READY, Branch.id > after, Branch.id <= branches[-1][0])
    for timeline, number, state, asked, founded, lost, kind, reason in (await session.execute(joined)).all():
        sick = None if kind is None else StoredSickness(kind, reason or "")
        # One that is made between the two statements has its turn in the next walk.
        if timeline in logs:
            logs[timeline].rows[number] = _Row(state, asked, founded, lost, sick)
    for one in logs.values():
        one.seen = [_seen(one, number, of, marks) for number, of in held.items()]
    return list(logs.values())


def _seen(one: _Log, number: int, of: dict[str, dict[str, Any]] | str, marks: Marks | None) -> Seen:
    if isinstance(of, str):
        return Seen(number, error=of)
    row = one.rows.get(number)
    if marks is not None:
        mark = marks.get(one.timeline, {}).get(number)
    elif row is not None and row.sick is not None:
        mark = mark_of(one.timeline, row.sick.kind, row.sick.reason)
    else:
        mark = None
    said = of.get(one.timeline)
    return Seen(number, None if said is None else LogStatus.parse(said), mark=mark)


async def _add_missing(session: AsyncSession, logs: Sequence[_Log], of_new: Sequence[int]) -> None:
    """Rows of timelines made before they were stored: each safekeeper of new logs may have held such a log, or
    whoever the log names. And of those that were away when a timeline was made: they were never asked."""
    new: list[dict[str, Any]] = []
    for one in logs:
        if len(one.rows) >= len(of_new):
            continue
        held_before = not one.rows
        members = one.members() if held_before else None
        named = of_new if members is None else [member.node for member in members.members]
        at = one.created_at if held_before else None
        for number in set(named) - set(one.rows):
            one.rows[number] = _Row(MemberState.MEMBER, held_before, held_before, False)
            row: dict[str, Any] = {"timeline_id": one.timeline, "safekeeper_id": number, "state": MemberState.MEMBER}
            new.append(row | {"since": one.created_at, "asked_at": at, "founded_at": at})
    for begin in range(0, len(new), CHUNK):
        statement = insert(TimelineMember).values(new[begin : begin + CHUNK])
        await session.execute(statement.on_conflict_do_nothing())


async def _follow(resources: Resources, logs: Sequence[_Log]) -> None:
    """What is stored becomes what the log says, where nobody changes it now."""
    for one in logs:
        members = one.members()
        if members is not None and {member.node for member in members.members} != set(one.stored):
            await _store_members(resources, one, members)


async def _store_members(resources: Resources, one: _Log, members: LogMembers) -> None:
    named = {member.node for member in members.members}
    async with resources.database.transaction() as session:
        branch = await session.get(Branch, one.branch_id)
        project = await _lock_log(session, branch) if branch is not None else None
        if branch is None or project is None or branch.timeline_id != one.timeline:
            return
        at = now()
        for number in named - set(one.stored):
            values = {"state": MemberState.MEMBER, "since": at, "lost_at": None} | WELL
            row = values | {"timeline_id": one.timeline, "safekeeper_id": number, "asked_at": at, "founded_at": at}
            key = [TimelineMember.timeline_id, TimelineMember.safekeeper_id]
            statement = insert(TimelineMember).values(row)
            await session.execute(statement.on_conflict_do_update(index_elements=key, set_=values))
            one.rows[number] = _Row(MemberState.MEMBER, True, True, False)
        gone = set(one.stored) - named
        values = {"state": MemberState.REMOVED, "since": at, "lost_at": None} | WELL
        await set_of(session, [(one.timeline, number) for number in gone], values)
        for number in gone:
            one.rows[number] = _Row(MemberState.REMOVED, True, True, False)
        log.warning("members_followed", branch_id=branch.id, safekeepers=sorted(named), gone=sorted(gone))
    try:
        await _tell_pageserver(resources, project.tenant_id, one.timeline)
    except RemoteError as error:
        log.warning("pageserver_not_told", branch_id=branch.id, error=str(error))


async def _lock_log(session: AsyncSession, branch: Branch) -> Project | None:
    """The project, locked until commit; None where the branch's members are being changed, or all of the branch."""
    return await lock_idle(session, branch.project_id, scopes.log_of(branch.project_id, branch.id))


async def _tell_pageserver(resources: Resources, tenant: str, timeline: str) -> None:
    """Until what it was told is what is stored: a replacement that begins meanwhile tells it something else, which
    must not be undone by a request from here that comes in late."""
    told: list[str] | None = None
    for _ in range(TELLS):
        async with resources.database.transaction() as session:
            addresses = resources.wal_addresses(await members_of(session, timeline, len(resources.safekeepers)))
        if addresses == told:
            return
        await resources.pageserver.set_safekeepers(tenant, timeline, addresses)
        told = addresses


async def _record(
    resources: Resources, logs: Sequence[_Log], lost: set[Member], held: _Held, sick: Mapping[Member, Sickness]
) -> None:
    """Stores which members are sick or have lost their log, since when, and which are seen with it."""
    rows = {(one.timeline, number): row for one in logs for number, row in one.rows.items()}
    reported = {member for member, row in rows.items() if row.lost}
    unsure = {member for member, row in rows.items() if row.asked and not row.founded}
    async with resources.database.transaction() as session:
        await set_of(session, lost - reported, {"lost_at": now()})
        await set_of(session, [member for member in reported - lost if _holds(held, member)], {"lost_at": None})
        await set_of(session, [member for member in unsure if _holds(held, member)], {"founded_at": now()})
        stored = {member: row.sick for member, row in rows.items() if row.sick is not None}
        await record_sick(session, stored, sick)
    for timeline, number in sorted(lost - reported):
        log.error(
            "safekeeper_lost_timeline",
            timeline_id=timeline,
            safekeeper_id=number,
            remedy="bring its disk back, or replace it: `weir safekeepers set`; until then the timeline has a member "
            "less, and no empty one takes its place",
        )


async def _show(resources: Resources, held: _Held) -> None:
    """As stored of all logs. What a safekeeper that does not answer has lost stays as it was shown last."""
    per_keeper = select(TimelineMember.safekeeper_id, TimelineMember.sick_kind, func.count(TimelineMember.lost_at))
    statement = (
        per_keeper.add_columns(func.count())
        .join(Branch, Branch.timeline_id == TimelineMember.timeline_id)
        .where(_READY, TimelineMember.state == MemberState.MEMBER)
        .group_by(TimelineMember.safekeeper_id, TimelineMember.sick_kind)
    )
    sick: Counter[tuple[int, SickKind]] = Counter()
    lost: Counter[int] = Counter()
    async with resources.database.transaction() as session:
        for number, kind, lacking, members in (await session.execute(statement)).all():
            lost[number] += lacking
            if kind is not None:
                sick[number, kind] = members
    show_sick(held, sick)
    for number, timelines in held.items():
        if not isinstance(timelines, str):
            LOST.labels(str(number)).set(lost[number])


def _holds(held: _Held, member: Member) -> bool:
    timeline, number = member
    of = held.get(number)
    return isinstance(of, dict) and timeline in of


async def _found(resources: Resources, branch_id: str, keepers: list[Safekeeper]) -> bool:
    """With the project locked and the log idle, so that neither a deletion nor a change of members can overtake it:
    an empty log that comes in late would be taken for a member's. It happens once to a member, and takes two
    requests."""
    async with resources.database.transaction(asks_others=True) as session:
        branch = await session.get(Branch, branch_id)
        project = await _lock_log(session, branch) if branch is not None else None
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
