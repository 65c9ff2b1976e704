"""A rollout belongs to the account that made it: nobody else but an operator sees it or changes anything of it."""

import asyncio
import os
from collections.abc import AsyncGenerator
from typing import Any
from uuid import UUID

import psycopg
import pytest
import pytest_asyncio
from alembic import command
from sqlalchemy import select
from weir_testing.fixtures import Weir, restore

from weir import admin
from weir.config import get_settings
from weir.identity.models import Account
from weir.kit.clock import now
from weir.main import create_app
from weir.projects.models import Project
from weir.rollouts.intent import Strategy
from weir.rollouts.models import Rollout, RolloutEvidence, RolloutStatus
from weir.rollouts.plan.new_computes import starts_without_page_images

HELD: dict[str, Any] = {"plan_approval_required": True, "new_computes": False}
BODIES: dict[str, dict[str, Any]] = {"skip": {"wave": 0}}


def rollout_routes() -> list[tuple[str, str]]:
    paths = create_app().openapi()["paths"]
    return sorted((method.upper(), path) for path in paths if "{rollout_id}" in path for method in paths[path])


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def owner(weir: Weir) -> AsyncGenerator[Weir]:
    async with weir.as_account("rollouts-owner") as account:
        yield account


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stranger(weir: Weir) -> AsyncGenerator[Weir]:
    async with weir.as_account("rollouts-stranger") as account:
        await account.project(name="strangers-own")
        yield account


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def held(owner: Weir) -> dict[str, Any]:
    """A rollout over the owner's one compute that waits for its plan's approval."""
    project = await owner.project(name="owned")
    made = (await owner.call("POST", "/rollouts", 201, json={"strategy": HELD}))["rollout"]

    async def status() -> bool:
        return (await owner.call("GET", f"/rollouts/{made['id']}"))["rollout"]["status"] == "held"

    await owner.wait(status)
    return {"id": made["id"], "compute": project["endpoints"][0]["id"], "project": project["project"]["id"]}


@pytest.mark.parametrize(("method", "path"), rollout_routes())
async def test_a_rollout_of_another_account_does_not_exist(
    owner: Weir, stranger: Weir, held: dict[str, Any], method: str, path: str
) -> None:
    before = await owner.call("GET", f"/rollouts/{held['id']}")
    concrete = (
        path.removeprefix("/api/v2").replace("{rollout_id}", held["id"]).replace("{compute_id}", held["compute"])
    )
    body = BODIES.get(path.rsplit("/", 1)[1])
    answer = await stranger.call(method, concrete, 404, json=body)
    assert answer["code"] == "NOT_FOUND"
    unknown = await stranger.call(method, concrete.replace(held["id"], "ro-none"), 404, json=body)
    assert answer["message"].replace(held["id"], "ro-none") == unknown["message"], (
        "nothing tells it from an unknown one"
    )
    assert await owner.call("GET", f"/rollouts/{held['id']}") == before


async def test_lists_plans_and_coverage_hold_ones_own_only(owner: Weir, stranger: Weir, held: dict[str, Any]) -> None:
    assert [row["id"] for row in (await owner.call("GET", "/rollouts"))["rollouts"]] == [held["id"]]
    assert (await stranger.call("GET", "/rollouts"))["rollouts"] == []
    plan = (await stranger.call("POST", "/rollouts/plan", json={}))["plan"]
    assert plan["computes_total"] + plan["excluded_total"] == 1
    assert held["compute"] not in [row["compute_id"] for row in plan["computes"] + plan["excluded"]]
    named = {"selector": {"project_ids": [held["project"]]}}
    for path in ("/rollouts/plan", "/rollouts"):
        assert held["project"] in (await stranger.call("POST", path, 404, json=named))["message"]
    shown = await stranger.call("GET", "/fleet/features/image_pushdown", params={"q": held["compute"]})
    assert (shown["computes"], shown["counts"]["computes"]) == ([], 0)
    assert (await stranger.call("GET", "/fleet"))["computes"]["total"] == 1
    for path in ("", "/metrics", "/wal_cost"):
        await stranger.call("GET", f"/computes/{held['compute']}{path}", 404)
    await stranger.call("GET", "/computes", 404, params={"project_id": held["project"]})


async def test_the_audit_log_shows_what_concerns_the_account(
    weir: Weir, owner: Weir, stranger: Weir, held: dict[str, Any]
) -> None:
    resource = f"rollout/{held['id']}"
    own = (await owner.call("GET", "/audit", params={"resource": resource}))["entries"]
    assert {"rollout.held", "rollout.create"} <= {row["action"] for row in own}, "its own steps belong to it"
    assert (await stranger.call("GET", "/audit", params={"resource": resource}))["entries"] == []
    assert (await weir.call("GET", "/audit", params={"resource": resource}))["entries"] == own


