"""Signing in by a real identity provider, and out again."""

import asyncio
import re
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
from sqlalchemy import func, select
from weir_testing.identity_provider import (
    CLIENT,
    DOMAIN,
    Installation,
    RealProvider,
    SigningKey,
    answer_of,
    installation,
    own_folder,
    sign_in,
)
from weir_testing.people import PASSWORD, organization_named, person
from weir_testing.programs import free_port

from weir.authz.principal import SESSION_COOKIE
from weir.config import Settings
from weir.identity.models import AuditEntry, ConsoleSession
from weir.oidc.models import ProviderSession
from weir.oidc.tokens import ALGORITHMS
from weir.people import administration
from weir.people.models import Membership, User, UserIdentity
from weir.people.roles import Role


@pytest.fixture(scope="module")
def provider(scratch: Path) -> Generator[RealProvider]:
    made = RealProvider(own_folder(scratch))
    yield made
    made.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def here(
    environment: Settings, postgres_url: str, scratch: Path, provider: RealProvider
) -> AsyncGenerator[Installation]:
    del environment
    folder = own_folder(scratch)
    issuers = {"corp": provider.issuer, "away": f"http://127.0.0.1:{free_port()}"}
    async with installation(postgres_url, folder / "secret", **issuers) as running:
        yield running


def email() -> str:
    return f"p-{uuid4().hex[:12]}@{DOMAIN}"


@asynccontextmanager
async def at_provider(
    here: Installation, provider: RealProvider, address: str, claims: dict[str, Any] | None = None, **settings: Any
) -> AsyncGenerator[httpx.AsyncClient]:
    """A browser of somebody with a new account at the provider, which runs with these settings."""
    account = provider.account(address, **(claims or {}))
    provider.start(here.url, **settings)
    async with here.browser(account) as client:
        yield client


async def user_of(here: Installation, address: str) -> User | None:
    async with here.database.transaction() as session:
        return (await session.scalars(select(User).where(User.email == address))).one_or_none()


async def actions_of(here: Installation, address: str) -> list[tuple[str, dict[str, Any]]]:
    async with here.database.transaction() as session:
        statement = select(AuditEntry).where(AuditEntry.resource == f"user/{address}").order_by(AuditEntry.id)
        return [(entry.action, entry.detail) for entry in await session.scalars(statement)]


async def test_providers_are_listed_for_anybody(here: Installation) -> None:
    async with here.browser() as client:
        listed = (await client.get("/auth/providers")).json()["providers"]
        assert listed[0] == {"id": "corp", "name": "corp", "start_url": "/api/v2/auth/oidc/corp/start"}
        assert [each["id"] for each in listed] == ["corp", "away"]
        assert (await client.get("/auth/oidc/none/start")).status_code == 404


async def test_who_first_signs_in_is_made_with_the_role_of_the_settings(
    here: Installation, provider: RealProvider
) -> None:
    address = email()
    async with at_provider(here, provider, address) as client:
        answer = await answer_of(here, client, "/projects?search=shop")
        response = await client.get(answer)
        assert (response.status_code, response.headers["location"]) == (303, "/projects?search=shop")
        cookie = next(each for each in response.headers.get_list("set-cookie") if each.startswith(SESSION_COOKIE))
        assert "httponly" in cookie.lower()
        assert "samesite=lax" in cookie.lower()
        shown = (await client.get("/auth/session")).json()["user"]
        assert (shown["email"], shown["role"]) == (address, "member")
        assert shown["organization_id"] == str(await organization_named(here.database, "admin"))
    user = await user_of(here, address)
    assert user is not None
    assert user.password_hash is None
    assert user.name.startswith("Name of account-")
    (made, begun) = await actions_of(here, address)
    assert made == ("user.create", {"provider": "corp", "issuer": provider.issuer})
    assert begun == ("session.create", {"provider": "corp", "issuer": provider.issuer})


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_each_algorithm_is_taken(here: Installation, provider: RealProvider, algorithm: str) -> None:
    async with at_provider(here, provider, email(), algorithm=algorithm) as client:
        await sign_in(here, client)
        assert (await client.get("/users/me")).status_code == 200


@pytest.mark.parametrize("conform", [True, False])
async def test_the_email_comes_in_the_id_token_or_is_asked_for(
    here: Installation, provider: RealProvider, conform: bool
) -> None:
    address = email()
    async with at_provider(here, provider, address, conform=conform) as client:
        await sign_in(here, client)
    assert await user_of(here, address) is not None


