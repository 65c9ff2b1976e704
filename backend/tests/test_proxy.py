"""What the proxy is told of endpoints, how it wakes them, and the addresses that clients are given with one."""

import asyncio
import datetime as dt
from collections.abc import Generator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from sqlalchemy import func, select, update
from weir_testing.fixtures import Weir

from weir.cli.certificates import Files, prepare
from weir.config import Settings, get_settings
from weir.databases.models import Role
from weir.identity.models import AuditEntry
from weir.kit.notices import Notices
from weir.operations.models import Operation, OperationKind
from weir.proxy import service
from weir.proxy.router import TOKEN_FILE

TOKEN = "a-token-of-the-test"


@pytest.fixture
def token(weir: Weir) -> Generator[Path]:
    path = weir.settings.secrets_dir / TOKEN_FILE
    path.write_text(TOKEN + "\n")
    yield path
    path.unlink(missing_ok=True)


class Asking:
    """The proxy's side."""

    def __init__(self, weir: Weir) -> None:
        self._weir = weir

    async def send(self, method: str, path: str, token: str | None = TOKEN, **parameters: Any) -> httpx.Response:
        headers = {} if token is None else {"Authorization": f"Bearer {token}".strip()}
        url = f"{self._weir.url}/internal/proxy/endpoints/{path}"
        async with httpx.AsyncClient(timeout=120) as client:
            return await client.request(method, url, headers=headers, params=parameters)

    async def endpoint(self, ident: str) -> dict[str, Any]:
        answer = await self.send("GET", ident)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def asking(weir: Weir, token: Path) -> Asking:
    del token
    return Asking(weir)


def _path(created: dict[str, Any]) -> str:
    return f"/projects/{created['project']['id']}/endpoints/{created['endpoints'][0]['id']}"


async def _starts(weir: Weir, ident: str) -> int:
    async with weir.resources.database.transaction() as session:
        statement = select(func.count()).where(
            Operation.endpoint_id == ident, Operation.kind == OperationKind.START_COMPUTE
        )
        return (await session.execute(statement)).scalar_one()


async def test_who_has_not_the_token_learns_nothing(weir: Weir, asking: Asking, token: Path) -> None:
    ident = (await weir.project(name="kept"))["endpoints"][0]["id"]
    bearer_key = weir.api_key
    for given in (None, "", TOKEN + "x", TOKEN[:-1], bearer_key, "é"):
        for method, path in (("GET", ident), ("GET", "ep-none"), ("POST", f"{ident}/wake")):
            headers = {} if given is None else {b"Authorization": f"Bearer {given}".strip().encode()}
            async with httpx.AsyncClient(timeout=30) as client:
                url = f"{weir.url}/internal/proxy/endpoints/{path}"
                answer = await client.request(method, url, headers=headers)
            assert answer.status_code == 403, (given, answer.text)
            assert "SCRAM" not in answer.text
    for content in ("\n", None):
        token.unlink() if content is None else token.write_text(content)
        assert (await asking.send("GET", ident, "")).status_code == 403
        assert (await asking.send("GET", ident)).status_code == 403


async def test_the_proxy_has_no_part_in_the_public_api(weir: Weir) -> None:
    described = (await weir.client.get("/api/v2/openapi.json")).text
    assert "/internal/proxy" not in described


async def test_the_proxy_knows_address_and_verifiers_as_the_compute_has_them(weir: Weir, asking: Asking) -> None:
    created = await weir.project(name="known")
    ident, branch = created["endpoints"][0]["id"], created["branch"]["id"]
    found = await asking.endpoint(ident)
    compute = (await weir.call("GET", f"/computes/{ident}"))["compute"]
    assert (found["state"], found["address"]) == ("running", f"{compute['host']}:{compute['port']}")

    base = f"/projects/{created['project']['id']}/branches/{branch}/roles"
    await weir.finish(await weir.call("POST", base, 201, json={"role": {"name": "reporter"}}))
    await weir.finish(await weir.call("POST", f"{base}/app_owner/reset_password"))
    changed = await asking.endpoint(ident)
    spec = weir.resources.runtime.spec(ident)
    assert spec is not None
    assert changed["roles"] == {role["name"]: role["password"] for role in spec["roles"]}
    assert set(changed["roles"]) == {"app_owner", "reporter"}
    assert changed["roles"]["app_owner"] != found["roles"]["app_owner"]

    # After a recovery Postgres alone knows the password.
    async with weir.resources.database.transaction() as session:
        await session.execute(update(Role).where(Role.branch_id == branch).values(scram_verifier=None))
    assert (await asking.endpoint(ident))["roles"] == {}
    assert await asking.endpoint("ep-none") is None


