"""Signing in with email and password: against whoever guesses, replays a code, or has stolen a cookie."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
from fastapi import Request, Response
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import delete, select, update
from weir_testing.fixtures import Weir
from weir_testing.people import PASSWORD, Person, browser, organization, person

from weir.authz.principal import SESSION_COOKIE
from weir.db import Database
from weir.errors import TooManyAttemptsError
from weir.identity.cookies import set_cookie
from weir.identity.models import AuditEntry, ConsoleSession
from weir.kit import clock
from weir.kit.crypto import SecretBox
from weir.people import passwords, second_factor, throttle
from weir.people.models import RecoveryCode, SignInAttempts, User
from weir.people.roles import Role
from weir.people.sign_in import BEAT_SECONDS, proven, until_beat
from weir.people.throttle import BY_ADDRESS, BY_EMAIL, network_of

HERE = "127.0.0.1"


@pytest_asyncio.fixture(autouse=True)
async def _nothing_failed_before(weir: Weir) -> None:
    """All tests sign in from one address."""
    async with weir.resources.database.transaction() as session:
        await session.execute(delete(SignInAttempts))


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    """The moment that signing in takes for now: the last of the list."""
    moments = [clock.now()]
    monkeypatch.setattr("weir.people.proof.now", lambda: moments[-1])
    return moments


async def somebody(weir: Weir) -> Person:
    database = weir.resources.database
    return await person(database, {await organization(database): Role.OWNER}, password=PASSWORD)


def proof(who: Person, **fields: Any) -> dict[str, Any]:
    return {"email": who.email, "password": PASSWORD} | fields


async def enter(client: httpx.AsyncClient, who: Person, expect: int = 204, **fields: Any) -> httpx.Response:
    response = await client.post("/auth/sign_in", json=proof(who, **fields))
    assert response.status_code == expect, response.text
    return response


@asynccontextmanager
async def signed_in(weir: Weir, who: Person, **fields: Any) -> AsyncGenerator[httpx.AsyncClient]:
    async with browser(weir.url) as client:
        await enter(client, who, **fields)
        yield client


async def with_second_factor(weir: Weir, who: Person, when: datetime) -> tuple[bytes, list[str]]:
    """The secret, and recovery codes. The code of `when` is used up."""
    async with signed_in(weir, who) as client:
        begun = await client.post("/auth/totp", json={"password": PASSWORD})
        assert begun.status_code == 200, begun.text
        async with weir.resources.database.transaction() as session:
            sealed = (await session.scalars(select(User.totp_secret).where(User.id == who.id))).one()
        assert sealed is not None
        secret = SecretBox.open(weir.settings.secrets_dir).unseal_bytes(sealed)
        assert second_factor.as_text(secret) == begun.json()["secret"]
        assert begun.json()["secret"] in begun.json()["uri"]
        code = second_factor.code_at(secret, when)
        confirmed = await client.post("/auth/totp/confirm", json={"code": code})
        assert confirmed.status_code == 200, confirmed.text
        return secret, confirmed.json()["recovery_codes"]


async def of_audit(weir: Weir, who: Person) -> list[AuditEntry]:
    async with weir.resources.database.transaction() as session:
        statement = select(AuditEntry).where(AuditEntry.actor == who.email).order_by(AuditEntry.id)
        return list(await session.scalars(statement))


async def test_a_person_signs_in_is_known_and_signs_out(weir: Weir) -> None:
    who = await somebody(weir)
    async with browser(weir.url) as client:
        response = await enter(client, who, email=who.email.upper())
        cookie = response.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=lax" in cookie
        user = (await client.get("/auth/session")).json()["user"]
        assert (user["id"], user["email"], user["role"]) == (str(who.id), who.email, "owner")
        assert (await client.get("/users/me")).json()["id"] == str(who.id)
        stolen = client.cookies[SESSION_COOKIE]
        assert (await client.delete("/auth/session")).status_code == 204
    async with browser(weir.url, stolen) as thief:
        assert (await thief.get("/users/me")).status_code == 401
    entries = await of_audit(weir, who)
    assert [entry.action for entry in entries] == ["session.create", "session.delete"]
    assert all(entry.account_id in who.members and entry.address == HERE for entry in entries)


def test_the_cookie_keeps_to_tls_where_there_is_tls() -> None:
    for scheme, secure in (("https", True), ("http", False)):
        response = Response()
        scope = {
            "type": "http",
            "scheme": scheme,
            "server": ("h", 1),
            "path": "/",
            "headers": [],
            "query_string": b"",
        }
        set_cookie(Request(scope), response, "token")
        assert ("secure" in response.headers["set-cookie"].lower()) is secure


async def test_wrong_email_and_wrong_password_are_answered_alike_at_the_same_cost(
    weir: Weir, monkeypatch: pytest.MonkeyPatch
) -> None:
    who = await somebody(weir)
    without = await person(weir.resources.database, {})
    costs: list[str] = []
    real = passwords.Argon2id

    def verify(password: bytes, stored: str) -> None:
        costs.append(stored[: stored.rindex("$", 0, stored.rindex("$"))])
        real.verify_phc_encoded(password, stored)

    monkeypatch.setattr(passwords, "Argon2id", SimpleNamespace(verify_phc_encoded=verify))
    said: list[dict[str, Any]] = []
    async with browser(weir.url) as client:
        for email in (who.email, f"{uuid4()}@example.org", without.email):
            asked = {"email": email, "password": "a wrong password"}
            response = await client.post("/auth/sign_in", json=asked)
            assert response.status_code == 401
            assert response.elapsed.total_seconds() >= BEAT_SECONDS
            said.append(response.json() | {"request_id": ""})
            assert not client.cookies
    assert said[0] == said[1] == said[2]
    assert len(costs) == 3
    assert set(costs) == {f"$argon2id$v=19$m={passwords.MEMORY_KIB},t={passwords.ROUNDS},p={passwords.LANES}"}


@given(st.floats(0, 100))
def test_refusals_leave_at_beats(elapsed: float) -> None:
    wait = until_beat(elapsed)
    assert 0 <= wait <= BEAT_SECONDS
    beats = (elapsed + wait) / BEAT_SECONDS
    assert abs(beats - round(beats)) < 1e-6


async def test_what_nobody_has_is_no_password() -> None:
    """Not even what the hash that stands in for none was made of, if anything was."""
    for text in ("", "A" * 22, "\x00" * 32):
        assert not await passwords.fits(text, None)


async def test_failed_sign_ins_of_people_are_on_record_and_passwords_are_not(weir: Weir) -> None:
    who = await somebody(weir)
    async with browser(weir.url) as client:
        await enter(client, who, 401, password="mistyped-by-its-owner")
    (entry,) = await of_audit(weir, who)
    assert (entry.action, entry.detail) == ("session.refuse", {"wrong": "password"})
    assert entry.account_id in who.members
    assert "mistyped" not in json.dumps([entry.detail, entry.resource, entry.actor])


async def test_guessing_at_one_email_has_to_wait_and_even_the_right_password_is_not_looked_at(
    weir: Weir, at: list[datetime]
) -> None:
    who = await somebody(weir)
    async with browser(weir.url) as client:
        for _ in range(BY_EMAIL.free):
            await enter(client, who, 401, password="guess")
        refused = await enter(client, who, 429)
        assert int(refused.headers["retry-after"]) == 1
        assert refused.json()["code"] == "TOO_MANY_ATTEMPTS"
        # Another person is not slowed.
        await enter(client, await somebody(weir))
        at.append(at[-1] + timedelta(seconds=1.1))
        await enter(client, who, 401, password="guess")
        assert int((await enter(client, who, 429)).headers["retry-after"]) == 2
        at.append(at[-1] + timedelta(seconds=2.1))
        await enter(client, who)
        # They have shown who they are: nothing is held against them.
        await enter(client, who, 401, password="guess")
        await enter(client, who)


async def test_guesses_at_once_are_counted_one_by_one(weir: Weir, at: list[datetime]) -> None:
    del at
    who = await somebody(weir)
    async with browser(weir.url) as client:
        answers = await asyncio.gather(
            *(client.post("/auth/sign_in", json=proof(who, password=f"guess {n}")) for n in range(4 * BY_EMAIL.free))
        )
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [401] * BY_EMAIL.free + [429] * 3 * BY_EMAIL.free


async def test_an_address_is_slowed_whomever_it_guesses_at_and_no_account_of_its_own_helps_it(weir: Weir) -> None:
    database, now = weir.resources.database, clock.now()

    async def guess(email: str) -> None:
        await throttle.enter(database, email, "192.0.2.7", now)

    for number in range(BY_ADDRESS.free):
        await guess(f"{number}-{uuid4()}@example.org")
        if number < BY_ADDRESS.free - 1:
            await guess("own@example.org")
            async with database.transaction() as session:
                await throttle.succeeded(session, "own@example.org", "192.0.2.7")
    with pytest.raises(TooManyAttemptsError):
        await guess(f"{uuid4()}@example.org")
    await throttle.enter(database, f"{uuid4()}@example.org", "192.0.2.8", now)
    later = now + throttle.FORGET + timedelta(seconds=1)
    await throttle.enter(database, f"{uuid4()}@example.org", "192.0.2.7", later)


async def test_what_was_long_ago_is_forgotten_and_its_rows_are(weir: Weir) -> None:
    database, now = weir.resources.database, clock.now()
    for number in range(5):
        await throttle.enter(database, f"{number}@example.org", f"192.0.2.{number}", now)
    await throttle.enter(database, "x@example.org", "192.0.2.99", now + 2 * throttle.FORGET)
    async with database.transaction() as session:
        assert len(list(await session.scalars(select(SignInAttempts)))) == 2


@given(st.integers(0, 200))
def test_pauses_grow_up_to_a_bound(failures: int) -> None:
    for measure in (BY_EMAIL, BY_ADDRESS):
        pause, following = measure.pause(failures), measure.pause(failures + 1)
        assert timedelta(0) <= pause <= following <= timedelta(seconds=measure.most)
        assert (pause == timedelta(0)) == (failures < measure.free)


def test_one_client_has_many_addresses_of_ipv6() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1") != network_of("2001:db8:0:1::1")
    assert network_of("::ffff:192.0.2.1") == network_of("192.0.2.1") != network_of("192.0.2.2")
    assert network_of("testclient") == "testclient"


async def test_a_code_signs_in_once_at_once_or_later(weir: Weir, at: list[datetime]) -> None:
    who = await somebody(weir)
    secret, _ = await with_second_factor(weir, who, at[-1])
    async with browser(weir.url) as client:
        assert (await enter(client, who, 401)).json()["code"] == "CODE_REQUIRED"
        # The one that confirmed the factor is used up.
        used = second_factor.code_at(secret, at[-1])
        assert (await enter(client, who, 401, code=used)).json()["code"] == "UNAUTHORIZED"
    at.append(at[-1] + timedelta(seconds=60))
    code = second_factor.code_at(secret, at[-1])
    async with browser(weir.url) as client, browser(weir.url) as thief:
        both = await asyncio.gather(
            *(each.post("/auth/sign_in", json=proof(who, code=code)) for each in (client, thief))
        )
        assert sorted(answer.status_code for answer in both) == [204, 401]
        await enter(thief, who, 401, code=code)
        # Nor one of before, whose time is not over.
        await enter(thief, who, 401, code=second_factor.code_at(secret, at[-1] - timedelta(seconds=30)))
    at.append(at[-1] + timedelta(seconds=30))
    async with browser(weir.url) as client:
        code = second_factor.code_at(secret, at[-1])
        await enter(client, who, code=f"{code[:3]} {code[3:]}")


async def test_a_wrong_password_is_not_told_that_there_is_a_second_factor(weir: Weir, at: list[datetime]) -> None:
    who = await somebody(weir)
    await with_second_factor(weir, who, at[-1])
    async with browser(weir.url) as client:
        assert (await enter(client, who, 401, password="guess")).json()["code"] == "UNAUTHORIZED"


async def test_guessing_codes_has_to_wait(weir: Weir, at: list[datetime]) -> None:
    who = await somebody(weir)
    secret, _ = await with_second_factor(weir, who, at[-1])
    at.append(at[-1] + timedelta(seconds=60))
    right = {second_factor.code_at(secret, at[-1] + timedelta(seconds=30 * step)) for step in (-1, 0, 1)}
    wrong = next(f"{number:06}" for number in range(10) if f"{number:06}" not in right)
    async with browser(weir.url) as client:
        for _ in range(BY_EMAIL.free):
            # Asking for the code in between takes nothing back.
            await enter(client, who, 401)
            await enter(client, who, 401, code=wrong)
        await enter(client, who, 429, code=wrong)


async def test_a_recovery_code_signs_in_once(weir: Weir, at: list[datetime]) -> None:
    who, other = await somebody(weir), await somebody(weir)
    _, codes = await with_second_factor(weir, who, at[-1])
    await with_second_factor(weir, other, at[-1])
    assert len(set(codes)) == second_factor.RECOVERY_CODES
    async with browser(weir.url) as client:
        await enter(client, other, 401, code=codes[0])
        both = await asyncio.gather(
            *(client.post("/auth/sign_in", json=proof(who, code=codes[0].upper().replace("-", " "))) for _ in "12")
        )
        assert sorted(answer.status_code for answer in both) == [204, 401]
    async with weir.resources.database.transaction() as session:
        rows = list(await session.scalars(select(RecoveryCode).where(RecoveryCode.user_id == who.id)))
    assert [row.used_at is not None for row in rows].count(True) == 1
    assert not any(code.encode() in row.code_hash for row in rows for code in codes)


@given(st.binary(min_size=20, max_size=20), st.integers(0, 2**33), st.integers(-200, 200))
def test_a_code_counts_within_a_step_of_its_own(secret: bytes, seconds: int, drift: int) -> None:
    when = datetime.fromtimestamp(seconds + 300, tz=clock.now().tzinfo)
    shown = when + timedelta(seconds=drift)
    steps = int(shown.timestamp()) // 30 - int(when.timestamp()) // 30
    found = second_factor.matching_step(secret, second_factor.code_at(secret, shown), when)
    if abs(steps) <= second_factor.DRIFT:
        assert found is not None
        assert abs(found - int(when.timestamp()) // 30) <= second_factor.DRIFT


def test_codes_are_those_of_the_rfc() -> None:
    """RFC 6238, appendix B, the last six digits."""
    secret = b"12345678901234567890"
    for seconds, code in ((59, "287082"), (1111111109, "081804"), (20000000000, "353130")):
        assert second_factor.code_at(secret, datetime.fromtimestamp(seconds, tz=clock.now().tzinfo)) == code


async def test_a_stolen_session_changes_no_password_and_no_second_factor(weir: Weir, at: list[datetime]) -> None:
    who = await somebody(weir)
    async with signed_in(weir, who) as client:
        for path, method, body in (
            ("/auth/password", "PUT", {"password": "guess", "new_password": "a long new password"}),
            ("/auth/totp", "POST", {"password": "guess"}),
            ("/auth/totp/end", "POST", {"password": "guess"}),
        ):
            assert (await client.request(method, path, json=body)).status_code == 401, path
        # These guesses were counted as those at the door are.
        await enter(client, who, 401, password="guess")
        await enter(client, who, 401, password="guess")
        await enter(client, who, 429)
    at.append(at[-1] + timedelta(hours=2))
    secret, _ = await with_second_factor(weir, who, at[-1])
    at.append(at[-1] + timedelta(seconds=60))
    async with signed_in(weir, who, code=second_factor.code_at(secret, at[-1])) as client:
        refused = await client.post("/auth/totp/end", json={"password": PASSWORD})
        assert (refused.status_code, refused.json()["code"]) == (401, "CODE_REQUIRED")
        at.append(at[-1] + timedelta(seconds=60))
        ended = {"password": PASSWORD, "code": second_factor.code_at(secret, at[-1])}
        assert (await client.post("/auth/totp/end", json=ended)).status_code == 204
    async with signed_in(weir, who):
        pass


async def test_a_new_password_ends_all_other_sessions(weir: Weir) -> None:
    who = await somebody(weir)
    async with signed_in(weir, who) as mine, signed_in(weir, who) as thief:
        new = "another password of mine"
        for weak in ("short", who.email, "aaaaaaaaaaaaaaaa"):
            body = {"password": PASSWORD, "new_password": weak}
            assert (await mine.put("/auth/password", json=body)).status_code == 400
        body = {"password": PASSWORD, "new_password": new}
        assert (await mine.put("/auth/password", json=body)).status_code == 204
        assert (await mine.get("/users/me")).status_code == 200
        assert (await thief.get("/users/me")).status_code == 401
        await enter(thief, who, 401)
        await enter(thief, who, password=new)


@pytest.mark.parametrize("values", [{"password_hash": None}, {"totp_secret": b"x", "totp_confirmed_at": clock.now()}])
async def test_what_was_proven_before_a_change_opens_nothing_after_it(
    weir: Weir, monkeypatch: pytest.MonkeyPatch, values: dict[str, Any]
) -> None:
    """The person changes their password, or sets up a second factor, while somebody signs in with the old one."""
    who = await somebody(weir)

    async def proven_and_changed(*asked: Any) -> User:
        user = await proven(*asked)
        async with weir.resources.database.transaction() as session:
            await session.execute(update(User).where(User.id == who.id).values(**values))
        return user

    monkeypatch.setattr("weir.people.sign_in.proven", proven_and_changed)
    async with browser(weir.url) as client:
        await enter(client, who, 401)
        assert not client.cookies


async def test_sessions_are_listed_and_each_can_be_ended(weir: Weir) -> None:
    who, other = await somebody(weir), await somebody(weir)
    async with signed_in(weir, who) as mine, signed_in(weir, who) as thief, signed_in(weir, other) as stranger:
        listed = (await mine.get("/auth/sessions")).json()["sessions"]
        assert sorted(row["current"] for row in listed) == [False, True]
        assert {row["address"] for row in listed} == {HERE}
        foreign = next(row["id"] for row in listed if not row["current"])
        assert (await stranger.delete(f"/auth/sessions/{foreign}")).status_code == 404
        assert (await thief.get("/users/me")).status_code == 200
        assert (await mine.delete(f"/auth/sessions/{foreign}")).status_code == 204
        assert (await thief.get("/users/me")).status_code == 401
        assert (await mine.get("/users/me")).status_code == 200
        assert len((await mine.get("/auth/sessions")).json()["sessions"]) == 1


async def test_signing_in_again_ends_the_session_before(weir: Weir) -> None:
    """A cookie that somebody put into the browser is none that a later sign-in makes worth anything."""
    who = await somebody(weir)
    async with signed_in(weir, who) as client:
        before = client.cookies[SESSION_COOKIE]
        client.cookies.clear()
        client.cookies.set(SESSION_COOKIE, before)
        response = await enter(client, who)
        after = response.cookies[SESSION_COOKIE]
    assert after != before
    async with browser(weir.url, before) as thief:
        assert (await thief.get("/users/me")).status_code == 401
    async with browser(weir.url, after) as client:
        assert (await client.get("/users/me")).status_code == 200


@pytest.mark.parametrize(
    "values",
    [
        {"last_seen_at": clock.now() - timedelta(hours=3)},
        {"expires_at": clock.now() - timedelta(seconds=1)},
    ],
)
async def test_a_session_ends_when_it_is_idle_or_old(weir: Weir, values: dict[str, Any]) -> None:
    who = await somebody(weir)
    async with signed_in(weir, who) as client:
        assert (await client.get("/users/me")).status_code == 200
        await _change_sessions(weir.resources.database, who, values)
        assert (await client.get("/users/me")).status_code == 401
        assert (await client.post("/auth/sign_in", json=proof(who))).status_code == 204


async def test_a_request_keeps_a_session_from_being_idle(weir: Weir) -> None:
    who = await somebody(weir)
    async with signed_in(weir, who) as client:
        before = clock.now() - timedelta(minutes=90)
        await _change_sessions(weir.resources.database, who, {"last_seen_at": before})
        assert (await client.get("/users/me")).status_code == 200
        (row,) = (await client.get("/auth/sessions")).json()["sessions"]
        assert datetime.fromisoformat(row["last_seen_at"]) > before + timedelta(minutes=80)


async def _change_sessions(database: Database, who: Person, values: dict[str, Any]) -> None:
    async with database.transaction() as session:
        await session.execute(update(ConsoleSession).where(ConsoleSession.user_id == who.id).values(**values))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://elsewhere.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({}, 200),
    ],
)
async def test_other_sites_change_nothing_with_a_session(weir: Weir, headers: dict[str, str], status: int) -> None:
    who = await somebody(weir)
    async with signed_in(weir, who) as client:
        made = await client.post("/api_keys", json={"key_name": "theirs"}, headers=headers)
        assert made.status_code == status
        own = {"Origin": weir.url}
        assert (await client.post("/api_keys", json={"key_name": "mine"}, headers=own)).status_code == 200


async def test_other_sites_sign_nobody_in(weir: Weir) -> None:
    who = await somebody(weir)
    foreign = {"Origin": "https://elsewhere.example"}
    async with browser(weir.url) as client:
        response = await client.post("/auth/sign_in", json=proof(who), headers=foreign)
    assert response.status_code == 403
    assert "set-cookie" not in response.headers


async def test_an_api_key_does_not_stand_for_the_person_who_made_it(weir: Weir) -> None:
    who = await somebody(weir)
    async with signed_in(weir, who) as client:
        key = (await client.post("/api_keys", json={"key_name": "ci"})).json()["key"]
    async with browser(weir.url) as keyed:
        assert (await keyed.post("/auth/session", json={"api_key": key})).status_code == 204
        for method, path in (("PUT", "/auth/password"), ("POST", "/auth/totp"), ("POST", "/auth/totp/confirm")):
            refused = await keyed.request(method, path, json={"password": PASSWORD, "new_password": PASSWORD})
            assert refused.status_code == 403, path
        assert len((await keyed.get("/auth/sessions")).json()["sessions"]) == 1


async def test_the_session_says_who_signed_in_and_with_what(weir: Weir, at: list[datetime]) -> None:
    who = await somebody(weir)
    async with signed_in(weir, who) as client:
        alone = (await client.get("/auth/session")).json()["user"]
        asked = {"key_name": "narrow", "read_only": True}
        key = (await client.post("/api_keys", json=asked)).json()["key"]
    person_of = alone["person"]
    assert (person_of["has_password"], person_of["second_factor"]) == (True, False)
    assert (alone["project_id"], alone["read_only"]) == (None, False)
    async with browser(weir.url) as keyed:
        assert (await keyed.post("/auth/session", json={"api_key": key})).status_code == 204
        narrow = (await keyed.get("/auth/session")).json()["user"]
    # The key was made by a person, and is none.
    assert (narrow["person"], narrow["read_only"], narrow["role"]) == (None, True, "viewer")

    secret, _ = await with_second_factor(weir, who, at[-1])
    at.append(at[-1] + timedelta(seconds=30))
    async with signed_in(weir, who, code=second_factor.code_at(secret, at[-1])) as client:
        assert (await client.get("/auth/session")).json()["user"]["person"]["second_factor"] is True
