"""Every step of every workflow repeated, and every step failed: the same end, or nothing left behind."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from weir_testing import programs
from weir_testing.chaos import Chaos
from weir_testing.fixtures import Weir, control_plane, own_database
from weir_testing.storage import StorageDouble

from weir.config import Settings
from weir.rollouts.messages import batch_workflow_id
from weir_workflows.reconciler.activities import ReconcilerActivities
from weir_workflows.worker import activities_of


@pytest.fixture(name="chaos")
def _chaos() -> Chaos:
    return Chaos()


@pytest.fixture(name="shaky")
async def _shaky(
    environment: Settings, postgres_url: str, storage: StorageDouble, chaos: Chaos
) -> AsyncGenerator[Weir]:
    """A control plane of its own whose activities obey `chaos`."""
    del environment
    async with (
        own_database(postgres_url, WEIR_TASK_QUEUE=f"shaky-{programs.free_port()}") as settings,
        control_plane(settings, storage, [chaos]) as weir,
    ):
        yield weir


async def _statuses(weir: Weir, project_id: str) -> dict[str, str]:
    async def ended() -> dict[str, str] | None:
        operations = (await weir.call("GET", f"/projects/{project_id}/operations"))["operations"]
        if any(item["status"] in {"running", "scheduling"} for item in operations):
            return None
        return {item["action"]: item["status"] for item in reversed(operations)}

    return await weir.wait(ended)


async def _cancel_a_detach(weir: Weir, branch: str) -> None:
    before = (await weir.call("GET", branch))["branch"]
    weir.storage.slow_detaches.add(before["timeline_id"])
    detached = await weir.call("POST", f"{branch}/detach")
    (operation,) = detached["operations"]

    async def under_way() -> bool:
        return before["timeline_id"] in weir.storage.detaching

    await weir.wait(under_way)
    await weir.call("POST", f"/projects/{operation['project_id']}/operations/{operation['id']}/cancel")
    await weir.finish(detached, expect="cancelled")
    weir.storage.slow_detaches.clear()
    assert (await weir.call("GET", branch))["branch"]["parent_id"] == before["parent_id"]


async def test_every_activity_can_run_twice(
    shaky: Weir, chaos: Chaos, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project's whole life, and a rollout with its way back, while every answer is lost once."""
    chaos.lose_answers = True
    directory = scratch / "prometheus-of-steps"
    directory.mkdir()
    with programs.prometheus(directory, f"{shaky.url}/internal/prometheus/targets") as url:
        monkeypatch.setattr(shaky.settings, "prometheus_url", url)
        created = await shaky.project(
            name="twice", default_endpoint_settings={"pg_settings": {"checkpoint_timeout": "5s"}}
        )
        project, endpoint = created["project"]["id"], created["endpoints"][0]["id"]
        process = shaky.resources.runtime.process(endpoint)
        await _roll_out_and_back(shaky, project)
        await _interfere(shaky, project, endpoint)
        assert shaky.resources.runtime.process(endpoint) == process
    branches, endpoints = f"/projects/{project}/branches", f"/projects/{project}/endpoints"
    branch = await shaky.call("POST", branches, 201, json={"endpoints": [{"type": "read_write"}]})
    await shaky.finish(branch)
    body = {"source_branch_id": created["branch"]["id"]}
    await shaky.finish(await shaky.call("POST", f"{branches}/{branch['branch']['id']}/restore", json=body))
    await _cancel_a_detach(shaky, f"{branches}/{branch['branch']['id']}")
    await shaky.finish(await shaky.call("POST", f"{branches}/{branch['branch']['id']}/detach"))
    body = {"project": {"history_retention_seconds": 86_400}}
    await shaky.finish(await shaky.call("PATCH", f"/projects/{project}", json=body))
    restored = (await shaky.call("GET", f"{branches}/{branch['branch']['id']}"))["branch"]
    assert restored["timeline_id"] != branch["branch"]["timeline_id"]
    body = {"endpoint": {"settings": {"pg_settings": {"work_mem": "8MB"}}}}
    await shaky.finish(await shaky.call("PATCH", f"{endpoints}/{endpoint}", json=body))
    safekeepers = f"{branches}/{created['branch']['id']}/safekeepers"
    await shaky.finish(await shaky.call("POST", safekeepers, json={"safekeepers": [2, 3, 4]}))
    assert shaky.storage.members.voters(created["branch"]["timeline_id"]) == [2, 3, 4]
    for verb in ("suspend", "start", "restart"):
        await shaky.finish(await shaky.call("POST", f"{endpoints}/{endpoint}/{verb}"))
    await shaky.finish(await shaky.call("DELETE", f"{branches}/{branch['branch']['id']}"))
    assert not {branch["branch"]["timeline_id"], restored["timeline_id"]} & set(shaky.storage.timelines)
    await shaky.finish(await shaky.call("DELETE", f"/projects/{project}"))
    assert created["project"]["tenant_id"] not in shaky.storage.tenants

    chaos.lose_answers = False
    await _failed_start_and_project(shaky, chaos)
    names = {function.__name__ for function in activities_of(shaky.resources)}
    assert names - set(chaos.runs) == {"reconcile"}, "these activities were never run twice here"