async def test_a_herd_of_wakes_is_one_start(weir: Weir, asking: Asking) -> None:
    created = await weir.project(name="herd")
    ident = created["endpoints"][0]["id"]
    before = await _starts(weir, ident)
    # A compute that is being suspended is asked for as well: it is waited for, and started again.
    await weir.call("POST", f"{_path(created)}/suspend")
    assert (await asking.endpoint(ident))["state"] == "suspended"
    answers = await asyncio.gather(*(asking.send("POST", f"{ident}/wake", seconds=60) for _ in range(50)))
    assert {answer.status_code for answer in answers} == {200}
    states = {(answer.json()["state"], answer.json()["address"]) for answer in answers}
    assert states == {("running", (await asking.endpoint(ident))["address"])}
    assert await _starts(weir, ident) == before + 1
    assert weir.resources.runtime.process(ident) is not None
    async with weir.resources.database.transaction() as session:
        entries = select(AuditEntry).where(AuditEntry.resource == f"endpoint/{ident}", AuditEntry.actor == "proxy")
        assert [entry.action for entry in (await session.scalars(entries)).all()] == ["endpoint.start"]


async def test_a_wake_looks_when_there_is_something_to_see(
    weir: Weir, asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not again and again while the compute starts; and where notices are lost, it goes on by looking."""
    created = await weir.project(name="noticed")
    ident = created["endpoints"][0]["id"]
    looks = 0
    look = service._state

    async def counted(*arguments: Any) -> Any:
        nonlocal looks
        looks += 1
        return await look(*arguments)

    monkeypatch.setattr(service, "_state", counted)
    for lost in (False, True):
        if lost:
            monkeypatch.setattr(Notices, "arrived", lambda *_: None)
        await weir.finish(await weir.call("POST", f"{_path(created)}/suspend"))
        looks = 0
        began = asyncio.get_running_loop().time()
        answer = await asking.send("POST", f"{ident}/wake", seconds=60)
        assert answer.json()["state"] == "running"
        waited = asyncio.get_running_loop().time() - began
        # Two looks to queue the start, two at its end; more only where the start took long.
        assert looks <= 5 + waited / 0.4, (lost, looks, waited)
        # The compute runs before the operation that has started it is written down as finished.
        await weir.idle(created["project"]["id"])


async def test_what_must_not_run_is_not_woken(weir: Weir, asking: Asking) -> None:
    created = await weir.project(name="disabled")
    ident = created["endpoints"][0]["id"]
    await weir.finish(await weir.call("PATCH", _path(created), json={"endpoint": {"disabled": True}}))
    before = await _starts(weir, ident)
    assert (await asking.send("POST", f"{ident}/wake")).json()["state"] == "disabled"
    assert (await asking.send("POST", "ep-none/wake")).json() is None
    await weir.finish(await weir.call("DELETE", _path(created)))
    assert (await asking.send("POST", f"{ident}/wake")).json() is None
    assert await _starts(weir, ident) == before


async def test_a_wake_that_takes_too_long_says_what_it_waits_for(weir: Weir, asking: Asking) -> None:
    created = await weir.project(name="slow")
    ident = created["endpoints"][0]["id"]
    await weir.finish(await weir.call("POST", f"{_path(created)}/suspend"))
    answer = await asking.send("POST", f"{ident}/wake", seconds=0.02)
    assert answer.status_code == 503
    assert f"endpoint {ident} does not run after" in answer.json()["message"]
    assert "operation" in answer.json()["message"]
    # It goes on without those who have gone.
    assert (await asking.send("POST", f"{ident}/wake", seconds=60)).json()["state"] == "running"


@pytest.fixture(params=["", "db.example.com"])
def with_proxy(weir: Weir, request: pytest.FixtureRequest) -> Generator[Settings]:
    del weir
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEIR_PROXY_PORT", "7432")
        patch.setenv("WEIR_PROXY_DOMAIN", request.param)
        get_settings.cache_clear()
        yield get_settings()
    get_settings.cache_clear()


async def test_clients_are_sent_to_the_proxy(weir: Weir, with_proxy: Settings) -> None:
    created = await weir.project(name="sent", branch={"role_name": "o'brien"})
    endpoint = created["endpoints"][0]
    ident = endpoint["id"]
    host = f"{ident}.{with_proxy.proxy_domain}" if with_proxy.proxy_domain else "localhost"
    strict = {"sslmode": ["require"], "channel_binding": ["require"]}
    named = {} if with_proxy.proxy_domain else {"options": [f"endpoint={ident}"]}

    query = {"database_name": "appdb", "role_name": "o'brien"}
    path = f"/projects/{created['project']['id']}/connection_uri"
    uri = (await weir.call("GET", path, params=query))["uri"]
    given = created["connection_uris"][0]
    assert uri == given["connection_uri"]
    split = urlsplit(uri)
    assert (split.hostname, split.port, split.path) == (host, 7432, "/appdb")
    assert parse_qs(split.query, strict_parsing=True) == named | strict
    parameters = given["connection_parameters"]
    pooler = f"{ident}-pooler.{with_proxy.proxy_domain}" if with_proxy.proxy_domain else "localhost"
    assert (parameters["host"], parameters["port"], parameters["pooler_host"]) == (host, 7432, pooler)
    assert (endpoint["pooler_host"], endpoint["pooler_enabled"], endpoint["pooler_mode"]) == (
        pooler,
        True,
        "transaction",
    )
    assert (endpoint["host"], endpoint["port"]) == (host, 7432)

    # A pooled client differs in the endpoint's name alone.
    pooled = (await weir.call("GET", path, params=query | {"pooled": "true"}))["uri"]
    assert pooled == (uri.replace(ident, f"{ident}-pooler"))
    if not with_proxy.proxy_domain:
        assert parse_qs(urlsplit(pooled).query)["options"] == [f"endpoint={ident}-pooler"]
    # What is so anyway can be asked for, and what is not cannot.
    asked = {"endpoint": {"pooler_enabled": True, "pooler_mode": "transaction"}}
    assert (await weir.call("PATCH", _path(created), json=asked))["endpoint"]["pooler_enabled"] is True
    refused = await weir.call("PATCH", _path(created), 400, json={"endpoint": {"pooler_mode": "session"}})
    assert "a pooler_mode other than `transaction`" in refused["message"]
    assert endpoint["proxy_host"] == created["project"]["proxy_host"] == with_proxy.public_host

    # Weir's own parts go on to reach the compute itself.
    compute = (await weir.call("GET", f"/computes/{ident}"))["compute"]
    spec = weir.resources.runtime.spec(ident)
    assert spec is not None
    assert (compute["host"], compute["port"]) == ("127.0.0.1", spec["port"])
    await weir.finish(await weir.call("POST", f"{_path(created)}/suspend"))


async def test_without_a_proxy_nothing_is_pooled(weir: Weir) -> None:
    created = await weir.project(name="unpooled")
    endpoint = created["endpoints"][0]
    assert (endpoint["pooler_host"], endpoint["pooler_enabled"]) == (None, False)
    query = {"database_name": "appdb", "role_name": created["roles"][0]["name"], "pooled": "true"}
    refused = await weir.call("GET", f"/projects/{created['project']['id']}/connection_uri", 400, params=query)
    assert refused["code"] == "NOT_SUPPORTED"
    assert "pooled by the proxy, which this installation has not" in refused["message"]
    await weir.finish(await weir.call("POST", f"{_path(created)}/suspend"))


@pytest.fixture
def certificates(weir: Weir, tmp_path: Path) -> Generator[Files]:
    """The files of an installation, whose CA the API knows."""
    del weir
    files = Files(tmp_path)
    (tmp_path / "secrets").mkdir()
    prepare(files, ["localhost"], dt.datetime.now(dt.UTC))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEIR_PROXY_PORT", "7432")
        patch.setenv("WEIR_PROXY_CA", str(files.ca))
        get_settings.cache_clear()
        yield files
    get_settings.cache_clear()


async def test_clients_get_the_ca_that_signs_the_proxys_certificate(weir: Weir, certificates: Files) -> None:
    found = (await weir.call("GET", "/certificate_authority"))["certificate_authority"]
    given = x509.load_pem_x509_certificate(found["pem"].encode())
    x509.load_pem_x509_certificate(certificates.certificate.read_bytes()).verify_directly_issued_by(given)
    assert found["sha256_fingerprint"] == given.fingerprint(hashes.SHA256()).hex(":")
    assert dt.datetime.fromisoformat(found["expires_at"]) == given.not_valid_after_utc
    async with httpx.AsyncClient(base_url=weir.url) as nobody:
        assert (await nobody.get("/api/v2/certificate_authority")).status_code == 401


async def test_only_a_certificate_is_given_away(weir: Weir, certificates: Files) -> None:
    """A key that somebody has put into the same file stays there."""
    key = certificates.ca_key.read_text()
    certificates.ca.write_text(key + certificates.ca.read_text() + key)
    answer = await weir.client.get("/api/v2/certificate_authority")
    assert answer.status_code == 200
    assert "PRIVATE" not in answer.text
    certificates.ca.write_text(key)
    answer = await weir.client.get("/api/v2/certificate_authority")
    assert answer.status_code == 503
    assert "PRIVATE" not in answer.text


async def test_an_operators_own_certificate_has_no_ca_here(weir: Weir, with_proxy: Settings) -> None:
    del with_proxy
    assert "operator" in (await weir.call("GET", "/certificate_authority", 404))["message"]


async def test_without_a_proxy_there_is_no_ca(weir: Weir) -> None:
    assert "no proxy" in (await weir.call("GET", "/certificate_authority", 404))["message"]
