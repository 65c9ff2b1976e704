"""From where clients may come: lists of addresses at endpoints, load balancers that say whose a connection is, and
how many connections an endpoint and a role may have."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator

import httpx
import psycopg
import pytest
from balancing import LOCAL, balancer, header
from harness import free_port, metric, wait_for
from pooling import POOLER
from proxying import DOMAIN, ENDPOINT, PASSWORD, Proxy, proxied

HOST = f"{ENDPOINT}.{DOMAIN}"
REFUSED = "is not allowed to connect to this endpoint"
ELSEWHERE = ["192.0.2.0/24", "2001:db8::/32", "198.51.100.1-198.51.100.9"]


@pytest.fixture(scope="module")
def behind() -> int:
    """The proxy's port for load balancers."""
    return free_port()


@pytest.fixture(scope="module")
def proxy(behind: int) -> Iterator[Proxy]:
    listen = f"127.0.0.1:{behind}"
    with proxied(
        "--listen-behind", listen, "--trusted-senders", "127.0.0.1,10.0.0.0/8", "--login-seconds", "5"
    ) as proxy:
        yield proxy


def allow(proxy: Proxy, ranges: list[str] | None) -> None:
    """Changes the endpoint's list, and returns when the proxy has read it."""
    before = proxy.log.count("read again after a change")
    proxy.endpoint(ENDPOINT, "running", app=proxy.stock.verifier("app"), allowed_ips=ranges)
    wait_for("the directory to be read", lambda: proxy.log.count("read again after a change") > before, 10)


def by_postgres(proxy: Proxy, port: int, password: str) -> str:
    return _by_psycopg(proxy, port, password, HOST)


def by_pooler(proxy: Proxy, port: int, password: str) -> str:
    return _by_psycopg(proxy, port, password, POOLER)


def _by_psycopg(proxy: Proxy, port: int, password: str, host: str) -> str:
    try:
        with proxy.connect(host=host, port=port, password=password) as connection:
            connection.execute("SELECT 1")
    except psycopg.OperationalError as error:
        return str(error)
    return ""


def by_http(proxy: Proxy, port: int, password: str) -> str:
    context = ssl.create_default_context(cafile=str(proxy.authority.root))
    context.check_hostname = False
    address = f"postgresql://app:{password.replace(' ', '%20')}@{HOST}/appdb"
    with httpx.Client(verify=context, base_url=f"https://127.0.0.1:{port}", timeout=60) as client:
        answer = client.post("/sql", json={"query": "SELECT 1"}, headers={"Neon-Connection-String": address})
    if answer.status_code == 200:
        return ""
    told = answer.json()
    assert told["code"] in {"28000", "28P01"}
    return str(told["message"])


def by_websocket(proxy: Proxy, port: int, password: str) -> str:
    """As the driver does it: startup packet and password at once, then what comes up to ReadyForQuery or an error."""
    context = ssl.create_default_context(cafile=str(proxy.authority.root))
    plain = socket.create_connection(("127.0.0.1", port), timeout=20)
    with context.wrap_socket(plain, server_hostname=HOST) as stream:
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            *("GET /v2 HTTP/1.1", f"Host: {HOST}", "Upgrade: websocket", "Connection: Upgrade"),
            *("Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}", "", ""),
        ]
        stream.sendall("\r\n".join(lines).encode())
        told = b""
        while b"\r\n\r\n" not in told:
            told += stream.recv(4096)
        assert told.startswith(b"HTTP/1.1 101 "), told
        startup = struct.pack("!I", 3 << 16) + b"user\0app\0database\0appdb\0\0"
        secret = password.encode() + b"\0"
        payload = struct.pack("!I", len(startup) + 4) + startup
        payload += b"p" + struct.pack("!I", len(secret) + 4) + secret
        # A mask of zeros leaves the bytes as they are.
        stream.sendall(struct.pack("!BB", 0x82, 0x80 | 126) + struct.pack("!H", len(payload)) + bytes(4) + payload)
        found = b""
        while piece := stream.recv(4096):
            found += piece
            if b"Z\0\0\0\x05I" in found:
                return ""
        text = found.split(b"\0M", 1)[1].split(b"\0", 1)[0].decode()
        assert b"C28000" in found or b"C28P01" in found
        return text


WAYS = [by_postgres, by_pooler, by_http, by_websocket]
Way = Callable[[Proxy, int, str], str]


