"""What the API tells of usage: the published shapes, the caller's own and nobody else's, and no figure made up."""

from collections.abc import AsyncGenerator, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
import pytest_asyncio
from sqlalchemy import event, insert, select, update
from weir_testing import people
from weir_testing.people import Alone, keyed

from weir.branches.models import Branch, BranchState
from weir.config import Settings
from weir.errors import RangeNotKeptError
from weir.identity.models import ApiKey
from weir.kit.clock import now
from weir.kit.crypto import hash_token, new_api_key
from weir.kit.pagination import PageRequest
from weir.people.roles import Role
from weir.projects.models import Project
from weir.usage.metering import SUMMED, floor
from weir.usage.models import BranchUsagePeriod, Grain, UsagePeriod
from weir.usage.reading import Granularity, asked, branches_this_month, month_of
from weir.usage.router import bounded

# As Neon's published description (v2) has them; the optional ones that Weir gives too.
TIMEFRAME = {
    "timeframe_start", "timeframe_end", "active_time_seconds", "compute_time_seconds", "written_data_bytes",
    "synthetic_storage_size_bytes", "data_storage_bytes_hour", "logical_size_bytes", "logical_size_bytes_hour",
}  # fmt: skip
PERIOD = {"period_id", "period_plan", "period_start", "period_end", "consumption"}
MIB = 2**20
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def alone(environment: Settings, postgres_url: str) -> AsyncGenerator[Alone]:
    del environment
    async with people.alone(postgres_url) as running:
        yield running


async def _key(alone: Alone, account: UUID, project: str | None = None) -> str:
    key = new_api_key()
    values = {"account_id": account, "name": "k", "key_hash": hash_token(key), "role": Role.OWNER}
    async with alone.database.transaction() as session:
        await session.execute(insert(ApiKey).values(**values, project_id=project))
    return key


async def _used(alone: Alone, account: UUID, project: str, at: datetime, **amounts: Any) -> None:
    """In the hour and in the day of the moment."""
    usual = dict.fromkeys(SUMMED, 0) | amounts
    async with alone.database.transaction() as session:
        for grain in Grain:
            row = {"account_id": account, "project_id": project, "grain": grain, "starts_at": floor(at, grain)}
            await session.execute(insert(UsagePeriod).values(**row, **usual))


async def _branch(alone: Alone, project: str, name: str, **more: Any) -> str:
    ident = f"br-{uuid4().hex[:12]}"
    async with alone.database.transaction() as session:
        session.add(
            Branch(
                id=ident, project_id=project, name=name, timeline_id=uuid4().hex, state=BranchState.READY,
                created_at=now(), updated_at=now(), **more,
            )
        )  # fmt: skip
    return ident


async def _branch_used(
    alone: Alone,
    account: UUID,
    project: str,
    branch: str,
    at: datetime,
    grains: Iterable[Grain] = Grain,
    **amounts: Any,
) -> None:
    usual = dict.fromkeys(SUMMED, 0) | amounts | {"branch_id": branch}
    async with alone.database.transaction() as session:
        for grain in grains:
            row = {"account_id": account, "project_id": project, "grain": grain, "starts_at": floor(at, grain)}
            await session.execute(insert(BranchUsagePeriod).values(**row, **usual))


class Asking:
    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def __call__(
        self, path: str, start: datetime, end: datetime, granularity: str, expect: int = 200, **more: Any
    ) -> Any:
        words = {"from": start.isoformat(), "to": end.isoformat(), "granularity": granularity, **more}
        answer = await self._client.get(f"/consumption_history{path}", params=words)
        assert answer.status_code == expect, answer.text
        return answer.json()


@pytest_asyncio.fixture(loop_scope="session")
async def account(alone: Alone) -> UUID:
    return await people.organization(alone.database)


@pytest_asyncio.fixture(loop_scope="session")
async def ask(alone: Alone, account: UUID) -> AsyncGenerator[Asking]:
    async with keyed(alone.url, await _key(alone, account)) as client:
        yield Asking(client)


