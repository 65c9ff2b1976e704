"""SQL over HTTP at the proxy's port: what an adversary, a browser and a client in trouble see of it.

What the driver `@neondatabase/serverless` sees is in `test_drivers.py`.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Generator, Iterator
from typing import Any

import httpx
import pytest
from harness import metric, wait_for
from pooling import backends, pooled, status_kib
from proxying import DOMAIN, ENDPOINT, PASSWORD, Proxy, proxied

API = f"api.{DOMAIN}"
SQL_RAW = {"Neon-Raw-Text-Output": "true", "Neon-Array-Mode": "true"}


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    with proxied("--pool-size", "4", "--http-seconds", "4", "--login-seconds", "3") as proxy:
        yield proxy


def address(password: str = PASSWORD, *, endpoint: str = ENDPOINT, role: str = "app", database: str = "appdb") -> str:
    return f"postgresql://{role}:{password.replace(' ', '%20')}@{endpoint}.{DOMAIN}/{database}?sslmode=require"


@contextlib.contextmanager
def browser(proxy: Proxy) -> Generator[httpx.Client]:
    """A client that finds the host `api.DOMAIN` at the proxy's port, and knows its CA."""
    context = ssl.create_default_context(cafile=str(proxy.authority.root))
    context.check_hostname = False
    with httpx.Client(verify=context, base_url=f"https://127.0.0.1:{proxy.port}", timeout=60) as client:
        yield client


def ask(proxy: Proxy, body: object, **headers: str) -> httpx.Response:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    told = {"Neon-Connection-String": address()} | SQL_RAW | given
    with browser(proxy) as client:
        return client.post("/sql", content=json.dumps(body), headers=told)


def error(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 400, response.text
    return response.json()


def encrypted(proxy: Proxy, protocols: list[str] | None = None) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=str(proxy.authority.root))
    if protocols:
        context.set_alpn_protocols(protocols)
    plain = socket.create_connection(("127.0.0.1", proxy.port))
    stream = context.wrap_socket(plain, server_hostname=API)
    stream.settimeout(20)
    return stream


def request(body: bytes, *, length: int | None = None, login: str | None = None) -> bytes:
    lines = ["POST /sql HTTP/1.1", f"Host: {API}", f"Neon-Connection-String: {login or address()}"]
    lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def test_a_result_has_its_types_where_no_raw_text_is_wanted(proxy: Proxy) -> None:
    query = {"query": "SELECT 1 AS a, true AS b, '{\"c\": [1]}'::jsonb AS d, 1.5::float8 AS e, NULL AS f"}
    found = ask(proxy, query, Neon_Raw_Text_Output="false", Neon_Array_Mode="false").json()
    assert found["rows"] == [{"a": 1, "b": True, "d": {"c": [1]}, "e": 1.5, "f": None}]
    assert (found["command"], found["rowCount"], found["rowAsArray"]) == ("SELECT", 1, False)
    assert ask(proxy, query).json()["rows"] == [["1", "t", '{"c": [1]}', "1.5", None]]


def test_a_page_of_any_origin_may_ask_and_brings_no_cookie(proxy: Proxy) -> None:
    with browser(proxy) as client:
        wanted = "neon-array-mode,neon-connection-string,neon-raw-text-output"
        origin = {"Origin": "https://page.example", "Access-Control-Request-Method": "POST"}
        preflight = client.options("/sql", headers=origin | {"Access-Control-Request-Headers": wanted})
        assert preflight.status_code == 204
        allowed = {name.strip() for name in preflight.headers["access-control-allow-headers"].lower().split(",")}
        assert set(wanted.split(",")) <= allowed
        assert "POST" in preflight.headers["access-control-allow-methods"]
        told = {"Neon-Connection-String": address(), "Origin": "https://page.example"}
        answers = [preflight, client.post("/sql", json={"query": "SELECT 1"}, headers=told), client.post("/sql")]
        for answer in answers:
            assert answer.headers["access-control-allow-origin"] == "*"
            assert "access-control-allow-credentials" not in answer.headers
            assert "set-cookie" not in answer.headers
        # Nothing else is any page's to see.
        for path in ("/", "/metrics", "/healthz", "/v2"):
            assert "access-control-allow-origin" not in client.get(path).headers
        assert client.get("/sql").status_code == 405
        assert client.get("/metrics").status_code == 404