async def _roll_out_and_back(weir: Weir, project: str) -> None:
    windows = {"baseline_seconds": 5, "bake_seconds": 5, "settle_seconds": 0, "soak_seconds": 0}
    strategy = {**windows, "judge_by": "bounds", "waves": [{"count": 1}]}
    body = {"selector": {"project_ids": [project]}, "strategy": strategy}
    rollout = (await weir.call("POST", "/rollouts", 201, json=body))["rollout"]["id"]

    async def reached(status: str) -> bool:
        return (await weir.call("GET", f"/rollouts/{rollout}"))["rollout"]["status"] == status

    await weir.wait(lambda: reached("completed"), 180)
    await weir.call("POST", f"/rollouts/{rollout}/rollback")
    await weir.wait(lambda: reached("rolled_back"), 180)
    (member,) = (await weir.call("GET", f"/rollouts/{rollout}/computes"))["computes"]
    assert member["evidence"]["verdict"] == "pass"


async def _interfere(weir: Weir, project: str, endpoint: str) -> None:
    """A batch ended from outside, and every control that is about a part or stops the whole."""
    strategy = {"baseline_seconds": 60, "bake_seconds": 60, "judge_by": "bounds", "waves": [{"count": 1}]}
    body = {"selector": {"project_ids": [project]}, "strategy": strategy}
    rollout = (await weir.call("POST", "/rollouts", 201, json=body))["rollout"]["id"]

    async def state() -> str:
        (member,) = (await weir.call("GET", f"/rollouts/{rollout}/computes"))["computes"]
        return member["state"]

    async def is_state(wanted: str) -> bool:
        return await state() == wanted

    async def is_status(wanted: str) -> bool:
        return (await weir.call("GET", f"/rollouts/{rollout}"))["rollout"]["status"] == wanted

    await weir.wait(lambda: is_state("baseline"), 180)
    await weir.temporal.get_workflow_handle(batch_workflow_id(rollout, 0)).terminate("the test ends it")
    await weir.wait(lambda: is_state("failed"), 180)
    await weir.wait(lambda: is_status("held"), 180)
    await weir.call("POST", f"/rollouts/{rollout}/skip", json={"compute_id": endpoint})
    await weir.call("POST", f"/rollouts/{rollout}/rollback", json={"scope": "compute", "compute_id": endpoint})
    await weir.call("POST", f"/rollouts/{rollout}/abort")
    await weir.wait(lambda: is_status("aborted"), 180)


async def _failed_start_and_project(weir: Weir, chaos: Chaos) -> None:
    """The compensations, which only run when something fails."""
    chaos.lose_answers = True
    settings = {"pg_settings": {"test.mode": "fail"}}
    created = await weir.call("POST", "/projects", 201, json={"project": {"default_endpoint_settings": settings}})
    assert (await _statuses(weir, created["project"]["id"]))["start_compute"] == "failed"
    chaos.lose_answers = False


@pytest.mark.parametrize("step", ["create_tenant", "create_timeline", "create_on_safekeepers", "mark_branch_ready"])
async def test_a_project_whose_creation_fails_at_any_step_leaves_nothing(
    shaky: Weir, chaos: Chaos, step: str
) -> None:
    chaos.fail = {step}
    created = await shaky.call("POST", "/projects", 201, json={"project": {"name": "never"}})
    statuses = await _statuses(shaky, created["project"]["id"])
    assert statuses == {"create_timeline": "failed", "start_compute": "skipped"}
    await shaky.call("GET", f"/projects/{created['project']['id']}", 404)
    assert (await shaky.call("GET", "/projects"))["projects"] == []
    _nothing_of(shaky, created)


@pytest.mark.parametrize(
    "step", ["resolve_branch_point", "create_timeline", "create_on_safekeepers", "mark_branch_ready"]
)
async def test_a_branch_whose_creation_fails_at_any_step_leaves_nothing(shaky: Weir, chaos: Chaos, step: str) -> None:
    created = await shaky.project(name="parent")
    shaky.storage.advance(created["branch"]["timeline_id"], "0/1800000")
    chaos.fail = {step}
    path = f"/projects/{created['project']['id']}/branches"
    made = await shaky.call("POST", path, 201, json={"endpoints": [{"type": "read_write"}]})
    statuses = await _statuses(shaky, created["project"]["id"])
    assert statuses["create_branch"] == "failed"
    assert [branch["name"] for branch in (await shaky.call("GET", path))["branches"]] == ["main"]
    endpoints = (await shaky.call("GET", f"/projects/{created['project']['id']}/endpoints"))["endpoints"]
    assert [item["id"] for item in endpoints] == [created["endpoints"][0]["id"]]
    assert made["branch"]["timeline_id"] not in shaky.storage.timelines
    assert not any(made["branch"]["timeline_id"] in keeper for keeper in shaky.storage.keepers)
    # The project is free for the next try.
    chaos.fail = set()
    await shaky.finish(await shaky.call("POST", path, 201, json={}))


