"""Links with a real identity provider that people make and end themselves."""

import asyncio
from base64 import b32decode
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
from sqlalchemy import delete, select, text
from weir_testing.identity_provider import (
    DOMAIN,
    Installation,
    RealProvider,
    answer_of,
    installation,
    own_folder,
    sign_in,
)
from weir_testing.people import PASSWORD, Person, person, session_of
from weir_testing.programs import free_port

from weir.authz.principal import SESSION_COOKIE
from weir.config import Settings
from weir.identity.models import AuditEntry, ConsoleSession
from weir.kit.clock import now
from weir.people import administration, second_factor
from weir.people.models import UserIdentity

PROOF = {"password": PASSWORD}


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
    issuers = {"corp": provider.issuer, "away": f"http://127.0.0.1:{free_port()}"}
    async with installation(postgres_url, own_folder(scratch) / "secret", **issuers) as running:
        provider.start(running.url)
        yield running


def new_account(provider: RealProvider) -> str:
    """Of an email that the settings let in nobody by."""
    return provider.account(f"{uuid4().hex}@elsewhere.example")


@asynccontextmanager
async def signed_in(here: Installation, who: Person, account: str = "") -> AsyncGenerator[httpx.AsyncClient]:
    """The person's browser, signed in here by password, and at the provider as `account`."""
    async with here.browser(account) as client:
        client.cookies.set(SESSION_COOKIE, await session_of(here.database, who))
        yield client


async def begun(client: httpx.AsyncClient, **proof: Any) -> str:
    """Where the browser goes to sign in at the provider."""
    response = await client.post("/auth/oidc/corp/link", json=PROOF | proof)
    assert response.status_code == 200, response.text
    return response.json()["url"]


async def link_answer(here: Installation, client: httpx.AsyncClient, **proof: Any) -> str:
    """The provider's answer to a link, which nobody has opened."""
    where = await begun(client, **proof)
    while not here.is_here(where):
        response = await client.get(where)
        assert response.status_code in {302, 303}, f"{where}: {response.status_code} {response.text}"
        where = urljoin(where, response.headers["location"])
    return where


async def link(here: Installation, client: httpx.AsyncClient, expect: int = 303) -> httpx.Response:
    response = await client.get(await link_answer(here, client))
    assert response.status_code == expect, response.text
    assert SESSION_COOKIE not in response.cookies, "a link opens no session"
    return response


async def unlink(client: httpx.AsyncClient, provider: RealProvider, account: str, **proof: Any) -> httpx.Response:
    body = PROOF | {"issuer": provider.issuer, "subject": account} | proof
    return await client.post("/auth/links/end", json=body)


async def subjects_of(here: Installation, who: Person) -> list[str]:
    async with here.database.transaction() as session:
        return list(await session.scalars(select(UserIdentity.subject).where(UserIdentity.user_id == who.id)))


async def actions_of(here: Installation, who: Person) -> list[str]:
    async with here.database.transaction() as session:
        statement = (
            select(AuditEntry.action).where(AuditEntry.resource == f"user/{who.email}").order_by(AuditEntry.id)
        )
        return list(await session.scalars(statement))


async def test_a_link_is_made_signs_in_and_ends(here: Installation, provider: RealProvider) -> None:
    who, account = await person(here.database, {}, password=PASSWORD), new_account(provider)
    async with signed_in(here, who, account) as client, here.browser(account) as other:
        assert (await client.get("/auth/links")).json() == {"links": []}
        done = await link(here, client)
        assert done.headers["location"] == "/account"
        (shown,) = (await client.get("/auth/links")).json()["links"]
        assert (shown["subject"], shown["provider_id"], shown["name"]) == (account, "corp", "corp")
        assert shown["issuer"] == provider.issuer
        assert shown["email"].endswith("@elsewhere.example")
        await sign_in(here, other)
        assert (await other.get("/users/me")).json()["id"] == str(who.id)

        ended = await unlink(client, provider, account)
        assert ended.status_code == 204, ended.text
        assert (await client.get("/users/me")).status_code == 200
        assert (await other.get("/users/me")).status_code == 401, "what came by the link ends with it"
        await sign_in(here, other, 403)
        assert (await unlink(client, provider, account)).status_code == 404
    assert await actions_of(here, who) == ["user.link.begin", "user.link", "session.create", "user.unlink"]


