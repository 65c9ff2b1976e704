"""Signing in by a provider: against who forges, replays and mixes up what providers and browsers send."""

import base64
import hmac
import json
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import jwt
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select
from weir_testing.identity_provider import (
    CLIENT,
    DOMAIN,
    SECRET,
    CrookedProvider,
    Installation,
    SigningKey,
    crooked,
    installation,
    own_folder,
    unsigned,
)

from weir.authz.principal import SESSION_COOKIE
from weir.config import Settings
from weir.errors import BadRequestError, UnavailableError
from weir.kit.clock import now
from weir.kit.crypto import SecretBox
from weir.oidc import flow, tokens
from weir.oidc.provider import Provider
from weir.oidc.renewed import Ages, Renewed
from weir.oidc.settings import ProviderSettings
from weir.people.models import UserIdentity

Forgery = Callable[[CrookedProvider], str]


@pytest.fixture(scope="module")
def providers() -> Generator[dict[str, CrookedProvider]]:
    """By id. `naming` says that its answers name it; `posting` wants the secret of a client in the body."""
    special: dict[str, dict[str, Any]] = {
        "corp": {},
        "other": {},
        "naming": {"authorization_response_iss_parameter_supported": True},
        "posting": {"token_endpoint_auth_methods_supported": ["client_secret_post"]},
    }
    with ExitStack() as stack:
        yield {ident: stack.enter_context(crooked(**discovery)) for ident, discovery in special.items()}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def here(
    environment: Settings, postgres_url: str, scratch: Path, providers: dict[str, CrookedProvider]
) -> AsyncGenerator[Installation]:
    del environment
    issuers = {ident: provider.issuer for ident, provider in providers.items()}
    async with installation(postgres_url, own_folder(scratch) / "secret", **issuers) as running:
        yield running


@pytest.fixture
def corp(providers: dict[str, CrookedProvider]) -> CrookedProvider:
    providers["corp"].reset()
    return providers["corp"]


@pytest.fixture
def other(providers: dict[str, CrookedProvider]) -> CrookedProvider:
    providers["other"].reset()
    return providers["other"]


@pytest.fixture
def alone() -> Generator[CrookedProvider]:
    """One that no installation knows."""
    with crooked() as running:
        yield running


async def refused(response: httpx.Response, status: int, why: str) -> None:
    assert response.status_code == status, response.text
    assert why in response.text
    assert SESSION_COOKIE not in response.cookies


def claiming(**others: Any) -> Forgery:
    return lambda provider: provider.key.sign(provider.claims(**others))


def _hmac_with_public_key(provider: CrookedProvider) -> str:
    """A provider's public key taken for the secret of an HMAC."""
    secret = provider.key.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    parts = ({"alg": "HS256", "typ": "JWT", "kid": provider.key.kid}, provider.claims())
    body = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    mac = base64.urlsafe_b64encode(hmac.digest(secret, body.encode(), "sha256")).decode().rstrip("=")
    return f"{body}.{mac}"


def _of_another_key(provider: CrookedProvider) -> str:
    forger = SigningKey(provider.key.kid, provider.key.algorithm, SigningKey.make("ES256").private)
    return forger.sign(provider.claims())


def _key_in_the_header(provider: CrookedProvider) -> str:
    forger = SigningKey.make("ES256")
    return forger.sign(provider.claims(), jwk=forger.public())


def _list(provider: CrookedProvider) -> str:
    return jwt.PyJWS().encode(b"[]", provider.key.private, algorithm="ES256", headers={"kid": provider.key.kid})


