"""Members of organisations: who decides on whom, and what becomes of those who are out."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest
from alembic import command
from sqlalchemy import select
from weir_testing.fixtures import Weir, own_database, running_api
from weir_testing.people import Person, browser, organization, organization_named, person, session_of

from weir import admin
from weir.config import Settings
from weir.db import Database
from weir.identity.models import AuditEntry
from weir.kit.crypto import hash_token
from weir.people.models import Membership
from weir.people.roles import Role


@asynccontextmanager
async def acting(weir: Weir, who: Person) -> AsyncGenerator[httpx.AsyncClient]:
    async with browser(weir.url, await session_of(weir.resources.database, who)) as client:
        yield client


async def of(weir: Weir, *roles: Role) -> tuple[UUID, list[Person]]:
    """A new organisation, and a member of each of these roles."""
    database = weir.resources.database
    home = await organization(database)
    return home, [await person(database, {home: role}) for role in roles]


async def roles_in(weir: Weir, home: UUID) -> list[Role]:
    async with weir.resources.database.transaction() as session:
        return sorted(await session.scalars(select(Membership.role).where(Membership.account_id == home)))


def member(home: UUID, who: Person) -> str:
    return f"/organizations/{home}/members/{who.members[home]}"


async def test_members_are_shown_as_neons_api_shows_them(weir: Weir) -> None:
    home, (owner, viewer) = await of(weir, Role.OWNER, Role.VIEWER)
    async with acting(weir, viewer) as client:
        (mine,) = (await client.get("/users/me/organizations")).json()["organizations"]
        assert mine == (await client.get(f"/organizations/{home}")).json()
        assert (mine["id"], mine["handle"]) == (str(home), mine["name"])
        members = (await client.get(f"/organizations/{home}/members")).json()["members"]
        assert [(row["user"]["email"], row["member"]["role"]) for row in members] == [
            (owner.email, "owner"),
            (viewer.email, "viewer"),
        ]
        assert (await client.get(member(home, owner))).json() == members[0]["member"]
        assert set(members[0]["member"]) == {"id", "user_id", "org_id", "role", "joined_at"}
        assert (await client.get("/users/me")).json()["email"] == viewer.email


async def test_members_are_added_changed_and_removed_on_record(weir: Weir) -> None:
    home, (owner,) = await of(weir, Role.OWNER)
    _, (other,) = await of(weir, Role.OWNER)
    async with acting(weir, owner) as client:
        made = await client.post(f"/organizations/{home}/members", json={"email": other.email.upper()})
        assert made.status_code == 201, made.text
        assert made.json()["member"]["role"] == "member"
        again = await client.post(f"/organizations/{home}/members", json={"email": other.email})
        assert again.status_code == 409
        unknown = await client.post(f"/organizations/{home}/members", json={"email": f"{uuid4()}@example.org"})
        assert unknown.status_code == 404
        path = f"/organizations/{home}/members/{made.json()['member']['id']}"
        assert (await client.patch(path, json={"role": "admin"})).json()["role"] == "admin"
        assert (await client.patch(path, json={"role": "emperor"})).status_code == 400
        assert (await client.delete(path)).status_code == 200
        assert (await client.delete(path)).status_code == 404
    async with weir.resources.database.transaction() as session:
        statement = select(AuditEntry.action, AuditEntry.detail).where(AuditEntry.account_id == home)
        rows = [tuple(row) for row in await session.execute(statement.order_by(AuditEntry.id))]
    assert rows == [
        ("member.add", {"role": "member"}),
        ("member.update", {"role": "admin", "role_before": "member"}),
        ("member.remove", {"role": "admin"}),
    ]


async def test_nobody_decides_on_who_is_above_them_nor_makes_anybody_so(weir: Weir) -> None:
    home, (owner, admin_, other) = await of(weir, Role.OWNER, Role.ADMIN, Role.MEMBER)
    _, (outsider,) = await of(weir, Role.OWNER)
    async with acting(weir, admin_) as client:
        for path, role in ((member(home, owner), "viewer"), (member(home, other), "owner")):
            assert (await client.patch(path, json={"role": role})).status_code == 403
        assert (await client.patch(member(home, admin_), json={"role": "owner"})).status_code == 403
        assert (await client.delete(member(home, owner))).status_code == 403
        body = {"email": outsider.email, "role": "owner"}
        assert (await client.post(f"/organizations/{home}/members", json=body)).status_code == 403
        assert (await client.patch(member(home, other), json={"role": "admin"})).status_code == 200
    assert await roles_in(weir, home) == [Role.ADMIN, Role.ADMIN, Role.OWNER]


async def test_members_of_another_organisation_are_not_within_reach(weir: Weir) -> None:
    home, (owner,) = await of(weir, Role.OWNER)
    there, (victim, _) = await of(weir, Role.MEMBER, Role.OWNER)
    asks: list[tuple[str, dict[str, Any]]] = [("GET", {}), ("DELETE", {}), ("PATCH", {"json": {"role": "viewer"}})]
    async with acting(weir, owner) as client:
        for path in (member(there, victim), f"/organizations/{home}/members/{victim.members[there]}"):
            for method, body in asks:
                assert (await client.request(method, path, **body)).status_code == 404
    assert await roles_in(weir, there) == [Role.MEMBER, Role.OWNER]


async def test_the_last_owner_neither_leaves_nor_is_demoted(weir: Weir) -> None:
    home, (owner, other) = await of(weir, Role.OWNER, Role.ADMIN)
    async with acting(weir, owner) as client:
        assert (await client.post(f"/organizations/{home}/leave")).status_code == 409
        assert (await client.delete(member(home, owner))).status_code == 409
        refused = await client.patch(member(home, owner), json={"role": "admin"})
        assert refused.status_code == 409
        assert "the last owner" in refused.json()["message"]
        assert (await client.patch(member(home, owner), json={"role": "owner"})).status_code == 200
        assert (await client.patch(member(home, other), json={"role": "owner"})).status_code == 200
        assert (await client.post(f"/organizations/{home}/leave")).status_code == 204
        assert (await client.get(f"/organizations/{home}")).status_code == 404
    assert await roles_in(weir, home) == [Role.OWNER]


async def test_of_two_owners_who_demote_each_other_at_once_one_stays(weir: Weir) -> None:
    for _ in range(5):
        home, (one, other) = await of(weir, Role.OWNER, Role.OWNER)
        async with acting(weir, one) as first, acting(weir, other) as second:
            answers = await asyncio.gather(
                first.patch(member(home, other), json={"role": "viewer"}),
                second.patch(member(home, one), json={"role": "viewer"}),
            )
        # Whoever is second is no owner any more, or was refused as such before the lock was theirs.
        assert sorted(answer.status_code for answer in answers) == [200, 403]
        assert await roles_in(weir, home) == [Role.OWNER, Role.VIEWER]


async def test_of_two_owners_who_leave_at_once_one_stays(weir: Weir) -> None:
    for _ in range(5):
        home, people = await of(weir, Role.OWNER, Role.OWNER)
        async with acting(weir, people[0]) as first, acting(weir, people[1]) as second:
            answers = await asyncio.gather(
                *(client.post(f"/organizations/{home}/leave") for client in (first, second))
            )
        assert sorted(answer.status_code for answer in answers) == [204, 409]
        assert await roles_in(weir, home) == [Role.OWNER]


async def test_who_is_removed_is_out_with_the_session_and_the_keys_that_they_have(weir: Weir) -> None:
    home, (owner, leaver) = await of(weir, Role.OWNER, Role.ADMIN)
    async with acting(weir, owner) as client, acting(weir, leaver) as theirs:
        made = (await theirs.post("/api_keys", json={"key_name": "kept"})).json()
        headers = {"Authorization": f"Bearer {made['key']}"}
        async with browser(weir.url) as program, browser(weir.url) as console:
            assert (await program.get("/projects", headers=headers)).status_code == 200
            assert (await console.post("/auth/session", json={"api_key": made["key"]})).status_code == 204
            assert (await client.delete(member(home, leaver))).status_code == 200
            for each, given, status in ((theirs, {}, 403), (program, headers, 401), (console, {}, 401)):
                assert (await each.get("/projects", headers=given)).status_code == status
            assert (await theirs.get(f"/organizations/{home}")).status_code == 404
            # Nor do old keys count again, should they come back.
            back = await client.post(f"/organizations/{home}/members", json={"email": leaver.email})
            assert back.status_code == 201
            assert (await theirs.get("/projects")).status_code == 200
            assert (await program.get("/projects", headers=headers)).status_code == 401


async def test_who_is_demoted_takes_their_keys_along(weir: Weir) -> None:
    home, (owner, other) = await of(weir, Role.OWNER, Role.ADMIN)
    async with acting(weir, owner) as client, acting(weir, other) as theirs:
        made = (await theirs.post("/api_keys", json={"key_name": "admins"})).json()
        headers = {"Authorization": f"Bearer {made['key']}"}
        async with browser(weir.url) as program:
            assert (await program.get("/audit", headers=headers)).status_code == 200
            assert (await client.patch(member(home, other), json={"role": "viewer"})).status_code == 200
            assert (await program.get("/audit", headers=headers)).status_code == 403
            assert (await program.get("/projects", headers=headers)).status_code == 200
            assert (await theirs.get("/audit")).status_code == 403


async def test_a_project_is_made_where_the_request_acts(weir: Weir) -> None:
    """An organisation of others is refused in the body as in the query."""
    home, (owner,) = await of(weir, Role.OWNER)
    async with acting(weir, owner) as client:
        other = {"project": {"org_id": str(uuid4())}}
        assert (await client.post("/projects", json=other)).status_code == 400
        mine: dict[str, Any] = {"project": {"org_id": str(home), "pg_version": 17}}
        # It went past the organisation, to what is not built.
        assert "Postgres 17" in (await client.post("/projects", json=mine)).json()["message"]


_BEFORE = """
INSERT INTO accounts (id, name, email) VALUES (gen_random_uuid(), 'second', 'second@localhost');
INSERT INTO api_keys (account_id, name, key_hash) SELECT id, 'old', {hash} FROM accounts WHERE name = 'second';
INSERT INTO console_sessions (id, account_id, api_key_id, token_hash, expires_at)
SELECT gen_random_uuid(), account_id, id, {token}, now() + interval '1 hour' FROM api_keys WHERE name = 'old';
INSERT INTO projects (
    id, name, account_id, tenant_id, pg_version, region_id, history_retention_seconds, settings,
    default_endpoint_settings
)
SELECT 'p-' || name, name, id, name, 15, 'local', 0, '{{}}', '{{}}' FROM accounts
"""


@pytest.mark.usefixtures("environment")
async def test_what_an_installation_had_belongs_to_an_organisation_and_its_keys_work(postgres_url: str) -> None:
    async with own_database(postgres_url, WEIR_TEMPORAL_ADDRESS="127.0.0.1:9") as settings:
        config = admin.alembic_config()
        await asyncio.to_thread(command.downgrade, config, "0016")
        await _before(settings)
        await asyncio.to_thread(command.upgrade, config, "head")
        await asyncio.to_thread(command.check, config)
        database = Database(settings)
        try:
            home = await organization_named(database, "admin")
            async with running_api(settings) as client:
                await _has_what_it_had(client, home)
                # The first person of it.
                first = await person(database, {home: Role.OWNER})
                url = str(client.base_url).rstrip("/")
                async with browser(url, await session_of(database, first)) as theirs:
                    assert [row["id"] for row in (await theirs.get("/projects")).json()["projects"]] == ["p-admin"]
        finally:
            await database.close()


async def _before(settings: Settings) -> None:
    plain = settings.database_url.replace("postgresql+psycopg", "postgresql")
    digests = {name: f"'\\x{hash_token(name).hex()}'" for name in ("weir_old", "weir_cookie")}
    written = _BEFORE.format(hash=digests["weir_old"], token=digests["weir_cookie"])
    async with await psycopg.AsyncConnection.connect(plain) as connection:
        for statement in written.split(";"):
            await connection.execute(statement.encode())


async def _has_what_it_had(client: httpx.AsyncClient, home: UUID) -> None:
    """The key of the installation, and the second account's, each in an organisation of its own."""
    (mine,) = (await client.get("/api/v2/users/me/organizations")).json()["organizations"]
    assert (mine["id"], mine["name"]) == (str(home), "admin")
    assert (await client.get("/api/v2/projects/p-admin")).status_code == 200
    assert (await client.get("/api/v2/audit")).status_code == 200
    old: dict[str, Any] = {"headers": {"Authorization": "Bearer weir_old"}}
    listed = (await client.get("/api/v2/projects", **old)).json()["projects"]
    assert [row["id"] for row in listed] == ["p-second"]
    assert (await client.get("/api/v2/projects/p-admin", **old)).status_code == 404
    made = await client.post("/api/v2/api_keys", json={"key_name": "new"}, **old)
    assert (made.status_code, made.json()["role"]) == (200, "owner")
    async with httpx.AsyncClient(base_url=client.base_url, cookies={"weir_session": "weir_cookie"}) as console:
        assert (await console.get("/api/v2/projects/p-second")).status_code == 200
