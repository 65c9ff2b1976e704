"""Measures what projects and their branches use, a part of them in each round, and adds it to their hours and days.

What is remembered here is only when this process measured something last: how far everything is counted is in the
database (`weir.usage.models`), so that a worker that takes over goes on where another one ended. A compute's time is
counted while it says itself that it runs; up to when one ran that has stopped is what its stop has stored.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import structlog
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from weir.branches.models import Branch
from weir.clients.compute import ComputeStatus
from weir.clients.http import RemoteError
from weir.clients.pageserver import TimelineStatus
from weir.computes.repository import ComputeRow
from weir.kit.ids import parse_lsn
from weir.projects.models import Project
from weir.usage import recording
from weir.usage.metering import LONGEST_GAP, Sizes, Span, Tally, moved, uncounted, written
from weir.usage.models import EndpointMeter, StorageMeter, TimelineMeter
from weir_workflows.common.resources import Resources

log = structlog.get_logger()

INTERVAL_SECONDS = 60.0
PRUNE_SECONDS = 3600.0
# In one round; the next ones go on.
PROJECTS_A_ROUND = 40
ASKED_AT_ONCE = 8
STOPPED_A_ROUND = 500
STORAGE_SECONDS = 5.0


@dataclass(frozen=True)
class _Branch:
    """What a timeline is of, for the figures of its project and its own."""

    ident: str
    root: bool
    snapshot: bool
    new: bool


class Metering:
    def __init__(self, resources: Resources, clock: Callable[[], float] = time.monotonic) -> None:
        self._r = resources
        self._clock = clock
        # By this process's clock: when each running compute, and each project's storage, was measured.
        self._computes: dict[str, float] = {}
        self._projects: dict[str, float] = {}
        self._next_stopped = self._next_storage = self._next_prune = 0.0
        self._seen_to = ""

    async def round(self, rows: Sequence[ComputeRow], seen: Mapping[str, ComputeStatus | str], at: datetime) -> None:
        """What fails is measured in a later round, and does not keep this round from its other work."""
        parts: dict[str, Callable[[], Awaitable[object]]] = {
            "computes": lambda: self.computes(rows, seen, at),
            "stopped computes": lambda: self.stopped(at),
            "storage": lambda: self.storage(at),
            "old periods": lambda: self.prune(at),
        }
        for name, part in parts.items():
            try:
                await part()
            except (SQLAlchemyError, RemoteError) as error:
                log.warning("usage_not_measured", of=name, error=str(error))

    async def computes(
        self, rows: Sequence[ComputeRow], seen: Mapping[str, ComputeStatus | str], at: datetime
    ) -> list[str]:
        """Counts the time of those that say that they run, each once in `INTERVAL_SECONDS`; their ids."""
        due: list[tuple[ComputeRow, ComputeStatus]] = []
        for row in rows:
            ident, status = row.endpoint.id, seen.get(row.endpoint.id)
            if not isinstance(status, ComputeStatus) or status.state != "running":
                self._computes.pop(ident, None)
            elif self._clock() - self._computes.get(ident, -INTERVAL_SECONDS) >= INTERVAL_SECONDS:
                due.append((row, status))
        if not due:
            return []
        async with self._r.database.transaction() as session:
            await recording.lock(session)
            meters = await recording.endpoint_meters(session, (row.endpoint.id for row, _ in due))
            owners = await _owners(session, {row.project.id for row, _ in due})
            tally = Tally()
            for row, status in due:
                self._count(session, tally, owners[row.project.id], row, status, meters.get(row.endpoint.id), at)
            await recording.add(session, tally)
        measured = self._clock()
        for row, _ in due:
            self._computes[row.endpoint.id] = measured
        return [row.endpoint.id for row, _ in due]

    def _count(
        self,
        session: AsyncSession,
        tally: Tally,
        owner: tuple[UUID, str],
        row: ComputeRow,
        status: ComputeStatus,
        meter: EndpointMeter | None,
        at: datetime,
    ) -> None:
        endpoint = row.endpoint
        units = status.compute_units or endpoint.current_cu
        last = self._computes.get(endpoint.id)
        elapsed = None if last is None else self._clock() - last
        measured_to = None if meter is None else meter.measured_to
        span = uncounted(measured_to, endpoint.started_at, at, at, elapsed)
        if span is not None:
            tally.ran(owner, row.branch.id, span, units, status.processors)
        if meter is None:
            session.add(
                EndpointMeter(endpoint_id=endpoint.id, measured_to=at, units=units, processors=status.processors)
            )
            return
        meter.measured_to = moved(meter.measured_to, at)
        meter.units, meter.processors = units, status.processors

    async def stopped(self, at: datetime) -> list[str]:
        """Counts the time of computes that have stopped since they were measured, up to their stop; their ids."""
        if self._clock() < self._next_stopped:
            return []
        self._next_stopped = self._clock() + INTERVAL_SECONDS
        async with self._r.database.transaction() as session:
            await recording.lock(session)
            found = await recording.stopped(session, at, STOPPED_A_ROUND)
            owners = await _owners(session, {endpoint.project_id for endpoint, _ in found})
            tally = Tally()
            for endpoint, meter in found:
                end = endpoint.suspended_at or at
                units = endpoint.current_cu if meter is None else meter.units
                measured_to = None if meter is None else meter.measured_to
                span = uncounted(measured_to, endpoint.started_at, end, at, None)
                if span is not None:
                    processors = None if meter is None else meter.processors
                    tally.ran(owners[endpoint.project_id], endpoint.branch_id, span, units, processors)
                if meter is None:
                    session.add(EndpointMeter(endpoint_id=endpoint.id, measured_to=end, units=units))
                else:
                    meter.measured_to, meter.processors = moved(meter.measured_to, end), None
            await recording.add(session, tally)
        return [endpoint.id for endpoint, _ in found]

    async def storage(self, at: datetime) -> list[str]:
        """Asks storage about the next projects by id, and counts what they hold and have written; their ids. Once
        all have been asked, the next turn begins `INTERVAL_SECONDS` later."""
        if self._clock() < self._next_storage or self._r.settings.compute_runtime == "simulated":
            return []
        async with self._r.database.transaction() as session:
            statement = select(Project).where(Project.deleted_at.is_(None), Project.id > self._seen_to)
            part = (await session.scalars(statement.order_by(Project.id).limit(PROJECTS_A_ROUND))).all()
        # Whatever comes of these, the next ones have their turn.
        self._seen_to = part[-1].id if len(part) == PROJECTS_A_ROUND else ""
        answers = await self._ask(part)
        if answers is None or not self._seen_to:
            self._next_storage = self._clock() + INTERVAL_SECONDS
        if answers:
            await self._add_storage(answers, at)
        return list(answers or ())

    async def _ask(self, projects: Sequence[Project]) -> dict[str, Sequence[TimelineStatus]] | None:
        """By project; None where storage does not answer, so that a round does not wait for it project by project. A
        project of which storage knows nothing, or tells nothing, is left out."""
        found: dict[str, Sequence[TimelineStatus]] = {}
        for first in range(0, len(projects), ASKED_AT_ONCE):
            asked = projects[first : first + ASKED_AT_ONCE]
            try:
                async with asyncio.timeout(STORAGE_SECONDS):
                    answers = await asyncio.gather(*(self._timelines(project) for project in asked))
            except (RemoteError, TimeoutError) as error:
                log.warning("storage_use_not_measured", error=str(error) or "no answer in time")
                return None
            found |= {
                project.id: answer for project, answer in zip(asked, answers, strict=True) if answer is not None
            }
        return found

    async def _timelines(self, project: Project) -> Sequence[TimelineStatus] | None:
        try:
            return await self._r.pageserver.timelines(project.tenant_id)
        except RemoteError as error:
            if error.status is None:
                raise
            if error.status != 404:
                log.warning("storage_use_not_measured", project_id=project.id, error=str(error))
            return None

    async def _add_storage(self, answers: Mapping[str, Sequence[TimelineStatus]], at: datetime) -> None:
        async with self._r.database.transaction() as session:
            await recording.lock(session)
            owners = await _owners(session, set(answers))
            branches = await _branches(session, set(answers), at)
            meters = await recording.storage_meters(session, answers)
            told = [status.timeline_id for statuses in answers.values() for status in statuses]
            logs = await recording.timeline_meters(session, told)
            tally = Tally()
            for ident, statuses in answers.items():
                known = [
                    (status, branches[status.timeline_id]) for status in statuses if status.timeline_id in branches
                ]
                sizes = _sizes(known)
                span = self._held(session, tally, owners[ident], meters.get(ident), sizes, at)
                bytes_written = sum(
                    _of_branch(session, tally, owners[ident], span, each, logs.get(each[0].timeline_id), at)
                    for each in known
                )
                tally.saw(owners[ident], at, bytes_written, sizes)
            await recording.add(session, tally)
        measured = self._clock()
        for ident in answers:
            self._projects[ident] = measured

    def _held(
        self,
        session: AsyncSession,
        tally: Tally,
        owner: tuple[UUID, str],
        meter: StorageMeter | None,
        sizes: Sizes,
        at: datetime,
    ) -> Span | None:
        """What was held at the last look counts until now, and what is held now from now on. The time that counts."""
        ident, span = owner[1], None
        if meter is None:
            meter = StorageMeter(project_id=ident, measured_to=at)
            session.add(meter)
        else:
            last = self._projects.get(ident)
            elapsed = None if last is None else self._clock() - last
            span = uncounted(meter.measured_to, None, at, at, elapsed)
            before = Sizes(meter.root_bytes, meter.child_bytes, meter.snapshot_bytes, meter.history_bytes)
            if span is not None:
                tally.held(owner, span, before)
            meter.measured_to = moved(meter.measured_to, at)
        meter.root_bytes, meter.child_bytes = sizes.root, sizes.child
        meter.snapshot_bytes, meter.history_bytes = sizes.snapshot, sizes.history
        return span

    async def prune(self, at: datetime) -> int:
        """Once an hour; how many periods went."""
        if self._clock() < self._next_prune:
            return 0
        self._next_prune = self._clock() + PRUNE_SECONDS
        async with self._r.database.transaction() as session:
            await recording.lock(session)
            living = set((await session.scalars(select(Project.id).where(Project.deleted_at.is_(None)))).all())
            gone = await recording.prune(session, at)
        self._projects = {ident: when for ident, when in self._projects.items() if ident in living}
        if gone:
            log.info("usage_pruned", periods=gone)
        return gone


async def _owners(session: AsyncSession, projects: set[str]) -> dict[str, tuple[UUID, str]]:
    """Whose each project is now: it may have been transferred since it was read."""
    rows = (await session.execute(select(Project.id, Project.account_id).where(Project.id.in_(projects)))).all()
    return {ident: (account_id, ident) for ident, account_id in rows}


async def _branches(session: AsyncSession, projects: set[str], at: datetime) -> dict[str, _Branch]:
    """By timeline. One that has become a branch's within the longest gap began within it."""
    statement = select(
        Branch.timeline_id, Branch.id, Branch.parent_id, Branch.is_snapshot, Branch.created_at, Branch.last_reset_at
    ).where(Branch.project_id.in_(projects), Branch.deleted_at.is_(None))
    return {
        timeline: _Branch(ident, parent is None, snapshot, _latest(created, reset) > at - LONGEST_GAP)
        for timeline, ident, parent, snapshot, created, reset in (await session.execute(statement)).all()
    }