FORGERIES: dict[str, tuple[Forgery, str]] = {
    "none": (lambda provider: unsigned(provider.claims()), "algorithm"),
    "hmac": (_hmac_with_public_key, "algorithm"),
    "another key": (_of_another_key, "signature"),
    "its own key": (_key_in_the_header, "no key of the provider"),
    "no token": (lambda _: "no.token.at-all", "no signed token"),
    "a huge token": (claiming(padding="x" * tokens.MOST_TOKEN), "characters"),
    "nonce": (claiming(nonce="of-another-sign-in"), "nonce"),
    "no nonce": (claiming(nonce=None), "nonce"),
    "audience": (claiming(aud="another-client"), "audience"),
    "audiences": (claiming(aud=["another-client"]), "audience"),
    "no audience": (claiming(aud=None), "audience"),
    "authorized party": (claiming(aud=[CLIENT, "another-client"], azp="another-client"), "azp"),
    "no authorized party": (claiming(aud=[CLIENT, "another-client"]), "azp"),
    "issuer": (claiming(iss="https://login.elsewhere.example"), "issuer"),
    "expired": (claiming(exp=int((now() - timedelta(minutes=2)).timestamp())), "expired"),
    "no expiry": (claiming(exp=None), "exp"),
    "expiry as text": (claiming(exp="9999999999"), "exp"),
    "no end of time": (claiming(exp=float("inf")), "exp"),
    "of the future": (claiming(iat=int((now() + timedelta(hours=1)).timestamp())), "future"),
    "not yet": (claiming(nbf=int((now() + timedelta(hours=1)).timestamp())), "future"),
    "no subject": (claiming(sub=None), "subject"),
    "an empty subject": (claiming(sub=""), "sub"),
    "a logout token": (claiming(events={tokens.LOGOUT_EVENT: {}}), "another kind"),
    "a list": (_list, "no JSON object"),
    "an extension": (lambda provider: provider.key.sign(provider.claims(), crit=["exp"]), "extension"),
}


async def test_no_forged_id_token_signs_anybody_in(here: Installation, corp: CrookedProvider) -> None:
    for name, (forged, why) in FORGERIES.items():
        corp.token = forged
        async with here.browser() as client:
            response = await corp.sign_in(client, "corp")
            assert why in response.text, f"{name}: {response.text}"
            await refused(response, 401, why)
    async with here.database.transaction() as session:
        made = select(UserIdentity.subject).where(UserIdentity.issuer == corp.issuer)
        assert corp.subject not in set(await session.scalars(made))
    corp.token = None
    async with here.browser() as client:
        assert (await corp.sign_in(client, "corp")).status_code == 303


async def test_a_token_of_one_provider_is_none_of_another(
    here: Installation, corp: CrookedProvider, other: CrookedProvider
) -> None:
    corp.token = lambda provider: other.key.sign(other.claims(nonce=provider.nonce))
    async with here.browser() as client:
        await refused(await corp.sign_in(client, "corp"), 401, "no key of the provider")
    # Signed by the right one, and claiming to be the other's.
    corp.token = lambda provider: provider.key.sign(provider.claims(iss=other.issuer))
    async with here.browser() as client:
        await refused(await corp.sign_in(client, "corp"), 401, "issuer")


async def test_two_providers_are_not_mixed_up(
    here: Installation, corp: CrookedProvider, other: CrookedProvider
) -> None:
    async with here.browser() as client:
        answer = await corp.begin(client, "corp")
        mixed = await client.get("/auth/oidc/other/callback", params=answer)
        await refused(mixed, 400, "another sign-in")
        assert "/token" not in other.asked
        await refused(
            await client.get("/auth/oidc/corp/callback", params=answer | {"iss": other.issuer}), 400, "was asked"
        )
        assert "/token" not in corp.asked


async def test_a_provider_that_names_itself_in_answers_has_to(
    here: Installation, providers: dict[str, CrookedProvider]
) -> None:
    naming = providers["naming"]
    async with here.browser() as client:
        await refused(await naming.sign_in(client, "naming"), 400, "does not say")
        assert (await naming.sign_in(client, "naming", iss=naming.issuer)).status_code == 303


async def test_the_same_subject_of_two_providers_is_two_people(
    here: Installation, corp: CrookedProvider, other: CrookedProvider
) -> None:
    other.subject, other.email = corp.subject, f"another-{uuid4().hex}@{DOMAIN}"
    found: set[str] = set()
    for ident, provider in (("corp", corp), ("other", other)):
        async with here.browser() as client:
            assert (await provider.sign_in(client, ident)).status_code == 303
            found.add((await client.get("/users/me")).json()["id"])
    assert len(found) == 2