async def test_an_operator_sees_and_controls_everybodys(weir: Weir, owner: Weir, held: dict[str, Any]) -> None:
    listed = {row["id"]: row for row in (await weir.call("GET", "/rollouts"))["rollouts"]}
    assert not listed[held["id"]]["whole_fleet"]
    assert listed[held["id"]]["owner_id"] == (await owner.call("GET", "/auth"))["account_id"]
    await weir.call("POST", f"/rollouts/{held['id']}/pause")
    done = (await owner.call("GET", f"/rollouts/{held['id']}/audit"))["entries"]
    assert ("admin", "rollout.pause") in [(row["actor"], row["action"]) for row in done], "its owner sees who did it"
    await weir.call("POST", f"/rollouts/{held['id']}/resume")
    assert (await weir.call("GET", f"/computes/{held['compute']}"))["compute"]["project_id"] == held["project"]
    await weir.call("GET", f"/projects/{held['project']}", 404)


async def test_an_operators_rollout_reaches_all_and_is_seen_by_operators_only(weir: Weir, stranger: Weir) -> None:
    mine = (await stranger.call("GET", "/computes"))["computes"][0]
    body = {"selector": {"project_ids": [mine["project_id"]]}, "strategy": HELD}
    made = (await weir.call("POST", "/rollouts", 201, json=body))["rollout"]
    assert (made["whole_fleet"], made["computes_total"]) == (True, 1)
    await stranger.call("GET", f"/rollouts/{made['id']}", 404)
    await stranger.call("POST", f"/rollouts/{made['id']}/abort", 404)
    (left_out,) = (await stranger.call("POST", "/rollouts/plan", json={}))["plan"]["excluded"]
    assert left_out["reason"] == "takes part in a rollout of an operator, which is still open"
    (seen,) = (await stranger.call("GET", "/fleet/features/image_pushdown"))["computes"]
    assert (seen["rollout_id"], seen["why_not"]) == (None, "waits for its turn in a rollout of an operator")
    where = {"q": mine["id"]}
    (known,) = (await weir.call("GET", "/fleet/features/image_pushdown", params=where))["computes"]
    assert (known["rollout_id"], known["why_not"]) == (made["id"], f"waits for its turn in rollout {made['id']}")

    async def aborted() -> bool:
        answer = await weir.client.post(f"/api/v2/rollouts/{made['id']}/abort")
        return answer.status_code == 200 and answer.json()["rollout"]["status"] == "aborted"

    await weir.wait(aborted)


async def test_an_account_that_is_made_an_operator_is_one_at_once(weir: Weir, held: dict[str, Any]) -> None:
    async with weir.as_account("rollouts-promoted") as promoted:
        assert (await promoted.call("GET", "/rollouts"))["rollouts"] == []
        said = await admin.account("rollouts-promoted", None, operator=True)
        assert said == "account rollouts-promoted is an operator now"
        assert held["id"] in [row["id"] for row in (await promoted.call("GET", "/rollouts"))["rollouts"]]
        await admin.account("rollouts-promoted", None, operator=False)
        assert (await promoted.call("GET", "/rollouts"))["rollouts"] == []


async def test_controls_of_other_accounts_count_but_are_not_named(
    weir: Weir, owner: Weir, stranger: Weir, held: dict[str, Any]
) -> None:
    foreign = (await stranger.call("GET", "/computes"))["computes"][0]["id"]
    async with weir.resources.database.transaction() as session:
        session.add(
            RolloutEvidence(
                rollout_id=held["id"], endpoint_id=held["compute"], verdict="pass", reason="all is well", before={},
                after={}, bounds={}, analysis={"controls": [foreign, held["compute"]]}, created_at=now(),
            )
        )  # fmt: skip
    path = f"/rollouts/{held['id']}"
    shown = (await owner.call("GET", f"{path}/computes/{held['compute']}"))["compute"]["evidence"]["analysis"]
    assert shown == {"controls": [held["compute"]], "controls_hidden": 1}
    assert (await owner.call("GET", f"{path}/evidence/{held['compute']}"))["evidence"]["analysis"] == shown
    full = (await weir.call("GET", f"{path}/computes/{held['compute']}"))["compute"]["evidence"]["analysis"]
    assert full == {"controls": [foreign, held["compute"]]}