def test_wrong_endpoint_role_and_password_look_alike_and_are_slowed() -> None:
    with proxied() as proxy:
        told: set[str] = set()
        for wrong in (address("guessed"), address(role="nobody"), address(endpoint="ep-none")):
            answer = error(ask(proxy, {"query": "SELECT 1"}, Neon_Connection_String=wrong))
            told.add(json.dumps(answer).replace("nobody", "app"))
        assert len(told) == 1
        assert 'password authentication failed for user \\"app\\"' in told.pop()
        for _ in range(7):
            ask(proxy, {"query": "SELECT 1"}, Neon_Connection_String=address("guessed"))
        begun = time.monotonic()
        # A right password waits as long, and a login by Postgres's protocol too.
        assert ask(proxy, {"query": "SELECT 1"}).status_code == 200
        proxy.connect().close()
        assert time.monotonic() - begun > 1
        assert metric(proxy.http, "weir_proxy_logins_slowed_total") >= 2
        assert PASSWORD not in proxy.log
        assert "guessed" not in proxy.log


def test_nothing_of_a_body_is_read_of_who_has_not_logged_in(proxy: Proxy) -> None:
    """Sixty clients say that they send 64 MiB, with a wrong password or none: the answer comes before the body."""
    before = status_kib(proxy, "VmRSS")
    with contextlib.ExitStack() as stack:
        for number in range(60):
            stream = stack.enter_context(encrypted(proxy, ["http/1.1"]))
            login = "nothing" if number > 2 else address("wrong")
            stream.sendall(request(b"x" * 4096, length=64 << 20, login=login))
            assert stream.recv(4096).startswith(b"HTTP/1.1 400 ")
        assert status_kib(proxy, "VmRSS") - before < 30_000


def test_bodies_and_answers_have_limits_with_clear_errors(proxy: Proxy) -> None:
    with encrypted(proxy, ["http/1.1"]) as stream:
        stream.sendall(request(b"", length=(64 << 20) + 1))
        assert b"longer than 64 MiB" in stream.recv(4096)
    long = error(ask(proxy, {"query": "SELECT repeat('x', 1000000) FROM generate_series(1, 100)"}))
    assert (long["code"], "longer than 64 MiB" in long["message"]) == ("54000", True)
    # One value alone; and the session is of use to the next request.
    assert error(ask(proxy, {"query": "SELECT repeat('x', 100000000)"}))["code"] == "54000"
    text = "y" * (20 << 20)
    found = ask(proxy, {"query": "SELECT $1::text AS t, length($1)", "params": [text]}).json()
    assert found["rows"] == [[text, str(len(text))]]
    wait_for("no statement", lambda: backends(proxy, "usename = 'app' AND state = 'active'") == 0, 20)


def test_requests_hold_no_more_memory_together_than_there_is() -> None:
    """Bodies of 60 MiB that do not end: one has room, the next is refused at once, and small ones are not harmed."""
    body = json.dumps({"query": "SELECT 1", "x": "y" * (60 << 20)}).encode()
    with proxied("--http-memory-mib", "320") as proxy, encrypted(proxy, ["http/1.1"]) as first:
        first.sendall(request(b"", length=len(body)) + body[:-1])
        first.settimeout(0.5)
        with pytest.raises(TimeoutError):
            first.recv(4096)
        with encrypted(proxy, ["http/1.1"]) as second:
            # The answer comes while the body is sent, and may be lost as the connection breaks.
            with contextlib.suppress(OSError):
                second.sendall(request(b"", length=len(body)) + body[:-1])
            with contextlib.suppress(OSError):
                assert b"53200" in second.recv(4096)
        wait_for("the refusal", lambda: 'code="53200"' in proxy.log, 10)
        assert ask(proxy, {"query": "SELECT 1"}).status_code == 200
        first.settimeout(30)
        first.sendall(body[-1:])
        assert first.recv(4096).startswith(b"HTTP/1.1 200 ")


