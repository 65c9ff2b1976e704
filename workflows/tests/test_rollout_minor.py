"""Rollouts of a minor of Postgres: computes are restarted onto it, and where that goes wrong they come back."""

import shutil
from collections.abc import Generator
from typing import Any

import pytest
from sqlalchemy import update
from test_rollout_controls import BARE, states
from test_rollout_wishes import member
from weir_testing.fixtures import Weir
from weir_testing.fleet import Fleet

from weir import postgres_versions
from weir.endpoints.models import Endpoint
from weir.rollouts.run.restarts import minors_needed
from weir_workflows.reconciler.activities import ReconcilerActivities

NEW = "15.99"


@pytest.fixture(name="installed")
def _installed(weir: Weir) -> str:
    version = postgres_versions.installed(weir.settings.pg_bin_dir)
    assert version is not None
    return version


@pytest.fixture(name="new")
def _new(installed: str, weir: Weir) -> Generator[Any]:
    """Makes a newer minor appear, of whose files the doubles need the name alone; it goes with the test."""
    folder = weir.settings.servers_dir / NEW

    def appear() -> str:
        assert postgres_versions.order(NEW) > postgres_versions.order(installed)
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "postgres").touch()
        return NEW

    yield appear
    shutil.rmtree(folder, ignore_errors=True)


async def versions(fleet: Fleet, compute: str) -> tuple[str, str]:
    """(wanted, running)."""
    found = (await fleet.weir.call("GET", f"/computes/{compute}"))["compute"]
    return found["wanted_postgres_version"], found["postgres_version"]


async def test_waves_bring_everyone_onto_the_newest_minor_and_a_rollback_back(
    fleet: Fleet, new: Any, installed: str
) -> None:
    ids = await fleet.add(3)
    assert {await versions(fleet, compute) for compute in ids} == {(installed, installed)}
    new()
    ident = await fleet.start_of("postgres_minor")
    rollout = await fleet.get(ident)
    assert rollout["plan"]["target_version"] == rollout["strategy"]["target_version"] == NEW
    assert [wave["computes"] for wave in rollout["plan"]["waves"]] == [1, 2]
    assert rollout["plan"]["expected_wal_saved_bytes_per_second"] is None
    (canary,) = await fleet.wave(ident, 0)
    await fleet.until_member(ident, "baking")
    assert await versions(fleet, canary) == (NEW, NEW)
    # The rest runs on untouched while the canary bakes, and what it runs is not taken away.
    assert {await versions(fleet, other) for other in set(ids) - {canary}} == {(installed, installed)}
    async with fleet.weir.resources.database.transaction() as session:
        assert {installed, NEW} <= await minors_needed(session)

    done = await fleet.until(ident, "completed")
    for item in done["computes"]:
        assert (item["state"], item["previous_version"], item["target_version"]) == ("passed", installed, NEW), item
        assert 0 < item["downtime_seconds"] < 30
        assert item["fpw_change_lsn"] is None
        assert f"on {NEW}, after {installed}; it accepted no connections for" in item["reason"]
        evidence = item["evidence"]
        assert evidence["metrics"]["downtime_seconds"]["after"] == item["downtime_seconds"]
        names = {bound["name"] for bound in evidence["bounds"]}
        assert {"no faults", "no restarts", "commit_p99_seconds"} <= names
        assert not {"images", "chain length"} & names
        assert await versions(fleet, item["compute_id"]) == (NEW, NEW)
        # A minor is not image pushdown: that one is as it was.
        assert await fleet.switch_of(item["compute_id"]) == (True, True)
    again = await fleet.weir.call(
        "POST",
        "/rollouts/plan",
        json={
            "feature": "postgres_minor",
            "selector": {"project_ids": [item["project"]["id"] for item in fleet.projects]},
        },
    )
    assert {item["code"] for item in again["plan"]["excluded"]} == {"already_on"}
    async with fleet.weir.resources.database.transaction() as session:
        assert installed in await minors_needed(session)

    await fleet.control(ident, "rollback")
    back = await fleet.until(ident, "rolled_back")
    for item in back["computes"]:
        assert item["state"] == "rolled_back"
        assert item["rollback_lsn"] is not None
        assert 0 < item["back_downtime_seconds"] < 30
        assert await versions(fleet, item["compute_id"]) == (installed, installed)
    page = await fleet.weir.call("GET", f"/rollouts/{ident}/report", params={"format": "json"})
    assert "Another minor of Postgres" in page["feature_in_words"]