async def test_new_computes_follow_rollouts_of_their_owner_and_of_operators(
    weir: Weir, owner: Weir, stranger: Weir, held: dict[str, Any]
) -> None:
    del stranger
    async with weir.resources.database.transaction() as session:
        ids = {
            account.name: account.id
            for account in (await session.scalars(select(Account).where(Account.name.startswith("rollouts-")))).all()
        }
        project = (await session.scalars(select(Project).where(Project.id == held["project"]))).one()

        async def starts(name: str, *, whole_fleet: bool) -> bool:
            row = Rollout(
                id=f"wanted-{name}-{whole_fleet}".lower(), name=name, account_id=ids[name], whole_fleet=whole_fleet,
                feature="image_pushdown", plan={}, selector={}, strategy=Strategy().model_dump(mode="json"),
                status=RolloutStatus.COMPLETED, dispatched_at=now(), created_at=now(),
            )  # fmt: skip
            session.add(row)
            await session.flush()
            answer = await starts_without_page_images(session, project, "ep-new")
            await session.delete(row)
            await session.flush()
            return answer

        assert not await starts_without_page_images(session, project, "ep-new")
        assert not await starts("rollouts-stranger", whole_fleet=False)
        assert await starts("rollouts-owner", whole_fleet=False)
        assert await starts("rollouts-stranger", whole_fleet=True)


async def test_rollouts_from_before_belong_to_the_account_whose_computes_they_took(postgres_url: str) -> None:
    """Migration 0004: by members, else by who made it, else the installation's own account."""
    name = f"own_{os.urandom(4).hex()}"
    plain = postgres_url.replace("postgresql+psycopg", "postgresql")
    async with await psycopg.AsyncConnection.connect(plain, autocommit=True) as connection:
        await connection.execute(f"CREATE DATABASE {name}".encode())
    url = f"{postgres_url.rsplit('/', 1)[0]}/{name}"
    before = {"WEIR_DATABASE_URL": os.environ.get("WEIR_DATABASE_URL")}
    os.environ["WEIR_DATABASE_URL"] = url
    get_settings.cache_clear()
    try:
        await asyncio.to_thread(command.upgrade, admin.alembic_config(), "0003")
        async with await psycopg.AsyncConnection.connect(url.replace("+psycopg", ""), autocommit=True) as old:
            await old.execute(OLD_ROWS.encode())
            await asyncio.to_thread(command.upgrade, admin.alembic_config(), "head")
            found = await old.execute("SELECT id, account_id, whole_fleet FROM rollouts ORDER BY id")
            assert await found.fetchall() == [
                ("ro-empty", UUID(int=1), False), ("ro-made", UUID(int=2), False), ("ro-taken", UUID(int=2), False)
            ]  # fmt: skip
            operators = await old.execute("SELECT name FROM accounts WHERE operator")
            assert await operators.fetchall() == [("admin",)]
    finally:
        restore(before)


OLD_ROWS = """
INSERT INTO accounts (id, name, email, created_at) VALUES
    ('00000000-0000-0000-0000-000000000001', 'admin', 'a@localhost', '2026-01-01'),
    ('00000000-0000-0000-0000-000000000002', 'other', 'o@localhost', '2026-01-02');
INSERT INTO projects (id, name, account_id, tenant_id, pg_version, region_id, history_retention_seconds, settings,
    default_endpoint_settings)
    VALUES ('p', 'p', '00000000-0000-0000-0000-000000000002', 't', 15, 'local', 0, '{}', '{}');
INSERT INTO branches (id, project_id, name, timeline_id, state, is_default, protected)
    VALUES ('b', 'p', 'main', 't', 'ready', true, false);
INSERT INTO endpoints (id, project_id, branch_id, type, host, port, desired_state, state, pg_settings,
    full_page_writes, disabled, suspend_timeout_seconds)
    VALUES ('e', 'p', 'b', 'read_write', 'h', 1, 'active', 'active', '{}', true, false, 0);
INSERT INTO rollouts (id, name, feature, selector, strategy, plan, status, trace_context)
    SELECT id, id, 'image_pushdown', '{}', '{}', '{}', 'completed', '{}'
    FROM unnest(ARRAY['ro-taken', 'ro-made', 'ro-empty']) AS id;
INSERT INTO rollout_members (rollout_id, endpoint_id, project_id, wave, baseline_seconds, bake_seconds, state)
    VALUES ('ro-taken', 'e', 'p', 0, 0, 0, 'passed');
INSERT INTO audit_log (account_id, actor, request_id, action, resource, detail) VALUES
    ('00000000-0000-0000-0000-000000000001', 'admin', '', 'rollout.create', 'rollout/ro-taken', '{}'),
    ('00000000-0000-0000-0000-000000000002', 'other', '', 'rollout.create', 'rollout/ro-made', '{}');
"""
