"""What projects use, measured by workers whose clock is in the test's hands.

Threats: a worker that repeats a round, two that measure at once, one that dies before it has committed; a clock that
is set forward or back; storage that is away, or behind; a compute or a project that is gone by the next look; a
project that changes hands.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
import pytest_asyncio
from sqlalchemy import delete, func, select, update
from sqlalchemy.exc import OperationalError
from weir_testing import people
from weir_testing.fixtures import Weir, own_database
from weir_testing.storage import StorageDouble

from weir.branches.models import Branch, BranchState
from weir.clients.compute import ComputeStatus
from weir.clients.connections import Connections
from weir.computes.repository import ComputeRow
from weir.db import Database
from weir.endpoints.models import Endpoint, EndpointState
from weir.kit.clock import now
from weir.projects.models import Project
from weir.usage import recording
from weir.usage.metering import Amounts
from weir.usage.models import BranchUsagePeriod, EndpointMeter, Grain, TimelineMeter, UsagePeriod
from weir_workflows.common.resources import Resources
from weir_workflows.reconciler import usage
from weir_workflows.reconciler.activities import ReconcilerActivities
from weir_workflows.reconciler.usage import PRUNE_SECONDS, Metering
from weir_workflows.runtime.local import LocalRuntime

START = datetime(2026, 11, 20, 10, 30, tzinfo=UTC)
MIB = 2**20
_ports = iter(range(20_000, 60_000))


@dataclass
class Clock:
    """Wall clock, and the one that nobody sets."""

    at: datetime = START
    ticks: float = 1000.0

    def runs(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)
        self.ticks += seconds

    def is_set(self, by: timedelta) -> None:
        self.at += by


@dataclass
class Made:
    """A project with one branch and one compute, in a database that no worker looks at."""

    resources: Resources
    storage: StorageDouble
    project: str
    tenant: str
    timeline: str
    endpoint: str
    account: UUID
    clock: Clock = field(default_factory=Clock)

    def worker(self) -> Metering:
        return Metering(self.resources, lambda: self.clock.ticks)

    async def row(self) -> ComputeRow:
        async with self.resources.database.transaction() as session:
            endpoint = await session.get_one(Endpoint, self.endpoint)
            return ComputeRow(
                endpoint,
                await session.get_one(Branch, endpoint.branch_id),
                await session.get_one(Project, self.project),
            )

    async def measure(self, worker: Metering, *, units: float = 1.0, processors: float | None = None) -> list[str]:
        """One look at the compute, which says that it runs."""
        load = None if processors is None else {"processors": processors}
        body = {"compute_id": self.endpoint, "state": "running", "compute_units": units, "load": load}
        seen = {self.endpoint: ComputeStatus.parse(body)}
        return await worker.computes([await self.row()], seen, self.clock.at)

    async def store(self, model: Any, ident: str, **values: Any) -> None:
        async with self.resources.database.transaction() as session:
            await session.execute(update(model).where(model.id == ident).values(**values))

    async def stop(self, **more: Any) -> None:
        """As a suspend stores it."""
        idle = EndpointState.IDLE
        at = self.clock.at
        await self.store(Endpoint, self.endpoint, state=idle, desired_state=idle, suspended_at=at, **more)

    async def used(self, account: UUID | None = None, grain: Grain = Grain.HOUR) -> dict[datetime, Amounts]:
        async with self.resources.database.transaction() as session:
            statement = select(UsagePeriod).where(
                UsagePeriod.project_id == self.project,
                UsagePeriod.account_id == (account or self.account),
                UsagePeriod.grain == grain,
            )
            rows = (await session.scalars(statement.order_by(UsagePeriod.starts_at))).all()
        names = Amounts.__dataclass_fields__
        return {row.starts_at: Amounts(**{name: getattr(row, name) for name in names}) for row in rows}

    async def branches(self) -> dict[str, list[BranchUsagePeriod]]:
        """Days by branch."""
        async with self.resources.database.transaction() as session:
            statement = select(BranchUsagePeriod).where(
                BranchUsagePeriod.project_id == self.project,
                BranchUsagePeriod.account_id == self.account,
                BranchUsagePeriod.grain == Grain.DAY,
            )
            rows = (await session.scalars(statement.order_by(BranchUsagePeriod.starts_at))).all()
        found: dict[str, list[BranchUsagePeriod]] = {}
        for row in rows:
            found.setdefault(row.branch_id, []).append(row)
        return found

    async def add_branch(self, name: str, *, size: int = MIB, history: int = 0, **more: Any) -> tuple[str, str]:
        """Ids of another branch and of its timeline, a child of the project's first."""
        ident = uuid4().hex
        self.storage.timelines[ident] = _timeline(ident, self.tenant, size=size, history=history)
        parent = (await self.row()).branch.id
        async with self.resources.database.transaction() as session:
            session.add(
                Branch(
                    id=f"br-{ident[:8]}", project_id=self.project, name=name, timeline_id=ident, parent_id=parent,
                    created_at=START, updated_at=START, **more,
                )
            )  # fmt: skip
        return f"br-{ident[:8]}", ident

    async def active(self) -> float:
        """Seconds in all, of hours and of days alike."""
        hours, days = await self.used(), await self.used(grain=Grain.DAY)
        total = sum(each.active_seconds for each in hours.values())
        assert total == pytest.approx(sum(each.active_seconds for each in days.values()))
        return total

    async def written(self) -> int:
        return sum(each.written_bytes for each in (await self.used()).values())


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def resources(weir: Weir, postgres_url: str) -> AsyncGenerator[Resources]:
    # The shared control plane is to begin with its own database, before the settings name this one.
    del weir
    async with own_database(postgres_url) as settings, Connections() as http:
        database = Database(settings)
        try:
            yield Resources(settings, database, http, LocalRuntime(settings))
        finally:
            await database.close()


