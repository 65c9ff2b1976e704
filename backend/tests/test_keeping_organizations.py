"""Organisations as operators keep them: made with an owner, renamed, and ended once nothing is in them.

Threats: a name that two ask for at once; a project that is made or received while its organisation ends; whoever was
in an organisation that has ended, with sessions, keys and invitations of before; an operator's key that would make
another operator.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
import pytest_asyncio
from alembic import command
from sqlalchemy import insert, select, update
from weir_testing import people
from weir_testing.fixtures import own_database
from weir_testing.people import Alone, browser, keyed, person, session_of

from weir import admin
from weir.config import Settings
from weir.db import Database
from weir.errors import NotFoundError
from weir.identity.models import Account, ApiKey, AuditEntry
from weir.identity.repository import IdentityRepository
from weir.kit.clock import now
from weir.kit.crypto import hash_token, new_api_key
from weir.people.models import Invitation, Membership
from weir.people.roles import Role
from weir.projects.models import Project
from weir.quotas import owners
from weir.quotas.service import admit_transfer

KEPT = "/fleet/organizations"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def alone(environment: Settings, postgres_url: str) -> AsyncGenerator[Alone]:
    del environment
    async with people.alone(postgres_url) as running:
        yield running


async def _key(alone: Alone, account: UUID) -> str:
    key = new_api_key()
    async with alone.database.transaction() as session:
        values = {"account_id": account, "name": "k", "key_hash": hash_token(key), "role": Role.OWNER}
        await session.execute(insert(ApiKey).values(**values))
    return key


@pytest_asyncio.fixture(loop_scope="session")
async def operator(alone: Alone) -> AsyncGenerator[httpx.AsyncClient]:
    async with keyed(alone.url, await _key(alone, alone.runs)) as client:
        yield client


def _name() -> str:
    return f"org {uuid4().hex[:12]}"


async def _made(client: httpx.AsyncClient, /, **more: Any) -> dict[str, Any]:
    answer = await client.post(KEPT, json={"name": _name(), "email": "shop@example.org"} | more)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_an_organization_is_made_with_an_owner_who_keeps_it_from_then_on(
    alone: Alone, operator: httpx.AsyncClient
) -> None:
    owner = await person(alone.database, {})
    made = await _made(operator, owner=owner.email.upper())
    assert (made["email"], made["operator"], made["handle"]) == ("shop@example.org", False, made["name"])
    assert (await operator.get(f"{KEPT}/{made['id']}")).json() == made
    async with browser(alone.url, await session_of(alone.database, owner)) as client:
        (mine,) = (await client.get("/users/me/organizations")).json()["organizations"]
        assert mine.items() <= made.items()
        (member,) = (await client.get(f"/organizations/{made['id']}/members")).json()["members"]
        assert (member["user"]["email"], member["member"]["role"]) == (owner.email, "owner")
        assert (await client.post("/api_keys", json={"key_name": "first"})).status_code == 200
    # Who made it is not in it.
    assert (await operator.get(f"/organizations/{made['id']}")).status_code == 404
    async with alone.database.transaction() as session:
        entry = (
            await session.scalars(select(AuditEntry).where(AuditEntry.resource == f"account/{made['name']}"))
        ).one()
    assert (entry.account_id, entry.action, entry.detail) == (
        alone.runs, "organization.create", {"owner": owner.email},
    )  # fmt: skip


async def test_what_cannot_be_made_says_why_and_leaves_nothing(alone: Alone, operator: httpx.AsyncClient) -> None:
    made = await _made(operator)
    again = await operator.post(KEPT, json={"name": made["name"], "email": "x@example.org"})
    assert again.status_code == 409
    assert f"an organization named {made['name']} exists" in again.json()["message"]
    name = _name()
    unknown = await operator.post(KEPT, json={"name": name, "email": "x@example.org", "owner": "no@example.org"})
    assert unknown.status_code == 404
    assert "nobody with the email no@example.org is known here" in unknown.json()["message"]
    async with alone.database.transaction() as session:
        assert await IdentityRepository(session).account_named(name) is None
    for wrong in ({}, {"name": name}, {"name": " ", "email": "x@example.org"}, {"name": "a\nb", "email": "x@e.org"}):
        assert (await operator.post(KEPT, json=wrong)).status_code == 400, wrong
    # What nobody may ask for is not done: it is not a field.
    assert not (await _made(operator, operator=True))["operator"]


async def test_of_two_who_make_or_take_a_name_at_once_one_does(operator: httpx.AsyncClient) -> None:
    body = {"name": _name(), "email": "x@example.org"}
    answers = await asyncio.gather(*(operator.post(KEPT, json=body) for _ in range(4)))
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409]
    rivals = [await _made(operator) for _ in range(3)]
    wanted = {"name": _name()}
    answers = await asyncio.gather(*(operator.patch(f"{KEPT}/{each['id']}", json=wanted) for each in rivals))
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409]


async def test_an_organization_is_renamed_and_its_members_see_it(alone: Alone, operator: httpx.AsyncClient) -> None:
    owner = await person(alone.database, {})
    made = await _made(operator, owner=owner.email)
    name = _name()
    answer = await operator.patch(f"{KEPT}/{made['id']}", json={"name": name})
    assert answer.json() == made | {"name": name, "handle": name}
    answer = await operator.patch(f"{KEPT}/{made['id']}", json={"email": "new@example.org"})
    assert (answer.json()["name"], answer.json()["email"]) == (name, "new@example.org")
    async with browser(alone.url, await session_of(alone.database, owner)) as client:
        assert (await client.get(f"/organizations/{made['id']}")).json()["name"] == name
    # Nothing changed is no entry of the audit log.
    await operator.patch(f"{KEPT}/{made['id']}", json={"name": name})
    async with alone.database.transaction() as session:
        entries = select(AuditEntry.detail).where(
            AuditEntry.action == "organization.update", AuditEntry.resource == f"account/{name}"
        )
        found = (await session.scalars(entries.order_by(AuditEntry.id))).all()
    assert found == [
        {"name": name, "name_before": made["name"]},
        {"email": "new@example.org", "email_before": "shop@example.org"},
    ]


async def test_one_that_has_ended_lets_nobody_in_and_frees_its_name(
    alone: Alone, operator: httpx.AsyncClient
) -> None:
    owner, friend = await person(alone.database, {}), await person(alone.database, {})
    made = await _made(operator, owner=owner.email)
    ident = UUID(made["id"])
    key = await _key(alone, ident)
    async with (
        browser(alone.url, await session_of(alone.database, owner, ident)) as client,
        keyed(alone.url, key) as machine,
    ):
        assert (await machine.get("/projects")).status_code == 200
        body = {"invitations": [{"email": friend.email, "role": "owner"}]}
        invited = await client.post(f"/organizations/{ident}/invitations", json=body)
        assert invited.status_code < 300, invited.text
        ended = await operator.delete(f"{KEPT}/{ident}")
        assert ended.status_code == 200, ended.text
        assert (await machine.get("/projects")).status_code == 401
        assert (await client.get(f"/organizations/{ident}")).status_code == 404
        assert (await client.get("/users/me/organizations")).json() == {"organizations": []}
        assert (await client.post("/projects", json={"project": {}})).status_code == 403
    for answer in (
        await operator.get(f"{KEPT}/{ident}"),
        await operator.patch(f"{KEPT}/{ident}", json={"name": "x"}),
        await operator.delete(f"{KEPT}/{ident}"),
    ):
        assert answer.status_code == 404
    async with alone.database.transaction() as session:
        assert (await session.scalars(select(Membership).where(Membership.account_id == ident))).all() == []
        invitation = (await session.scalars(select(Invitation).where(Invitation.account_id == ident))).one()
        assert invitation.revoked_at is not None
        entry = (await session.scalars(select(AuditEntry).where(AuditEntry.action == "organization.end"))).all()[-1]
        assert entry.detail == {"keys": 1, "members": 1, "invitations": 1}
    again = await operator.post(KEPT, json={"name": made["name"], "email": "x@example.org"})
    assert again.status_code == 201
    assert again.json()["id"] != made["id"]


async def test_one_with_projects_or_of_operators_stays(alone: Alone, operator: httpx.AsyncClient) -> None:
    made = await _made(operator)
    project = await people.project(alone.database, UUID(made["id"]))
    refused = await operator.delete(f"{KEPT}/{made['id']}")
    assert refused.status_code == 409
    assert f"has 1 project(s): {project}" in refused.json()["message"]
    async with alone.database.transaction() as session:
        await session.execute(update(Project).where(Project.id == project).values(deleted_at=now()))
    assert (await operator.delete(f"{KEPT}/{made['id']}")).status_code == 200
    own = await operator.delete(f"{KEPT}/{alone.runs}")
    assert own.status_code == 409
    assert "runs the installation" in own.json()["message"]


async def test_nothing_is_made_in_an_organization_that_ends_meanwhile(
    alone: Alone, operator: httpx.AsyncClient
) -> None:
    """A request that was let in before the end, and makes its project after it; and an end that comes while a project
    is being made, and waits for it."""
    made = await _made(operator)
    ident = UUID(made["id"])
    repository = alone.database
    async with repository.transaction() as session:
        await IdentityRepository(session).hold_account(ident)
        ending = asyncio.create_task(operator.delete(f"{KEPT}/{ident}"))
        await asyncio.sleep(0.3)
        assert not ending.done()
        project = Project(
            id=f"p-{uuid4().hex[:12]}", name="late", account_id=ident, tenant_id=uuid4().hex, pg_version=15,
            region_id="local", history_retention_seconds=0, settings={}, default_endpoint_settings={},
        )  # fmt: skip
        session.add(project)
        await session.flush()
        late = project.id
    assert (await ending).status_code == 409
    async with repository.transaction() as session:
        await session.execute(update(Project).where(Project.id == late).values(deleted_at=now()))
    assert (await operator.delete(f"{KEPT}/{ident}")).status_code == 200
    async with repository.transaction() as session:
        with pytest.raises(NotFoundError, match=f"organization {ident} does not exist"):
            await IdentityRepository(session).hold_account(ident)


async def test_a_project_that_is_asked_for_before_the_end_is_refused_after_it(
    alone: Alone, operator: httpx.AsyncClient
) -> None:
    """The request is let in by a key that counts still, and comes to making its project once the end is committed."""
    ident = UUID((await _made(operator))["id"])
    project = await people.project(alone.database, alone.home)
    async with keyed(alone.url, await _key(alone, ident)) as client:
        async with alone.database.transaction() as session:
            row = await session.get_one(Account, ident, with_for_update=True)
            row.deleted_at = now()
            await session.flush()
            making = asyncio.create_task(client.post("/projects", json={"project": {}}))
            await asyncio.sleep(0.5)
            assert not making.done()
        refused = await making
    assert refused.status_code == 404
    assert f"organization {ident} does not exist" in refused.json()["message"]
    # Nor is one received.
    async with alone.database.transaction() as session:
        given = await session.get_one(Project, project)
        with pytest.raises(NotFoundError, match=f"organization {ident} does not exist"):
            await admit_transfer(session, given, owners.account(ident))
        assert (await session.scalars(select(Project).where(Project.account_id == ident))).all() == []


async def test_others_than_operators_keep_no_organization(alone: Alone, operator: httpx.AsyncClient) -> None:
    made = await _made(operator)
    async with keyed(alone.url, await _key(alone, alone.home)) as client:
        for method, path, body in (
            ("POST", KEPT, {"name": _name(), "email": "x@example.org"}),
            ("GET", f"{KEPT}/{made['id']}", None),
            ("PATCH", f"{KEPT}/{made['id']}", {"name": _name()}),
            ("DELETE", f"{KEPT}/{made['id']}", None),
            ("DELETE", f"{KEPT}/{alone.home}", None),
        ):
            answer = await client.request(method, path, json=body)
            assert answer.status_code == 403, (method, path)
    assert (await operator.get(f"{KEPT}/{made['id']}")).json() == made


async def test_ended_organizations_can_be_taken_back_to_a_schema_that_does_not_know_them(postgres_url: str) -> None:
    async with own_database(postgres_url) as settings:
        config = admin.alembic_config()
        database = Database(settings)
        try:
            async with database.transaction() as session:
                for deleted_at in (now(), now(), None):
                    session.add(Account(name="same", email="x@localhost", deleted_at=deleted_at))
            await asyncio.to_thread(command.downgrade, config, "0023")
            await asyncio.to_thread(command.upgrade, config, "head")
            await asyncio.to_thread(command.check, config)
            async with database.transaction() as session:
                names = (await session.scalars(select(Account.name).where(Account.name.startswith("same")))).all()
        finally:
            await database.close()
    assert len(names) == 3
    assert names.count("same") == 1