async def test_the_session_that_ends_its_own_link_goes_on(here: Installation, provider: RealProvider) -> None:
    who, account = await person(here.database, {}, password=PASSWORD), new_account(provider)
    async with signed_in(here, who, account) as client:
        await link(here, client)
        await sign_in(here, client)
        assert (await unlink(client, provider, account)).status_code == 204
        assert (await client.get("/users/me")).status_code == 200


async def test_the_provider_is_told_to_ask_who_is_there(here: Installation, provider: RealProvider) -> None:
    who = await person(here.database, {}, password=PASSWORD)
    async with signed_in(here, who, new_account(provider)) as client:
        asked = parse_qs(urlsplit(await begun(client)).query)
        assert asked["prompt"] == ["login"]
        assert asked["code_challenge_method"] == ["S256"]


@pytest.mark.parametrize("ends", [False, True])
async def test_a_session_alone_neither_makes_nor_ends_a_link(
    here: Installation, provider: RealProvider, ends: bool
) -> None:
    who, account = await person(here.database, {}, password=PASSWORD), new_account(provider)
    async with signed_in(here, who, account) as client:
        if ends:
            await link(here, client)
            refused = await unlink(client, provider, account, password="a guess of it")
        else:
            refused = await client.post("/auth/oidc/corp/link", json={"password": "a guess of it"})
        assert (refused.status_code, "weir_sign_in" in refused.cookies) == (401, False)
    assert await subjects_of(here, who) == ([account] if ends else [])


async def test_a_second_factor_is_asked_for(here: Installation, provider: RealProvider) -> None:
    who, account = await person(here.database, {}, password=PASSWORD), new_account(provider)
    async with signed_in(here, who, account) as client:
        made = (await client.post("/auth/totp", json=PROOF)).json()["secret"]
        code = second_factor.code_at(b32decode(made), now())
        confirmed = await client.post("/auth/totp/confirm", json={"code": code})
        (first, second, *_) = confirmed.json()["recovery_codes"]
        told = await client.post("/auth/oidc/corp/link", json=PROOF)
        assert told.json()["code"] == "CODE_REQUIRED"
        answer = await link_answer(here, client, code=first)
        assert (await client.get(answer)).status_code == 303
        assert (await unlink(client, provider, account)).json()["code"] == "CODE_REQUIRED"
        assert (await unlink(client, provider, account, code=second)).status_code == 204


async def test_an_answer_links_in_the_session_that_began_alone(here: Installation, provider: RealProvider) -> None:
    """Also where the other person's browser has the cookie of the link, planted there."""
    attacker, victim = [await person(here.database, {}, password=PASSWORD) for _ in range(2)]
    account = new_account(provider)
    async with signed_in(here, attacker, account) as client, signed_in(here, victim) as other:
        answer = await link_answer(here, client)
        bare = await other.get(answer)
        assert (bare.status_code, SESSION_COOKIE in bare.cookies) == (400, False)
        for name, value in client.cookies.items():
            if name == "weir_sign_in":
                other.cookies.set(name, value)
        planted = await other.get(answer)
        assert (planted.status_code, SESSION_COOKIE in planted.cookies) == (401, False)
        assert "another session" in planted.text
        assert "Linking has failed" in planted.text
    for who in (attacker, victim):
        assert await subjects_of(here, who) == []


async def test_without_a_session_an_answer_to_a_link_signs_nobody_in(
    here: Installation, provider: RealProvider
) -> None:
    """Not even whoever is linked already: a link that was begun opens no session."""
    who, account = await person(here.database, {}, password=PASSWORD), new_account(provider)
    async with here.database.transaction() as session:
        await administration.link(session, who.email, provider.issuer, account)
    begins = await person(here.database, {}, password=PASSWORD)
    async with signed_in(here, begins, account) as client:
        answer = await link_answer(here, client)
        client.cookies.delete(SESSION_COOKIE)
        refused = await client.get(answer)
        assert (refused.status_code, SESSION_COOKIE in refused.cookies) == (401, False)


