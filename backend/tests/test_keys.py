"""API keys with a scope: of one project, for reading, up to a moment; and that none makes a wider one."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select, update
from weir_testing import people
from weir_testing.people import Alone, browser, keyed, person, session_of

from weir.config import Settings
from weir.errors import WeirError
from weir.identity.models import ApiKey
from weir.identity.service import AskedKey, narrowed
from weir.kit.clock import now
from weir.kit.crypto import hash_token
from weir.people.roles import Role


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def alone(environment: Settings, postgres_url: str) -> AsyncGenerator[Alone]:
    del environment
    async with people.alone(postgres_url) as running:
        yield running


@asynccontextmanager
async def acting(alone: Alone, role: Role) -> AsyncGenerator[httpx.AsyncClient]:
    """A new member of `home`."""
    token = await session_of(alone.database, await person(alone.database, {alone.home: role}), alone.home)
    async with browser(alone.url, token) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="session")
async def owner(alone: Alone) -> AsyncGenerator[httpx.AsyncClient]:
    async with acting(alone, Role.OWNER) as client:
        yield client


async def made(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    response = await client.post("/api_keys", json={"key_name": "scoped", **fields})
    assert response.status_code == 200, response.text
    return response.json()


async def test_a_key_of_one_project_reaches_no_other_and_nothing_around(
    alone: Alone, owner: httpx.AsyncClient
) -> None:
    mine, other = await people.project(alone.database, alone.home), await people.project(alone.database, alone.home)
    key = await made(owner, project_id=mine)
    assert (key["project_id"], key["role"], key["read_only"], key["expires_at"]) == (mine, "owner", False, None)
    async with keyed(alone.url, key["key"]) as client:
        assert [row["id"] for row in (await client.get("/projects")).json()["projects"]] == [mine]
        assert (await client.get(f"/projects/{mine}")).status_code == 200
        for method in ("GET", "DELETE"):
            assert (await client.request(method, f"/projects/{other}")).status_code == 404
        around = ("/computes", "/fleet", "/rollouts", "/audit", "/api_keys", f"/organizations/{alone.home}")
        for path in around:
            assert (await client.get(path)).status_code == 403, path
        for path in ("/api_keys", "/projects"):
            assert (await client.post(path, json={"key_name": "wider", "project": {}})).status_code == 403
        assert (await client.get("/users/me")).status_code == 200
        # The console opened with it is as narrow.
        async with browser(alone.url) as console:
            assert (await console.post("/auth/session", json={"api_key": key["key"]})).status_code == 204
            assert (await console.get(f"/projects/{other}")).status_code == 404
            assert (await console.get(f"/projects/{mine}")).status_code == 200
            assert (await console.get("/audit")).status_code == 403


async def test_a_key_of_all_of_the_organisation_names_no_project(owner: httpx.AsyncClient) -> None:
    """Not even null: Neon's command line takes that for a key of nothing, and revokes it."""
    key = await made(owner)
    assert "project_id" not in key
    listed = {row["id"]: row for row in (await owner.get("/api_keys")).json()}
    assert "project_id" not in listed[key["id"]]


async def test_a_key_is_made_for_a_project_of_the_organisation_alone(alone: Alone, owner: httpx.AsyncClient) -> None:
    elsewhere = await people.project(alone.database, alone.elsewhere)
    refused = await owner.post("/api_keys", json={"key_name": "x", "project_id": elsewhere})
    assert refused.status_code == 404


async def test_a_read_only_key_reads_and_is_shown_no_secret(alone: Alone, owner: httpx.AsyncClient) -> None:
    project = await people.project(alone.database, alone.home)
    key = await made(owner, read_only=True)
    async with keyed(alone.url, key["key"]) as client:
        for path in (f"/projects/{project}", "/projects", "/computes", "/rollouts", "/api_keys"):
            assert (await client.get(path)).status_code == 200, path
        for method, path in (
            ("DELETE", f"/projects/{project}"),
            ("PATCH", f"/projects/{project}"),
            ("POST", "/projects"),
            ("POST", "/api_keys"),
            ("GET", f"/projects/{project}/connection_uri"),
            ("GET", f"/projects/{project}/branches/br-x/roles/app/reveal_password"),
        ):
            body: dict[str, Any] = {} if method in {"GET", "DELETE"} else {"json": {"key_name": "wider"}}
            refused = await client.request(method, path, **body)
            assert refused.status_code == 403, path
            assert "reading only" in refused.json()["message"]


