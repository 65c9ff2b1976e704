"""One address for all databases: what clients of a whole Weir see of the proxy that `weir up` starts."""

from __future__ import annotations

import os
import signal
import ssl
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest
from stack import Stack, running_stack, wait_for
from weirbench.postgres import SqlError, query

CLIENTS = 60


class Shop:
    """A project, and how its clients connect."""

    def __init__(self, stack: Stack, made: dict[str, Any]) -> None:
        self.stack = stack
        self.endpoint = made["endpoints"][0]["id"]
        self.branch = f"/projects/{made['project']['id']}/branches/{made['branch']['id']}"
        self.path = f"/projects/{made['project']['id']}/endpoints/{self.endpoint}"
        self.uri = made["connection_uris"][0]["connection_uri"]

    def change(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        api = self.stack.api()
        answer = api.request(method, path, body)
        api.wait_operations(answer["operations"])
        return answer

    def uri_of(self, role: str) -> str:
        project = self.branch.split("/")[2]
        asked = {"database_name": "appdb", "role_name": role, "endpoint_id": self.endpoint}
        return self.stack.api().get(f"/projects/{project}/connection_uri", **asked)["uri"]

    def starts(self) -> int:
        """How often its compute was started. All operations of the project fit on one page."""
        operations = self.stack.api().get(f"{self.branch.partition('/branches')[0]}/operations", limit=100)[
            "operations"
        ]
        of_mine = (operation for operation in operations if operation["endpoint_id"] == self.endpoint)
        return sum(operation["action"] == "start_compute" for operation in of_mine)

    def connect(self, uri: str | None = None, **changes: Any) -> psycopg.Connection[tuple[Any, ...]]:
        """As a careful client does, which knows the server and lets nobody between."""
        ca = str(self.stack.home / "tls" / "ca.pem")
        strict: dict[str, Any] = {"sslmode": "verify-full", "sslrootcert": ca}
        return psycopg.connect(uri or self.uri, autocommit=True, connect_timeout=60, **(strict | changes))

    def value(self, sql: str, uri: str | None = None) -> Any:
        with self.connect(uri) as connection:
            row = connection.execute(sql.encode()).fetchone()
        return None if row is None else row[0]

    def refusal(self, uri: str | None = None, **changes: Any) -> str:
        with pytest.raises(psycopg.OperationalError) as refused:
            self.connect(uri, **changes)
        return str(refused.value)


@pytest.fixture(scope="module")
def shop() -> Generator[Shop]:
    with running_stack() as stack:
        api = stack.api()
        made = api.request("POST", "/projects", {"project": {"name": "shop"}})
        api.wait_operations(made["operations"])
        yield Shop(stack, made)


def test_a_connection_string_works_as_it_is(shop: Shop) -> None:
    assert query(shop.uri, "SELECT current_user || ' of ' || current_database()") == "app_owner of appdb"
    split = urlsplit(shop.uri)
    assert (split.hostname, split.port) == ("localhost", shop.stack.port_base + 32)
    # And as a careful client connects; channel_binding=require is in the string.
    assert shop.value("SELECT ssl FROM (SELECT true AS ssl) AS one") is True
    # Who is not told the CA does not take this one.
    assert "certificate verify failed" in shop.refusal(sslrootcert="system")


def test_a_client_elsewhere_gets_the_ca_by_the_api(shop: Shop, tmp_path: Path) -> None:
    """The installation's folder is for its owner alone; a client on another machine has a key and the API."""
    found = shop.stack.api().get("/certificate_authority")["certificate_authority"]
    file = tmp_path / "weir-ca.pem"
    file.write_text(found["pem"])
    with shop.connect(sslrootcert=str(file)) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_connection_string_works_over_http_and_wakes_a_suspended_compute(shop: Shop) -> None:
    shop.change("POST", f"{shop.path}/suspend")
    split = urlsplit(shop.uri)
    answer = httpx.post(
        f"https://{split.hostname}:{split.port}/sql",
        json={"query": "SELECT $1::int + 1 AS n, current_user AS u", "params": [41]},
        headers={"Neon-Connection-String": shop.uri},
        verify=ssl.create_default_context(cafile=str(shop.stack.home / "tls" / "ca.pem")),
        timeout=60,
    )
    assert answer.json()["rows"] == [{"n": 42, "u": "app_owner"}]


def test_a_client_that_comes_before_its_compute_waits_for_it(shop: Shop) -> None:
    """A string can be used as soon as the API has given it."""
    made = shop.stack.api().request("POST", "/projects", {"project": {"name": "at once"}})
    assert query(made["connection_uris"][0]["connection_uri"], "SELECT 1") == "1"
    shop.change("DELETE", f"/projects/{made['project']['id']}")


def test_up_tells_the_address_and_the_ca_and_keeps_the_keys(shop: Shop) -> None:
    home = shop.stack.home
    before = {path: path.read_bytes() for path in (home / "tls" / "ca.pem", home / "tls" / "proxy.pem")}
    said = shop.stack.up()
    assert f"localhost:{shop.stack.port_base + 32}" in said
    assert str(home / "tls" / "ca.pem") in said
    assert {path: path.read_bytes() for path in before} == before
    for name in ("proxy.key", "proxy_ca.key", "proxy_token", "proxy_mock_secret"):
        assert (home / "secrets" / name).stat().st_mode & 0o077 == 0
    token = (home / "secrets" / "proxy_token").read_text().strip()
    for log in (home / "log").glob("*.log"):
        text = log.read_text(errors="replace")
        assert token not in text, log
        assert "SCRAM-SHA-256$" not in text, log


def test_roles_of_the_api_log_in_and_a_reset_password_takes_effect(shop: Shop) -> None:
    shop.change("POST", f"{shop.branch}/roles", {"role": {"name": "reporter"}})
    first = shop.uri_of("reporter")
    assert shop.value("SELECT current_user", first) == "reporter"
    shop.change("POST", f"{shop.branch}/roles/reporter/reset_password")
    second = shop.uri_of("reporter")
    assert second != first
    assert shop.value("SELECT current_user", second) == "reporter"
    assert 'password authentication failed for user "reporter"' in shop.refusal(first)
    shop.change("DELETE", f"{shop.branch}/roles/reporter")
    assert 'password authentication failed for user "reporter"' in shop.refusal(second)


def test_wrong_endpoints_and_passwords_look_alike(shop: Shop) -> None:
    told = {
        shop.refusal(password="wrong").rpartition("FATAL:")[2],
        shop.refusal(options="endpoint=ep-no-such-12345678").rpartition("FATAL:")[2],
    }
    assert len(told) == 1
    assert "does not say which endpoint" in shop.refusal(options="")


def test_a_compute_that_nobody_uses_is_suspended_and_the_next_client_wakes_it(shop: Shop) -> None:
    api, idle_seconds = shop.stack.api(), 5
    with shop.connect() as kept_open:
        kept_open.execute("CREATE TABLE IF NOT EXISTS slept AS SELECT 7 AS n")
        api.request("PATCH", shop.path, {"endpoint": {"suspend_timeout_seconds": idle_seconds}})
        begun = time.monotonic()
        # The session stays connected and does nothing, as one of a pool.
        wait_for("the compute to be suspended", lambda: api.compute(shop.endpoint)["state"] == "idle", 60)
        assert time.monotonic() - begun > idle_seconds - 1
    before = shop.starts()
    assert shop.value("SELECT n FROM slept") == 7
    assert shop.starts() == before + 1
    # While a client works nothing is suspended, however long its statement.
    assert shop.value(f"SELECT 1 FROM pg_sleep({idle_seconds + 8})") == 1
    assert shop.starts() == before + 1
    api.request("PATCH", shop.path, {"endpoint": {"suspend_timeout_seconds": -1}})


def test_a_herd_of_clients_wakes_a_suspended_database_once(shop: Shop) -> None:
    with shop.connect() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept AS SELECT 42 AS n")
    shop.change("POST", f"{shop.path}/suspend")
    # A wrong password wakes nothing.
    shop.refusal(password="wrong")
    assert shop.stack.api().compute(shop.endpoint)["state"] == "idle"
    before = shop.starts()
    begun = time.monotonic()
    with ThreadPoolExecutor(CLIENTS) as pool:
        started = pool.map(lambda _: shop.value("SELECT pg_postmaster_start_time() FROM kept"), range(CLIENTS))
        assert len(set(started)) == 1
    assert time.monotonic() - begun < 60
    assert shop.starts() == before + 1
    assert shop.stack.api().compute(shop.endpoint)["state"] == "active"


def test_logins_go_on_without_the_api_and_a_wake_waits_for_it(shop: Shop) -> None:
    assert shop.value("SELECT 1") == 1
    shop.stack.stop("api")
    try:
        time.sleep(1)
        assert shop.value("SELECT 2") == 2
    finally:
        shop.stack.start("api")
    shop.change("POST", f"{shop.path}/suspend")
    shop.refusal(password="wrong")
    os.kill(shop.stack.pid("api"), signal.SIGKILL)
    assert shop.value("SELECT 3") == 3
    wait_for("all to be healthy", lambda: shop.stack.status()["up"])


def test_a_compute_that_died_is_found_again(shop: Shop) -> None:
    with shop.connect() as open_one:
        os.kill(shop.stack.compute_pid(shop.endpoint), signal.SIGKILL)
        with pytest.raises(psycopg.OperationalError):
            open_one.execute("SELECT pg_sleep(120)")

    def again() -> bool:
        try:
            return query(shop.uri, "SELECT n FROM kept", timeout=60) == "42"
        except SqlError:
            return False

    wait_for("the database by the same string", again, 90)


def test_a_disabled_endpoint_is_refused_with_a_reason(shop: Shop) -> None:
    shop.change("PATCH", shop.path, {"endpoint": {"disabled": True}})
    assert f"endpoint {shop.endpoint} is disabled" in shop.refusal()
    shop.change("PATCH", shop.path, {"endpoint": {"disabled": False}})
    assert shop.value("SELECT n FROM kept") == 42


def test_down_and_up_and_the_same_string_connects(shop: Shop) -> None:
    assert "no process and no mount is left" in shop.stack.down()
    shop.stack.up()
    wait_for("the database", lambda: shop.value("SELECT n FROM kept") == 42)