async def test_a_person_stays_the_same_whatever_email_the_provider_gives_them(
    here: Installation, provider: RealProvider
) -> None:
    address, later = email(), email()
    account = provider.account(address)
    provider.start(here.url)
    async with here.browser(account) as client:
        await sign_in(here, client)
        first = (await client.get("/users/me")).json()["id"]
    provider.change(account, email=later)
    async with here.browser(account) as client:
        await sign_in(here, client)
        assert (await client.get("/users/me")).json()["id"] == first
    assert await user_of(here, later) is None


async def test_new_keys_of_the_provider_are_learned(here: Installation, provider: RealProvider) -> None:
    async with at_provider(here, provider, email()) as client:
        await sign_in(here, client)
    provider.keys = [SigningKey.make(key.algorithm) for key in provider.keys]
    async with at_provider(here, provider, email()) as client:
        await sign_in(here, client)


async def test_an_email_that_is_not_verified_or_of_another_domain_makes_nobody(
    here: Installation, provider: RealProvider
) -> None:
    elsewhere, address = f"{uuid4().hex}@elsewhere.example", email()
    for claims in ({"email_verified": False}, {"email_verified": "true"}, {"email_verified": None}):
        async with at_provider(here, provider, address, claims) as client:
            assert "verified" in (await sign_in(here, client, 403)).text
    async with at_provider(here, provider, elsewhere) as client:
        assert DOMAIN in (await sign_in(here, client, 403)).text
    for each in (address, elsewhere):
        assert await user_of(here, each) is None
    # A suffix of a domain is another domain.
    async with at_provider(here, provider, f"{uuid4().hex}@not{DOMAIN}") as client:
        await sign_in(here, client, 403)


async def test_an_email_of_somebody_else_opens_nothing_of_theirs(here: Installation, provider: RealProvider) -> None:
    owner = await person(here.database, {}, password=PASSWORD)
    async with at_provider(here, provider, owner.email) as client:
        refused = await sign_in(here, client, 403)
        assert f"provider-only {owner.email}" in refused.text
    # Once no password opens the account, nobody can have come by it in another way.
    async with here.database.transaction() as session:
        await administration.end_password(session, owner.email)
    async with at_provider(here, provider, owner.email) as client:
        await sign_in(here, client)
        assert (await client.get("/users/me")).json()["id"] == str(owner.id)
    # And whoever gets the email at the provider next is somebody else.
    async with at_provider(here, provider, owner.email) as client:
        assert "somebody else" in (await sign_in(here, client, 403)).text
    assert [action for action, _ in await actions_of(here, owner.email)] == [
        "user.password.end",
        "user.link",
        "session.create",
    ]


async def test_an_operator_links_by_hand(here: Installation, provider: RealProvider) -> None:
    who = await person(here.database, {}, password=PASSWORD)
    account = provider.account(f"{uuid4().hex}@elsewhere.example")
    provider.start(here.url)
    async with here.database.transaction() as session:
        await administration.link(session, who.email, provider.issuer, account)
    async with here.browser(account) as client:
        await sign_in(here, client)
        assert (await client.get("/users/me")).json()["id"] == str(who.id)
        async with here.database.transaction() as session:
            assert await administration.unlink(session, who.email) == 1
        assert (await client.get("/users/me")).status_code == 401
        await sign_in(here, client, 403)


async def test_an_answer_counts_once(here: Installation, provider: RealProvider) -> None:
    async with at_provider(here, provider, email()) as client:
        answer = await answer_of(here, client)
        cookies = {name: value for name, value in client.cookies.items() if name == "weir_sign_in"}
        assert cookies
        assert (await client.get(answer)).status_code == 303
        assert "weir_sign_in" not in client.cookies
        async with here.browser() as thief:
            thief.cookies.update(cookies)
            again = await thief.get(answer)
            assert again.status_code == 400
            assert "before" in again.text
            assert SESSION_COOKIE not in again.cookies
        # The code, in the answer to another sign-in: the provider takes it once, and for its own verifier.
        code = dict(parse_qsl(urlsplit(answer).query))["code"]
        fresh = await answer_of(here, client)
        replayed = urlencode(dict(parse_qsl(urlsplit(fresh).query)) | {"code": code})
        refused = await client.get(f"{fresh.partition('?')[0]}?{replayed}")
        assert (refused.status_code, SESSION_COOKIE in refused.cookies) == (401, False)
        assert "invalid_grant" in refused.text


async def test_an_answer_is_of_use_to_the_browser_that_began_alone(
    here: Installation, provider: RealProvider
) -> None:
    async with at_provider(here, provider, email()) as client, here.browser() as bare, here.browser() as other:
        answer = await answer_of(here, client)
        await other.get("/auth/oidc/corp/start")
        for victim in (bare, other):
            refused = await victim.get(answer)
            assert (refused.status_code, SESSION_COOKIE in refused.cookies) == (400, False)
        # Nothing of that has used it up.
        assert (await client.get(answer)).status_code == 303


