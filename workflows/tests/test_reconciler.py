"""What should run runs, what should not does not, without anybody asking."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select
from weir_testing.fixtures import Weir

from weir.branches.models import Branch
from weir.durability.levels import Durability
from weir.endpoints.models import Endpoint, EndpointState
from weir.kit.clock import now
from weir.operations.models import Operation, OperationStatus
from weir_workflows.reconciler import activities
from weir_workflows.reconciler.activities import LONGEST_BACKOFF_SECONDS, ReconcilerActivities, backoff


@pytest.fixture(name="round_")
async def _round(weir: Weir) -> ReconcilerActivities:
    return ReconcilerActivities(weir.resources)


async def _project_is_idle(weir: Weir, project_id: str) -> None:
    async def idle() -> bool:
        operations = (await weir.call("GET", f"/projects/{project_id}/operations"))["operations"]
        return not any(item["status"] in {"running", "scheduling"} for item in operations)

    await weir.wait(idle)


async def test_a_killed_compute_comes_back(weir: Weir, round_: ReconcilerActivities) -> None:
    created = await weir.project(name="killed")
    ident = created["endpoints"][0]["id"]
    process = weir.resources.runtime.process(ident)
    assert process is not None
    assert ident not in (await round_.reconcile()).started
    weir.resources.runtime.kill(process)

    async def gone() -> bool:
        return not process.alive()

    await weir.wait(gone)
    assert ident in (await round_.reconcile()).started
    await _project_is_idle(weir, created["project"]["id"])
    again = weir.resources.runtime.process(ident)
    assert again not in {None, process}
    # Nothing left to do: a second round starts nothing.
    assert ident not in (await round_.reconcile()).started
    entries = (await weir.call("GET", "/audit", params={"resource": f"endpoint/{ident}"}))["entries"]
    assert entries[0]["actor"] == "reconciler"
    assert "process is gone" in entries[0]["detail"]["reason"]


async def test_a_busy_project_is_left_to_its_operation(weir: Weir, round_: ReconcilerActivities) -> None:
    created = await weir.call("POST", "/projects", 201, json={"project": {"name": "still-starting"}})
    result = await round_.reconcile()
    assert created["endpoints"][0]["id"] not in result.started
    await weir.finish(created)


async def test_starts_that_keep_failing_are_spaced_out_and_stay_wanted(
    weir: Weir, round_: ReconcilerActivities
) -> None:
    created = await weir.project(name="flaky")
    ident, project = created["endpoints"][0]["id"], created["project"]["id"]
    await _set(weir, ident, pg_settings={"test.mode": "fail"})
    process = weir.resources.runtime.process(ident)
    assert process is not None
    weir.resources.runtime.kill(process)

    async def queued() -> bool:
        return ident in (await round_.reconcile()).started

    await weir.wait(queued)
    await _project_is_idle(weir, project)
    async with weir.resources.database.transaction() as session:
        failed = (
            await session.scalars(
                select(Operation).where(Operation.endpoint_id == ident, Operation.origin == "reconciler")
            )
        ).one()
        assert failed.status == OperationStatus.FAILED
        assert failed.finished_at is not None
    # At once after the failure nothing is tried; when the time has come it is.
    assert ident not in (await round_.reconcile()).started
    async with weir.resources.database.transaction() as session:
        row = await session.get_one(Operation, failed.id)
        row.finished_at = now() - timedelta(seconds=LONGEST_BACKOFF_SECONDS)
    await _set(weir, ident, pg_settings={})
    await weir.wait(queued)
    await _project_is_idle(weir, project)
    assert (await weir.call("GET", f"/computes/{ident}"))["compute"]["state"] == "active"


async def _set(weir: Weir, ident: str, **fields: Any) -> None:
    async with weir.resources.database.transaction() as session:
        row = await session.get_one(Endpoint, ident)
        for name, value in fields.items():
            setattr(row, name, value)


async def test_what_should_be_idle_is_stopped(weir: Weir, round_: ReconcilerActivities) -> None:
    created = await weir.project(name="unwanted")
    ident = created["endpoints"][0]["id"]
    await _set(weir, ident, desired_state=EndpointState.IDLE)
    assert ident in (await round_.reconcile()).stopped
    await _project_is_idle(weir, created["project"]["id"])
    assert weir.resources.runtime.process(ident) is None


async def test_a_compute_of_a_deleted_endpoint_is_ended_and_strangers_are_not_touched(
    weir: Weir, round_: ReconcilerActivities
) -> None:
    created = await weir.project(name="orphan")
    ident = created["endpoints"][0]["id"]
    process = weir.resources.runtime.process(ident)
    stranger = weir.settings.computes_dir / "ep-not-in-the-database"
    stranger.mkdir()
    await _set(weir, ident, deleted_at=now())
    result = await round_.reconcile()
    assert ident in result.cleaned
    assert process is not None
    assert not process.alive()
    assert ident not in weir.resources.runtime.known()
    assert stranger.is_dir()
    stranger.rmdir()


async def test_a_compute_whose_switch_drifted_is_switched_back(weir: Weir, round_: ReconcilerActivities) -> None:
    created = await weir.project(name="drift")
    ident = created["endpoints"][0]["id"]
    await _set(weir, ident, full_page_writes=False)
    assert ident in (await round_.reconcile()).switched
    compute = (await weir.call("GET", f"/computes/{ident}"))["compute"]
    assert compute["full_page_writes"]["actual"] is False
    assert ident not in (await round_.reconcile()).switched
    # And a start keeps what is wanted.
    process = weir.resources.runtime.process(ident)
    assert process is not None
    weir.resources.runtime.kill(process)

    async def queued() -> bool:
        return ident in (await round_.reconcile()).started

    await weir.wait(queued)
    await _project_is_idle(weir, created["project"]["id"])
    spec = weir.resources.runtime.spec(ident)
    assert spec is not None
    assert spec["full_page_writes"] is False


async def test_a_compute_whose_commits_wait_for_something_else_is_configured(
    weir: Weir, round_: ReconcilerActivities
) -> None:
    created = await weir.project(name="weaker than wanted")
    ident = created["endpoints"][0]["id"]
    assert ident not in (await round_.reconcile()).configured
    async with weir.resources.database.transaction() as session:
        branch = await session.get_one(Branch, created["branch"]["id"])
        branch.durability = Durability.APPLY
    assert ident in (await round_.reconcile()).configured
    await _project_is_idle(weir, created["project"]["id"])
    level = (await weir.call("GET", f"/computes/{ident}"))["compute"]["durability"]
    assert level == {"wanted": "apply", "actual": "apply"}
    assert ident not in (await round_.reconcile()).configured
    # And a policy of the installation that is new with the worker's start.
    async with weir.resources.database.transaction() as session:
        branch = await session.get_one(Branch, created["branch"]["id"])
        branch.durability = Durability.OFF
    assert ident in (await round_.reconcile()).configured
    await _project_is_idle(weir, created["project"]["id"])
    strict = weir.resources.settings.model_copy(update={"durability_forbid": "off,receive"})
    assert ident in (await ReconcilerActivities(replace(weir.resources, settings=strict)).reconcile()).configured


async def test_a_fleet_larger_than_a_round_is_gone_round_in_parts(
    weir: Weir, round_: ReconcilerActivities, monkeypatch: pytest.MonkeyPatch
) -> None:
    idents = [(await weir.project(name=f"part-{n}"))["endpoints"][0]["id"] for n in range(3)]
    for ident in idents:
        await _set(weir, ident, full_page_writes=False)
    monkeypatch.setattr(activities, "COMPUTES_A_ROUND", 1)
    switched: list[str] = []
    for _ in range(await _live_endpoints(weir) + 2):
        found = (await round_.reconcile()).switched
        # One of the part, and one whose state is not what is wanted.
        assert len(found) <= 2
        switched += found
    assert sorted(set(switched) & set(idents)) == sorted(idents)


async def _live_endpoints(weir: Weir) -> int:
    async with weir.resources.database.transaction() as session:
        return len((await session.scalars(select(Endpoint.id).where(Endpoint.deleted_at.is_(None)))).all())


def test_backoff_grows_to_a_limit() -> None:
    assert [backoff(n).total_seconds() for n in range(7)] == [2, 4, 8, 16, 32, 60, 60]