async def test_a_session_that_ends_at_the_provider_s_page_links_nobody(
    here: Installation, provider: RealProvider
) -> None:
    who, account = await person(here.database, {}, password=PASSWORD), new_account(provider)
    async with signed_in(here, who, account) as client:
        answer = await link_answer(here, client)
        async with here.database.transaction() as session:
            await session.execute(delete(ConsoleSession).where(ConsoleSession.user_id == who.id))
        assert (await client.get(answer)).status_code == 401
        # Nor does another session of the same person.
        client.cookies.set(SESSION_COOKIE, await session_of(here.database, who))
        assert (await client.get(answer)).status_code == 400
    assert await subjects_of(here, who) == []


async def test_an_answer_links_once(here: Installation, provider: RealProvider) -> None:
    who, account = await person(here.database, {}, password=PASSWORD), new_account(provider)
    async with signed_in(here, who, account) as client:
        answer = await link_answer(here, client)
        cookie = client.cookies["weir_sign_in"]
        assert (await client.get(answer)).status_code == 303
        assert (await unlink(client, provider, account)).status_code == 204
        client.cookies.set("weir_sign_in", cookie)
        again = await client.get(answer)
        assert again.status_code == 400
        assert "before" in again.text
    assert await subjects_of(here, who) == []


async def test_somebody_else_s_account_at_the_provider_stays_theirs(
    here: Installation, provider: RealProvider
) -> None:
    account = provider.account(f"p-{uuid4().hex[:12]}@{DOMAIN}")
    async with here.browser(account) as theirs:
        await sign_in(here, theirs)
        whose = (await theirs.get("/users/me")).json()["id"]
        who = await person(here.database, {}, password=PASSWORD)
        async with signed_in(here, who, account) as client:
            refused = await link(here, client, 409)
            assert "another person" in refused.text
            # Nor does anybody end a link of others.
            assert (await unlink(client, provider, account)).status_code == 404
        await sign_in(here, theirs)
        assert (await theirs.get("/users/me")).json()["id"] == whose


async def test_of_links_that_come_at_once_one_is_made(here: Installation, provider: RealProvider) -> None:
    """Two persons with one account at the provider, and one person with two."""
    one, two = [await person(here.database, {}, password=PASSWORD) for _ in range(2)]
    account = new_account(provider)
    async with signed_in(here, one, account) as first, signed_in(here, two, account) as second:
        answers = [await link_answer(here, client) for client in (first, second)]
        got = await asyncio.gather(first.get(answers[0]), second.get(answers[1]))
        assert sorted(each.status_code for each in got) == [303, 409]
    assert sorted(await subjects_of(here, one) + await subjects_of(here, two)) == [account]
    who = await person(here.database, {}, password=PASSWORD)
    async with (
        signed_in(here, who, new_account(provider)) as first,
        signed_in(here, who, new_account(provider)) as second,
    ):
        answers = [await link_answer(here, client) for client in (first, second)]
        got = await asyncio.gather(first.get(answers[0]), second.get(answers[1]))
        assert sorted(each.status_code for each in got) == [303, 409]
    assert len(await subjects_of(here, who)) == 1


async def _until_somebody_waits_for_a_row(here: Installation) -> None:
    statement = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    for _ in range(100):
        async with here.database.transaction() as session:
            if await session.scalar(statement):
                return
        await asyncio.sleep(0.1)
    raise AssertionError("nobody waited for a row in ten seconds")


async def test_a_link_that_ends_during_a_sign_in_opens_no_session(here: Installation, provider: RealProvider) -> None:
    who, account = await person(here.database, {}, password=PASSWORD), new_account(provider)
    async with here.database.transaction() as session:
        await administration.link(session, who.email, provider.issuer, account)
    async with here.browser(account) as client:
        answer = await answer_of(here, client)
        async with here.database.transaction() as session:
            await administration.unlink(session, who.email)
            coming = asyncio.create_task(client.get(answer))
            await _until_somebody_waits_for_a_row(here)
        refused = await coming
        assert (refused.status_code, SESSION_COOKIE in refused.cookies) == (401, False)
        assert "ended while you signed in" in refused.text


