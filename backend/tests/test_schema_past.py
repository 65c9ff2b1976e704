"""Schemas of earlier states: read by a compute that is there for that alone, and gone afterwards whatever happens."""

import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import select
from weir_testing.at_once import Project, make
from weir_testing.fixtures import Weir

from weir.branches.models import Branch
from weir.databases import schema_dump
from weir.endpoints.models import Endpoint
from weir.kit.clock import now
from weir.snapshots import reading
from weir_workflows.reconciler.expiry import delete_expired

WANTED = {"db_name": "appdb"}


@pytest.fixture
def dumped(weir: Weir, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Branches in the order in which they were dumped. A dump is the LSN of the state, or `now`."""
    found: list[str] = []

    async def dump(source: schema_dump.Source) -> str:
        found.append(source.branch_id)
        async with weir.resources.database.transaction() as session:
            branch = await session.get_one(Branch, source.branch_id)
        return f"-- {branch.parent_lsn if branch.is_snapshot else 'now'}\n"

    monkeypatch.setattr(schema_dump, "dump", dump)
    return found


async def _left(project: Project) -> list[Branch]:
    async with project.weir.resources.database.transaction() as session:
        statement = select(Branch).where(
            Branch.project_id == project.id, Branch.is_snapshot, Branch.deleted_at.is_(None)
        )
        return list((await session.scalars(statement)).all())


async def test_a_schema_of_the_past_is_read_and_leaves_nothing(weir: Weir, dumped: list[str]) -> None:
    project = await make(weir, "past-schema")
    weir.storage.advance(project.main["timeline_id"], "0/2000000")
    path = f"/branches/{project.main['id']}/schema"
    assert await project.call("GET", path, params=WANTED | {"lsn": "0/1700000"}) == {"sql": "-- 0/1700000\n"}
    at = now().isoformat()
    assert await project.call("GET", path, params=WANTED | {"timestamp": at}) == {"sql": "-- 0/2000000\n"}
    assert await project.call("GET", path, params=WANTED) == {"sql": "-- now\n"}
    await weir.idle(project.id)
    assert await _left(project) == []
    assert (await project.call("GET", "/snapshots"))["snapshots"] == []
    assert len({*dumped}) == 3
    async with weir.resources.database.transaction() as session:
        endpoints = (await session.scalars(select(Endpoint).where(Endpoint.branch_id.in_(dumped)))).all()
    assert {row.deleted_at is None for row in endpoints if row.branch_id != project.main["id"]} == {False}
    for asked, status in (
        ({"lsn": "0/1700000", "timestamp": at}, 400),
        ({"lsn": "0/1400000"}, 400),
        ({"timestamp": "2200-01-01T00:00:00Z"}, 400),
        ({"lsn": "0/1700000", "db_name": "never_there"}, 404),
    ):
        await project.call("GET", path, status, params=WANTED | asked)
    assert await _left(project) == []


async def test_two_states_are_compared(weir: Weir, dumped: list[str]) -> None:
    project = await make(weir, "past-compared")
    main, dev = project.main["id"], project.dev["id"]
    # Of one branch, at two LSNs; and of a branch now with its parent's past.
    both = WANTED | {"base_branch_id": main, "base_lsn": "0/1700000", "lsn": "0/1800000"}
    diff = (await project.call("GET", f"/branches/{main}/compare_schema", params=both))["diff"]
    assert diff.splitlines()[3:] == ["--- 0/1700000", "+-- 0/1800000"]
    asked = WANTED | {"base_lsn": "0/1700000"}
    diff = (await project.call("GET", f"/branches/{dev}/compare_schema", params=asked))["diff"]
    assert diff.splitlines()[3:] == ["--- 0/1700000", "+-- now"]
    assert dumped[-1] == dev
    await weir.idle(project.id)
    assert await _left(project) == []


async def test_while_it_is_read_nobody_sees_the_compute(weir: Weir, monkeypatch: pytest.MonkeyPatch) -> None:
    project = await make(weir, "past-hidden")
    seen: list[set[str]] = []

    async def dump(source: schema_dump.Source) -> str:
        assert await _left(project)
        endpoints = (await project.call("GET", "/endpoints"))["endpoints"]
        computes = (await weir.call("GET", "/computes", params={"project_id": project.id}))["computes"]
        branches = (await project.call("GET", "/branches"))["branches"]
        seen.append({row["id"] for row in [*endpoints, *computes, *branches]})
        assert (await project.call("GET", "/snapshots"))["snapshots"] == []
        await project.call("GET", f"/branches/{source.branch_id}", 404)
        return ""

    monkeypatch.setattr(schema_dump, "dump", dump)
    path = f"/branches/{project.main['id']}/schema"
    await project.call("GET", path, params=WANTED | {"lsn": "0/1700000"})
    expected = {project.main["id"], project.dev["id"], project.main_endpoint, project.dev_endpoint}
    assert seen == [expected]
    await weir.idle(project.id)


async def test_what_fails_on_the_way_is_tidied_up(weir: Weir, monkeypatch: pytest.MonkeyPatch) -> None:
    project = await make(weir, "past-fails")
    path = f"/branches/{project.main['id']}/schema"
    asked = WANTED | {"lsn": "0/1700000"}
    weir.storage.fail("pageserver", "POST", "/timeline", 400)
    answer = await project.call("GET", path, 503, params=asked)
    assert "no compute runs on that state" in answer["message"]
    await weir.idle(project.id)
    assert await _left(project) == []

    # It takes longer than is waited for: what is still being made is deleted by the reconciler, when it can be.
    weir.storage.fail("pageserver", "POST", "/timeline", 503, times=5)
    monkeypatch.setattr(reading, "MAKE_SECONDS", 0.5)
    assert "after 0 s" in (await project.call("GET", path, 503, params=asked))["message"]
    await weir.idle(project.id)
    (held,) = await _left(project)
    assert held.id in await delete_expired(weir.resources, now())
    await weir.idle(project.id)
    assert await _left(project) == []
    assert held.timeline_id not in weir.storage.timelines


async def test_what_a_lost_request_leaves_goes_by_itself(weir: Weir, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API dies between making the compute and deleting it."""
    project = await make(weir, "past-lost")

    async def nothing(*_: object) -> None:
        return None

    async def dump(_: schema_dump.Source) -> str:
        return ""

    with monkeypatch.context() as patched:
        patched.setattr(reading, "_end", nothing)
        patched.setattr(schema_dump, "dump", dump)
        path = f"/branches/{project.main['id']}/schema"
        await project.call("GET", path, params=WANTED | {"lsn": "0/1700000"})
    (held,) = await _left(project)
    assert held.id not in await delete_expired(weir.resources, now())
    assert held.id in await delete_expired(weir.resources, now() + timedelta(minutes=16))
    await weir.idle(project.id)
    assert await _left(project) == []
    # Nor is anything in the way of the branch.
    await asyncio.sleep(0)
    await weir.finish(await project.call("DELETE", f"/branches/{project.dev['id']}"))
