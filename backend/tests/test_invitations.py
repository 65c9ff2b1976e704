"""Invitations: who may make them, who may take them, and until when."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
import pytest_asyncio
from sqlalchemy import func, select
from weir_testing import people
from weir_testing.people import PASSWORD, Alone, Person, browser, keyed, organization, person, session_of

from weir.authz.principal import SESSION_COOKIE
from weir.config import Settings
from weir.identity.models import AuditEntry
from weir.kit.crypto import hash_token
from weir.people import invitations
from weir.people.models import Invitation, Membership, User
from weir.people.roles import Role


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def alone(environment: Settings, postgres_url: str) -> AsyncGenerator[Alone]:
    del environment
    async with people.alone(postgres_url) as running:
        yield running


class House:
    """An organisation with a member of a role, who acts."""

    def __init__(self, alone: Alone, home: UUID, who: Person, client: httpx.AsyncClient) -> None:
        self.alone, self.home, self.who, self.client = alone, home, who, client
        self.path = f"/organizations/{home}/invitations"

    async def invite(self, email: str, role: str = "member", expect: int = 200) -> dict[str, Any]:
        response = await self.client.post(self.path, json={"invitations": [{"email": email, "role": role}]})
        assert response.status_code == expect, response.text
        body = response.json()
        return body["invitations"][0] if expect == 200 else body


@pytest_asyncio.fixture(loop_scope="session")
async def house(alone: Alone) -> AsyncGenerator[House]:
    home = await organization(alone.database)
    who = await person(alone.database, {home: Role.OWNER})
    async with browser(alone.url, await session_of(alone.database, who, home)) as client:
        yield House(alone, home, who, client)


def email() -> str:
    return f"i-{uuid4().hex[:12]}@example.org"


async def accept(alone: Alone, token: str, who: Person | None, expect: int = 200, **fields: Any) -> dict[str, Any]:
    """As somebody who is signed in, or as somebody who is not."""
    cookie = None if who is None else await session_of(alone.database, who)
    async with browser(alone.url, cookie) as client:
        response = await client.post("/invitations/accept", json={"token": token} | fields)
    assert response.status_code == expect, response.text
    assert (SESSION_COOKIE in response.cookies) is (who is None and expect == 200)
    return response.json()


async def role_of(alone: Alone, home: UUID, address: str) -> Role | None:
    async with alone.database.transaction() as session:
        statement = select(Membership.role).join(User, User.id == Membership.user_id)
        return await session.scalar(statement.where(User.email == address, Membership.account_id == home))


async def test_invitations_are_shown_as_neons_api_shows_them_and_their_token_once(house: House) -> None:
    address = email()
    made = await house.invite(address.upper(), "viewer")
    assert made["link"] == f"{house.alone.url}/accept-invitation#{made['token']}"
    listed = (await house.client.get(house.path)).json()["invitations"]
    assert listed == [{name: made[name] for name in made if name not in {"token", "link"}}]
    assert set(listed[0]) == {"id", "email", "org_id", "invited_by", "invited_at", "expires_at", "role"}
    assert (listed[0]["email"], listed[0]["invited_by"]) == (address, str(house.who.id))
    async with house.alone.database.transaction() as session:
        row = (await session.scalars(select(Invitation).where(Invitation.email == address))).one()
    assert row.token_hash == hash_token(made["token"])
    assert row.expires_at - row.invited_at == timedelta(days=7)


async def test_somebody_new_makes_an_account_and_is_signed_in(house: House) -> None:
    alone, address = house.alone, email()
    made = await house.invite(address, "admin")
    async with browser(alone.url) as client:
        body = {"token": made["token"], "password": PASSWORD, "name": "  Somebody New "}
        response = await client.post("/invitations/accept", json=body)
        assert response.status_code == 200, response.text
        assert response.json() == {
            "org_id": str(house.home),
            "org_name": (await house.client.get(f"/organizations/{house.home}")).json()["name"],
            "email": address,
            "role": "admin",
        }
        shown = (await client.get("/auth/session")).json()["user"]
        assert (shown["email"], shown["role"]) == (address, "admin")
    async with browser(alone.url) as client:
        assert (await client.post("/auth/sign_in", json={"email": address, "password": PASSWORD})).status_code == 204
    async with alone.database.transaction() as session:
        found = await session.scalars(
            select(AuditEntry).where(AuditEntry.resource == f"user/{address}").order_by(AuditEntry.id)
        )
        entries = [(entry.action, entry.actor) for entry in found]
    assert entries[:3] == [
        ("invitation.create", house.who.email),
        ("invitation.accept", address),
        ("session.create", address),
    ]


async def test_the_invited_person_accepts_and_nobody_else(house: House) -> None:
    alone = house.alone
    invited, other = await person(alone.database, {}), await person(alone.database, {})
    made = await house.invite(invited.email)
    assert "somebody else" in (await accept(alone, made["token"], other, 403))["message"]
    assert "sign in" in (await accept(alone, made["token"], None, 401))["message"]
    # An account that there is is not made anew, whatever password is sent.
    assert "has an account" in (await accept(alone, made["token"], None, 409, password=PASSWORD))["message"]
    assert await role_of(alone, house.home, other.email) is None
    await accept(alone, made["token"], invited)
    assert await role_of(alone, house.home, invited.email) is Role.MEMBER
    assert "before" in (await accept(alone, made["token"], invited, 409))["message"]
    assert (await house.client.get(house.path)).json()["invitations"] == []


async def test_an_invitation_ends_when_it_is_old_or_revoked_or_made_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = house.alone
    who = await person(alone.database, {})
    first = await house.invite(who.email)
    second = await house.invite(who.email, "viewer")
    assert [each["id"] for each in (await house.client.get(house.path)).json()["invitations"]] == [second["id"]]
    assert "taken back" in (await accept(alone, first["token"], who, 409))["message"]
    assert (await house.client.delete(f"{house.path}/{second['id']}")).status_code == 200
    assert (await house.client.delete(f"{house.path}/{second['id']}")).status_code == 404
    assert "taken back" in (await accept(alone, second["token"], who, 409))["message"]
    with monkeypatch.context() as patched:
        patched.setattr(invitations, "LASTS", timedelta(0))
        third = await house.invite(who.email)
    assert "expired" in (await accept(alone, third["token"], who, 409))["message"]
    assert (await house.client.get(house.path)).json()["invitations"] == []
    assert await role_of(alone, house.home, who.email) is None
    # One that has expired is in nobody's way.
    await accept(alone, (await house.invite(who.email))["token"], who)


@pytest.mark.parametrize("token", ["weir_invitation_none", "x", "weir_"])
async def test_a_token_of_no_invitation_is_none(alone: Alone, token: str) -> None:
    await accept(alone, token, None, 404, password=PASSWORD)
    await accept(alone, token, await person(alone.database, {}), 404)


async def test_nobody_invites_or_takes_back_above_their_own_role(house: House) -> None:
    alone = house.alone
    admin = await person(alone.database, {house.home: Role.ADMIN})
    member = await person(alone.database, {house.home: Role.MEMBER})
    of_owner = await house.invite(email(), "owner")
    async with browser(alone.url, await session_of(alone.database, admin, house.home)) as client:
        asked = {"invitations": [{"email": email(), "role": "viewer"}, {"email": email(), "role": "owner"}]}
        assert (await client.post(house.path, json=asked)).status_code == 403
        # All of them or none.
        assert len((await client.get(house.path)).json()["invitations"]) == 1
        assert (await client.delete(f"{house.path}/{of_owner['id']}")).status_code == 403
        replaced = {"invitations": [{"email": of_owner["email"], "role": "viewer"}]}
        assert (await client.post(house.path, json=replaced)).status_code == 403
        assert (await client.post(house.path, json={"invitations": [{"email": email()}]})).status_code == 200
    async with browser(alone.url, await session_of(alone.database, member, house.home)) as client:
        assert (await client.get(house.path)).status_code == 403
        assert (await client.post(house.path, json={"invitations": [{"email": email()}]})).status_code == 403


async def test_an_invitation_counts_as_long_as_who_made_it_may_make_it(house: House) -> None:
    """Else an admin who is to go would have let themselves in again before."""
    alone, who = house.alone, await person(house.alone.database, {})
    admin = await person(alone.database, {house.home: Role.ADMIN})
    async with browser(alone.url, await session_of(alone.database, admin, house.home)) as client:
        response = await client.post(house.path, json={"invitations": [{"email": who.email, "role": "admin"}]})
        token = response.json()["invitations"][0]["token"]
    member = f"/organizations/{house.home}/members/{admin.members[house.home]}"
    assert (await house.client.patch(member, json={"role": "member"})).status_code == 200
    assert "may not decide" in (await accept(alone, token, who, 409))["message"]
    assert (await house.client.patch(member, json={"role": "admin"})).status_code == 200
    assert (await house.client.delete(member)).status_code == 200
    assert "may not decide" in (await accept(alone, token, who, 409))["message"]


async def test_an_invitation_by_a_key_ends_with_the_key(house: House) -> None:
    alone, who = house.alone, await person(house.alone.database, {})
    key = (await house.client.post("/api_keys", json={"key_name": "inviting"})).json()
    async with keyed(alone.url, key["key"]) as client:
        response = await client.post(house.path, json={"invitations": [{"email": who.email}]})
        assert response.status_code == 200, response.text
        token = response.json()["invitations"][0]["token"]
    assert (await house.client.delete(f"/api_keys/{key['id']}")).status_code == 200
    assert "may not decide" in (await accept(alone, token, who, 409))["message"]


async def test_an_api_key_accepts_nothing(house: House) -> None:
    who = await person(house.alone.database, {house.home: Role.OWNER})
    async with browser(house.alone.url, await session_of(house.alone.database, who, house.home)) as client:
        key = (await client.post("/api_keys", json={"key_name": "mine"})).json()["key"]
    elsewhere = await organization(house.alone.database)
    inviter = await person(house.alone.database, {elsewhere: Role.OWNER})
    async with browser(house.alone.url, await session_of(house.alone.database, inviter, elsewhere)) as client:
        path = f"/organizations/{elsewhere}/invitations"
        made = (await client.post(path, json={"invitations": [{"email": who.email}]})).json()["invitations"][0]
    async with keyed(house.alone.url, key) as client:
        assert (await client.post("/invitations/accept", json={"token": made["token"]})).status_code == 401
        opened = await client.post("/auth/session", json={"api_key": key})
        assert opened.status_code == 204
    async with browser(house.alone.url, opened.cookies[SESSION_COOKIE]) as client:
        assert (await client.post("/invitations/accept", json={"token": made["token"]})).status_code == 401


async def test_members_are_not_invited_and_an_email_once_in_a_request(house: House) -> None:
    assert "member already" in (await house.invite(house.who.email, expect=409))["message"]
    address = email()
    twice = {"invitations": [{"email": address}, {"email": address.upper()}]}
    assert (await house.client.post(house.path, json=twice)).status_code == 400
    for wrong in ([], [{"email": email()}] * 21, [{"email": "nobody"}], [{"email": email(), "role": "emperor"}]):
        assert (await house.client.post(house.path, json={"invitations": wrong})).status_code == 400


async def test_an_organisation_has_so_many_open_invitations(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invitations, "MOST_OPEN", 2)
    first, second = email(), email()
    await house.invite(first)
    await house.invite(second)
    assert (await house.invite(email(), expect=403))["code"] == "QUOTA_EXCEEDED"
    # Making one again takes no further place.
    await house.invite(second)


async def test_a_weak_password_leaves_the_invitation_open(house: House) -> None:
    made = await house.invite(email())
    await accept(house.alone, made["token"], None, 400, password="short")
    await accept(house.alone, made["token"], None, 400, password=made["email"])
    await accept(house.alone, made["token"], None, password=PASSWORD)


async def test_who_signs_in_by_a_provider_gets_no_account_with_a_password(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else whoever invites, and so has the link, would own the account of the person who reads mail there."""
    address = f"{uuid4().hex}@corp.example"
    made = await house.invite(address)
    house_domains = frozenset({"corp.example"})
    real = invitations.refuse_known

    async def refuse(session: Any, email: str, _domains: frozenset[str]) -> None:
        await real(session, email, house_domains)

    monkeypatch.setattr(invitations, "refuse_known", refuse)
    assert "identity provider" in (await accept(house.alone, made["token"], None, 403, password=PASSWORD))["message"]
    async with house.alone.database.transaction() as session:
        assert await session.scalar(select(func.count()).where(User.email == address)) == 0
        session.add(User(email=address, name=address))
        await session.flush()
        ident = (await session.scalars(select(User.id).where(User.email == address))).one()
    await accept(house.alone, made["token"], Person(ident, address, {}))


async def test_an_invitation_that_is_accepted_twice_at_once_counts_once(house: House) -> None:
    alone = house.alone
    made = await house.invite(email())

    async def take() -> int:
        async with browser(alone.url) as client:
            body = {"token": made["token"], "password": PASSWORD}
            return (await client.post("/invitations/accept", json=body)).status_code

    assert sorted(await asyncio.gather(*(take() for _ in range(4)))) == [200, 409, 409, 409]
    assert await role_of(alone, house.home, made["email"]) is Role.MEMBER


async def test_a_page_of_another_site_accepts_nothing(house: House) -> None:
    who = await person(house.alone.database, {})
    made = await house.invite(who.email)
    async with browser(house.alone.url, await session_of(house.alone.database, who)) as client:
        foreign = {"Origin": "https://elsewhere.example"}
        refused = await client.post("/invitations/accept", json={"token": made["token"]}, headers=foreign)
        assert refused.status_code == 403
    assert await role_of(house.alone, house.home, who.email) is None
