"""How far back a project goes: the window reaches storage, and what is older is refused with what is there."""

import pytest
from weir_testing.fixtures import Weir

from weir_workflows.reconciler import storage
from weir_workflows.reconciler.storage import repair_tenants


def _window(weir: Weir, created: dict[str, dict[str, str]]) -> object:
    return weir.storage.tenants[created["project"]["tenant_id"]].get("history_window_seconds")


async def test_the_history_window_of_a_project_reaches_storage_and_is_kept_there(weir: Weir) -> None:
    created = await weir.project(name="window", history_retention_seconds=86_400)
    assert _window(weir, created) == 86_400
    path = f"/projects/{created['project']['id']}"
    changed = await weir.call("PATCH", path, json={"project": {"history_retention_seconds": 3_600}})
    assert [item["action"] for item in changed["operations"]] == ["apply_storage_config"]
    await weir.finish(changed)
    assert _window(weir, created) == 3_600
    again = await weir.call("PATCH", path, json={"project": {"history_retention_seconds": 3_600, "name": "same"}})
    assert again["operations"] == []
    # None at all still leaves storage the minutes that a branch being made needs.
    await weir.finish(await weir.call("PATCH", path, json={"project": {"history_retention_seconds": 0}}))
    assert _window(weir, created) == 300
    assert (await weir.call("GET", path))["project"]["history_retention_seconds"] == 0
    # Storage that was given other settings gets the project's again.
    tenant = created["project"]["tenant_id"]
    weir.storage.tenants[tenant]["history_window_seconds"] = 77
    assert tenant in await repair_tenants(weir.resources)
    assert _window(weir, created) == 300
    assert tenant not in await repair_tenants(weir.resources)


async def test_a_round_repairs_so_many_tenants_and_storage_that_refuses_keeps_none_from_it(
    weir: Weir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand tenants with another setting are not one round's work, which has to end in its time."""
    monkeypatch.setattr(storage, "TENANTS_A_ROUND", 1)
    created = [await weir.project(name=f"repaired-{number}") for number in range(2)]
    first, second = (item["project"]["tenant_id"] for item in created)
    for tenant in (first, second):
        weir.storage.tenants[tenant]["history_window_seconds"] = 77
    weir.storage.fail("pageserver", "PATCH", first, 400, times=1_000)
    repaired = [await repair_tenants(weir.resources) for _ in range(40)]
    assert max(len(tenants) for tenants in repaired) == 1
    assert [second] in repaired
    assert weir.storage.tenants[first]["history_window_seconds"] == 77


async def test_a_project_without_a_wish_keeps_a_week(weir: Weir) -> None:
    created = await weir.project(name="week")
    assert _window(weir, created) == 7 * 86_400


async def test_what_is_older_than_the_history_is_refused_with_the_oldest_there_is(weir: Weir) -> None:
    created = await weir.project(name="trimmed")
    path = f"/projects/{created['project']['id']}/branches"
    timeline = created["branch"]["timeline_id"]
    weir.storage.advance(timeline, "0/1900000")
    weir.storage.trim(timeline, "0/1800000", "2026-01-02T03:04:05.678901Z")
    for fields in ({"parent_lsn": "0/17FFFFF"}, {"parent_timestamp": "2026-01-02T03:04:05Z"}):
        refused = await weir.call("POST", path, 400, json={"branch": fields})
        for part in ("before the history", "0/1800000", "2026-01-02T03:04:05.678901Z", "604800"):
            assert part in refused["message"], refused
    refused = await weir.call("POST", path, 400, json={"branch": {"parent_lsn": "0/1900001"}})
    assert "0/1900000" in refused["message"], refused
    await weir.finish(await weir.call("POST", path, 201, json={"branch": {"parent_lsn": "0/1800000"}}))


async def test_branches_show_their_sizes_and_are_listed_without_when_storage_is_away(weir: Weir) -> None:
    created = await weir.project(name="sizes")
    path = f"/projects/{created['project']['id']}/branches"
    timeline = weir.storage.timelines[created["branch"]["timeline_id"]]
    timeline |= {"current_logical_size": 31_457_280, "history_bytes": 1_048_576}
    (listed,) = (await weir.call("GET", path))["branches"]
    single = (await weir.call("GET", f"{path}/{created['branch']['id']}"))["branch"]
    for branch in (listed, single):
        assert (branch["logical_size"], branch["history_size"]) == (31_457_280, 1_048_576)
    weir.storage.fail("pageserver", "GET", "/timeline", 503, times=10)
    (listed,) = (await weir.call("GET", path))["branches"]
    assert listed["name"] == "main"
    assert listed.get("logical_size") is None


async def test_a_quota_reaches_running_computes_and_those_that_start_later(weir: Weir) -> None:
    created = await weir.project(name="quota")
    project, endpoint = created["project"]["id"], created["endpoints"][0]["id"]

    def given(limit: str = "storage_quota_bytes") -> object:
        spec = weir.resources.runtime.spec(endpoint)
        return spec and spec[limit]

    assert given() is None
    body = {"project": {"settings": {"quota": {"logical_size_bytes": 100_000_000}}}}
    changed = await weir.call("PATCH", f"/projects/{project}", json=body)
    assert changed["project"]["branch_logical_size_limit_bytes"] == 100_000_000
    assert [item["action"] for item in changed["operations"]] == ["apply_config"]
    await weir.finish(changed)
    assert given() == 100_000_000
    again = await weir.call("PATCH", f"/projects/{project}", json={"project": {"name": "other"}})
    assert again["operations"] == []
    assert again["project"]["settings"]["quota"] == {"logical_size_bytes": 100_000_000}
    body = {"project": {"settings": {"quota": {"logical_size_bytes": 0}}}}
    await weir.finish(await weir.call("PATCH", f"/projects/{project}", json=body))
    assert given() is None
    assert given("wal_bytes_per_second") is None
    body = {"project": {"settings": {"quota": {"wal_bytes_per_second": 4_000_000}}}}
    await weir.finish(await weir.call("PATCH", f"/projects/{project}", json=body))
    assert given("wal_bytes_per_second") == 4_000_000
    # One limit leaves the other as it is.
    body = {"project": {"settings": {"quota": {"logical_size_bytes": 7_000_000}}}}
    kept = await weir.call("PATCH", f"/projects/{project}", json=body)
    await weir.finish(kept)
    limits = {"logical_size_bytes": 7_000_000, "wal_bytes_per_second": 4_000_000}
    assert kept["project"]["settings"]["quota"] == limits
    body = {"project": {"settings": {"quota": {"wal_bytes_per_second": 1000}}}}
    refused = await weir.call("PATCH", f"/projects/{project}", 400, json=body)
    assert "at least 262144" in refused["message"]
    body = {"project": {"settings": {"quota": {"compute_time_seconds": 1}}}}
    refused = await weir.call("PATCH", f"/projects/{project}", 400, json=body)
    assert "quota.compute_time_seconds" in refused["message"]