def test_what_takes_too_long_is_cancelled(proxy: Proxy) -> None:
    begun = time.monotonic()
    late = error(ask(proxy, {"query": "SELECT pg_sleep(60)"}))
    assert (late["code"], "4s" in late["message"]) == ("57014", True)
    assert time.monotonic() - begun < 20
    wait_for("no statement", lambda: backends(proxy, "usename = 'app' AND state = 'active'") == 0, 10)


@pytest.mark.parametrize("protocols", [["http/1.1"], None])
def test_a_client_that_goes_away_has_its_statement_cancelled(proxy: Proxy, protocols: list[str] | None) -> None:
    with pooled(proxy) as other:
        other.execute("DROP TABLE IF EXISTS left_behind")
        other.execute("CREATE TABLE left_behind (a int)")
    body = {"queries": [{"query": "INSERT INTO left_behind VALUES (1)"}, {"query": "SELECT pg_sleep(3.3)"}]}
    runs = "usename = 'app' AND query LIKE 'SELECT pg_sleep(3.3)%' AND state = 'active'"
    with encrypted(proxy, protocols) as stream:
        stream.sendall(request(json.dumps(body).encode()))
        wait_for("the statement", lambda: backends(proxy, runs) == 1, 10)
    begun = time.monotonic()
    wait_for("its end", lambda: backends(proxy, runs) == 0, 10)
    assert time.monotonic() - begun < 2.5
    with pooled(proxy) as other:
        assert other.execute("SELECT count(*) FROM left_behind").fetchone() == (0,)
        other.execute("DROP TABLE left_behind")


