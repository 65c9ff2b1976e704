"""Computes whose clients do nothing are suspended after their time, and no other compute is."""

import json
from dataclasses import replace
from typing import Any

import pytest
from weir_testing.fixtures import Weir

from weir.clients.compute import ComputeStatus
from weir.computes.repository import ComputeRepository
from weir.computes.service import observe
from weir.endpoints.models import Endpoint
from weir_workflows.reconciler.activities import ReconcilerActivities
from weir_workflows.reconciler.inactivity import suspend_inactive


@pytest.fixture(name="round_")
async def _round(weir: Weir) -> ReconcilerActivities:
    return ReconcilerActivities(weir.resources)


async def _compute(
    weir: Weir, name: str, after: int, idle: float | None, settings: dict[str, str] | None = None
) -> tuple[str, str]:
    """A project whose compute says that it was idle for so long."""
    created = await weir.project(name=name)
    project, ident = created["project"]["id"], created["endpoints"][0]["id"]
    await weir.finish(await weir.call("POST", f"/projects/{project}/endpoints/{ident}/suspend"))
    async with weir.resources.database.transaction() as session:
        row = await session.get_one(Endpoint, ident)
        row.pg_settings = {"test.idle_seconds": json.dumps(idle), **(settings or {})}
    path = f"/projects/{project}/endpoints/{ident}"
    await weir.call("PATCH", path, json={"endpoint": {"suspend_timeout_seconds": after}})
    await weir.finish(await weir.call("POST", f"{path}/start"))
    return project, ident


async def _state(weir: Weir, project: str, ident: str) -> dict[str, Any]:
    return (await weir.call("GET", f"/projects/{project}/endpoints/{ident}"))["endpoint"]


async def _open(weir: Weir, project: str) -> bool:
    operations = (await weir.call("GET", f"/projects/{project}/operations"))["operations"]
    return any(item["status"] in {"running", "scheduling"} for item in operations)


async def _suspended(weir: Weir, project: str, ident: str) -> None:
    async def suspended() -> bool:
        return (await _state(weir, project, ident))["current_state"] == "idle" and not await _open(weir, project)

    await weir.wait(suspended)


async def test_a_compute_is_suspended_once_its_clients_did_nothing_for_its_time(
    weir: Weir, round_: ReconcilerActivities
) -> None:
    project, ident = await _compute(weir, "quiet", 300, 300.5)
    await round_.reconcile()
    await _suspended(weir, project, ident)
    assert weir.resources.runtime.process(ident) is None
    entries = (await weir.call("GET", "/audit", params={"resource": f"endpoint/{ident}"}))["entries"]
    assert entries[0]["actor"] == "inactivity"
    assert entries[0]["detail"]["suspend_timeout_seconds"] == 300
    # It stays so until somebody wants it.
    await round_.reconcile()
    assert (await _state(weir, project, ident))["pending_state"] is None


@pytest.mark.parametrize(
    ("after", "idle"),
    [
        (300, 299.0),
        (0, 100_000.0),
        (-1, 100_000.0),
        # Nobody can tell.
        (300, None),
    ],
)
async def test_a_compute_that_is_not_known_to_be_idle_for_its_time_runs_on(
    weir: Weir, round_: ReconcilerActivities, after: int, idle: float | None
) -> None:
    project, ident = await _compute(weir, f"awake-{after}-{idle}", after, idle)
    await round_.reconcile()
    assert not await _open(weir, project)
    assert (await _state(weir, project, ident))["current_state"] == "active"


@pytest.mark.parametrize("unlogged", [8192, None])
async def test_a_compute_is_not_suspended_whose_unlogged_tables_hold_rows_or_may(
    weir: Weir, round_: ReconcilerActivities, unlogged: int | None
) -> None:
    settings = {"test.unlogged_bytes": json.dumps(unlogged)}
    project, ident = await _compute(weir, f"unlogged-{unlogged}", 300, 301.0, settings)
    await round_.reconcile()
    assert not await _open(weir, project)
    assert (await _state(weir, project, ident))["current_state"] == "active"


async def test_a_compute_that_a_rollout_works_on_is_not_suspended(weir: Weir) -> None:
    project, ident = await _compute(weir, "rolling", 300, 301.0)
    async with weir.resources.database.transaction() as session:
        rows = [row for row in await ComputeRepository(session, None).beyond("", 10_000) if row.endpoint.id == ident]
    seen = await observe(rows, weir.resources.http)
    assert await suspend_inactive(weir.resources, rows, seen, {ident: "a rollout"}) == []
    assert await suspend_inactive(weir.resources, rows, seen, {}) == [ident]
    await _suspended(weir, project, ident)


async def test_a_client_that_comes_after_the_look_keeps_its_compute(weir: Weir) -> None:
    project, ident = await _compute(weir, "just-woken", 300, 0.2)
    async with weir.resources.database.transaction() as session:
        rows = [row for row in await ComputeRepository(session, None).beyond("", 10_000) if row.endpoint.id == ident]
    seen = await observe(rows, weir.resources.http)
    status = seen[ident]
    assert isinstance(status, ComputeStatus)
    earlier = {ident: replace(status, idle_seconds=301.0)}
    assert await suspend_inactive(weir.resources, rows, earlier, {}) == []
    assert not await _open(weir, project)


async def test_a_project_says_it_for_its_endpoints_and_the_bounds_are_checked(weir: Weir) -> None:
    defaults = {"suspend_timeout_seconds": 600}
    created = await weir.call(
        "POST", "/projects", 201, json={"project": {"name": "sleepy", "default_endpoint_settings": defaults}}
    )
    await weir.finish(created)
    project, endpoint = created["project"]["id"], created["endpoints"][0]
    assert endpoint["suspend_timeout_seconds"] == 600
    path = f"/projects/{project}/endpoints/{endpoint['id']}"
    for wrong in (-2, 604_801):
        await weir.call("PATCH", path, 400, json={"endpoint": {"suspend_timeout_seconds": wrong}})
    changed = await weir.call("PATCH", path, json={"endpoint": {"suspend_timeout_seconds": 60}})
    assert changed["endpoint"]["suspend_timeout_seconds"] == 60
    assert changed["operations"] == []