async def test_who_is_refused_at_the_provider_gets_no_session(here: Installation, provider: RealProvider) -> None:
    provider.start(here.url)
    async with here.browser() as client:
        response = await client.get(await answer_of(here, client))
        assert response.status_code == 401
        assert "access_denied" in response.text
        assert response.headers["content-type"].startswith("text/html")
        assert SESSION_COOKIE not in response.cookies


async def test_a_session_that_somebody_planted_is_not_gone_on_with(
    here: Installation, provider: RealProvider
) -> None:
    async with at_provider(here, provider, email()) as attacker:
        await sign_in(here, attacker)
        planted = attacker.cookies[SESSION_COOKIE]
        async with at_provider(here, provider, email()) as victim:
            victim.cookies.set(SESSION_COOKIE, planted)
            response = await sign_in(here, victim)
            assert response.cookies[SESSION_COOKIE] != planted
        assert (await attacker.get("/users/me")).status_code == 401


async def test_signing_out_at_the_provider_ends_sessions_here(here: Installation, provider: RealProvider) -> None:
    address = email()
    async with at_provider(here, provider, address) as client, here.browser() as second:
        await sign_in(here, client)
        # Another session of the same session at the provider.
        second.cookies.set(SESSION_COOKIE, client.cookies[SESSION_COOKIE])
        client.cookies.delete(SESSION_COOKIE)
        await sign_in(here, client)
        assert (await second.get("/users/me")).status_code == 200
        async with here.database.transaction() as session:
            sids = set(await session.scalars(select(ProviderSession.sid).where(ProviderSession.sid.is_not(None))))
        assert sids
        out = await client.post("/auth/oidc/logout")
        assert out.status_code == 200, out.text
        assert (await client.get("/users/me")).status_code == 401
        assert (await second.get("/users/me")).status_code == 200
        url = out.json()["url"]
        asked = dict(parse_qsl(urlsplit(url).query))
        assert (asked["client_id"], asked["post_logout_redirect_uri"]) == (CLIENT, f"{here.url}/")
        page = await client.get(url)
        assert page.status_code == 200, page.text
        xsrf = re.search(r'name="xsrf" value="([^"]+)"', page.text)
        assert xsrf is not None, page.text
        form = {"xsrf": xsrf[1], "logout": "yes"}
        done = await client.post(f"{provider.issuer}/session/end/confirm", data=form)
        assert done.status_code in {302, 303}, done.text
        assert done.headers["location"].startswith(f"{here.url}/")
        # The provider tells the API before it answers.
        assert (await second.get("/users/me")).status_code == 401
    assert [action for action, _ in await actions_of(here, address)][-2:] == ["session.delete", "session.revoke"]
    assert (await actions_of(here, address))[-1][1] == {"by": "provider corp", "sessions": 1}


async def test_sessions_that_no_provider_opened_end_here_alone(here: Installation) -> None:
    async with here.browser() as client:
        key = (here.settings.secrets_dir / "api_key").read_text().strip()
        assert (await client.post("/auth/session", json={"api_key": key})).status_code == 204
        assert (await client.post("/auth/oidc/logout")).json() == {"url": None}
        assert (await client.get("/users/me")).status_code == 401


async def test_a_provider_that_is_away_is_said_to_be(here: Installation) -> None:
    async with here.browser() as client:
        response = await client.get("/auth/oidc/away/start")
        assert response.status_code == 503
        assert "did not answer" in response.text
        told = await client.get("/auth/oidc/away/start", headers={"Accept": "application/json"})
        assert told.json()["code"] == "DEPENDENCY_UNAVAILABLE"


async def test_a_first_sign_in_twice_at_once_makes_one_person(here: Installation, provider: RealProvider) -> None:
    address = email()
    account = provider.account(address)
    provider.start(here.url)
    async with here.browser(account) as one, here.browser(account) as two:
        answers = [await answer_of(here, client) for client in (one, two)]
        done = await asyncio.gather(one.get(answers[0]), two.get(answers[1]))
        assert [response.status_code for response in done] == [303, 303]
    async with here.database.transaction() as session:
        identities = select(func.count()).where(UserIdentity.subject == account)
        assert await session.scalar(identities) == 1
        sessions = select(func.count()).select_from(ConsoleSession).join(User).where(User.email == address)
        assert await session.scalar(sessions) == 2
        members = select(Membership.role).join(User, User.id == Membership.user_id).where(User.email == address)
        assert list(await session.scalars(members)) == [Role.MEMBER]