def _frames(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [frame for period in found["periods"] for frame in period["consumption"]]


async def test_hours_of_a_project_in_the_published_shape(alone: Alone, account: UUID, ask: Asking) -> None:
    project = await people.project(alone.database, account)
    hour = floor(now(), Grain.HOUR) - 3 * HOUR
    await _used(
        alone, account, project, hour, active_seconds=120.4, unit_seconds=60.2, processor_seconds=9.6,
        written_bytes=5 * MIB, root_byte_hours=4.0 * MIB, child_byte_hours=2.0 * MIB, snapshot_byte_hours=1.0 * MIB,
        history_byte_hours=0.5 * MIB, logical_bytes=7 * MIB, history_bytes=MIB,
    )  # fmt: skip
    (found,) = (await ask("/projects", hour - HOUR, hour + HOUR, "hourly"))["projects"]
    assert (found["project_id"], found["deleted"]) == (project, False)
    (period,) = found["periods"]
    assert set(period) == PERIOD
    assert datetime.fromisoformat(period["period_start"]) == month_of(hour)
    (frame,) = period["consumption"]
    assert set(frame) >= TIMEFRAME
    assert datetime.fromisoformat(frame.pop("timeframe_start")) == hour
    assert datetime.fromisoformat(frame.pop("timeframe_end")) == hour + HOUR
    assert frame == {
        "active_time_seconds": 120,
        "compute_time_seconds": 60,
        "cpu_time_seconds": 10,
        "written_data_bytes": 5 * MIB,
        "synthetic_storage_size_bytes": 8 * MIB,
        "data_storage_bytes_hour": round(7.5 * MIB),
        "logical_size_bytes": 7 * MIB,
        "logical_size_bytes_hour": 7 * MIB,
    }
    # The end is not part of the range, and is rounded down.
    before = await ask("/projects", hour - HOUR, hour + timedelta(minutes=59), "hourly")
    assert _frames(before["projects"][0]) == []
    # The range is rounded down at its begin.
    again = await ask("/projects", hour + timedelta(minutes=59), hour + HOUR, "hourly")
    assert len(_frames(again["projects"][0])) == 1
    # Each period has the same id at each request.
    assert again["projects"][0]["periods"][0]["period_id"] == period["period_id"]


async def test_the_second_version_has_the_metrics_asked_for(alone: Alone, account: UUID, ask: Asking) -> None:
    project = await people.project(alone.database, account)
    day = floor(now(), Grain.DAY) - DAY
    await _used(alone, account, project, day, unit_seconds=60.0, root_byte_hours=4.0, history_byte_hours=3.0)
    metrics = "compute_unit_seconds,root_branch_bytes_month"
    answer = await ask("/v2/projects", day, day + DAY, "daily", metrics=metrics, org_id=str(account))
    (found,) = answer["projects"]
    (frame,) = _frames(found)
    assert frame["metrics"] == [
        {"metric_name": "compute_unit_seconds", "value": 60},
        {"metric_name": "root_branch_bytes_month", "value": 4},
    ]
    repeated = ["instant_restore_bytes_month", "child_branch_bytes_month", "instant_restore_bytes_month"]
    (found,) = (await ask("/v2/projects", day, day + DAY, "daily", metrics=repeated))["projects"]
    assert [metric["value"] for metric in _frames(found)[0]["metrics"]] == [3, 0]
    for unmeasured in ("public_network_transfer_bytes", "private_network_transfer_bytes", "extra_branches_month"):
        refused = await ask("/v2/projects", day, day + DAY, "daily", 400, metrics=f"{metrics},{unmeasured}")
        assert refused["code"] == "NOT_SUPPORTED"
        assert f"metric {unmeasured} is not measured here" in refused["message"]
    for wrong in ("", ",", "cpu", "compute_unit_seconds,cpu"):
        assert (await ask("/v2/projects", day, day + DAY, "daily", 400, metrics=wrong))["code"] == "BAD_REQUEST"


async def test_days_and_months_add_up_and_projects_to_their_organization(
    alone: Alone, account: UUID, ask: Asking
) -> None:
    first, second = [await people.project(alone.database, account) for _ in range(2)]
    month = month_of(month_of(now()) - DAY)
    for project, days in ((first, (0, 1, 26)), (second, (1,))):
        for number in days:
            await _used(
                alone, account, project, month + number * DAY, active_seconds=10.0 + number, written_bytes=100,
                logical_bytes=1000 + number, history_bytes=1,
            )  # fmt: skip
    after = month + 32 * DAY
    answer = await ask("/projects", month, after, "monthly", project_ids=first)
    (frame,) = _frames(answer["projects"][0])
    assert datetime.fromisoformat(frame["timeframe_start"]) == month
    assert datetime.fromisoformat(frame["timeframe_end"]) == month_of(month + 32 * DAY)
    assert (frame["active_time_seconds"], frame["written_data_bytes"]) == (57, 300)
    # Held when storage was asked last, not summed up.
    assert frame["synthetic_storage_size_bytes"] == 1027
    whole = await ask("/account", month, after, "monthly")
    (period,) = whole["periods"]
    assert period["period_end"] is not None
    assert _frames(whole)[0]["active_time_seconds"] == 68
    days = _frames(await ask("/account", month, month + 27 * DAY, "daily"))
    assert [frame["active_time_seconds"] for frame in days] == [10, 22, 36]
    assert [frame["synthetic_storage_size_bytes"] for frame in days] == [1001, 2004, 1027]


async def test_who_is_not_in_the_organization_learns_nothing_of_its_usage(
    alone: Alone, account: UUID, ask: Asking
) -> None:
    theirs = await people.project(alone.database, alone.elsewhere)
    mine, other = [await people.project(alone.database, account) for _ in range(2)]
    hour = floor(now(), Grain.HOUR)
    await _used(alone, alone.elsewhere, theirs, hour, active_seconds=1000.0)
    for project in (mine, other):
        await _used(alone, account, project, hour, active_seconds=5.0)
    answer = await ask("/projects", hour, hour + HOUR, "hourly", project_ids=f"{theirs},{mine}")
    assert [row["project_id"] for row in answer["projects"]] == [mine]
    total = sum(frame["active_time_seconds"] for frame in _frames(await ask("/account", hour, hour + HOUR, "hourly")))
    assert total == 10
    for path in ("/account", "/projects"):
        await ask(path, hour, hour + HOUR, "hourly", 403, org_id=str(alone.elsewhere))
    # A key of one project sees that one, and no sums of others.
    async with keyed(alone.url, await _key(alone, account, mine)) as client:
        narrow = Asking(client)
        answer = await narrow("/projects", hour, hour + HOUR, "hourly")
        assert [row["project_id"] for row in answer["projects"]] == [mine]
        answer = await narrow("/projects", hour, hour + HOUR, "hourly", project_ids=other)
        assert answer["projects"] == []
        await narrow("/account", hour, hour + HOUR, "hourly", 403)


async def test_a_project_that_is_gone_is_told_as_long_as_it_used_something(
    alone: Alone, account: UUID, ask: Asking
) -> None:
    gone, given, idle = [await people.project(alone.database, account) for _ in range(3)]
    hour = floor(now(), Grain.HOUR) - 2 * HOUR
    for project in (gone, given):
        await _used(alone, account, project, hour, active_seconds=60.0)
    async with alone.database.transaction() as session:
        await session.execute(update(Project).where(Project.id == gone).values(deleted_at=now()))
        await session.execute(
            update(Project).where(Project.id == given).values(account_id=alone.elsewhere, name="secret")
        )
    answer = await ask("/projects", hour, hour + HOUR, "hourly")
    assert {row["project_name"] for row in answer["projects"]} == {gone, given, idle}
    found = {row["project_id"]: (row["deleted"], len(_frames(row))) for row in answer["projects"]}
    assert found == {gone: (True, 1), given: (True, 1), idle: (False, 0)}
    later = await ask("/projects", hour + HOUR, hour + 2 * HOUR, "hourly")
    assert [row["project_id"] for row in later["projects"]] == [idle]
    assert len(_frames(await ask("/account", hour, hour + HOUR, "hourly"))) == 1


async def test_pages_have_each_project_once(alone: Alone, account: UUID, ask: Asking) -> None:
    made = {await people.project(alone.database, account) for _ in range(7)}
    hour = floor(now(), Grain.HOUR)
    seen: list[str] = []
    more: dict[str, Any] = {}
    while True:
        answer = await ask("/projects", hour, hour + HOUR, "hourly", limit=3, **more)
        seen += [row["project_id"] for row in answer["projects"]]
        cursor = answer["pagination"]["cursor"]
        if cursor is None:
            break
        more = {"cursor": cursor}
    assert len(seen) == 7
    assert set(seen) == made


def test_a_range_that_is_none_or_not_kept_is_refused() -> None:
    at = datetime(2026, 11, 20, 10, 30, tzinfo=UTC)
    for start, end in ((at, at), (at, at - HOUR), (at + HOUR, at)):
        with pytest.raises(RangeNotKeptError, match="is not before"):
            asked(start, end, Granularity.DAILY, at)
    for granularity, days in ((Granularity.HOURLY, 31), (Granularity.DAILY, 400), (Granularity.MONTHLY, 400)):
        assert asked(at - (days - 1) * DAY, at, granularity, at)
        with pytest.raises(RangeNotKeptError, match=f"kept for {days} days"):
            asked(at - days * DAY - HOUR, at, granularity, at)
    # The longest that the published API allows are all kept.
    for granularity, days in ((Granularity.HOURLY, 7), (Granularity.DAILY, 60), (Granularity.MONTHLY, 366)):
        asked(at - days * DAY, at, granularity, at)
    # What no calendar can move between time zones.
    first = datetime.fromisoformat("0001-01-01T00:00:00+14:00")
    last = datetime.fromisoformat("9999-12-31T23:59:59-12:00")
    with pytest.raises(RangeNotKeptError):
        asked(first, at, Granularity.MONTHLY, at)
    for granularity in Granularity:
        assert asked(at, last, granularity, at).end <= at + 64 * DAY
        assert asked(last - HOUR, last, granularity, at).start > at


async def test_ranges_without_a_zone_and_other_granularities_are_bad_requests(ask: Asking) -> None:
    at = now()
    naive = at.replace(tzinfo=None)
    assert (await ask("/account", naive, naive, "daily", 400))["code"] == "BAD_REQUEST"
    assert (await ask("/account", at - DAY, at, "weekly", 400))["code"] == "BAD_REQUEST"
    assert (await ask("/account", at, at - DAY, "daily", 406))["code"] == "NOT_ACCEPTABLE"
    many = [f"p-{number}" for number in range(101)]
    for ids in (many, ",".join(many)):
        assert (await ask("/projects", at - DAY, at, "daily", 400, project_ids=ids))["code"] == "BAD_REQUEST"


async def test_a_project_tells_what_it_used_this_month(alone: Alone, account: UUID, ask: Asking) -> None:
    del ask
    project = await people.project(alone.database, account)
    at = now()
    month = month_of(at)
    today = floor(at, Grain.DAY)
    await _used(
        alone, account, project, today, active_seconds=100.0, unit_seconds=200.0, processor_seconds=30.0,
        written_bytes=5, root_byte_hours=7.0, history_byte_hours=2.0, logical_bytes=11, history_bytes=2,
    )  # fmt: skip
    # Neither the month before nor what another organisation used of it counts.
    await _used(alone, account, project, month - HOUR, active_seconds=1e6, logical_bytes=1, history_bytes=1)
    await _used(alone, alone.elsewhere, project, today, active_seconds=1e6)
    async with keyed(alone.url, await _key(alone, account)) as client:
        shown = (await client.get(f"/projects/{project}")).json()["project"]
        (listed,) = (await client.get("/projects")).json()["projects"]
    assert datetime.fromisoformat(shown["consumption_period_start"]) == month
    assert datetime.fromisoformat(shown["consumption_period_end"]) == month_of(month + 32 * DAY)
    names = (
        "active_time_seconds", "active_time", "compute_time_seconds", "cpu_used_sec", "written_data_bytes",
        "data_storage_bytes_hour", "synthetic_storage_size", "data_transfer_bytes",
    )  # fmt: skip
    assert [shown[name] for name in names] == [100, 100, 200, 30, 5, 9, 13, 0]
    assert (listed["active_time"], listed["cpu_used_sec"], listed["synthetic_storage_size"]) == (100, 30, 13)


METRICS = "compute_unit_seconds,root_branch_bytes_month"


async def test_branches_have_the_metrics_asked_for_in_the_published_shape(
    alone: Alone, account: UUID, ask: Asking
) -> None:
    project = await people.project(alone.database, account)
    main = await _branch(alone, project, "main", is_default=True)
    dev = await _branch(alone, project, "dev", parent_id=main)
    await _branch(alone, project, "snap", parent_id=main, is_snapshot=True)
    hour = floor(now(), Grain.HOUR) - 2 * HOUR
    await _branch_used(alone, account, project, main, hour, unit_seconds=60.4, root_byte_hours=4.0)
    await _branch_used(alone, account, project, main, hour + HOUR, [Grain.HOUR], unit_seconds=5.0)
    more: dict[str, Any] = {"project_ids": project, "org_id": str(account)}
    answer = await ask("/v2/branches", hour, hour + 2 * HOUR, "hourly", metrics=METRICS, **more)
    assert answer["pagination"] == {"cursor": None}
    found = {row["branch_id"]: row for row in answer["branches"]}
    # A branch that used nothing is told, too; what holds a snapshot is no branch.
    assert list(found) == sorted([main, dev])
    assert set(found[main]) == {"project_id", "branch_id", "periods"}
    assert found[dev]["periods"] == []
    assert set(found[main]["periods"][0]) == PERIOD
    first, second = _frames(found[main])
    assert datetime.fromisoformat(first["timeframe_start"]) == hour
    assert first["metrics"] == [
        {"metric_name": "compute_unit_seconds", "value": 60},
        {"metric_name": "root_branch_bytes_month", "value": 4},
    ]
    assert second["metrics"][0]["value"] == 5
    narrow = await ask("/v2/branches", hour, hour + HOUR, "hourly", metrics=METRICS, branch_ids=dev, **more)
    assert [row["branch_id"] for row in narrow["branches"]] == [dev]
    for unmeasured in ("snapshot_storage_bytes_month", "extra_branches_month", "public_network_transfer_bytes"):
        refused = await ask("/v2/branches", hour, hour + HOUR, "hourly", 400, metrics=unmeasured, **more)
        assert refused["code"] == "NOT_SUPPORTED"
        assert unmeasured in refused["message"]


async def test_branches_are_asked_for_by_projects_and_a_range_that_is_kept(alone: Alone, ask: Asking) -> None:
    del alone
    at = now()
    named: list[dict[str, Any]] = [{"project_ids": ids} for ids in ("", ",", [f"p-{n}" for n in range(101)])]
    for wrong in ({}, *named):
        refused = await ask("/v2/branches", at - DAY, at, "daily", 400, metrics=METRICS, **wrong)
        assert refused["code"] == "BAD_REQUEST"
    ids = ",".join(f"br-{n}" for n in range(101))
    await ask("/v2/branches", at - DAY, at, "daily", 400, metrics=METRICS, project_ids="p", branch_ids=ids)
    await ask("/v2/branches", at, at - DAY, "daily", 406, metrics=METRICS, project_ids="p")
    for limit in (0, 1001):
        await ask("/v2/branches", at - DAY, at, "daily", 400, metrics=METRICS, project_ids="p", limit=limit)
    none = await ask("/v2/branches", at - DAY, at, "daily", metrics=METRICS, project_ids="p-none")
    assert none["branches"] == []


async def test_pages_have_each_branch_once(alone: Alone, account: UUID, ask: Asking) -> None:
    projects = [await people.project(alone.database, account) for _ in range(2)]
    made = [(project, await _branch(alone, project, f"b{n}")) for project in projects for n in range(3)]
    hour = floor(now(), Grain.HOUR)
    seen: list[tuple[str, str]] = []
    more: dict[str, Any] = {}
    for _ in range(4):
        answer = await ask(
            "/v2/branches", hour, hour + HOUR, "hourly", metrics=METRICS, project_ids=projects, limit=2, **more
        )
        seen += [(row["project_id"], row["branch_id"]) for row in answer["branches"]]
        if answer["pagination"]["cursor"] is None:
            break
        more = {"cursor": answer["pagination"]["cursor"]}
    assert seen == sorted(made)


def test_a_page_of_branches_is_bounded_by_what_is_read_for_it() -> None:
    at = datetime(2026, 11, 20, 10, 30, tzinfo=UTC)
    for granularity, days, most in (
        (Granularity.HOURLY, 1, 1000),
        (Granularity.HOURLY, 30, 50_000 // 720),
        (Granularity.DAILY, 60, 833),
        (Granularity.MONTHLY, 365, 50_000 // 365),
    ):
        start = asked(at - timedelta(days=days), at, granularity, at)
        found = bounded(PageRequest("x", 1000), start)
        assert found.cursor == "x"
        assert 0.9 * most <= found.limit <= most, granularity
    assert bounded(PageRequest(None, 7), asked(at - DAY, at, Granularity.HOURLY, at)).limit == 7


async def test_who_is_not_in_the_organization_learns_nothing_of_its_branches(
    alone: Alone, account: UUID, ask: Asking
) -> None:
    theirs = await people.project(alone.database, alone.elsewhere)
    mine, other, given = [await people.project(alone.database, account) for _ in range(3)]
    hour = floor(now(), Grain.HOUR)
    branches = {project: await _branch(alone, project, "main") for project in (theirs, mine, other, given)}
    for project, branch in branches.items():
        owner = alone.elsewhere if project == theirs else account
        await _branch_used(alone, owner, project, branch, hour, unit_seconds=10.0)
    async with alone.database.transaction() as session:
        await session.execute(update(Project).where(Project.id == given).values(account_id=alone.elsewhere))
    # What the other organisation has used of it since is that one's alone, and so are branches made there.
    await _branch_used(alone, alone.elsewhere, given, branches[given], hour, unit_seconds=1e6)
    await _branch(alone, given, "made-there")
    ids = [theirs, mine, other, given]
    answer = await ask("/v2/branches", hour, hour + HOUR, "hourly", metrics=METRICS, project_ids=ids)
    found = {row["branch_id"]: _frames(row)[0]["metrics"][0]["value"] for row in answer["branches"]}
    assert found == {branches[project]: 10 for project in (mine, other, given)}
    async with keyed(alone.url, await _key(alone, account, mine)) as client:
        answer = await Asking(client)("/v2/branches", hour, hour + HOUR, "hourly", metrics=METRICS, project_ids=ids)
    assert [row["branch_id"] for row in answer["branches"]] == [branches[mine]]


async def test_a_branch_tells_what_it_used_this_month(alone: Alone, account: UUID, ask: Asking) -> None:
    del ask
    project = await people.project(alone.database, account)
    main = await _branch(alone, project, "main", is_default=True)
    idle = await _branch(alone, project, "idle", parent_id=main)
    at = now()
    today, month = floor(at, Grain.DAY), month_of(at)
    await _branch_used(
        alone, account, project, main, today, active_seconds=100.0, unit_seconds=200.0, processor_seconds=30.0,
        written_bytes=5,
    )  # fmt: skip
    await _branch_used(alone, account, project, main, month - HOUR, active_seconds=1e6)
    await _branch_used(alone, alone.elsewhere, project, main, today, active_seconds=1e6)
    async with keyed(alone.url, await _key(alone, account)) as client:
        listed = (await client.get(f"/projects/{project}/branches")).json()["branches"]
        shown = (await client.get(f"/projects/{project}/branches/{main}")).json()["branch"]
        changed = await client.patch(f"/projects/{project}/branches/{main}", json={"branch": {"name": "first"}})
    found = {row["id"]: row for row in listed}
    names = (
        "active_time_seconds", "compute_time_seconds", "cpu_used_sec", "written_data_bytes", "data_transfer_bytes",
    )  # fmt: skip
    for branch in (found[main], shown, changed.json()["branch"]):
        assert [branch[name] for name in names] == [100, 200, 30, 5, 0]
    assert [found[idle][name] for name in names] == [0, 0, 0, 0, 0]


async def test_a_list_of_branches_costs_as_many_statements_whatever_its_length(
    alone: Alone, account: UUID, ask: Asking
) -> None:
    """Of a page of 1 and of 40 branches alike."""
    del ask
    project = await people.project(alone.database, account)
    main = await _branch(alone, project, "main")
    for number in range(39):
        await _branch_used(alone, account, project, await _branch(alone, project, f"b{number}"), now())
    row = Project(id=project, account_id=account)
    counted: list[int] = []
    async with alone.database.transaction() as session:
        connection = await session.connection()
        ran: list[str] = []

        def note(*arguments: Any) -> None:
            ran.append(str(arguments[2]))

        event.listen(connection.sync_connection, "before_cursor_execute", note)
        branches = (await session.scalars(select(Branch).where(Branch.project_id == project))).all()
        for some in ([one for one in branches if one.id == main], branches):
            ran.clear()
            found = await branches_this_month(session, row, some, now())
            assert len(found) == len(some)
            counted.append(len(ran))
    assert counted == [1, 1]