async def test_an_answer_without_a_sign_in_is_refused(here: Installation, corp: CrookedProvider) -> None:
    async with here.browser() as client:
        await refused(await client.get("/auth/oidc/corp/callback"), 400, "begun no sign-in")
        answer = await corp.begin(client, "corp")
        for wrong in ({"state": "another"}, {"state": ""}, {"state": answer["state"] + "x"}):
            await refused(await client.get("/auth/oidc/corp/callback", params=answer | wrong), 400, "another sign-in")
        await refused(await client.get("/auth/oidc/corp/callback", params={"state": answer["state"]}), 400, "no code")
    for cookie in ("", "nonsense", SecretBox.open(here.settings.secrets_dir).seal(json.dumps({"use": "x"})).decode()):
        async with here.browser() as client:
            client.cookies.set("weir_sign_in", cookie)
            response = await client.get("/auth/oidc/corp/callback", params=answer)
            await refused(response, 400, "begun no sign-in")


async def test_next_leads_to_pages_of_this_console_alone(here: Installation) -> None:
    away = (
        "https://elsewhere.example", "//elsewhere.example", "/\\elsewhere.example", "\\\\elsewhere.example",
        "javascript:alert(1)", "/\t/elsewhere.example", "/a\r\nSet-Cookie: x=y", "elsewhere", "", "/é",
        "/api/v2/auth/oidc/corp/start", f"/{'x' * 1100}",
    )  # fmt: skip
    async with here.browser() as client:
        for path in away:
            response = await client.get("/auth/oidc/corp/start", params={"next": path})
            assert response.status_code == 400, path
            assert "location" not in response.headers
            assert not response.cookies
        assert (await client.get("/auth/oidc/corp/start", params={"next": "/a?b=c#d"})).status_code == 303


@given(st.text(st.characters(max_codepoint=0x7F), max_size=12))
def test_what_next_takes_stays_on_this_site(text: str) -> None:
    try:
        taken = flow.checked_next(text)
    except BadRequestError:
        return
    assert str(httpx.URL("https://weir.example/start").join(taken)).startswith("https://weir.example/")
    assert not taken.startswith(("//", "/\\"))


def test_a_sealed_sign_in_ends_and_is_no_other_secret() -> None:
    box, at = SecretBox(base64.urlsafe_b64encode(b"k" * 32)), now()
    begun = flow.begin("corp", "https://weir.example/callback", "/", at)
    sealed = flow.seal(box, begun)
    assert flow.unseal(box, sealed, at) == begun
    assert flow.unseal(box, sealed, at + flow.LASTS) is None
    assert flow.unseal(box, box.seal("a password").decode(), at) is None
    assert flow.unseal(SecretBox(base64.urlsafe_b64encode(b"l" * 32)), sealed, at) is None
    assert flow.unseal(box, None, at) is None


