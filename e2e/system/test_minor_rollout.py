"""A rollout of a minor of Postgres over real computes under load, and back: two real minors, nothing acknowledged
lost, and how long each compute was away."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from stack import Stack, running_stack, wait_for
from weirbench.api import Database, Weir
from weirbench.minors import INSTALLED, copy_into, other_minor
from weirbench.postgres import query
from weirbench.steady import Steady

from weir import postgres_versions

CLOSED = {"completed", "aborted", "rolled_back", "failed"}
# What a small machine that runs other tests may need; a second or two is usual.
LONGEST_SECONDS = 30.0


def say(text: str) -> None:
    """Into the test's captured output, which `pytest -rP` shows."""
    sys.stdout.write(text + "\n")


def minor(uri: str) -> str:
    return query(uri, "SHOW server_version").split()[0]


def until(api: Weir, rollout_id: str, status: str) -> dict[str, Any]:
    def there() -> dict[str, Any] | None:
        rollout = api.rollout(rollout_id)
        told = (rollout["status"], rollout["status_reason"], [item["reason"] for item in rollout["computes"]])
        assert rollout["status"] in {status, "planned", "running", "rolling_back"}, told
        return rollout if rollout["status"] == status else None

    return wait_for(f"the rollout to be {status}", there, 300)


@pytest.fixture(scope="module")
def minors() -> tuple[str, str]:
    """(the older, the newer) of the two minors that are here."""
    other = other_minor()
    if other is None:
        pytest.skip("NOT TESTED: a rollout between two minors of Postgres, since only one is here; run `make setup`")
    installed = postgres_versions.of_programs(INSTALLED)
    assert installed is not None
    older, newer = sorted((installed, other[0]), key=postgres_versions.order)
    return older, newer


def test_computes_move_onto_a_newer_minor_and_back_under_load(minors: tuple[str, str]) -> None:
    older, newer = minors
    other = other_minor()
    assert other is not None
    programs = {other[0]: other[1], postgres_versions.of_programs(INSTALLED): INSTALLED}
    with running_stack({"WEIR_PG_BIN_DIR": str(INSTALLED)}) as stack:
        copy_into(stack.home, programs[newer])
        copy_into(stack.home, programs[older])
        api = stack.api()
        databases = [api.create_database(f"minor-{index}", {"checkpoint_timeout": "30s"}) for index in range(2)]
        _onto(api, databases, older)
        assert {minor(each.uri) for each in databases} == {older}
        loads = [Steady(each.uri) for each in databases]
        for load in loads:
            load.start()
        try:
            _there_and_back(stack, api, databases, loads, minors)
        finally:
            for load in loads:
                load.finish()
        for load in loads:
            assert load.committed > 100
            assert load.missing() == []


def _onto(api: Weir, databases: list[Database], version: str) -> None:
    """Without windows: only that they run it."""
    if {minor(each.uri) for each in databases} == {version}:
        return
    strategy = {"waves": [{"percent": 100}], "baseline_seconds": 0, "bake_seconds": 0, "settle_seconds": 0}
    body = {"feature": "postgres_minor", "strategy": strategy | {"target_version": version}}
    until(api, api.request("POST", "/rollouts", body)["rollout"]["id"], "completed")


def _there_and_back(
    stack: Stack, api: Weir, databases: list[Database], loads: list[Steady], minors: tuple[str, str]
) -> None:
    older, newer = minors
    body = {
        "feature": "postgres_minor",
        "strategy": {
            "waves": [{"count": 1, "name": "canary"}, {"percent": 100}],
            "baseline_seconds": 30,
            "bake_seconds": 30,
            "settle_seconds": 10,
            "soak_seconds": 0,
            "judge_by": "bounds",
            # Wide, on a machine that runs other tests too: what is plainly broken is what this is about.
            "max_p99_ratio": 50,
            "p99_slack_seconds": 2,
        },
    }
    for load in loads:
        load.longest_gap()
    rollout = api.request("POST", "/rollouts", body)["rollout"]
    assert rollout["strategy"]["target_version"] == newer
    done = until(api, rollout["id"], "completed")
    seen = {each.compute_id: load.longest_gap() for each, load in zip(databases, loads, strict=True)}
    for each in databases:
        assert minor(each.uri) == newer
        query(each.uri, "DO $$ BEGIN PERFORM 1; END $$")
    for item in done["computes"]:
        assert (item["state"], item["previous_version"], item["target_version"]) == ("passed", older, newer), item
        told, felt = item["downtime_seconds"], seen[item["compute_id"]]
        say(f"{item['compute_id']}: {older} to {newer}: {told:.2f} s by Weir, {felt:.2f} s by its clients")
        assert 0 < told < LONGEST_SECONDS
        assert felt < LONGEST_SECONDS
    api.request("POST", f"/rollouts/{rollout['id']}/rollback")
    back = until(api, rollout["id"], "rolled_back")
    for each, load in zip(databases, loads, strict=True):
        assert minor(each.uri) == older
        item = next(item for item in back["computes"] if item["compute_id"] == each.compute_id)
        told, felt = item["back_downtime_seconds"], load.longest_gap()
        say(f"{item['compute_id']}: back to {older}: {told:.2f} s by Weir, {felt:.2f} s by its clients")
        assert load.disconnections > 0
    # Neither is taken away while somebody may want it.
    assert {older, newer} <= set(postgres_versions.copied(stack.home / "servers"))
