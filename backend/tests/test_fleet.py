"""The fleet's summary: exact where every agent can be asked, from what is stored where there are too many."""

from typing import Any

import httpx
import pytest
from weir_testing.fixtures import Weir

from weir.clients.prometheus import LONGEST_IN_URL, Prometheus
from weir.computes import metrics, recorded
from weir.computes.metrics import Chart
from weir.fleet import service


async def test_a_small_fleets_states_are_asked_of_the_agents(weir: Weir) -> None:
    await weir.project(name="fleet-small")
    fleet = await weir.call("GET", "/fleet")
    assert fleet["computes"]["by_state_source"] == "agents"
    assert fleet["computes"]["by_state"]["active"] >= 1
    assert sum(fleet["computes"]["by_state"].values()) == fleet["computes"]["total"]
    assert fleet["compute_runtime"] == "local"


async def test_a_large_fleets_states_are_counted_as_stored(weir: Weir, monkeypatch: pytest.MonkeyPatch) -> None:
    created = await weir.project(name="fleet-large")
    before = (await weir.call("GET", "/fleet"))["computes"]
    monkeypatch.setattr(service, "AGENTS_ASKED", 0)
    stored = (await weir.call("GET", "/fleet"))["computes"]
    assert stored["by_state_source"] == "stored"
    assert stored["by_state"]["active"] == before["by_state"]["active"]
    assert (stored["total"], stored["pushdown_on"]) == (before["total"], before["pushdown_on"])
    project, endpoint = created["project"]["id"], created["endpoints"][0]["id"]
    await weir.finish(await weir.call("POST", f"/projects/{project}/endpoints/{endpoint}/suspend"))
    after = (await weir.call("GET", "/fleet"))["computes"]
    assert after["by_state"]["idle"] == stored["by_state"].get("idle", 0) + 1


async def test_wal_by_region_counts_every_compute_in_one_region(weir: Weir, monkeypatch: pytest.MonkeyPatch) -> None:
    """An account's regions are asked for by their computes; an operator's, which are everybody's, by name."""
    asked: list[tuple[str, bool]] = []

    async def chart(_prometheus: Prometheus, selector: str, *span: Any) -> Chart:
        asked.append((selector, span[-1] is recorded.WAL))
        return Chart([1.0], {"wal_image_bytes_per_second": [float(len(asked))], "wal_rest_bytes_per_second": [None]})

    monkeypatch.setattr(metrics, "chart", chart)
    async with weir.as_account("fleet-wal") as account:
        created = await account.project(name="fleet-wal")
        answer = await account.call("GET", "/fleet/wal")
        assert [(row["region_id"], row["computes"]) for row in answer["regions"]] == [("local", 1)]
        assert asked.pop() == (metrics.of_computes([created["endpoints"][0]["id"]]), False)
    cells = (await weir.call("GET", "/fleet/cells"))["cells"]
    answer = await weir.call("GET", "/fleet/wal")
    assert {region["region_id"] for region in answer["regions"]} == {cell["region_id"] for cell in cells}
    assert sum(region["computes"] for region in answer["regions"]) == sum(cell["computes"] for cell in cells)
    assert asked == [(f'region_id="{region["region_id"]}"', True) for region in answer["regions"]]
    assert all(region["wal_rest_bytes_per_second"] == [None] for region in answer["regions"])
    assert 0 <= answer["saved"]["computes_unknown"] <= answer["saved"]["computes"]


async def test_wal_by_region_says_that_metrics_cannot_be_read(unmeasured: Weir) -> None:
    await unmeasured.project(name="fleet-wal-dark")
    answer = await unmeasured.call("GET", "/fleet/wal", expect=503)
    assert "Prometheus" in answer["message"]


async def test_organizations_are_the_owners_of_computes_that_a_principal_sees(weir: Weir) -> None:
    async with weir.as_account("fleet-org-b") as second, weir.as_account("fleet-org-a") as first:
        await first.project(name="fleet-org")
        await second.project(name="fleet-org")
        (own,) = (await first.call("GET", "/fleet/organizations"))["organizations"]
        assert (own["name"], own["projects"], own["computes"], own["pushdown_on"]) == ("fleet-org-a", 1, 1, 0)
        asked = {"search": "FLEET-ORG", "limit": 1}
        assert (await first.call("GET", "/fleet/organizations", params=asked))["organizations"] == [own]

        page = await weir.call("GET", "/fleet/organizations", params=asked)
        rest = await weir.call("GET", "/fleet/organizations", params=asked | {"cursor": page["pagination"]["cursor"]})
        assert [row["name"] for row in page["organizations"] + rest["organizations"]] == [
            "fleet-org-a",
            "fleet-org-b",
        ]
        assert rest["pagination"]["cursor"] is None

        wanted = {"selector": {"org_ids": [rest["organizations"][0]["org_id"]]}}
        plan = (await weir.call("POST", "/rollouts/plan", json=wanted))["plan"]
        assert [item["org_id"] for item in plan["computes"]] == wanted["selector"]["org_ids"]


async def test_a_query_too_long_for_a_url_goes_as_a_form() -> None:
    seen: list[tuple[str, int]] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        await request.aread()
        seen.append((request.method, len(str(request.url))))
        return httpx.Response(200, json={"status": "success", "data": {"resultType": "vector", "result": []}})

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        prometheus = Prometheus("http://prometheus", client)
        await prometheus.instant("up")
        await prometheus.instant("up" * LONGEST_IN_URL)
    assert [method for method, _ in seen] == ["GET", "POST"]
    assert all(length < LONGEST_IN_URL for _, length in seen)
