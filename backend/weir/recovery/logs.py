"""Logs of branches whose safekeepers are all lost, made again on the safekeepers that are there now.

A new log begins where storage is durable, and is filled with the WAL that the lost safekeepers had offloaded to the
object store, on every member and before any compute starts (docs/consensus.md, I7). Nothing is made in place of a log
that somebody still holds: it could have more than is anywhere else.

While a log is made again its project is locked: nobody can start a compute of it, change its members or delete it
(`project_locked`). What was seen of the log before the lock is looked at again under it.

Each step can be repeated. A run that dies in between leaves new logs that no compute has used, with which the next
run goes on.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.branches.members import members_of
from weir.branches.models import Branch, BranchState
from weir.clients.http import RemoteError
from weir.clients.pageserver import Pageserver, TimelineStatus
from weir.clients.safekeeper import Disk, LogStatus, Safekeeper
from weir.db import Database
from weir.endpoints.models import Endpoint, EndpointState
from weir.errors import ProjectBusyError
from weir.kit.ids import parse_lsn
from weir.operations import scopes
from weir.projects.locking import lock_idle
from weir.projects.models import Project

_INGEST_SECONDS = 30.0
_UNUSED = "no compute was started on it yet"


@dataclass(frozen=True)
class BranchLog:
    """A branch, and whose log is looked for. `members`: numbers of the safekeepers that are to have it, as stored.
    `busy`: a compute of it that is not suspended."""

    project: str
    project_id: str
    branch: str
    branch_id: str
    tenant: str
    timeline: str
    members: tuple[int, ...]
    busy: str | None = None


class Outcome(StrEnum):
    KEPT = "kept"
    PLANNED = "would be made again"
    RECOVERED = "made again"
    REFUSED = "REFUSED"


@dataclass(frozen=True)
class Report:
    """`lsn` and `at`: what the branch comes back to, and the time of its last commit; `origin`: whether that is what
    safekeepers had `offloaded`, or what storage had `ingested`."""

    of: BranchLog
    outcome: Outcome
    remark: str = ""
    lsn: str | None = None
    at: str | None = None
    origin: str = ""


@dataclass
class _Standing:
    """What the safekeepers say of one log, by their numbers."""

    originals: dict[int, LogStatus] = field(default_factory=dict[int, LogStatus])
    # Made by this recovery, or founded and never used.
    fresh: dict[int, LogStatus] = field(default_factory=dict[int, LogStatus])
    lacking: list[int] = field(default_factory=list[int])
    silent: list[int] = field(default_factory=list[int])


@dataclass(frozen=True)
class _Lost:
    """A log that no majority holds: what is left of it, the safekeepers to make it again on, and what storage has."""

    standing: _Standing
    keepers: list[Safekeeper]
    storage: TimelineStatus


class RefusedError(Exception):
    """Nothing is done about this log; the message says what to do."""


# Keeps everybody else from the log's project for as long as it is entered, and gives the branch as it is then.
# Raises RefusedError when the project is busy.
Lock = Callable[[BranchLog], AbstractAsyncContextManager[BranchLog]]


def project_locked(database: Database, safekeeper_count: int) -> Lock:
    """A lock on the row of the log's project, which every operation on the project needs."""

    @asynccontextmanager
    async def locked(of: BranchLog) -> AsyncGenerator[BranchLog]:
        # Meant to last while storage is asked: nothing else may begin with this project until its log is made again.
        async with database.transaction(asks_others=True) as session:
            try:
                await lock_idle(session, of.project_id, [scopes.of_project(of.project_id)])
            except ProjectBusyError as error:
                raise RefusedError(error.message) from None
            found = await branch_logs(session, safekeeper_count, of.branch_id)
            if not found:
                raise RefusedError("it was deleted meanwhile")
            yield found[0]

    return locked


async def branch_logs(session: AsyncSession, safekeeper_count: int, branch_id: str | None = None) -> list[BranchLog]:
    """Of all branches that there are, or of one, by project and name. `safekeeper_count`: how many the installation
    has."""
    chosen = select(Branch, Project).join(Project, Project.id == Branch.project_id)
    if branch_id is not None:
        chosen = chosen.where(Branch.id == branch_id)
    rows = await session.execute(
        chosen.where(
            Branch.state == BranchState.READY, Branch.deleted_at.is_(None), Project.deleted_at.is_(None)
        ).order_by(Project.name, Project.id, Branch.name)
    )
    awake = (Endpoint.state != EndpointState.IDLE) | (Endpoint.desired_state != EndpointState.IDLE)
    endpoints = await session.scalars(select(Endpoint).where(Endpoint.deleted_at.is_(None), awake))
    busy = {endpoint.branch_id: endpoint.id for endpoint in endpoints}
    return [
        BranchLog(
            project.name,
            project.id,
            branch.name,
            branch.id,
            project.tenant_id,
            branch.timeline_id,
            tuple(await members_of(session, branch.timeline_id, safekeeper_count)),
            busy.get(branch.id),
        )
        for branch, project in rows.all()
    ]