@pytest.mark.parametrize("way", WAYS)
def test_only_who_comes_from_an_address_of_the_list_gets_in(proxy: Proxy, way: Way) -> None:
    for ranges in (None, ["127.0.0.1"], [*ELSEWHERE, "127.0.0.0/8"], ["::ffff:127.0.0.1"], ["127.0.0.0-127.0.0.9"]):
        allow(proxy, ranges)
        assert way(proxy, proxy.port, PASSWORD) == ""
    before = metric(proxy.http, "weir_proxy_addresses_not_allowed_total")
    # All of IPv6 is no address of IPv4, and the empty list is nobody.
    for ranges in (ELSEWHERE, ["::/0"], []):
        allow(proxy, ranges)
        told = way(proxy, proxy.port, PASSWORD)
        assert f"the IP address 127.0.0.1 {REFUSED}" in told
        # Whether a password is right is not to be found out from here.
        assert way(proxy, proxy.port, "guessed") == told
    assert metric(proxy.http, "weir_proxy_addresses_not_allowed_total") - before == 6
    allow(proxy, None)


def test_the_refusal_comes_in_place_of_the_request_for_a_password(proxy: Proxy) -> None:
    allow(proxy, ELSEWHERE)
    plain = socket.create_connection(("127.0.0.1", proxy.port))
    plain.sendall(struct.pack("!II", 8, 80877103))
    assert plain.recv(1) == b"S"
    context = ssl.create_default_context(cafile=str(proxy.authority.root))
    with context.wrap_socket(plain, server_hostname=HOST) as stream:
        stream.settimeout(10)
        body = struct.pack("!I", 3 << 16) + b"user\0app\0\0"
        stream.sendall(struct.pack("!I", len(body) + 4) + body)
        assert stream.recv(1) == b"E"
    assert REFUSED in proxy.wait_for_end(REFUSED)
    allow(proxy, None)


def test_a_changed_list_is_for_new_logins_and_not_for_sessions(proxy: Proxy) -> None:
    allow(proxy, None)
    context = ssl.create_default_context(cafile=str(proxy.authority.root))
    context.check_hostname = False
    told = {"Neon-Connection-String": f"postgresql://app:correct%20horse@{HOST}/appdb"}
    body = json.dumps({"query": "SELECT 1"})
    with (
        proxy.connect() as direct,
        proxy.connect(host=POOLER) as pooled,
        httpx.Client(verify=context, base_url=f"https://127.0.0.1:{proxy.port}", timeout=60) as client,
    ):
        assert client.post("/sql", content=body, headers=told).status_code == 200
        proxy.endpoint(ENDPOINT, "running", app=proxy.stock.verifier("app"), allowed_ips=ELSEWHERE)
        begun = time.monotonic()
        wait_for("the refusal", lambda: REFUSED in by_postgres(proxy, proxy.port, PASSWORD), 10)
        assert time.monotonic() - begun < 5
        # A request by HTTP is a login of its own, also within a connection that stands.
        assert REFUSED in client.post("/sql", content=body, headers=told).text
        for connection in (direct, pooled):
            assert connection.execute("SELECT 1").fetchone() == (1,)
    allow(proxy, None)


@pytest.mark.parametrize("way", WAYS)
def test_behind_a_load_balancer_the_clients_own_address_counts(proxy: Proxy, behind: int, way: Way) -> None:
    allow(proxy, ["192.0.2.0/24", "2001:db8::/32"])
    for client, gets_in in (
        ("192.0.2.7", True),
        ("2001:db8::7", True),
        ("::ffff:192.0.2.7", True),
        ("192.0.3.7", False),
        ("2001:db9::7", False),
        ("127.0.0.1", False),
    ):
        with balancer(behind, header(client)) as port:
            told = way(proxy, port, PASSWORD)
            assert (told == "") is gets_in, (client, told)
            assert gets_in or f"the IP address {client} {REFUSED}" in told
    allow(proxy, None)


def test_a_load_balancers_own_connection_is_served_as_its_own(proxy: Proxy, behind: int) -> None:
    allow(proxy, ["127.0.0.1"])
    with balancer(behind, header("192.0.2.7", command=LOCAL)) as port:
        assert by_postgres(proxy, port, PASSWORD) == ""
    allow(proxy, None)