async def test_signing_in_over_tls_keeps_its_cookie_to_this_host(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weir.oidc.router.is_tls", lambda _request: True)
    async with here.browser() as client:
        cookie = (await client.get("/auth/oidc/corp/start")).headers["set-cookie"]
    assert cookie.startswith("__Host-weir_sign_in=")
    assert {"Secure", "HttpOnly", "Path=/", "SameSite=lax"} <= set(cookie.split("; "))


LOGOUT_FORGERIES: dict[str, tuple[Forgery, str]] = {
    "none": (lambda provider: unsigned(provider.logout_claims()), "algorithm"),
    "nonce": (lambda provider: provider.key.sign(provider.logout_claims(nonce="x")), "nonce"),
    "no events": (lambda provider: provider.key.sign(provider.logout_claims(events=None)), "events"),
    "other events": (lambda provider: provider.key.sign(provider.logout_claims(events={"x": {}})), "events"),
    "audience": (lambda provider: provider.key.sign(provider.logout_claims(aud="another")), "audience"),
    "issuer": (lambda provider: provider.key.sign(provider.logout_claims(iss="https://x.example")), "issuer"),
    "no id": (lambda provider: provider.key.sign(provider.logout_claims(jti=None)), "jti"),
    "nobody": (lambda provider: provider.key.sign(provider.logout_claims(sub=None)), "neither"),
    "old": (
        lambda provider: provider.key.sign(
            provider.logout_claims(iat=int((now() - timedelta(minutes=11)).timestamp()))
        ),
        "older",
    ),
    "expired": (lambda provider: provider.key.sign(provider.logout_claims(exp=1)), "expired"),
    "another key": (lambda provider: SigningKey.make("ES256").sign(provider.logout_claims()), "no key"),
    "an id_token": (lambda provider: provider.key.sign(provider.claims()), "events"),
    "another kind": (lambda provider: provider.key.sign(provider.logout_claims(), typ="at+jwt"), "another kind"),
}


async def test_no_forged_logout_token_ends_a_session_and_a_right_one_counts_once(
    here: Installation, corp: CrookedProvider, other: CrookedProvider
) -> None:
    where = "/auth/oidc/corp/backchannel-logout"
    async with here.browser() as client, here.browser() as provider:
        assert (await corp.sign_in(client, "corp")).status_code == 303
        for name, (forged, why) in LOGOUT_FORGERIES.items():
            response = await provider.post(where, data={"logout_token": forged(corp)})
            assert (response.status_code, why in response.text) == (400, True), f"{name}: {response.text}"
        of_other = other.key.sign(other.logout_claims(sub=corp.subject))
        assert (await provider.post(where, data={"logout_token": of_other})).status_code == 400
        right_elsewhere = await provider.post("/auth/oidc/other/backchannel-logout", data={"logout_token": of_other})
        assert right_elsewhere.status_code == 200
        assert (await provider.post(where, data={})).status_code == 400
        assert (await provider.post(where, json={"logout_token": "x"})).status_code == 415
        assert (await client.get("/users/me")).status_code == 200

        right = corp.key.sign(corp.logout_claims(), typ="logout+jwt")
        assert (await provider.post(where, data={"logout_token": right})).status_code == 200
        assert (await client.get("/users/me")).status_code == 401
        # The person signs in again, and the token is sent again.
        assert (await corp.sign_in(client, "corp")).status_code == 303
        replayed = await provider.post(where, data={"logout_token": right})
        assert (replayed.status_code, "counted before" in replayed.text) == (400, True)
        assert (await client.get("/users/me")).status_code == 200


async def test_a_logout_of_one_session_leaves_others(here: Installation, corp: CrookedProvider) -> None:
    async with here.browser() as one, here.browser() as two, here.browser() as provider:
        for client, sid in ((one, "s-1"), (two, "s-2")):
            corp.token = claiming(sid=sid)
            assert (await corp.sign_in(client, "corp")).status_code == 303
        of_nobody = corp.key.sign(corp.logout_claims(sid="s-1", sub="another"))
        token = corp.key.sign(corp.logout_claims(sid="s-1", sub=None))
        where = "/auth/oidc/corp/backchannel-logout"
        assert (await provider.post(where, data={"logout_token": of_nobody})).status_code == 200
        assert (await one.get("/users/me")).status_code == 200
        assert (await provider.post(where, data={"logout_token": token})).status_code == 200
        assert (await one.get("/users/me")).status_code == 401
        assert (await two.get("/users/me")).status_code == 200


async def test_a_provider_is_followed_nowhere(here: Installation, corp: CrookedProvider) -> None:
    corp.status = 302
    async with here.browser() as client:
        await refused(await corp.sign_in(client, "corp"), 503, "302")
    assert corp.asked.count("/token") == 1


async def test_what_is_told_of_somebody_else_counts_for_nobody(here: Installation, corp: CrookedProvider) -> None:
    corp.token = claiming(email=None, email_verified=None)
    corp.userinfo = {"sub": "another", "email": f"x@{DOMAIN}", "email_verified": True}
    async with here.browser() as client:
        await refused(await corp.sign_in(client, "corp"), 403, "verified")
    corp.userinfo["sub"] = corp.subject
    async with here.browser() as client:
        assert (await corp.sign_in(client, "corp")).status_code == 303


@pytest.mark.parametrize(("ident", "in_body"), [("posting", True), ("other", False)])
async def test_the_client_shows_its_secret_as_the_provider_wants_it(
    here: Installation, providers: dict[str, CrookedProvider], ident: str, in_body: bool
) -> None:
    provider = providers[ident]
    provider.reset()
    async with here.browser() as client:
        assert (await provider.sign_in(client, ident)).status_code == 303
    (form,) = provider.forms
    assert form.get("client_secret") == ([SECRET] if in_body else None)
    assert len(form["code_verifier"][0]) >= 43


def _settings(provider: CrookedProvider) -> ProviderSettings:
    return ProviderSettings("corp", "Corp", provider.issuer, CLIENT)


@pytest.mark.parametrize(
    ("discovery", "why"),
    [
        ({"issuer": "https://elsewhere.example"}, "says that it is"),
        ({"token_endpoint": "http://elsewhere.example/token"}, "no https URL"),
        ({"jwks_uri": "file:///etc/passwd"}, "no https URL"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "no https URL"),
        ({"token_endpoint": None}, "names no"),
    ],
)
async def test_a_discovery_document_that_leads_elsewhere_is_refused(
    alone: CrookedProvider, discovery: dict[str, Any], why: str
) -> None:
    alone.discovery = discovery
    async with httpx.AsyncClient() as http:
        with pytest.raises(UnavailableError, match=why):
            await Provider(_settings(alone), http).endpoints()


async def test_unknown_keys_have_a_provider_asked_once_a_minute(alone: CrookedProvider) -> None:
    clock = [1000.0]
    forged = SigningKey.make("ES256").sign(alone.claims())
    async with httpx.AsyncClient() as http:
        provider = Provider(_settings(alone), http, lambda: clock[0])
        for _ in range(20):
            with pytest.raises(tokens.UnknownKeyError):
                await provider.signed(forged)
        assert alone.asked.count("/jwks") == 2
        clock[0] += 61
        with pytest.raises(tokens.UnknownKeyError):
            await provider.signed(forged)
        assert alone.asked.count("/jwks") == 3
        # A key that was taken back counts for an hour at most.
        before, alone.key = alone.key, SigningKey.make("ES256")
        assert (await provider.signed(before.sign(alone.claims()))).claims["sub"] == alone.subject
        clock[0] += 3601
        with pytest.raises(tokens.UnknownKeyError):
            await provider.signed(before.sign(alone.claims()))


async def test_a_provider_that_fails_is_left_alone_for_a_while_and_its_old_keys_count() -> None:
    clock, works, asked = [0.0], [True], [0]

    async def fetch() -> list[int]:
        asked[0] += 1
        if not works[0]:
            raise UnavailableError("away")
        return [asked[0]]

    kept = Renewed(fetch, Ages(good=10, most=100), lambda: clock[0])
    first = await kept.get()
    works[0] = False
    clock[0] = 11
    assert await kept.get() is first
    assert await kept.get() is first
    assert asked[0] == 2
    clock[0] = 101
    for _ in range(3):
        with pytest.raises(UnavailableError):
            await kept.get()
    assert asked[0] == 3
    works[0] = True
    clock[0] = 107
    assert await kept.get() == [4]


def test_a_weak_key_or_one_for_something_else_is_no_key() -> None:
    right = SigningKey.make("ES256").public()
    assert len(tokens.keys_of({"keys": [right]})) == 1
    for wrong in (
        right | {"use": "enc"},
        right | {"alg": "HS256"},
        right | {"kty": "oct", "k": "c2VjcmV0"},
        right | {"crv": "P-521"},
        right | {"x": "AA"},
        {"kty": "RSA", "n": "AQAB", "e": "AQAB", "kid": "weak"},
        {"kty": "OKP", "crv": "X25519", "x": right["x"]},
    ):
        assert tokens.keys_of({"keys": [wrong, "text", None]}) == ()
    for nothing in (None, [], {"keys": {}}, "text"):
        with pytest.raises(ValueError, match="key set"):
            tokens.keys_of(nothing)
