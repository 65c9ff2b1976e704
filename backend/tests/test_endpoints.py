"""Endpoints: start, suspend, restart, settings, deletion."""

import json
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from weir_testing.fixtures import Weir
from weir_testing.storage import Server

from weir.endpoints.models import Endpoint
from weir_workflows.reconciler.activities import ReconcilerActivities


async def test_suspend_and_start_again_on_the_same_address(weir: Weir) -> None:
    created = await weir.project(name="cycle")
    endpoint = created["endpoints"][0]
    path = f"/projects/{created['project']['id']}/endpoints/{endpoint['id']}"
    suspended = await weir.call("POST", f"{path}/suspend")
    await weir.finish(suspended)
    assert weir.resources.runtime.process(endpoint["id"]) is None
    assert (await weir.call("GET", path))["endpoint"]["current_state"] == "idle"
    assert (await weir.call("GET", f"/computes/{endpoint['id']}"))["compute"]["state"] == "idle"
    assert (await weir.call("POST", f"{path}/suspend"))["operations"] == []

    started = await weir.call("POST", f"{path}/start")
    await weir.finish(started)
    assert started["endpoint"]["port"] == endpoint["port"]
    assert weir.resources.runtime.process(endpoint["id"]) is not None


async def test_restart_replaces_the_process(weir: Weir) -> None:
    created = await weir.project(name="restart")
    ident = created["endpoints"][0]["id"]
    before = weir.resources.runtime.process(ident)
    path = f"/projects/{created['project']['id']}/endpoints/{ident}"
    await weir.finish(await weir.call("POST", f"{path}/restart"))
    after = weir.resources.runtime.process(ident)
    assert before is not None
    assert after is not None
    assert before.pid != after.pid


async def test_settings_reach_the_running_compute(weir: Weir) -> None:
    created = await weir.project(
        name="settings",
        default_endpoint_settings={"pg_settings": {"checkpoint_timeout": "30s", "max_wal_size": "64MB"}},
    )
    ident = created["endpoints"][0]["id"]
    runtime = weir.resources.runtime
    spec = runtime.spec(ident)
    assert spec is not None
    assert spec["settings"] == {"checkpoint_timeout": "30s", "max_wal_size": "64MB"}
    assert spec["roles"][0]["password"].startswith("SCRAM-SHA-256$4096:")
    assert spec["databases"] == [{"name": "appdb", "owner": "app_owner"}]

    path = f"/projects/{created['project']['id']}/endpoints/{ident}"
    body = {"endpoint": {"settings": {"pg_settings": {"work_mem": "8MB", "jit": False}}}}
    changed = await weir.call("PATCH", path, json=body)
    assert [item["action"] for item in changed["operations"]] == ["apply_config"]
    await weir.finish(changed)
    spec = runtime.spec(ident)
    assert spec is not None
    assert spec["settings"] == {"work_mem": "8MB", "jit": "off"}
    assert (await weir.call("PATCH", path, json=body))["operations"] == []


async def test_what_is_shown_of_a_setting_is_what_the_compute_says(weir: Weir) -> None:
    created = await weir.project(name="in force", default_endpoint_settings={"pg_settings": {"Work_Mem": "8MB"}})
    ident, project = created["endpoints"][0]["id"], created["project"]["id"]
    path = f"/projects/{project}/endpoints/{ident}"

    async def shown() -> list[dict[str, Any]]:
        return (await weir.call("GET", f"/computes/{ident}/settings"))["settings"]

    in_force = {"name": "work_mem", "wanted": "8MB", "in_force": "8MB", "state": "in_force", "reason": None}
    assert await shown() == [in_force]
    # Not one that the double was given yet.
    async with weir.resources.database.transaction() as session:
        (await session.get_one(Endpoint, ident)).pg_settings = {"work_mem": "9MB"}
    [setting] = await shown()
    assert (setting["state"], setting["wanted"], setting["in_force"]) == ("applying", "9MB", "8MB")

    refusal = json.dumps({"work_mem": "Postgres refuses it"})
    body = {"endpoint": {"settings": {"pg_settings": {"work_mem": "7MB", "test.refused": refusal}}}}
    await weir.finish(await weir.call("PATCH", path, json=body))
    of_name = {setting["name"]: setting for setting in await shown()}
    assert of_name["work_mem"]["state"] == "failed"
    assert of_name["work_mem"]["reason"] == "Postgres refuses it"

    cleared = await weir.call("PATCH", path, json={"endpoint": {"settings": {"pg_settings": {}}}})
    await weir.finish(cleared)
    assert await shown() == []
    body = {"endpoint": {"settings": {"pg_settings": {"jit": True}}}}
    await weir.finish(await weir.call("POST", f"{path}/suspend"))
    await weir.call("PATCH", path, json=body)
    [setting] = await shown()
    assert (setting["name"], setting["state"], setting["in_force"]) == ("jit", "unknown", None)