@pytest_asyncio.fixture(name="made", loop_scope="session")
async def _made(resources: Resources, storage: StorageDouble) -> AsyncGenerator[Made]:
    account = await people.organization(resources.database)
    project = await people.project(resources.database, account)
    timeline, branch, endpoint = uuid4().hex, f"br-{uuid4().hex[:8]}", f"ep-{uuid4().hex[:8]}"
    async with resources.database.transaction() as session:
        tenant = (await session.get_one(Project, project)).tenant_id
        session.add(
            Branch(
                id=branch, project_id=project, name="main", timeline_id=timeline, state=BranchState.READY,
                is_default=True, created_at=START, updated_at=START,
            )
        )  # fmt: skip
        await session.flush()
        session.add(
            Endpoint(
                id=endpoint, project_id=project, branch_id=branch, type="read_write", host="127.0.0.1",
                port=next(_ports), desired_state=EndpointState.ACTIVE, state=EndpointState.ACTIVE, started_at=START,
                created_at=START, updated_at=START,
            )
        )  # fmt: skip
    storage.tenants[tenant] = {}
    storage.timelines[timeline] = _timeline(timeline, tenant)
    try:
        yield Made(resources, storage, project, tenant, timeline, endpoint, account)
    finally:
        storage.tenants.pop(tenant)
        for ident in [ident for ident, held in storage.timelines.items() if held["tenant_id"] == tenant]:
            storage.timelines.pop(ident)
        # The next test's rounds have its own project and compute alone.
        async with resources.database.transaction() as session:
            await session.execute(update(Project).where(Project.id == project).values(deleted_at=START))
            gone = update(Endpoint).where(Endpoint.id == endpoint)
            await session.execute(gone.values(deleted_at=START, suspended_at=None))


def _timeline(ident: str, tenant: str, start: str = "0/1500000", size: int = MIB, history: int = 0) -> dict[str, Any]:
    return {
        "timeline_id": ident, "tenant_id": tenant, "state": "active", "pg_version": 15, "system_identifier": "1",
        "start_lsn": start, "last_record_lsn": start, "current_logical_size": size, "history_bytes": history,
    }  # fmt: skip