async def test_a_restore_that_fails_at_any_step_leaves_the_branch_as_it_was(shaky: Weir, chaos: Chaos) -> None:
    created = await shaky.project(name="restored")
    main, endpoint = created["branch"], created["endpoints"][0]["id"]
    shaky.storage.advance(main["timeline_id"], "0/1900000")
    path = f"/projects/{created['project']['id']}/branches"
    body = {"source_branch_id": main["id"], "source_lsn": "0/1700000", "preserve_under_name": "before"}
    for step in ("create_timeline", "stop_compute", "exchange_timelines"):
        chaos.fail = {step}
        await shaky.call("POST", f"{path}/{main['id']}/restore", json=body)
        assert "failed" in (await _statuses(shaky, created["project"]["id"])).values()
        assert [branch["name"] for branch in (await shaky.call("GET", path))["branches"]] == ["main"]
        assert (await shaky.call("GET", f"{path}/{main['id']}"))["branch"]["timeline_id"] == main["timeline_id"]
        assert shaky.resources.runtime.process(endpoint) is not None
    chaos.fail = set()
    # And the next try is free to use the name.
    await shaky.finish(await shaky.call("POST", f"{path}/{main['id']}/restore", json=body))
    by_name = {branch["name"]: branch for branch in (await shaky.call("GET", path))["branches"]}
    assert sorted(by_name) == ["before", "main"]
    assert by_name["before"]["timeline_id"] == main["timeline_id"]
    assert by_name["main"]["parent_id"] == by_name["before"]["id"]


async def test_a_restore_is_done_once_exchanged_though_no_compute_starts(shaky: Weir, chaos: Chaos) -> None:
    """The replaced state goes as was asked, the operation says what does not run, and that is started in the end."""
    created = await shaky.project(name="exchanged")
    shaky.storage.advance(created["branch"]["timeline_id"], "0/1900000")
    path = f"/projects/{created['project']['id']}/branches"
    made = await shaky.call("POST", path, 201, json={"endpoints": [{"type": "read_write"}]})
    await shaky.finish(made)
    branch, endpoint = made["branch"], made["endpoints"][0]["id"]
    chaos.fail = {"start_compute"}
    body = {"source_branch_id": created["branch"]["id"]}
    ended = await shaky.finish(await shaky.call("POST", f"{path}/{branch['id']}/restore", json=body))
    actions = [item["action"] for item in ended]
    assert actions == ["create_branch", "swap_binding_id", "delete_timeline"]
    assert endpoint in ended[1]["warning"]
    assert "start_compute was told to fail" in ended[1]["warning"]
    assert [item.get("error") for item in ended] == [None] * 3
    assert branch["timeline_id"] not in shaky.storage.timelines
    chaos.fail = set()
    assert endpoint in (await ReconcilerActivities(shaky.resources).reconcile()).started


async def test_a_restore_that_fails_starts_its_computes_though_storage_is_away(shaky: Weir, chaos: Chaos) -> None:
    created = await shaky.project(name="undone")
    main, endpoint = created["branch"], created["endpoints"][0]["id"]
    shaky.storage.advance(main["timeline_id"], "0/1900000")
    path = f"/projects/{created['project']['id']}/branches"
    chaos.fail = {"exchange_timelines", "delete_timeline"}
    body = {"source_branch_id": main["id"], "source_lsn": "0/1700000", "preserve_under_name": "before"}
    answer = await shaky.call("POST", f"{path}/{main['id']}/restore", json=body)
    await _statuses(shaky, created["project"]["id"])
    exchange = f"/projects/{created['project']['id']}/operations/{answer['operations'][1]['id']}"
    error = (await shaky.call("GET", exchange))["operation"]["error"]
    assert "exchange_timelines was told to fail" in error
    assert "undoing it failed too: delete_timeline was told to fail" in error
    assert shaky.resources.runtime.process(endpoint) is not None


def _nothing_of(weir: Weir, created: dict[str, Any]) -> None:
    assert created["project"]["tenant_id"] not in weir.storage.tenants
    assert created["branch"]["timeline_id"] not in weir.storage.timelines
    assert not any(created["branch"]["timeline_id"] in keeper for keeper in weir.storage.keepers)
    assert created["endpoints"][0]["id"] not in weir.resources.runtime.known()


async def test_a_deletion_that_failed_half_way_is_finished_by_deleting_again(shaky: Weir, chaos: Chaos) -> None:
    created = await shaky.project(name="half")
    path = f"/projects/{created['project']['id']}"
    chaos.fail = {"delete_tenant"}
    await shaky.call("DELETE", path)
    assert "failed" in (await _statuses(shaky, created["project"]["id"])).values()
    assert "half deleted" in (await shaky.call("PATCH", path, 409, json={"project": {"name": "x"}}))["message"]
    chaos.fail = set()
    await shaky.finish(await shaky.call("DELETE", path))
    await shaky.call("GET", path, 404)
    _nothing_of(shaky, created)