async def test_text_that_no_subject_has_is_refused(here: Installation, provider: RealProvider) -> None:
    who = await person(here.database, {}, password=PASSWORD)
    async with signed_in(here, who) as client:
        for strange in ("", "a\x00b", "a" * 2049):
            refused = await unlink(client, provider, strange)
            assert refused.status_code in {400, 422}, (strange[:4], refused.text)


async def test_a_person_is_one_at_each_provider(here: Installation, provider: RealProvider) -> None:
    who, first = await person(here.database, {}, password=PASSWORD), new_account(provider)
    async with signed_in(here, who, first) as client, signed_in(here, who, new_account(provider)) as second:
        # Begun while there was none.
        late = await link_answer(here, second)
        await link(here, client)
        assert (await second.get(late)).status_code == 409
        refused = await client.post("/auth/oidc/corp/link", json=PROOF)
        assert refused.status_code == 409
        assert "end that link first" in refused.json()["message"]
    assert await subjects_of(here, who) == [first]


async def test_who_has_no_password_keeps_the_last_way_in(here: Installation, provider: RealProvider) -> None:
    account = provider.account(f"p-{uuid4().hex[:12]}@{DOMAIN}")
    async with here.browser(account) as client:
        await sign_in(here, client)
        for refused in (
            await unlink(client, provider, account),
            await client.post("/auth/oidc/corp/link", json=PROOF),
        ):
            assert refused.status_code == 409
            assert "has no password" in refused.json()["message"]
        await sign_in(here, client)


async def test_who_ended_a_password_ended_the_links_that_it_made(here: Installation, provider: RealProvider) -> None:
    """Whoever knew the password may not be who reads the email: their link would outlast the password."""
    who, account = await person(here.database, {}, password=PASSWORD), new_account(provider)
    async with signed_in(here, who, account) as client:
        await link(here, client)
        pending = await person(here.database, {}, password=PASSWORD)
        async with here.database.transaction() as session:
            await administration.end_password(session, who.email)
        await sign_in(here, client, 403)
    async with signed_in(here, pending, new_account(provider)) as client:
        answer = await link_answer(here, client)
        async with here.database.transaction() as session:
            await administration.end_password(session, pending.email)
        assert (await client.get(answer)).status_code == 401
    for each in (who, pending):
        assert await subjects_of(here, each) == []


async def test_a_provider_that_is_away_uses_up_no_attempt(here: Installation) -> None:
    who = await person(here.database, {}, password=PASSWORD)
    async with signed_in(here, who) as client:
        refused = await client.post("/auth/oidc/away/link", json=PROOF)
        assert refused.status_code == 503
        assert (await client.post("/auth/oidc/none/link", json=PROOF)).status_code == 404
    assert await actions_of(here, who) == []


async def test_another_site_begins_nothing(here: Installation, provider: RealProvider) -> None:
    who = await person(here.database, {}, password=PASSWORD)
    async with signed_in(here, who, new_account(provider)) as client:
        foreign = {"Origin": "https://elsewhere.example"}
        refused = await client.post("/auth/oidc/corp/link", json=PROOF, headers=foreign)
        assert (refused.status_code, "weir_sign_in" in refused.cookies) == (403, False)
        # A sign-in that such a site can have the browser begin makes no link.
        await client.get(await answer_of(here, client))
    assert await subjects_of(here, who) == []


async def test_names_of_other_providers_are_shown_as_unknown(here: Installation) -> None:
    who = await person(here.database, {}, password=PASSWORD)
    async with here.database.transaction() as session:
        await administration.link(session, who.email, "https://gone.example", "them")
    async with signed_in(here, who) as client:
        (shown,) = (await client.get("/auth/links")).json()["links"]
        assert (shown["provider_id"], shown["name"], shown["subject"]) == (None, None, "them")
        gone = PROOF | {"issuer": "https://gone.example", "subject": "them"}
        assert (await client.post("/auth/links/end", json=gone)).status_code == 204
