"""The pooler's wire: clients that break the protocol or come slowly, and what clients cost."""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from pooling import POOLER, Raw, backend, backends, pooled, status_kib, value
from proxying import PASSWORD, Proxy, proxied


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    """Two server connections for each role in each database."""
    with proxied("--pool-size", "2", "--pool-queue-timeout-ms", "3000") as proxy:
        yield proxy


def test_a_client_that_breaks_the_protocol_is_told_and_harms_nobody(proxy: Proxy) -> None:
    for wrong in (b"p\0\0\0\x04", b"Q\xff\xff\xff\xff", b"B\0\0\0\x08none", b"!\0\0\0\x04"):
        with Raw(proxy) as raw:
            raw.send(b"Q", b"BEGIN\0")
            raw.until(b"Z")
            raw.stream.sendall(wrong)
            assert b"C08P01" in raw.until(b"E")[-1][1]
            with pytest.raises(EOFError):
                raw.message()
        with pooled(proxy) as other:
            assert value(other, "SELECT 1") == "1"
    assert backends(proxy, "usename = 'app' AND state LIKE 'idle in%'") == 0
    assert 'why="violation"' in proxy.log


def test_a_message_that_comes_slowly_holds_no_server_connection_and_one_that_is_cut_closes_it(proxy: Proxy) -> None:
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(Raw(proxy)) for _ in range(3)]
        for raw in slow:
            raw.stream.sendall(b"Q\0\0\0\x0dSEL")
        with pooled(proxy) as other:
            assert value(other, "SELECT 1") == "1"
        for raw in slow:
            raw.stream.sendall(b"ECT 1\0")
            assert [tag for tag, _ in raw.until(b"Z")] == [b"T", b"D", b"C", b"Z"]
        # A long one is passed on as it comes; its server connection cannot be used for anybody else any more.
        for raw in slow[:2]:
            raw.stream.sendall(b"Q" + struct.pack("!I", 1 << 20) + b"SELECT '" + b"x" * 100_000)
    with pooled(proxy) as other:
        assert value(other, "SELECT 1") == "1"


def test_a_flush_without_sync_keeps_the_server_connection(proxy: Proxy) -> None:
    parts = (
        *((b"P", b"\0SELECT pg_backend_pid()\0\0\0"), (b"B", b"\0\0\0\0\0\0\0\0")),
        *((b"E", b"\0\0\0\0\0"), (b"H", b"")),
    )
    seen: set[bytes] = set()
    with Raw(proxy) as raw:
        for _ in range(3):
            for tag, body in parts:
                raw.send(tag, body)
            seen.add(dict(raw.until(b"C"))[b"D"])
            with pooled(proxy) as other:
                backend(other)
        assert len(seen) == 1
        raw.send(b"S", b"")
        assert raw.until(b"Z")[-1] == (b"Z", b"I")


def test_an_idle_pooled_client_costs_at_most_32_kib(say: Callable[[str], None]) -> None:
    """Resident memory of the proxy for clients, with TLS, that each have run a statement and prepared one."""
    count = 400
    with proxied("--pool-size", "4") as proxy, contextlib.ExitStack() as stack:
        enter = lambda _: stack.enter_context(pooled(proxy))  # noqa: E731
        for number in range(50):
            enter(number).execute("SELECT %s::int", [1], prepare=True)
        before = status_kib(proxy, "VmRSS")
        with ThreadPoolExecutor(16) as threads:
            sessions = list(threads.map(enter, range(count)))
        for connection in sessions:
            connection.execute("SELECT %s::int", [1], prepare=True)
        each = (status_kib(proxy, "VmRSS") - before) / count
        say(f"weir-proxy: {each:.1f} KiB for an idle pooled client, of {count}")
        assert each <= 32
        assert backends(proxy) <= 4


@pytest.mark.parametrize("mode", ["simple", "extended", "prepared"])
def test_pgbench_runs_with_more_clients_than_server_connections(proxy: Proxy, mode: str) -> None:
    parameters = proxy.parameters(password=None, host=POOLER)
    line = " ".join(f"{name}='{value}'" for name, value in parameters.items())
    environment = {**os.environ, "PGPASSWORD": PASSWORD}
    bench = lambda *arguments: subprocess.run(  # noqa: E731
        ["pgbench", *arguments, line], check=True, env=environment, capture_output=True, text=True, timeout=120
    )
    if mode == "simple":
        bench("-i", "-q", "-s", "1")
    # A thread each: pgbench prepares while the thread's other clients, which may be within transactions, wait.
    done = bench("-c", "16", "-j", "16", "-T", "3", "-M", mode, "-n")
    assert "number of failed transactions: 0" in done.stdout