def _latest(created: datetime, reset: datetime | None) -> datetime:
    return created if reset is None else max(created, reset)


def _of_branch(
    session: AsyncSession,
    tally: Tally,
    owner: tuple[UUID, str],
    span: Span | None,
    seen: tuple[TimelineStatus, _Branch],
    meter: TimelineMeter | None,
    at: datetime,
) -> int:
    """Counts what one branch has held in the span of its project, and what it has written since the last look; the
    bytes written. Of a snapshot the project counts all, and a branch nothing."""
    status, of = seen
    start, now = parse_lsn(status.start_lsn), parse_lsn(status.last_record_lsn)
    found, lsn = written(None if meter is None else meter.lsn, start, now, since_start=of.new)
    sizes = _sizes([seen])
    if not of.snapshot:
        if span is not None and meter is not None and meter.data_bytes is not None:
            data = meter.data_bytes
            before = Sizes(data if of.root else 0, 0 if of.root else data, 0, meter.history_bytes or 0)
            tally.held(owner, span, before, of.ident)
        tally.saw(owner, at, found, sizes, of.ident)
    if meter is None:
        meter = TimelineMeter(timeline_id=status.timeline_id)
        session.add(meter)
    meter.lsn, meter.data_bytes, meter.history_bytes = lsn, sizes.logical, sizes.history
    return found


def _sizes(known: Sequence[tuple[TimelineStatus, _Branch]]) -> Sizes:
    def data(*, root: bool, snapshot: bool) -> int:
        return sum(
            status.logical_size or 0
            for status, of in known
            if of.snapshot == snapshot and (snapshot or of.root == root)
        )

    return Sizes(
        root=data(root=True, snapshot=False),
        child=data(root=False, snapshot=False),
        snapshot=data(root=False, snapshot=True),
        history=sum(status.history_bytes or 0 for status, _ in known),
    )