async def test_settings_that_postgres_refused_are_the_warning_of_later_changes(weir: Weir) -> None:
    refusal = json.dumps([{"name": "timezone", "reason": "Postgres refuses it"}])
    created = await weir.project(
        name="refused before", default_endpoint_settings={"pg_settings": {"test.failed": refusal}}
    )
    path = f"/projects/{created['project']['id']}/branches/{created['branch']['id']}/roles"
    made = await weir.call("POST", path, 201, json={"role": {"name": "another"}})
    [ended] = await weir.finish(made)
    assert ended["status"] == "finished"
    assert "timezone is not in force: Postgres refuses it" in ended["warning"]


async def test_a_start_that_fails_says_why_and_is_given_up(weir: Weir) -> None:
    created = await weir.project(name="broken")
    ident = created["endpoints"][0]["id"]
    path = f"/projects/{created['project']['id']}/endpoints/{ident}"
    await weir.finish(await weir.call("POST", f"{path}/suspend"))
    # Not applied: the compute is idle, and reads it when it starts.
    body = {"endpoint": {"settings": {"pg_settings": {"test.mode": "fail"}}}}
    assert (await weir.call("PATCH", path, json=body))["operations"] == []
    started = await weir.call("POST", f"{path}/start")
    ended = await weir.finish(started, expect="failed")
    assert "the double was told to fail" in ended[0]["error"]
    endpoint = (await weir.call("GET", path))["endpoint"]
    assert endpoint["current_state"] == "idle"
    assert endpoint.get("pending_state") is None


async def test_a_deleted_endpoint_frees_its_branch_and_port(weir: Weir) -> None:
    created = await weir.project(name="replace")
    endpoint, project = created["endpoints"][0], created["project"]["id"]
    await weir.finish(await weir.call("DELETE", f"/projects/{project}/endpoints/{endpoint['id']}"))
    await weir.call("GET", f"/projects/{project}/endpoints/{endpoint['id']}", 404)
    assert endpoint["id"] not in weir.resources.runtime.known()
    body = {"endpoint": {"branch_id": created["branch"]["id"], "type": "read_write"}}
    made = await weir.call("POST", f"/projects/{project}/endpoints", 201, json=body)
    await weir.finish(made)
    assert made["endpoint"]["id"] != endpoint["id"]


async def test_a_disabled_endpoint_does_not_start(weir: Weir) -> None:
    created = await weir.project(name="disabled")
    path = f"/projects/{created['project']['id']}/endpoints/{created['endpoints'][0]['id']}"
    await weir.finish(await weir.call("PATCH", path, json={"endpoint": {"disabled": True}}))
    assert "disabled" in (await weir.call("POST", f"{path}/start", 400))["message"]


async def test_compute_pages_show_what_the_agent_says(unmeasured: Weir) -> None:
    created = await unmeasured.project(name="live")
    ident = created["endpoints"][0]["id"]
    compute = (await unmeasured.call("GET", f"/computes/{ident}"))["compute"]
    assert compute["state"] == "active"
    assert compute["full_page_writes"] == {"wanted": True, "actual": True, "lsn": None}
    assert compute["start"]["total_ms"] == 10
    assert compute["project_name"] == "live"
    assert compute["commits_waiting"] == 2
    assert compute["commits_unconfirmed"] == {"canceled": 3, "terminated": 1, "stopped": 0}
    # Without Prometheus the page stands; it shows no rates.
    assert compute["rates"] is None
    listed = await unmeasured.call("GET", "/computes", params={"project_id": created["project"]["id"]})
    assert [item["id"] for item in listed["computes"]] == [ident]
    assert (await unmeasured.call("GET", f"/computes/{ident}/metrics", 503))["code"] == "DEPENDENCY_UNAVAILABLE"