async def recover_log(
    of: BranchLog,
    pageserver: Pageserver,
    safekeepers: Sequence[Safekeeper],
    *,
    lock: Lock,
    dry_run: bool = False,
    accept_loss: bool = False,
) -> Report:
    """Makes the log again if it is lost. `accept_loss`: although safekeepers do not answer that may hold it."""
    try:
        seen = await _examine(of, pageserver, safekeepers, accept_loss=accept_loss)
        if isinstance(seen, Report):
            return seen
        if dry_run:
            return _planned(of, seen)
        async with lock(of) as locked:
            seen = await _examine(locked, pageserver, safekeepers, accept_loss=accept_loss)
            return seen if isinstance(seen, Report) else await _remake(locked, pageserver, seen)
    except (RefusedError, RemoteError) as error:
        return Report(of, Outcome.REFUSED, str(error))


async def _examine(
    of: BranchLog, pageserver: Pageserver, safekeepers: Sequence[Safekeeper], *, accept_loss: bool
) -> Report | _Lost:
    # A spare lacks the log, and a former member's counts for nothing: neither is one of these.
    keepers = {keeper.number: keeper for keeper in safekeepers if keeper.number in of.members}
    standing = await _standing(of, safekeepers)
    if len(standing.originals.keys() & keepers.keys()) >= _majority(keepers):
        return Report(of, Outcome.KEPT, _lacking_remark(of, standing))
    if len(standing.fresh) >= _majority(keepers) and not await _on_these_disks(standing, keepers):
        return Report(of, Outcome.KEPT, _lacking_remark(of, standing))
    usable = _usable(of, standing, keepers, accept_loss=accept_loss)
    status = await _storage(of, pageserver)
    return _Lost(standing, [keepers[number] for number in usable], status)


async def _standing(of: BranchLog, safekeepers: Sequence[Safekeeper]) -> _Standing:
    answers = await asyncio.gather(
        *(keeper.log(of.tenant, of.timeline) for keeper in safekeepers), return_exceptions=True
    )
    standing = _Standing()
    for keeper, answer in zip(safekeepers, answers, strict=True):
        if isinstance(answer, RemoteError):
            standing.silent.append(keeper.number)
        elif isinstance(answer, BaseException):
            raise answer
        elif answer is None:
            standing.lacking.append(keeper.number)
        elif _is_fresh(answer):
            standing.fresh[keeper.number] = answer
        else:
            standing.originals[keeper.number] = answer
    return standing


def _is_fresh(log: LogStatus) -> bool:
    """Whether the log was founded with its members and no compute was started on it: the first one confirms them."""
    return log.generation == 1 and log.generation_term == 0


def _members(log: LogStatus) -> list[tuple[int, str]]:
    return sorted((member.node, member.disk) for member in log.members)


async def _on_these_disks(standing: _Standing, keepers: dict[int, Safekeeper]) -> bool:
    """Whether logs that no compute has used were founded on the disks that there are now, by an earlier run."""
    answering = [keeper for number, keeper in keepers.items() if number not in standing.silent]
    disks = {(disk.node, disk.disk) for disk in await asyncio.gather(*(keeper.disk() for keeper in answering))}
    return all(disks >= set(_members(log)) for log in standing.fresh.values())


def _majority(of: Sequence[Any] | dict[int, Any]) -> int:
    return len(of) // 2 + 1


def _numbers(numbers: Sequence[int] | dict[int, Any]) -> str:
    return ", ".join(map(str, sorted(numbers)))


def _lacking_remark(of: BranchLog, standing: _Standing) -> str:
    lost = [number for number in standing.lacking if number in of.members]
    return f"safekeeper {_numbers(lost)} has lost it; replace it as a member" if lost else ""


def _usable(of: BranchLog, standing: _Standing, keepers: dict[int, Safekeeper], *, accept_loss: bool) -> list[int]:
    if standing.originals:
        held = ", ".join(
            f"safekeeper {number} (up to {log.flush_lsn or 'nobody knows where'})"
            for number, log in sorted(standing.originals.items())
        )
        raise RefusedError(
            f"{held} still has its log, which can hold more than is anywhere else. Bring back the disk of another of "
            f"its safekeepers. To go without it, stop it, move the folder {of.tenant}/{of.timeline} out of its data "
            "directory, keep that, and start it again"
        )
    if standing.silent and not accept_loss:
        raise RefusedError(
            f"safekeeper {_numbers(standing.silent)} does not answer, and its disk may hold the log. Start it; or, "
            f"if its disk is gone for good, say --accept-loss-of {of.branch_id}"
        )
    usable = sorted({*standing.lacking, *standing.fresh} & keepers.keys())
    if len(usable) < _majority(keepers):
        raise RefusedError(f"only safekeeper {_numbers(usable) or '(none)'} answers; a majority has to")
    return usable