def ends(port: int, begin: bytes) -> None:
    """The connection ends, and nothing is said before."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as plain:
        plain.sendall(begin + struct.pack("!II", 8, 80877103))
        with contextlib.suppress(ConnectionResetError):
            assert plain.recv(100) == b""


def test_nobody_gets_in_there_without_saying_whose_the_connection_is(proxy: Proxy, behind: int) -> None:
    before = metric(proxy.http, "weir_proxy_connections_ended_total", why="not_a_sender")
    whole = header("192.0.2.7")
    others = (b"\x21\x31", b"\x21\x00", b"\x11\x11")
    beginnings = [b"", b"PROXY TCP4 192.0.2.7 127.0.0.1 50000 5432\r\n"]
    beginnings += [whole.replace(b"\x21\x11", other) for other in others]
    for begin in beginnings:
        ends(behind, begin)
    # Half a header is waited for no longer than a login.
    with socket.create_connection(("127.0.0.1", behind), timeout=20) as plain:
        plain.sendall(whole[:-1])
        begun = time.monotonic()
        assert plain.recv(1) == b""
        assert 3 < time.monotonic() - begun < 15
    after = metric(proxy.http, "weir_proxy_connections_ended_total", why="not_a_sender")
    assert after - before == len(beginnings) + 1


def test_a_header_is_no_way_in_at_the_port_for_clients(proxy: Proxy) -> None:
    """A client that comes by itself cannot choose its address."""
    allow(proxy, ["192.0.2.0/24"])
    with balancer(proxy.port, header("192.0.2.7")) as port, pytest.raises(psycopg.OperationalError):
        proxy.connect(port=port)
    allow(proxy, None)


def test_a_sender_that_is_not_trusted_is_refused_whatever_it_says() -> None:
    behind = free_port()
    with proxied("--listen-behind", f"127.0.0.1:{behind}", "--trusted-senders", "10.0.0.0/8,::1") as proxy:
        ends(behind, header("10.1.2.3"))
        ends(behind, header("10.1.2.3", command=LOCAL))
        with balancer(behind, header("10.1.2.3")) as port, pytest.raises(psycopg.OperationalError):
            proxy.connect(port=port)
        assert "is no trusted sender of the PROXY protocol" in proxy.log
        assert by_postgres(proxy, proxy.port, PASSWORD) == ""


def test_who_guesses_behind_a_load_balancer_slows_nobody_else(proxy: Proxy, behind: int) -> None:
    with balancer(behind, header("198.51.100.66")) as port:
        for _ in range(9):
            assert "password authentication failed" in by_postgres(proxy, port, "guessed")
    with balancer(behind, header("198.51.100.67")) as port:
        begun = time.monotonic()
        assert by_postgres(proxy, port, PASSWORD) == ""
        assert time.monotonic() - begun < 5
    slowed = metric(proxy.http, "weir_proxy_logins_slowed_total")
    assert slowed > 0


def test_an_endpoint_and_a_role_have_so_many_connections_and_no_more() -> None:
    with proxied("--max-endpoint-connections", "3", "--max-role-connections", "2") as proxy:
        with proxy.stock.admin() as admin:
            admin.execute("CREATE ROLE other LOGIN PASSWORD 'correct horse'")
        verifiers = {name: proxy.stock.verifier(name) for name in ("app", "other")}
        proxy.endpoint(ENDPOINT, "running", **verifiers)
        proxy.endpoint("ep-next", "running", **verifiers)
        wait_for("the directory", lambda: "read again after a change" in proxy.log, 10)
        held = [proxy.connect(), proxy.connect(host=POOLER)]
        for way in WAYS[:2]:
            assert f'too many connections for role "app" at endpoint {ENDPOINT}' in way(proxy, proxy.port, PASSWORD)
        # A wrong password is a wrong password, and takes nobody's place.
        assert "password authentication failed" in by_postgres(proxy, proxy.port, "guessed")
        held.append(proxy.connect(user="other"))
        with pytest.raises(psycopg.OperationalError, match=f"too many connections for endpoint {ENDPOINT}"):
            proxy.connect(user="other")
        held.append(proxy.connect(host=f"ep-next.{DOMAIN}"))
        for connection in held:
            connection.close()
        wait_for("the places", lambda: by_postgres(proxy, proxy.port, PASSWORD) == "", 10)
