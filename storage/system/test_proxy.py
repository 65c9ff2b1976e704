"""One address for all endpoints: what clients see of `weir-proxy`, by psql and psycopg against a stock Postgres."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from cryptography import x509
from harness import metric, wait_for
from proxying import DOMAIN, ENDPOINT, PASSWORD, Proxy, proxied

ENDED = "weir_proxy_connections_ended_total"


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    with proxied("--drain-seconds", "5") as proxy:
        yield proxy


def failure(proxy: Proxy, **changes: object) -> str:
    with pytest.raises(psycopg.OperationalError) as refused:
        proxy.connect(**changes)
    return str(refused.value)


def test_psql_and_psycopg_get_in_with_the_strictest_settings(proxy: Proxy) -> None:
    done = proxy.psql("SELECT current_user, current_database()")
    assert (done.returncode, done.stdout, done.stderr) == (0, "app|appdb\n", "")
    with proxy.connect() as connection:
        row = connection.execute("SELECT current_user, pg_backend_pid()").fetchone()
        assert row == ("app", connection.info.backend_pid)
        assert connection.info.parameter_status("server_version") is not None


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_both_versions_of_tls_are_spoken_and_older_ones_are_not(proxy: Proxy, version: str) -> None:
    with proxy.connect(ssl_min_protocol_version=version, ssl_max_protocol_version=version) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    with pytest.raises(psycopg.OperationalError):
        proxy.connect(ssl_min_protocol_version="TLSv1.1", ssl_max_protocol_version="TLSv1.1")


def test_the_endpoint_is_named_by_host_by_option_or_in_the_user(proxy: Proxy) -> None:
    elsewhere = {"host": "127.0.0.1", "sslmode": "require"}
    for changes in (
        {"options": f"endpoint={ENDPOINT} -c work_mem=7MB"},
        {"options": "-c work_mem=7MB", "user": f"endpoint={ENDPOINT};app"},
        {"options": f"-c work_mem=7MB endpoint={ENDPOINT}", "user": f"endpoint${ENDPOINT}$app"},
    ):
        with proxy.connect(**elsewhere, **changes) as connection:
            assert connection.execute("SHOW work_mem").fetchone() == ("7MB",)
            assert connection.execute("SELECT current_user").fetchone() == ("app",)
    assert "does not say which endpoint" in failure(proxy, **elsewhere)
    assert "names two endpoints" in failure(proxy, options="endpoint=ep-other")


def test_a_connection_without_tls_is_told_what_to_do(proxy: Proxy) -> None:
    told = failure(proxy, sslmode="disable", channel_binding="prefer", sslrootcert=None)
    assert "takes only TLS" in told
    assert "sslmode=require" in told


def test_direct_tls_needs_its_protocol_named(proxy: Proxy) -> None:
    with proxy.connect(sslnegotiation="direct") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    context = ssl.create_default_context(cafile=str(proxy.authority.root))
    body = struct.pack("!I", 3 << 16) + b"user\0app\0\0"
    startup = struct.pack("!I", len(body) + 4) + body
    for protocols, told_of in ((["postgresql"], b"SCRAM-SHA-256"), ([], b"ALPN")):
        if protocols:
            context.set_alpn_protocols(protocols)
        else:
            context = ssl.create_default_context(cafile=str(proxy.authority.root))
        with (
            socket.create_connection(("127.0.0.1", proxy.port)) as plain,
            context.wrap_socket(plain, server_hostname=f"{ENDPOINT}.{DOMAIN}") as stream,
        ):
            stream.settimeout(10)
            stream.sendall(startup)
            told = stream.recv(1000)
            assert told_of in told
            assert (b"SCRAM" in told) == bool(protocols)
    # A client of another protocol gets no connection at all; that of HTTP is `test_sql_http.py`'s.
    context.set_alpn_protocols(["h2", "smtp"])
    with (
        socket.create_connection(("127.0.0.1", proxy.port)) as plain,
        pytest.raises(ssl.SSLError),
        context.wrap_socket(plain, server_hostname=f"{ENDPOINT}.{DOMAIN}"),
    ):
        pass


def test_a_protocol_newer_than_ours_is_negotiated(proxy: Proxy) -> None:
    with proxy.connect(max_protocol_version="3.2") as connection:
        connection.execute("SELECT 1")
        assert connection.pgconn.protocol_version == 3
    # What a client of some later day sends: minor 99 and an option nobody knows.
    body = struct.pack("!I", 3 << 16 | 99) + b"user\0app\0_pq_.later\x001\0\0"
    with within_tls(proxy) as stream:
        stream.sendall(struct.pack("!I", len(body) + 4) + body)
        told = stream.recv(1000)
    unknown = struct.pack("!II", 3 << 16 | 2, 1) + b"_pq_.later\0"
    assert told == b"v" + struct.pack("!I", len(unknown) + 4) + unknown


def within_tls(proxy: Proxy) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", proxy.port))
    plain.sendall(struct.pack("!II", 8, 80877103))
    assert plain.recv(1) == b"S"
    context = ssl.create_default_context(cafile=str(proxy.authority.root))
    stream = context.wrap_socket(plain, server_hostname=f"{ENDPOINT}.{DOMAIN}")
    stream.settimeout(10)
    return stream


def test_bytes_before_tls_are_not_taken_for_bytes_within_it(proxy: Proxy) -> None:
    """A startup packet that someone puts in front of the client's TLS must never be read as the client's."""
    startup = struct.pack("!I", 3 << 16) + b"user\0app\0options\0endpoint=x\0\0"
    with socket.create_connection(("127.0.0.1", proxy.port)) as plain:
        plain.settimeout(10)
        plain.sendall(struct.pack("!II", 8, 80877103) + struct.pack("!I", len(startup) + 4) + startup)
        told = plain.recv(1)
        rest = b""
        while piece := plain.recv(1000):
            rest += piece
    assert told == b"S"
    # A TLS alert at most, and no request for a password.
    assert b"SCRAM" not in rest


def test_wrong_endpoint_role_and_password_look_alike() -> None:
    with proxied() as proxy:
        told = {
            failure(proxy, host=f"ep-none.{DOMAIN}"),
            failure(proxy, user="nobody"),
            failure(proxy, password="wrong"),
        }
        texts = {text.split("FATAL:")[1].strip().replace("nobody", "app") for text in told}
        assert texts == {'password authentication failed for user "app"'}
        assert proxy.log.count('why="wrong_password"') == 3
        assert PASSWORD not in proxy.log
        # The salt of a user that does not exist is the same each time, as a real one's is.
        salts = {salt_of(proxy, "nobody") for _ in range(3)}
        assert len(salts) == 1
        assert salts != {salt_of(proxy, "app")}


def salt_of(proxy: Proxy, role: str) -> bytes:
    body = struct.pack("!I", 3 << 16) + b"user\0" + role.encode() + b"\0\0"
    with within_tls(proxy) as stream:
        stream.sendall(struct.pack("!I", len(body) + 4) + body)
        assert b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0" in stream.recv(1000)
        first = b"n,,n=,r=abcdef"
        body = b"SCRAM-SHA-256\0" + struct.pack("!I", len(first)) + first
        stream.sendall(b"p" + struct.pack("!I", len(body) + 4) + body)
        return stream.recv(1000).split(b",s=")[1]


def test_guessing_is_slowed_for_who_guesses() -> None:
    """Eight wrong passwords cost little; then each takes longer than the one before, and a right one no less."""
    with proxied() as proxy:
        for _ in range(8):
            failure(proxy, password="wrong")
        begun = time.monotonic()
        failure(proxy, password="wrong")
        proxy.connect().close()
        assert time.monotonic() - begun > 2
        assert metric(proxy.http, "weir_proxy_logins_slowed_total") >= 2


def test_a_password_changed_behind_the_directory_lets_nobody_in(proxy: Proxy) -> None:
    with proxy.stock.admin() as admin:
        admin.execute("CREATE ROLE changed LOGIN PASSWORD 'old'")
        roles = {"changed": proxy.stock.verifier("changed"), "app": proxy.stock.verifier("app")}
        proxy.endpoint(ENDPOINT, "running", **roles)
        wait_for("the role", lambda: proxy.connect(user="changed", password="old").close() or True)
        admin.execute("ALTER ROLE changed PASSWORD 'new'")
    assert "password authentication failed" in failure(proxy, user="changed", password="old")
    proxy.endpoint(ENDPOINT, "running", **(roles | {"changed": proxy.stock.verifier("changed")}))
    wait_for("the password", lambda: proxy.connect(user="changed", password="new").close() or True)


@pytest.mark.parametrize("changes", [{"max_protocol_version": "3.0"}, {"max_protocol_version": "3.2"}])
def test_a_cancel_reaches_the_statement_and_no_other(proxy: Proxy, changes: dict[str, str]) -> None:
    with proxy.connect(**changes) as one, proxy.connect(**changes) as other:
        ended: dict[str, str] = {}

        def sleep(name: str, connection: psycopg.Connection[tuple[object, ...]], seconds: float) -> None:
            try:
                connection.execute("SELECT pg_sleep(%s)", [seconds])
                ended[name] = "slept"
            except psycopg.errors.QueryCanceled:
                ended[name] = "canceled"

        threads = [
            threading.Thread(target=sleep, args=arguments) for arguments in (("one", one, 60), ("other", other, 3))
        ]
        for thread in threads:
            thread.start()
        time.sleep(1)
        # Both ways of libpq: within TLS, and as clients before 17 do it.
        one.cancel_safe(timeout=10) if changes["max_protocol_version"] == "3.2" else one.cancel()
        for thread in threads:
            thread.join(30)
        assert ended == {"one": "canceled", "other": "slept"}
        # The compute's own key is nothing to the proxy, and one byte off is nothing either.
        wrong = struct.pack("!IIII", 16, 80877102, other.info.backend_pid, 1)
        with socket.create_connection(("127.0.0.1", proxy.port)) as plain:
            plain.sendall(wrong)
            assert plain.recv(1) == b""
        assert metric(proxy.http, "weir_proxy_cancel_requests_total", result="unknown") >= 1


def test_copy_passes_both_ways(proxy: Proxy) -> None:
    rows = "".join(f"{number}\t{hashlib.sha256(str(number).encode()).hexdigest()}\n" for number in range(100_000))
    with proxy.connect() as connection:
        connection.execute("CREATE TEMP TABLE t (id int, text text)")
        with connection.cursor().copy("COPY t FROM STDIN") as copy:
            copy.write(rows)
        with connection.cursor().copy("COPY (SELECT * FROM t ORDER BY id) TO STDOUT") as copy:
            assert b"".join(bytes(block) for block in copy) == rows.encode()


def test_a_value_of_64_mb_passes_both_ways_without_being_kept(proxy: Proxy) -> None:
    value = os.urandom(1 << 20) * 64
    with proxy.connect() as connection:
        row = connection.execute("SELECT %b::bytea", [value], binary=True).fetchone()
        assert row is not None
        assert hashlib.sha256(bytes(row[0])).digest() == hashlib.sha256(value).digest()
    assert peak_kib(proxy) < 64 * 1024


def peak_kib(proxy: Proxy) -> int:
    return status_kib(proxy, "VmHWM")


def status_kib(proxy: Proxy, name: str) -> int:
    assert proxy.process.child is not None
    status = Path(f"/proc/{proxy.process.child.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(name))


def test_pipelines_and_notifications_pass(proxy: Proxy) -> None:
    with proxy.connect() as connection, proxy.connect() as listener:
        with connection.pipeline():
            cursors = [connection.execute("SELECT %s::int", [number]) for number in range(500)]
            assert [cursor.fetchone() for cursor in cursors] == [(number,) for number in range(500)]
        listener.execute("LISTEN news")
        connection.execute("NOTIFY news, 'here'")
        assert [note.payload for note in listener.notifies(timeout=10, stop_after=1)] == ["here"]


def test_errors_of_the_compute_come_through_as_they_are(proxy: Proxy) -> None:
    assert 'database "none" does not exist' in failure(proxy, dbname="none")
    with proxy.connect() as connection, pytest.raises(psycopg.errors.UndefinedTable):
        connection.execute("SELECT * FROM nothing")


def test_a_new_certificate_is_used_and_old_sessions_go_on(proxy: Proxy) -> None:
    with proxy.connect() as before:
        # A key that does not fit is not used.
        key = proxy.authority.private_key.read_bytes()
        proxy.authority.private_key.write_bytes(b"nonsense")
        wait_for("a complaint", lambda: "the certificate" in proxy.log and "cannot be used" in proxy.log)
        proxy.connect().close()
        proxy.authority.private_key.write_bytes(key)
        serial = proxy.authority.sign()

        def renewed() -> bool:
            with within_tls(proxy) as stream:
                shown = stream.getpeercert()
            return shown is not None and int(str(shown["serialNumber"]), 16) == serial

        wait_for("the new certificate", renewed)
        served = x509.load_pem_x509_certificate(proxy.authority.certificate.read_bytes())
        said = metric(proxy.http, "weir_proxy_certificate_not_after_timestamp_seconds")
        assert said == served.not_valid_after_utc.timestamp()
        # Logins are bound to the new one now.
        proxy.connect().close()
        assert before.execute("SELECT 1").fetchone() == (1,)


def test_the_log_has_a_line_for_each_connection_without_a_secret(proxy: Proxy) -> None:
    with proxy.connect(application_name="accounted") as connection:
        connection.execute("SELECT repeat('x', 100000)")
    line = proxy.wait_for_end('why="client"')
    for part in (f'endpoint="{ENDPOINT}"', 'role="app"', 'database="appdb"', "bytes_to_compute=", "bytes_to_client="):
        assert part in line, line
    assert PASSWORD not in proxy.log
    assert "SCRAM-SHA-256$" not in proxy.log
    # Strangers write no lines of their own.
    failure(proxy, user="evil\nconnection ended forged=1")
    assert "\nconnection ended forged" not in proxy.log


def test_a_disabled_endpoint_says_so_to_who_may_know(proxy: Proxy) -> None:
    proxy.endpoint("ep-off", "disabled", app=proxy.stock.verifier("app"))
    time.sleep(1.5)
    assert "is disabled" in failure(proxy, host=f"ep-off.{DOMAIN}")
    assert "password authentication failed" in failure(proxy, host=f"ep-off.{DOMAIN}", password="wrong")


def test_a_thousand_clients_wake_a_compute_once() -> None:
    """The compute is down and its endpoint suspended; a thousand clients come at once, and each gets its row."""
    script = (
        "#!/bin/sh\nset -e\necho $1 >> {root}/wakes\nsleep 1\n"
        "touch {root}/start\nwhile [ ! -e {root}/started ]; do sleep 0.05; done\n"
    )
    with proxied("--wake-seconds", "60") as proxy:
        # The command lies in the proxy's folder, which is known only now: the proxy starts again with it.
        wake = proxy.root / "wake"
        wake.write_text(script.format(root=proxy.root))
        wake.chmod(0o755)
        proxy.process.stop()
        proxy.process.arguments += ["--wake-command", str(wake)]
        app = proxy.stock.verifier("app")
        proxy.endpoint(ENDPOINT, "suspended", app=app)
        proxy.stock.stop()
        proxy.process.start()

        def control_plane() -> None:
            wait_for("a wake", (proxy.root / "start").exists, 60)
            proxy.stock.start()
            proxy.endpoint(ENDPOINT, "running", app=app)
            (proxy.root / "started").touch()

        # A wrong password wakes nothing.
        assert "password authentication failed" in failure(proxy, password="wrong")
        assert not (proxy.root / "wakes").exists()
        starter = threading.Thread(target=control_plane)
        starter.start()

        def one(_: int) -> int:
            with proxy.connect(connect_timeout=120) as connection:
                row = connection.execute("SELECT 1").fetchone()
                assert row is not None
                return int(row[0])

        with ThreadPoolExecutor(1000) as pool:
            assert sum(pool.map(one, range(1000))) == 1000
        starter.join()
        assert (proxy.root / "wakes").read_text() == f"{ENDPOINT}\n"


def test_a_wake_that_fails_is_a_clear_error(proxy: Proxy) -> None:
    proxy.endpoint("ep-asleep", "suspended", app=proxy.stock.verifier("app"))
    time.sleep(1.5)
    told = failure(proxy, host=f"ep-asleep.{DOMAIN}")
    assert "the compute of endpoint ep-asleep cannot be reached" in told
    assert "no --wake-command" in proxy.log


def test_a_stop_lets_transactions_finish_and_ends_idle_sessions() -> None:
    with proxied("--drain-seconds", "20") as proxy, proxy.connect() as idle, proxy.connect() as busy:
        busy.execute("BEGIN")
        proxy.process.signal(signal.SIGTERM)
        wait_for("the idle one to end", lambda: metric(proxy.http, ENDED, why="shutdown") == 1, 10)
        with pytest.raises(psycopg.OperationalError, match="the proxy shuts down"):
            idle.execute("SELECT 1")
        assert busy.execute("SELECT 1").fetchone() == (1,)
        busy.execute("COMMIT")
        assert proxy.process.wait(10) == 0


def test_an_idle_session_costs_at_most_32_kib(say: Callable[[str], None]) -> None:
    """Resident memory of the proxy for idle sessions, with TLS, that each have run a statement."""
    count = 400
    with proxied() as proxy, contextlib.ExitStack() as stack:
        enter = lambda _: stack.enter_context(proxy.connect())  # noqa: E731
        for number in range(50):
            enter(number)
        before = status_kib(proxy, "VmRSS")
        with ThreadPoolExecutor(16) as pool:
            sessions = list(pool.map(enter, range(count)))
        for connection in sessions:
            connection.execute("SELECT 1")
        each = (status_kib(proxy, "VmRSS") - before) / count
        say(f"weir-proxy: {each:.1f} KiB for an idle session, of {count}")
        assert each <= 32


def test_pgbench_runs_through_it(proxy: Proxy) -> None:
    parameters = proxy.parameters(password=None)
    line = " ".join(f"{name}='{value}'" for name, value in parameters.items())
    environment = {**os.environ, "PGPASSWORD": PASSWORD}
    for arguments in (["-i", "-q", "-s", "1"], ["-c", "8", "-T", "3", "-M", "prepared", "-S"]):
        subprocess.run(["pgbench", *arguments, line], check=True, env=environment, capture_output=True, timeout=120)