def test_a_batch_cannot_leave_its_transaction(proxy: Proxy) -> None:
    with pooled(proxy) as other:
        other.execute("CREATE TABLE batch (a int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    try:
        for end in ("COMMIT", "ROLLBACK", "COMMIT AND CHAIN; SELECT 1"):
            queries = [{"query": end}, {"query": "INSERT INTO batch VALUES (1)"}]
            told = error(ask(proxy, {"queries": queries}))
            assert told["code"] in {"25P01", "42601"}, told
        # A constraint that is looked at last: the COMMIT fails, and says why.
        queries = [{"query": "INSERT INTO batch VALUES (1)"}] * 2
        assert error(ask(proxy, {"queries": queries}))["code"] == "23505"
        assert ask(proxy, {"query": "SELECT count(*) FROM batch"}).json()["rows"] == [["0"]]
        # What one request leaves open is nothing to the next.
        for query in ("BEGIN", "INSERT INTO batch VALUES (2)"):
            assert ask(proxy, {"query": query}).status_code == 200
        assert ask(proxy, {"query": "SELECT a FROM batch"}).json()["rows"] == [["2"]]
    finally:
        with pooled(proxy) as other:
            other.execute("DROP TABLE batch")


def test_copy_and_two_statements_in_one_are_errors_and_no_hang(proxy: Proxy) -> None:
    for query, code in (
        ("COPY pg_class TO STDOUT", "0A000"),
        ("CREATE TEMP TABLE c (a int); COPY c FROM STDIN", "42601"),
        ("SELECT 1; SELECT 2", "42601"),
        ("SELECT $1::int", "08P01"),
    ):
        assert error(ask(proxy, {"query": query}))["code"] == code, query
    assert ask(proxy, {"query": "CREATE TABLE copied (a int)"}).status_code == 200
    assert error(ask(proxy, {"query": "COPY copied FROM STDIN"}))["code"] == "0A000"
    assert ask(proxy, {"query": "SELECT count(*) FROM copied"}).json()["rows"] == [["0"]]


def test_what_cannot_be_understood_is_said(proxy: Proxy) -> None:
    for body, headers, code in (
        ({}, {}, "22P02"),
        ({"query": "SELECT 1\0"}, {}, "22P02"),
        ({"query": "SELECT 1"}, {"Neon_Connection_String": "x"}, "08001"),
        ({"query": "SELECT 1"}, {"Neon_Connection_String": "postgres://app:x@127.0.0.1/d"}, "08004"),
        ({"query": "SELECT 1"}, {"Authorization": "Bearer x"}, "0A000"),
        ({"queries": []}, {"Neon_Batch_Isolation_Level": "None"}, "22023"),
    ):
        assert error(ask(proxy, body, **headers))["code"] == code, body
    assert ask(proxy, {"queries": []}).json() == {"results": []}
    by_option = f"postgres://app:{PASSWORD.replace(' ', '%20')}@127.0.0.1/appdb?options=endpoint%3D{ENDPOINT}"
    assert ask(proxy, {"query": "SELECT 1"}, Neon_Connection_String=by_option).status_code == 200


def test_connections_stay_open_for_further_requests_and_not_for_ever(proxy: Proxy) -> None:
    with encrypted(proxy) as stream:
        for number in range(3):
            stream.sendall(request(json.dumps({"query": f"SELECT {number} AS n"}).encode()))
            told = b""
            while f'"rows":[{{"n":{number}}}]'.encode() not in told:
                piece = stream.recv(65536)
                assert piece, told
                told += piece
            assert told.startswith(b"HTTP/1.1 200 "), told
        begun = time.monotonic()
        assert stream.recv(1) == b""
        assert 2 < time.monotonic() - begun < 15
    # Slow headers are not waited for either.
    with encrypted(proxy) as stream:
        stream.sendall(b"POST /sql HTTP/1.1\r\nHost: x\r\n")
        begun = time.monotonic()
        stream.recv(4096)
        assert time.monotonic() - begun < 15


def test_http_is_no_way_to_postgress_protocol_and_back(proxy: Proxy) -> None:
    startup = struct.pack("!I", 3 << 16) + b"user\0app\0\0"
    with encrypted(proxy, ["http/1.1"]) as stream:
        stream.sendall(struct.pack("!I", len(startup) + 4) + startup)
        with contextlib.suppress(OSError):
            told = stream.recv(4096)
            assert told.startswith(b"HTTP/1.1 400") or not told
    with encrypted(proxy, ["postgresql"]) as stream:
        stream.sendall(request(b"{}"))
        with contextlib.suppress(OSError):
            assert not stream.recv(4096).startswith(b"HTTP")
    # After a request for TLS as Postgres has it, there is no HTTP.
    plain = socket.create_connection(("127.0.0.1", proxy.port))
    plain.sendall(struct.pack("!II", 8, 80877103))
    assert plain.recv(1) == b"S"
    context = ssl.create_default_context(cafile=str(proxy.authority.root))
    context.set_alpn_protocols(["http/1.1"])
    with contextlib.suppress(OSError), context.wrap_socket(plain, server_hostname=API) as stream:
        stream.sendall(request(b"{}"))
        assert stream.recv(4096) == b""


def test_requests_wait_for_server_connections_and_share_them(proxy: Proxy) -> None:
    body = {"query": "SELECT pg_backend_pid()::text || pg_sleep(0.05)::text"}
    seen: set[str] = set()

    def work() -> None:
        with browser(proxy) as client:
            for _ in range(5):
                told = {"Neon-Connection-String": address()} | SQL_RAW
                answer = client.post("/sql", json=body, headers=told)
                assert answer.status_code == 200, answer.text
                seen.add(answer.json()["rows"][0][0])

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert 1 <= len(seen) <= 4
    assert metric(proxy.http, "weir_proxy_http_requests_total", result="ok") >= 60


def test_a_suspended_compute_is_woken_and_a_wake_that_fails_is_said() -> None:
    with proxied("--wake-seconds", "2") as proxy:
        proxy.endpoint("ep-asleep", "suspended", app=proxy.stock.verifier("app"))
        time.sleep(1.5)
        told = error(ask(proxy, {"query": "SELECT 1"}, Neon_Connection_String=address(endpoint="ep-asleep")))
        assert told["code"] == "57P03"
        assert "the compute of endpoint ep-asleep cannot be reached" in told["message"]


def test_a_stop_lets_a_request_finish() -> None:
    with proxied("--drain-seconds", "20") as proxy:
        answers: list[httpx.Response] = []
        asking = threading.Thread(target=lambda: answers.append(ask(proxy, {"query": "SELECT pg_sleep(3)"})))
        asking.start()
        wait_for("the statement", lambda: backends(proxy, "query LIKE '%pg_sleep(3)%' AND usename = 'app'") == 1, 10)
        proxy.process.signal(15)
        asking.join(30)
        assert [answer.status_code for answer in answers] == [200]
        assert proxy.process.wait(10) == 0