async def _storage(of: BranchLog, pageserver: Pageserver) -> TimelineStatus:
    status = await pageserver.timeline(of.tenant, of.timeline)
    if status is None:
        raise RefusedError("storage does not have it")
    if status.state != "active":
        raise RefusedError(f"storage has it {status.state}: {status.reason}")
    return status


def _planned(of: BranchLog, lost: _Lost) -> Report:
    if not lost.standing.lacking:
        return Report(of, Outcome.KEPT, _UNUSED)
    remark = "at least; what is offloaded beyond that is found when it is done"
    return Report(of, Outcome.PLANNED, remark, lost.storage.last_record_lsn, origin="ingested")


async def _remake(of: BranchLog, pageserver: Pageserver, lost: _Lost) -> Report:
    standing, keepers = lost.standing, lost.keepers
    if of.busy is not None:
        raise RefusedError(f"its compute {of.busy} is not suspended; suspend it first")
    # What storage has in memory only would be missing in a log that begins behind it.
    await pageserver.checkpoint(of.tenant, of.timeline)
    status = await _storage(of, pageserver)
    if status.raw["remote_consistent_lsn"] != status.last_record_lsn:
        raise RefusedError("storage has not made everything durable that it has ingested; run this again")
    starts = {log.start_lsn or "nowhere" for log in standing.fresh.values()} or {status.last_record_lsn}
    if len(starts) != 1:
        raise RefusedError(f"new logs of it begin at {' and '.join(sorted(starts))}; move all of them away")
    start = starts.pop()
    disks = await asyncio.gather(*(keeper.disk() for keeper in keepers))
    voters = await _found(of, keepers, start, status, disks)
    filled = await _fill(of, voters, int(status.raw["max_term"]))
    ingested = max(status.last_record_lsn, start, key=parse_lsn)
    origin = "offloaded" if parse_lsn(filled) > parse_lsn(ingested) else "ingested"
    at = await _time_of(of, pageserver, filled)
    if not standing.lacking and all(log.flush_lsn == filled for log in standing.fresh.values()):
        return Report(of, Outcome.KEPT, _UNUSED, filled, at)
    return Report(of, Outcome.RECOVERED, "", filled, at, origin)


async def _found(
    of: BranchLog, keepers: Sequence[Safekeeper], start: str, status: TimelineStatus, disks: Sequence[Disk]
) -> list[Safekeeper]:
    """Founds the log on those that lack it; all of its voters."""
    voters: list[Safekeeper] = []
    problems: list[str] = []
    expected = sorted((disk.node, disk.disk) for disk in disks)
    for keeper in keepers:
        try:
            if await keeper.log(of.tenant, of.timeline) is None:
                await keeper.create_timeline(
                    of.tenant, of.timeline, start, status.system_identifier, status.pg_version, disks
                )
            log = await keeper.log(of.tenant, of.timeline)
        except RemoteError as error:
            problems.append(str(error))
            continue
        if log is not None and log.role == "voter" and _members(log) == expected:
            voters.append(keeper)
        else:
            problems.append(
                f"safekeeper {keeper.number} had this log before on the same disk, or has it with other members; "
                "give it a new, empty data directory, and keep the old one"
            )
    if len(voters) < _majority(disks):
        raise RefusedError("; ".join(problems))
    return voters


async def _fill(of: BranchLog, voters: Sequence[Safekeeper], min_term: int) -> str:
    """Where all of the voters' logs end. A majority that lacks what another one has could win without it."""
    answers = await asyncio.gather(
        *(keeper.fill(of.tenant, of.timeline, min_term=min_term) for keeper in voters), return_exceptions=True
    )
    failed = [str(answer) for answer in answers if isinstance(answer, BaseException)]
    ends = {answer for answer in answers if isinstance(answer, str)}
    if failed or len(ends) != 1:
        what = "; ".join(failed) or f"they end at {' and '.join(sorted(ends))}"
        raise RefusedError(f"not all of the new logs are filled: {what}. Start no compute of it, and run this again")
    return ends.pop()


async def _time_of(of: BranchLog, pageserver: Pageserver, lsn: str) -> str | None:
    """Of the last commit up to there, once storage has ingested it; None when it does not within half a minute."""
    deadline = time.monotonic() + _INGEST_SECONDS
    while time.monotonic() < deadline:
        try:
            status = await pageserver.timeline(of.tenant, of.timeline)
            if status is not None and parse_lsn(status.last_record_lsn) >= parse_lsn(lsn):
                return await pageserver.timestamp_of_lsn(of.tenant, of.timeline, lsn)
        except RemoteError:
            return None
        await asyncio.sleep(0.2)
    return None