async def test_starts_are_warm_unless_somebody_says_otherwise(weir: Weir) -> None:
    created = await weir.project(name="warm")
    ident = created["endpoints"][0]["id"]
    path = f"/projects/{created['project']['id']}/endpoints/{ident}"
    assert created["endpoints"][0]["prewarm"] is True

    async def said() -> dict[str, Any]:
        return (await weir.call("GET", f"/computes/{ident}"))["compute"]["prewarm"]

    told = {"state": "loaded", "pages_listed": 12, "pages_loaded": 11, "seconds": 0.5}
    assert told.items() <= (await said()).items()
    changed = await weir.call("PATCH", path, json={"endpoint": {"prewarm": False}})
    # From the next start on: a running compute has loaded what it has.
    assert (changed["endpoint"]["prewarm"], changed["operations"]) == (False, [])
    named = await weir.call("PATCH", path, json={"endpoint": {"name": "warm"}})
    assert named["endpoint"]["prewarm"] is False
    await weir.finish(await weir.call("POST", f"{path}/restart"))
    assert (await said())["state"] == "off"
    await weir.call("PATCH", path, 400, json={"endpoint": {"prewarm": "perhaps"}})


async def test_fleet_counts_computes_and_storage(unmeasured: Weir) -> None:
    await unmeasured.project(name="fleet")
    fleet = await unmeasured.call("GET", "/fleet")
    assert fleet["computes"]["total"] >= 1
    assert sum(fleet["computes"]["by_state"].values()) == fleet["computes"]["total"]
    assert fleet["wal"] is None
    storage = await unmeasured.call("GET", "/fleet/storage")
    assert [keeper["healthy"] for keeper in storage["safekeepers"]] == [True] * 5
    assert storage["pageservers"][0]["healthy"]
    unmeasured.storage.fail("safekeeper-3", "GET", "/healthz", 503)
    storage = await unmeasured.call("GET", "/fleet/storage")
    assert [keeper["healthy"] for keeper in storage["safekeepers"]] == [True, True, False, True, True]


async def test_service_discovery_names_every_process_prometheus_scrapes(weir: Weir) -> None:
    created = await weir.project(name="scraped")
    response = await weir.client.get("/internal/prometheus/targets")
    groups = {(group["labels"]["job"], group["targets"][0]): group["labels"] for group in response.json()}
    endpoint = created["endpoints"][0]
    labels = groups["compute", f"127.0.0.1:{endpoint['port'] + 1}"]
    assert labels == {
        "job": "compute",
        "project_id": created["project"]["id"],
        "branch_id": created["branch"]["id"],
        "endpoint_id": endpoint["id"],
        "region_id": created["project"]["region_id"],
    }
    assert {job for job, _ in groups} == {"api", "worker", "pageserver", "safekeeper", "compute"}


@pytest.mark.parametrize("body", ["", "[]", "not json", "{}"])
async def test_an_agent_that_answers_nonsense_is_one_failed_compute_and_no_broken_page(weir: Weir, body: str) -> None:
    created = await weir.project(name="nonsense")
    ident = created["endpoints"][0]["id"]

    async def nonsense(request: Request) -> Response:
        del request
        return Response(body, media_type="application/json")

    process = weir.resources.runtime.process(ident)
    assert process is not None
    weir.resources.runtime.kill(process)

    async def gone() -> bool:
        return not process.alive()

    await weir.wait(gone)
    with Server(Starlette(routes=[Route("/status", nonsense)]), created["endpoints"][0]["port"] + 1):
        compute = (await weir.call("GET", f"/computes/{ident}"))["compute"]
        assert compute["state"] == "failed"
        assert "cannot be understood" in compute["reason"]
        await ReconcilerActivities(weir.resources).reconcile()
    await weir.wait(lambda: _active(weir, ident))


async def _active(weir: Weir, ident: str) -> bool:
    """The reconciler's start has done its work."""
    return (await weir.call("GET", f"/computes/{ident}"))["compute"]["state"] == "active"