async def test_a_key_ends_at_its_moment_with_the_session_that_it_opened(
    alone: Alone, owner: httpx.AsyncClient
) -> None:
    over = (now() - timedelta(seconds=1)).isoformat()
    assert (await owner.post("/api_keys", json={"key_name": "x", "expires_at": over})).status_code == 400
    for never in ("9999-12-31T23:59:59-23:00", (now() + timedelta(days=4_000)).isoformat()):
        assert (await owner.post("/api_keys", json={"key_name": "x", "expires_at": never})).status_code == 400
    key = await made(owner, expires_at=(now() + timedelta(hours=1)).isoformat())
    async with keyed(alone.url, key["key"]) as client, browser(alone.url) as console:
        assert (await client.get("/projects")).status_code == 200
        assert (await console.post("/auth/session", json={"api_key": key["key"]})).status_code == 204
        async with alone.database.transaction() as session:
            ended = update(ApiKey).where(ApiKey.id == key["id"]).values(expires_at=now() - timedelta(seconds=1))
            await session.execute(ended)
        for each in (client, console):
            refused = await each.get("/projects")
            assert refused.status_code == 401
            assert "expired" in refused.json()["message"]
        assert (await console.post("/auth/session", json={"api_key": key["key"]})).status_code == 401


async def test_what_a_key_makes_lives_no_longer_than_it(alone: Alone, owner: httpx.AsyncClient) -> None:
    ends = now() + timedelta(hours=1)
    key = await made(owner, expires_at=ends.isoformat())
    async with keyed(alone.url, key["key"]) as client:
        heir = await made(client)
        assert datetime.fromisoformat(heir["expires_at"]) == ends
        longer = {"key_name": "x", "expires_at": (ends + timedelta(seconds=1)).isoformat()}
        assert (await client.post("/api_keys", json=longer)).status_code == 403
        shorter = ends - timedelta(minutes=1)
        made_shorter = await made(client, expires_at=shorter.isoformat())
        assert datetime.fromisoformat(made_shorter["expires_at"]) == shorter


_NOW = datetime(2030, 1, 1, tzinfo=UTC)
_MOMENTS = st.none() | st.integers(1, 1_000).map(lambda seconds: _NOW + timedelta(seconds=seconds))
_PROJECTS = st.sampled_from([None, "p-1", "p-2"])


@given(_PROJECTS, st.booleans(), _MOMENTS, _PROJECTS, st.booleans(), _MOMENTS)
def test_no_key_makes_a_wider_one(
    of: str | None,
    reads: bool,
    until: datetime | None,
    asked_of: str | None,
    asks_to_read: bool,
    asked: datetime | None,
) -> None:
    maker = ApiKey(project_id=of, read_only=reads, expires_at=until)
    try:
        heir = narrowed(AskedKey("heir", asked_of, asks_to_read, asked), maker, _NOW)
    except WeirError:
        return
    assert of is None or heir.project_id == of
    assert heir.read_only or not reads
    assert until is None or (heir.expires_at is not None and heir.expires_at <= until)
    # And what was asked for is what it is, where that is narrower.
    assert asked_of is None or heir.project_id == asked_of
    assert heir.read_only or not asks_to_read


@pytest.mark.parametrize("role", [Role.MEMBER, Role.ADMIN])
async def test_a_key_has_the_role_of_who_made_it(alone: Alone, role: Role) -> None:
    async with acting(alone, role) as theirs:
        key = await made(theirs)
        assert key["role"] == role.value
    async with keyed(alone.url, key["key"]) as client:
        assert (await client.get("/audit")).status_code == (200 if role is Role.ADMIN else 403)
        heir = await made(client)
        assert (heir["role"], heir["created_by"]) == (role.value, key["created_by"])


async def test_members_see_and_revoke_their_own_keys_and_admins_all(alone: Alone, owner: httpx.AsyncClient) -> None:
    theirs = await made(owner)
    async with acting(alone, Role.MEMBER) as client:
        mine = await made(client)
        assert [row["id"] for row in (await client.get("/api_keys")).json()] == [mine["id"]]
        assert (await client.delete(f"/api_keys/{theirs['id']}")).status_code == 404
        listed = {row["id"] for row in (await owner.get("/api_keys")).json()}
        assert {mine["id"], theirs["id"]} <= listed
        assert (await owner.delete(f"/api_keys/{mine['id']}")).status_code == 200
        assert (await client.get("/api_keys")).json() == []


async def test_use_is_noted_once_a_minute(alone: Alone, owner: httpx.AsyncClient) -> None:
    key = await made(owner)

    async def used() -> datetime | None:
        async with alone.database.transaction() as session:
            row = (await session.scalars(select(ApiKey).where(ApiKey.id == key["id"]))).one()
            assert row.key_hash == hash_token(key["key"])
            return row.last_used_at

    async with keyed(alone.url, key["key"]) as client:
        assert await used() is None
        await client.get("/users/me")
        first = await used()
        assert first is not None
        await client.get("/users/me")
        assert await used() == first
        earlier = first - timedelta(seconds=61)
        async with alone.database.transaction() as session:
            await session.execute(update(ApiKey).where(ApiKey.id == key["id"]).values(last_used_at=earlier))
        await client.get("/users/me")
        assert (await used() or earlier) > earlier