async def test_a_compute_that_does_not_come_up_goes_back_and_holds_the_wave(
    fleet: Fleet, new: Any, installed: str
) -> None:
    (bad,) = await fleet.add(1, test__mode=f"fail-on-{NEW}")
    (other,) = await fleet.add(1)
    new()
    ident = await fleet.start_of("postgres_minor", waves=[{"percent": 100}])
    held = await fleet.until(ident, "held")
    rows = {item["compute_id"]: item for item in held["computes"]}
    assert rows[bad]["state"] == "failed"
    assert f"Postgres {NEW} did not come up" in rows[bad]["reason"]
    assert rows[bad]["reason"].endswith("; runs its previous minor again")
    assert await versions(fleet, bad) == (installed, installed)
    assert held["waves"][0]["state"] == "failed"
    # On a crowded machine its windows may hold too few commits for a verdict. Either way it stays where it is.
    assert rows[other]["state"] in {"passed", "inconclusive"}, rows[other]["reason"]
    assert await versions(fleet, other) == (NEW, NEW)
    await fleet.control(ident, "abort")
    await fleet.until(ident, "aborted")
    assert await versions(fleet, other) == (NEW, NEW)


async def test_a_compute_that_is_slower_on_the_new_minor_goes_back(fleet: Fleet, new: Any, installed: str) -> None:
    (bad,) = await fleet.add(1, test__mode=f"slow-on-{NEW}")
    new()
    ident = await fleet.start_of("postgres_minor", waves=[{"count": 1}])
    held = await fleet.until(ident, "held")
    (item,) = held["computes"]
    assert item["state"] == "regressed", item
    # Which quantile it is depends on how many commits a window had.
    assert item["reason"].startswith("commit p9")
    assert item["reason"].endswith("; runs its previous minor again")
    assert await versions(fleet, bad) == (installed, installed)
    await fleet.control(ident, "abort")
    await fleet.until(ident, "aborted")


async def test_a_suspended_compute_takes_the_minor_at_its_next_start(fleet: Fleet, new: Any, installed: str) -> None:
    compute, other = await fleet.add(2)
    path = f"/projects/{fleet.projects[0]['project']['id']}/endpoints/{compute}"
    await fleet.weir.finish(await fleet.weir.call("POST", f"{path}/suspend"))
    new()
    ident = await fleet.start_of("postgres_minor", **BARE)
    done = await fleet.until(ident, "completed")
    assert done["counts"] == {"passed": 1, "deferred": 1}
    assert (await versions(fleet, compute))[0] == NEW
    await fleet.weir.finish(await fleet.weir.call("POST", f"{path}/start"))
    assert await versions(fleet, compute) == (NEW, NEW)
    await ReconcilerActivities(fleet.weir.resources).reconcile()
    assert await states(fleet, ident) == {compute: "passed", other: "passed"}
    # Rolled back while it is suspended again, it takes the old one at its next start, and the member learns of it.
    await fleet.weir.finish(await fleet.weir.call("POST", f"{path}/suspend"))
    await fleet.control(ident, "rollback")
    await fleet.until(ident, "rolled_back")
    await fleet.weir.finish(await fleet.weir.call("POST", f"{path}/start"))
    assert await versions(fleet, compute) == (installed, installed)
    assert (await member(fleet, ident, compute)).rollback_lsn is None
    await ReconcilerActivities(fleet.weir.resources).reconcile()
    assert (await member(fleet, ident, compute)).rollback_lsn is not None


async def test_the_reconciler_finishes_a_restart_that_was_cut_off(fleet: Fleet, new: Any, installed: str) -> None:
    """And restarts nobody else."""
    cut_off, other = await fleet.add(2)
    new()
    round_ = ReconcilerActivities(fleet.weir.resources)
    await round_.reconcile()
    assert {await versions(fleet, compute) for compute in (cut_off, other)} == {(installed, installed)}
    async with fleet.weir.resources.database.transaction() as session:
        await session.execute(update(Endpoint).where(Endpoint.id == cut_off).values(postgres_version=NEW))

    async def there() -> bool:
        await round_.reconcile()
        found = (await fleet.weir.call("GET", f"/computes/{cut_off}"))["compute"]
        return found["state"] == "active" and found["postgres_version"] == NEW

    await fleet.weir.wait(there)
    assert await versions(fleet, other) == (installed, installed)


async def test_a_minor_that_is_not_here_is_refused_with_those_that_are(fleet: Fleet, installed: str) -> None:
    await fleet.add(1)
    body: dict[str, Any] = {"feature": "postgres_minor", "strategy": {"target_version": "15.98"}}
    answer = await fleet.weir.call("POST", "/rollouts/plan", 400, json=body)
    assert "15.98 is not installed here" in answer["message"]
    assert installed in answer["message"]
    wrong = {"feature": "image_pushdown", "strategy": {"target_version": installed}}
    assert "postgres_minor" in (await fleet.weir.call("POST", "/rollouts/plan", 400, json=wrong))["message"]
