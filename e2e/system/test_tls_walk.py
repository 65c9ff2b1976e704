"""The walk over the ports of parts in an installation with `[security] tls`, Prometheus's among them: nobody comes in
without a certificate that is of this installation and of a part that may come there. What runs goes on through all
changes of CAs."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Generator
from dataclasses import dataclass, replace

import pytest
from stack import Stack, running_stack, wait_for
from weirbench.api import Database
from weirbench.parts import client
from weirbench.postgres import query

from weir.cli import installation
from weir.tls import authority, parts

TLS_ALERT = 0x15


@dataclass
class Walk:
    stack: Stack
    database: Database
    # Ports of parts, by their names in the settings; the compute's is `agent`.
    ports: dict[str, int]


@pytest.fixture(scope="module")
def walk() -> Generator[Walk]:
    with running_stack({"WEIR_TLS": "true"}) as stack:
        database = stack.api().create_database("proven", {})
        query(database.uri, "CREATE TABLE kept AS SELECT n FROM generate_series(1, 1000) AS n")
        settings = installation.load(stack.home)
        own = ("pageserver_", "safekeeper_", "prometheus")
        ports = {name: port for name, port in settings.ports.items() if name.startswith(own)}
        spec = json.loads((stack.home / "computes" / database.compute_id / "spec.json").read_text())
        yield Walk(stack, database, ports | {"agent": spec["port"] + 1})


def context_of(name: str, walk: Walk) -> ssl.SSLContext:
    """As this part would connect, by a file that the installation has made."""
    home = walk.stack.home
    file = parts.compute_file(home, walk.database.compute_id) if name == "compute" else parts.service_file(home, name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_cert_chain(file)
    context.load_verify_locations(parts.authorities_file(home))
    return context


def is_refused(port: int, context: ssl.SSLContext | None) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
        try:
            with plain if context is None else context.wrap_socket(plain) as peer:
                peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: walk\r\n\r\n")
                answer = peer.recv(100)
        except (ssl.SSLError, ConnectionError):
            return True
    # Prometheus ends a plain connection with a word of its own.
    return answer[:1] in {b"", bytes([TLS_ALERT])} or answer.startswith(b"HTTP/1.0 400")


def test_no_port_of_a_part_takes_plain_connections_or_another_parts(walk: Walk):
    opened = [name for name, port in walk.ports.items() if not is_refused(port, None)]
    assert not opened, "ports that take plain connections"
    assert len(walk.ports) == 3 * 2 + 2 + 2
    for name, port in walk.ports.items():
        if name.endswith("_http") or name in {"agent", "prometheus"}:
            assert not is_refused(port, context_of("control", walk)), name
    for part, closed in {
        "compute": {"safekeeper_1_http", "agent"},
        "pageserver": {"safekeeper_1_http", "agent"},
        "safekeeper-1": {"pageserver_http", "agent"},
    }.items():
        assert [name for name in closed if not is_refused(walk.ports[name], context_of(part, walk))] == [], part
    secret = parts.compute_file(walk.stack.home, walk.database.compute_id).read_text().splitlines()[1]
    assert secret not in walk.stack.logs()


def test_prometheus_sees_all_parts(walk: Walk):
    def ask(words: str) -> list[dict[str, list[str]]]:
        # The stack has the setting by its environment, which this process has not.
        settings = replace(installation.load(walk.stack.home), has_tls=True)
        with client(settings, "prometheus", timeout=10) as prometheus:
            return prometheus.get("/api/v1/query", params={"query": words}).json()["data"]["result"]

    def all_up() -> bool:
        # Prometheus asks itself, too, by its own port.
        rows = ask("up{job=~'pageserver|safekeeper|compute|prometheus'}")
        return len(rows) >= 6 and all(row["value"][1] == "1" for row in rows)

    wait_for("all parts to be scraped", all_up, 60)
    left = ask("weir_part_certificate_not_after_timestamp_seconds - time()")
    assert len(left) >= 5
    assert all(float(row["value"][1]) > authority.PART_SECONDS / 2 - 60 for row in left)


def test_a_part_is_killed_and_a_compute_starts_anew(walk: Walk):
    for name in ("pageserver", "safekeeper-2"):
        walk.stack.kill(name)
    walk.stack.suspend_compute(walk.database)
    walk.stack.start_compute(walk.database)
    walk.stack.wait_for_compute(walk.database)
    assert query(walk.database.uri, "SELECT count(*) FROM kept") == "1000"


def test_cas_change_while_all_runs(walk: Walk):
    """The last of the walk."""
    before = context_of("control", walk)
    # Only the ports' own check counts.
    before.verify_mode = ssl.CERT_NONE
    assert not is_refused(walk.ports["agent"], before)

    def cas() -> list[str]:
        shown = walk.stack.weir("certificates", "list", "--json")
        assert shown.returncode == 0, shown.stderr
        return [row["does"] for row in json.loads(shown.stdout)]

    assert cas() == ["signs"]
    for words, then in (((), ["signs", "signed before"]), (("--at-once",), ["signs"])):
        result = walk.stack.weir("certificates", "rotate", *words)
        assert result.returncode == 0, result.stderr
        assert cas() == then
        query(walk.database.uri, "INSERT INTO kept SELECT 0")
    wait_for("the old CA's certificates to be refused", lambda: is_refused(walk.ports["agent"], before), 10)
    walk.stack.suspend_compute(walk.database)
    walk.stack.start_compute(walk.database)
    walk.stack.wait_for_compute(walk.database)
    assert query(walk.database.uri, "SELECT count(*) FROM kept") == "1002"
    test_prometheus_sees_all_parts(walk)
    # Nothing was restarted for it.
    assert all(
        entry["restarts"] == 0 for entry in walk.stack.status()["processes"] if entry["name"] == "safekeeper-1"
    )