async def test_the_time_of_a_running_compute_is_counted_once_whoever_looks(made: Made) -> None:
    first, second = made.worker(), made.worker()
    made.clock.runs(60)
    assert await made.measure(first) == [made.endpoint]
    assert await made.active() == 60
    # The round is repeated, by the same worker and by one that knows nothing of it.
    assert await made.measure(first) == []
    assert await made.measure(second) == [made.endpoint]
    assert await made.active() == 60
    made.clock.runs(60)
    await made.measure(second)
    await made.measure(first)
    await made.measure(made.worker())
    assert await made.active() == 120


async def test_workers_that_look_at_once_count_it_once(made: Made) -> None:
    made.clock.runs(90)
    await asyncio.gather(*(made.measure(made.worker()) for _ in range(6)))
    assert await made.active() == 90


async def test_without_the_lock_they_would_not(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """That the test above can fail."""
    await made.measure(made.worker())
    met = asyncio.Barrier(4)
    read = recording.endpoint_meters

    async def nothing(session: object) -> None:
        del session

    async def together(*arguments: Any) -> Any:
        found = await read(*arguments)
        await met.wait()
        return found

    monkeypatch.setattr(recording, "lock", nothing)
    monkeypatch.setattr(recording, "endpoint_meters", together)
    made.clock.runs(90)
    await asyncio.gather(*(made.measure(made.worker()) for _ in range(4)))
    assert await made.active() == 4 * 90


async def test_a_worker_that_dies_before_it_commits_has_counted_nothing(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, add = made.worker(), recording.add
    await made.measure(worker)

    async def dies(*arguments: Any) -> None:
        await add(*arguments)
        raise OperationalError("the connection", None, ConnectionError("gone"))

    made.clock.runs(60)
    monkeypatch.setattr(recording, "add", dies)
    with pytest.raises(OperationalError):
        await made.measure(worker)
    # A whole round goes on to its other work.
    status = ComputeStatus.parse({"compute_id": made.endpoint, "state": "running"})
    await worker.round([await made.row()], {made.endpoint: status}, made.clock.at)
    monkeypatch.undo()
    assert await made.active() == 0
    made.clock.runs(5)
    await made.measure(worker)
    assert await made.active() == 65


async def test_sizes_and_load_count_with_the_time_and_hours_are_told_apart(made: Made) -> None:
    worker = made.worker()
    made.clock.is_set(timedelta(minutes=29, seconds=30))
    await made.store(Endpoint, made.endpoint, started_at=made.clock.at)
    made.clock.runs(60)
    await made.measure(worker, units=2, processors=0.5)
    ten, eleven = START.replace(minute=0), START.replace(hour=11, minute=0)
    used = await made.used()
    assert list(used) == [ten, eleven]
    for amounts in used.values():
        assert (amounts.active_seconds, amounts.unit_seconds, amounts.processor_seconds) == (30, 60, 15)
    made.clock.runs(60)
    await made.measure(worker, units=0.25, processors=None)
    eleventh = (await made.used())[eleven]
    assert (eleventh.active_seconds, eleventh.unit_seconds, eleventh.processor_seconds) == (90, 75, 15)
    async with made.resources.database.transaction() as session:
        meter = await session.get_one(EndpointMeter, made.endpoint)
    assert (meter.units, meter.processors) == (0.25, None)


async def test_a_compute_that_stops_counts_up_to_its_stop(made: Made) -> None:
    worker = made.worker()
    made.clock.runs(60)
    await made.measure(worker)
    made.clock.runs(25)
    await made.stop()
    made.clock.runs(600)
    assert await worker.stopped(made.clock.at) == [made.endpoint]
    assert await made.active() == 85
    made.clock.runs(60)
    assert await worker.stopped(made.clock.at) == []
    assert await made.worker().stopped(made.clock.at) == []
    assert await made.active() == 85
    # While it is stopped nothing is added, and from its next start on, all.
    made.clock.runs(3600)
    active = EndpointState.ACTIVE
    await made.store(Endpoint, made.endpoint, state=active, desired_state=active, started_at=made.clock.at)
    made.clock.runs(10)
    await made.measure(worker)
    assert await made.active() == 95


async def test_a_compute_that_came_and_went_between_two_looks_is_counted(made: Made) -> None:
    worker = made.worker()
    await worker.stopped(made.clock.at)
    made.clock.runs(20)
    await made.stop(deleted_at=made.clock.at)
    made.clock.runs(60)
    assert await worker.stopped(made.clock.at) == [made.endpoint]
    assert await made.active() == 20
    # Its meter goes when nothing can be counted again, and then nothing is.
    made.clock.runs(2 * 86400)
    await worker.prune(made.clock.at)
    async with made.resources.database.transaction() as session:
        assert await session.get(EndpointMeter, made.endpoint) is None
    assert await worker.stopped(made.clock.at) == []
    assert await made.active() == 20


async def test_a_compute_that_does_not_answer_is_counted_once_it_does(made: Made) -> None:
    worker = made.worker()
    made.clock.runs(60)
    await made.measure(worker)
    made.clock.runs(60)
    row = await made.row()
    assert await worker.computes([row], {made.endpoint: "no answer"}, made.clock.at) == []
    assert await worker.computes([row], {}, made.clock.at) == []
    assert await made.active() == 60
    made.clock.runs(60)
    await made.measure(worker)
    assert await made.active() == 180
    # It was dead meanwhile, and was started again: only what is known to have run counts.
    made.clock.runs(3600)
    await made.store(Endpoint, made.endpoint, started_at=made.clock.at)
    made.clock.runs(30)
    await made.measure(worker)
    assert await made.active() == 210


async def test_a_worker_that_was_away_counts_what_ran_but_not_for_ever(made: Made) -> None:
    await made.measure(made.worker())
    made.clock.runs(3 * 3600)
    await made.measure(made.worker())
    assert await made.active() == 3 * 3600
    made.clock.runs(10 * 86400)
    await made.measure(made.worker())
    assert await made.active() == (3 + 6) * 3600


@pytest.mark.parametrize("by", [timedelta(days=400), timedelta(days=-400), timedelta(hours=-1), timedelta(minutes=1)])
async def test_a_clock_that_is_set_adds_no_time(made: Made, by: timedelta) -> None:
    worker = made.worker()
    made.clock.runs(60)
    await made.measure(worker)
    made.clock.is_set(by)
    for _ in range(3):
        made.clock.runs(60)
        await made.measure(worker)
    # Of the round after it was set back nobody knows what is counted already.
    assert await made.active() == (240 if by > timedelta() else 180)


async def test_what_is_held_counts_by_the_hours_it_is_held(made: Made) -> None:
    worker, held = made.worker(), made.storage.timelines[made.timeline]
    held |= {"current_logical_size": 100 * MIB, "history_bytes": 20 * MIB}
    assert await worker.storage(made.clock.at) == [made.project]
    # Asked too soon.
    assert await worker.storage(made.clock.at) == []
    made.clock.runs(1800)
    held |= {"current_logical_size": 400 * MIB, "history_bytes": 0}
    await worker.storage(made.clock.at)
    await made.worker().storage(made.clock.at)
    made.clock.runs(1800)
    await worker.storage(made.clock.at)
    used = await made.used()
    assert [each.root_byte_hours / MIB for each in used.values()] == [pytest.approx(50), pytest.approx(200)]
    assert [each.history_byte_hours / MIB for each in used.values()] == [pytest.approx(10), 0]
    newest = used[START.replace(hour=11, minute=0)]
    assert (newest.logical_bytes, newest.history_bytes) == (400 * MIB, 0)


async def test_wal_counts_once_whatever_storage_goes_through(made: Made) -> None:
    worker = made.worker()
    made.storage.advance(made.timeline, "0/1600000")
    await worker.storage(made.clock.at)
    # A new branch's, from its start on.
    assert await made.written() == 0x100000
    # Started again, behind, and taking it in once more.
    held = made.storage.timelines[made.timeline]
    held["last_record_lsn"] = "0/1500000"
    for lsn, total in (("0/1580000", 0x100000), ("0/1600000", 0x100000), ("0/1600010", 0x100010)):
        made.clock.runs(60)
        made.storage.advance(made.timeline, lsn)
        await worker.storage(made.clock.at)
        await made.worker().storage(made.clock.at)
        assert await made.written() == total
    # Away, then there again.
    made.storage.fail("pageserver", "GET", f"/v1/tenant/{made.tenant}/timeline", 503)
    made.clock.runs(60)
    made.storage.advance(made.timeline, "0/1700000")
    assert await worker.storage(made.clock.at) == []
    made.clock.runs(60)
    assert await worker.storage(made.clock.at) == [made.project]
    assert await made.written() == 0x200000


async def test_a_project_of_which_storage_tells_nothing_keeps_no_other_from_its_turn(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "PROJECTS_A_ROUND", 1)
    other = await people.project(made.resources.database, made.account)
    async with made.resources.database.transaction() as session:
        tenant = (await session.get_one(Project, other)).tenant_id
    try:
        for _ in range(3):
            made.storage.fail("pageserver", "GET", f"/v1/tenant/{tenant}/timeline", 500)
            worker = made.worker()
            found = [await worker.storage(made.clock.at) for _ in range(3)]
            assert sorted(found) == [[], [], [made.project]]
    finally:
        await made.store(Project, other, deleted_at=START)


async def test_of_an_old_branch_nothing_is_counted_that_nobody_saw_written(made: Made) -> None:
    made.clock.runs(30 * 86400)
    made.storage.advance(made.timeline, "7/0")
    worker = made.worker()
    await worker.storage(made.clock.at)
    assert await made.written() == 0
    made.clock.runs(60)
    made.storage.advance(made.timeline, "7/100")
    await worker.storage(made.clock.at)
    assert await made.written() == 0x100
    # A restore gave the branch another state, which began just now.
    other = uuid4().hex
    made.storage.timelines[other] = _timeline(other, made.tenant, "7/80")
    made.storage.advance(other, "7/90")
    row = await made.row()
    await made.store(Branch, row.branch.id, timeline_id=other, last_reset_at=made.clock.at)
    made.clock.runs(60)
    await worker.storage(made.clock.at)
    assert await made.written() == 0x110


async def test_branches_and_snapshots_are_told_apart_and_strange_timelines_left_out(made: Made) -> None:
    await made.add_branch("dev", size=30 * MIB, history=MIB)
    await made.add_branch("snap", size=7 * MIB, history=MIB, is_snapshot=True)
    stranger = uuid4().hex
    made.storage.timelines[stranger] = _timeline(stranger, made.tenant, size=1000 * MIB)
    worker = made.worker()
    await worker.storage(made.clock.at)
    made.clock.runs(3600)
    await worker.storage(made.clock.at)
    total = (await made.used(grain=Grain.DAY))[START.replace(hour=0, minute=0)]
    found = total.root_byte_hours, total.child_byte_hours, total.snapshot_byte_hours, total.history_byte_hours
    assert [each / MIB for each in found] == [pytest.approx(each) for each in (1, 30, 7, 2)]
    async with made.resources.database.transaction() as session:
        assert await session.get(TimelineMeter, stranger) is None


async def test_each_branch_has_its_part_of_what_its_project_used(made: Made) -> None:
    dev, timeline = await made.add_branch("dev", size=30 * MIB, history=2 * MIB)
    snapshot, _ = await made.add_branch("snap", size=7 * MIB, history=MIB, is_snapshot=True)
    main, worker = (await made.row()).branch.id, made.worker()
    await worker.storage(made.clock.at)
    made.clock.runs(3600)
    made.storage.advance(timeline, "0/1500300")
    made.storage.advance(made.timeline, "0/1500020")
    await made.measure(worker, units=2, processors=0.5)
    await worker.storage(made.clock.at)
    # Asked again by another worker at the same moment: nothing is counted twice.
    await made.measure(made.worker(), units=2)
    await made.worker().storage(made.clock.at)
    found = await made.branches()
    assert snapshot not in found
    ((first,), (second,)) = found[main], found[dev]
    assert (first.active_seconds, first.unit_seconds, first.processor_seconds) == (3600, 7200, 1800)
    assert (second.active_seconds, second.unit_seconds) == (0, 0)
    assert (first.written_bytes, second.written_bytes) == (0x20, 0x300)
    assert (first.root_byte_hours, first.child_byte_hours) == (pytest.approx(MIB), 0)
    assert (second.root_byte_hours, second.child_byte_hours) == (0, pytest.approx(30 * MIB))
    assert (second.history_byte_hours, second.snapshot_byte_hours) == (pytest.approx(2 * MIB), 0)
    assert (second.logical_bytes, second.history_bytes) == (30 * MIB, 2 * MIB)
    # The project's figures are those of its branches together, and of its snapshots.
    (whole,) = (await made.used(grain=Grain.DAY)).values()
    assert whole.active_seconds == first.active_seconds
    assert whole.written_bytes == first.written_bytes + second.written_bytes
    assert whole.child_byte_hours == pytest.approx(second.child_byte_hours)
    assert whole.snapshot_byte_hours == pytest.approx(7 * MIB)
    assert whole.history_byte_hours == pytest.approx(first.history_byte_hours + second.history_byte_hours + MIB)


async def test_a_branch_that_is_deleted_keeps_what_it_used_and_its_stop_counts(made: Made) -> None:
    worker, branch = made.worker(), (await made.row()).branch.id
    made.clock.runs(60)
    await made.measure(worker)
    await worker.storage(made.clock.at)
    made.clock.runs(25)
    await made.stop(deleted_at=made.clock.at)
    await made.store(Branch, branch, deleted_at=made.clock.at)
    made.clock.runs(600)
    await worker.stopped(made.clock.at)
    await worker.storage(made.clock.at)
    (day,) = (await made.branches())[branch]
    assert (day.active_seconds, day.root_byte_hours) == (85, 0)


async def test_what_a_branch_held_before_it_was_measured_by_branch_is_not_made_up(made: Made) -> None:
    """After an upgrade the project's meter has a past, and the branch's has none."""
    worker, branch = made.worker(), (await made.row()).branch.id
    await worker.storage(made.clock.at)
    async with made.resources.database.transaction() as session:
        unknown = {"data_bytes": None, "history_bytes": None}
        await session.execute(update(TimelineMeter).where(TimelineMeter.timeline_id == made.timeline).values(unknown))
    made.clock.runs(3600)
    await worker.storage(made.clock.at)
    (whole,), (day,) = (await made.used(grain=Grain.DAY)).values(), (await made.branches())[branch]
    assert (whole.root_byte_hours, day.root_byte_hours) == (pytest.approx(MIB), 0)
    made.clock.runs(3600)
    await worker.storage(made.clock.at)
    (day,) = (await made.branches())[branch]
    assert day.root_byte_hours == pytest.approx(MIB)


async def test_a_project_keeps_its_past_when_it_is_deleted_or_changes_hands(made: Made) -> None:
    worker = made.worker()
    made.clock.runs(60)
    await made.measure(worker)
    other = await people.organization(made.resources.database)
    await made.store(Project, made.project, account_id=other)
    made.clock.runs(60)
    await made.measure(worker)
    await made.stop(deleted_at=made.clock.at)
    await made.store(Project, made.project, deleted_at=made.clock.at)
    made.clock.runs(86400)
    await worker.stopped(made.clock.at)
    await worker.prune(made.clock.at)
    assert await made.active() == 60
    assert sum(each.active_seconds for each in (await made.used(other)).values()) == 60


async def test_hours_go_after_a_month_and_days_stay_a_year(made: Made) -> None:
    worker, branch = made.worker(), (await made.row()).branch.id
    values = {"project_id": made.project, "account_id": made.account, "written_bytes": 1}
    moments = [START.replace(minute=0) - timedelta(hours=hours) for hours in range(40 * 24)]
    async with made.resources.database.transaction() as session:
        # What other tests have left, some of it far in the future.
        await session.execute(delete(UsagePeriod))
        await session.execute(delete(BranchUsagePeriod))
        session.add_all(UsagePeriod(**values, grain=Grain.HOUR, starts_at=moment) for moment in moments)
        days = [START.replace(hour=0, minute=0) - timedelta(days=days) for days in range(410)]
        session.add_all(UsagePeriod(**values, grain=Grain.DAY, starts_at=day) for day in days)
        of_branch = {**values, "branch_id": branch}
        session.add_all(BranchUsagePeriod(**of_branch, grain=Grain.HOUR, starts_at=moment) for moment in moments)
        session.add_all(BranchUsagePeriod(**of_branch, grain=Grain.DAY, starts_at=day) for day in days)
    # A clock that is a year ahead deletes no more than one that is right.
    await worker.prune(made.clock.at + timedelta(days=365))
    assert len(await made.used()) == 31 * 24
    assert len(await made.used(grain=Grain.DAY)) == 400
    assert len((await made.branches())[branch]) == 400
    made.clock.runs(PRUNE_SECONDS)
    await worker.prune(made.clock.at)
    assert len(await made.used()) == 31 * 24
    assert len(await made.used(grain=Grain.DAY)) == 400
    async with made.resources.database.transaction() as session:
        of_branches = select(BranchUsagePeriod.grain, func.count()).group_by(BranchUsagePeriod.grain)
        kept = {row[0]: row[1] for row in (await session.execute(of_branches)).all()}
    assert kept == {Grain.HOUR: 31 * 24, Grain.DAY: 400}


async def test_the_reconcilers_rounds_measure_a_project(weir: Weir) -> None:
    """The whole way, from a compute that runs and storage that has its WAL to what the API tells."""
    created = await weir.project(name="measured")
    ident, timeline = created["project"]["id"], created["branch"]["timeline_id"]
    weir.storage.advance(timeline, "0/1700000")
    wanted = {
        "from": (now() - timedelta(hours=1)).isoformat(),
        "to": (now() + timedelta(hours=1)).isoformat(),
        "granularity": "hourly",
        "project_ids": ident,
    }

    async def told() -> dict[str, Any] | None:
        await ReconcilerActivities(weir.resources).reconcile()
        answer = await weir.call("GET", "/consumption_history/projects", params=wanted)
        periods = answer["projects"][0]["periods"]
        frames = [frame for period in periods for frame in period["consumption"]]
        total = {
            name: sum(frame[name] for frame in frames)
            for name in ("active_time_seconds", "compute_time_seconds", "written_data_bytes")
        }
        return total if total["active_time_seconds"] and total["written_data_bytes"] else None

    total = await weir.wait(told)
    assert total["active_time_seconds"] == total["compute_time_seconds"]
    assert total["written_data_bytes"] == 0x200000
    project = (await weir.call("GET", f"/projects/{ident}"))["project"]
    assert project["written_data_bytes"] == 0x200000
    assert project["active_time_seconds"] > 0
    assert project["synthetic_storage_size"] == 3
    # Its only branch has all of it, in the list and alone, and by hours.
    (listed,) = (await weir.call("GET", f"/projects/{ident}/branches"))["branches"]
    shown = (await weir.call("GET", f"/projects/{ident}/branches/{listed['id']}"))["branch"]
    for branch in (listed, shown):
        assert branch["written_data_bytes"] == 0x200000
        assert 0 < branch["active_time_seconds"] <= project["active_time_seconds"] + 1
    more = {"metrics": "compute_unit_seconds,root_branch_bytes_month"}
    (told_of,) = (await weir.call("GET", "/consumption_history/v2/branches", params=wanted | more))["branches"]
    assert (told_of["project_id"], told_of["branch_id"]) == (ident, listed["id"])
    figures = [frame["metrics"] for period in told_of["periods"] for frame in period["consumption"]]
    assert sum(metrics[0]["value"] for metrics in figures) > 0
