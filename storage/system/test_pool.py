"""Transaction pooling: what clients of `ENDPOINT-pooler` see, by psycopg and pgbench against a stock Postgres."""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from harness import metric, scram_verifier, wait_for
from pooling import POOLER, Connection, all_taken, backend, backends, elsewhere, pooled, status_kib, value
from proxying import ENDPOINT, PASSWORD, Proxy, proxied
from psycopg import sql
from psycopg.pq import ExecStatus


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    """Two server connections for each role in each database."""
    with proxied("--pool-size", "2", "--pool-queue-timeout-ms", "3000", "--drain-seconds", "5") as proxy:
        yield proxy


def test_a_pooler_is_named_in_all_ways_and_said_in_the_log(proxy: Proxy) -> None:
    by_address = {"host": "127.0.0.1", "sslmode": "require"}
    for changes in (
        {},
        by_address | {"options": f"endpoint={ENDPOINT}-pooler"},
        by_address | {"user": f"endpoint${ENDPOINT}-pooler$app"},
    ):
        with pooled(proxy, **changes) as connection:
            row = connection.execute("SELECT current_user, current_database()").fetchone()
            assert row == ("app", "appdb")
            assert connection.info.parameter_status("server_version") is not None
    line = proxy.wait_for_end("pooled=true")
    assert f'endpoint="{ENDPOINT}"' in line
    assert "turns=1" in line
    with proxy.connect() as direct:
        direct.execute("SELECT 1")
    proxy.wait_for_end("pooled=false")
    told = proxy.psql("SELECT 1", host=POOLER, password="wrong").stderr
    assert 'password authentication failed for user "app"' in told
    assert 'database "none" does not exist' in proxy.psql("SELECT 1", host=POOLER, dbname="none").stderr


def test_a_prepared_statement_works_on_whatever_server_connection_comes(proxy: Proxy) -> None:
    with pooled(proxy) as connection:
        ask = lambda: connection.execute("SELECT %s::int + 1, pg_backend_pid()", [41], prepare=True).fetchone()  # noqa: E731
        first = ask()
        assert first is not None
        with elsewhere(proxy, connection) as holder:
            second = ask()
            assert second is not None
            assert (first[0], second[0]) == (42, 42)
            assert first[1] != second[1]
            holder.execute("ROLLBACK")
        before = metric(proxy.http, "weir_proxy_pool_statements_total", result="prepared")
        assert [row[0] for row in (ask() for _ in range(20)) if row is not None] == [42] * 20
        assert metric(proxy.http, "weir_proxy_pool_statements_total", result="prepared") == before


def test_clients_share_a_statement_and_may_use_one_name_for_different_ones(proxy: Proxy) -> None:
    """psycopg calls the first statement of each connection alike."""
    with pooled(proxy) as one, pooled(proxy) as other:
        for _ in range(3):
            assert one.execute("SELECT %s || 'a'", ["x"], prepare=True).fetchone() == ("xa",)
            assert other.execute("SELECT %s || 'b'", ["x"], prepare=True).fetchone() == ("xb",)
        assert one.pgconn.prepare(b"twice", b"SELECT 1").status == ExecStatus.COMMAND_OK
        result = one.pgconn.prepare(b"twice", b"SELECT 1")
        assert b'prepared statement "twice" already exists' in result.error_message
        result = one.pgconn.exec_prepared(b"never", [])
        assert result.status == ExecStatus.FATAL_ERROR
        assert b'prepared statement "never" does not exist' in result.error_message


def test_a_statement_is_not_shared_with_clients_that_read_it_otherwise(proxy: Proxy) -> None:
    """Postgres makes dates of literals when it prepares a statement, and characters of its bytes."""
    ask = lambda connection: connection.execute("SELECT '01/02/2030'::date, %s::int", [1], prepare=True)  # noqa: E731
    with pooled(proxy, options="-c a.b=1") as american, pooled(proxy, options="-c a.b=1") as german:
        german.execute("SET DateStyle = 'SQL, DMY'")
        for _ in range(3):
            assert ask(american).fetchone() == (dt.date(2030, 1, 2), 1)
            assert ask(german).fetchone() == (dt.date(2030, 2, 1), 1)
    with pooled(proxy) as utf8, pooled(proxy, client_encoding="LATIN1") as latin1:
        for _ in range(3):
            for connection, characters in ((utf8, 1), (latin1, 2)):
                prepared = connection.pgconn.prepare(b"same", b"SELECT length('\xc3\xa4')")
                assert prepared.status == ExecStatus.COMMAND_OK
                assert connection.pgconn.exec_prepared(b"same", []).get_value(0, 0) == str(characters).encode()
                connection.pgconn.close_prepared(b"same")


def test_the_unnamed_statement_outlives_its_transaction(proxy: Proxy) -> None:
    """Drivers prepare it, look at its parameters, and run it after a Sync."""
    with pooled(proxy) as connection:
        assert connection.pgconn.prepare(b"", b"SELECT $1::int * 2").status == ExecStatus.COMMAND_OK
        with elsewhere(proxy, connection) as holder:
            # The query for the backend's number was another unnamed one.
            assert connection.pgconn.prepare(b"", b"SELECT $1::int * 2").status == ExecStatus.COMMAND_OK
            holder.execute("ROLLBACK")
            holder.execute("SELECT %s", [1])
        result = connection.pgconn.exec_prepared(b"", [b"21"])
        assert result.get_value(0, 0) == b"42", result.error_message


def test_a_server_connection_keeps_only_so_many_statements() -> None:
    with proxied("--pool-size", "1", "--pool-statements", "3") as proxy, pooled(proxy) as connection:
        for number in list(range(10)) * 2:
            query = f"SELECT {number} + %s::int".encode()
            assert connection.execute(query, [1], prepare=True).fetchone() == (number + 1,)
        assert int(value(connection, "SELECT count(*) FROM pg_prepared_statements WHERE NOT from_sql")) <= 3


def test_a_statement_goes_on_after_its_table_has_changed(proxy: Proxy) -> None:
    with pooled(proxy) as connection:
        connection.execute("CREATE TABLE changed AS SELECT 1 AS a")
        ask = lambda: connection.execute("SELECT * FROM changed WHERE a = %s", [1], prepare=True).fetchone()  # noqa: E731
        assert ask() == (1,)
        connection.execute("ALTER TABLE changed ADD COLUMN b int DEFAULT 2")
        # Stock Postgres says so once for each session, too; there it stays so until the client prepares anew.
        with contextlib.suppress(psycopg.errors.FeatureNotSupported):
            ask()
        with contextlib.suppress(psycopg.errors.FeatureNotSupported):
            ask()
        assert [ask() for _ in range(4)] == [(1, 2)] * 4
        connection.execute("DROP TABLE changed")


def test_statements_that_are_dropped_by_sql_can_be_prepared_again(proxy: Proxy) -> None:
    for drop in ("DISCARD ALL", "DEALLOCATE ALL"):
        with pooled(proxy) as connection:
            for _ in range(3):
                assert connection.pgconn.prepare(b"mine", b"SELECT 1").status == ExecStatus.COMMAND_OK, drop
                assert connection.pgconn.exec_prepared(b"mine", []).status == ExecStatus.TUPLES_OK
                connection.execute(drop.encode())
                assert connection.pgconn.exec_prepared(b"mine", []).status == ExecStatus.FATAL_ERROR


def test_many_clients_share_few_server_connections(proxy: Proxy) -> None:
    clients = 40
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(pooled(proxy)) for _ in range(clients)]

        def work(connection: Connection) -> set[int]:
            seen: set[int] = set()
            for number in range(10):
                with connection.transaction():
                    row = connection.execute("SELECT pg_backend_pid(), %s::int", [number], prepare=True).fetchone()
                    assert row is not None
                    assert row[1] == number
                    assert row[0] == backend(connection)
                    seen.add(int(row[0]))
            return seen

        with ThreadPoolExecutor(clients) as threads:
            seen = set().union(*threads.map(work, connections))
        assert len(seen) <= 2
        assert backends(proxy, "usename = 'app' AND datname = 'appdb'") <= 2


def test_a_client_that_waits_too_long_is_told_why_and_what_to_do(proxy: Proxy) -> None:
    with pooled(proxy) as waiting, all_taken(proxy, 2):
        begun = time.monotonic()
        with pytest.raises(psycopg.OperationalError) as refused:
            waiting.execute("SELECT 1")
        assert 2.5 < time.monotonic() - begun < 20
        assert refused.value.sqlstate == "53300"
        assert 'within 3s for role "app" in database "appdb"' in str(refused.value)
        assert "pool_size" in str(refused.value.diag.message_hint)
    with pooled(proxy) as connection:
        assert value(connection, "SELECT 1") == "1"


def test_clients_that_wait_are_served_in_the_order_they_came(proxy: Proxy) -> None:
    order: list[int] = []
    with contextlib.ExitStack() as stack, all_taken(proxy, 2) as holders:
        waiting = [stack.enter_context(pooled(proxy, application_name="same")) for _ in range(5)]
        threads = []

        def ask(number: int) -> None:
            waiting[number].execute("SELECT pg_sleep(0.1)")
            order.append(number)

        for number in range(5):
            threads.append(threading.Thread(target=ask, args=[number]))
            threads[-1].start()
            time.sleep(0.1)
        holders[0].execute("ROLLBACK")
        for thread in threads:
            thread.join(20)
    assert order == list(range(5))


def test_who_vanishes_within_a_transaction_leaves_no_lock_and_no_change(proxy: Proxy) -> None:
    with pooled(proxy) as other:
        other.execute("CREATE TABLE kept AS SELECT 1 AS a")
        for _ in range(6):
            gone = pooled(proxy)
            gone.execute("BEGIN")
            gone.execute("UPDATE kept SET a = 2")
            # As a client whose process is killed.
            with socket.socket(fileno=os.dup(gone.pgconn.socket)) as stream:
                stream.shutdown(socket.SHUT_RDWR)
            other.execute("SET lock_timeout = '10s'")
            assert other.execute("UPDATE kept SET a = 3 RETURNING a").fetchone() == (3,)
            gone.close()
        other.execute("RESET lock_timeout")
        other.execute("DROP TABLE kept")
    assert backends(proxy, "usename = 'app' AND state LIKE 'idle in%'") == 0


def test_who_vanishes_within_a_statement_does_not_hold_its_server_connection_for_long(proxy: Proxy) -> None:
    gone = [pooled(proxy) for _ in range(2)]
    for connection in gone:
        connection.pgconn.send_query(b"SELECT pg_sleep(600)")
    wait_for("both to run", lambda: backends(proxy, "query LIKE '%pg_sleep(600)%' AND state = 'active'") == 3)
    for connection in gone:
        connection.close()
    wait_for(
        "both to be cancelled", lambda: backends(proxy, "usename = 'app' AND query LIKE '%pg_sleep(600)%'") == 0, 30
    )
    with pooled(proxy) as connection:
        assert value(connection, "SELECT 1") == "1"


def test_a_statement_whose_client_leaves_at_once_is_done_all_the_same(proxy: Proxy) -> None:
    with pooled(proxy) as connection:
        connection.execute("CREATE TABLE done (a int)")
        hasty = pooled(proxy)
        hasty.pgconn.send_query(b"INSERT INTO done SELECT 1 FROM pg_sleep(0.5)")
        hasty.close()
        wait_for("the row", lambda: value(connection, "SELECT count(*) FROM done") == "1")
        connection.execute("DROP TABLE done")


def test_an_error_within_a_transaction_is_its_clients_alone(proxy: Proxy) -> None:
    with pooled(proxy) as one, pooled(proxy) as other:
        for _ in range(4):
            one.execute("BEGIN")
            with pytest.raises(psycopg.errors.DivisionByZero):
                one.execute("SELECT 1 / %s::int", [0], prepare=True)
            assert value(other, "SELECT 1") == "1"
            with pytest.raises(psycopg.errors.InFailedSqlTransaction):
                one.execute("SELECT 1")
            one.execute("ROLLBACK")
            assert one.execute("SELECT 1 / %s::int", [1], prepare=True).fetchone() == (1,)


def test_pipelines_pass_and_an_error_ends_only_its_part(proxy: Proxy) -> None:
    with pooled(proxy) as connection:
        with connection.pipeline():
            cursors = [connection.execute("SELECT %s::int", [number], prepare=True) for number in range(500)]
            assert [cursor.fetchone() for cursor in cursors] == [(number,) for number in range(500)]
        with pytest.raises(psycopg.errors.DivisionByZero), connection.pipeline():
            [connection.execute("SELECT 1 / %s::int", [divisor], prepare=True) for divisor in (1, 0, 1, 1)]
        assert connection.execute("SELECT 1 / %s::int", [1], prepare=True).fetchone() == (1,)
        with connection.transaction(), connection.pipeline():
            connection.execute("CREATE TEMP TABLE piped (a int) ON COMMIT DROP")
            connection.cursor().executemany("INSERT INTO piped VALUES (%s)", [(number,) for number in range(300)])
            assert connection.execute("SELECT count(*) FROM piped").fetchone() == (300,)


def test_copy_passes_both_ways_and_a_failed_one_leaves_nothing(proxy: Proxy) -> None:
    rows = "".join(f"{number}\t{hashlib.sha256(str(number).encode()).hexdigest()}\n" for number in range(100_000))
    with pooled(proxy) as connection, pooled(proxy) as other:
        connection.execute("CREATE TABLE copied (id int, text text)")
        with connection.cursor().copy("COPY copied FROM STDIN") as copy:
            copy.write(rows)
        with connection.cursor().copy("COPY (SELECT * FROM copied ORDER BY id) TO STDOUT") as copy:
            assert b"".join(bytes(block) for block in copy) == rows.encode()
        for _ in range(3):
            with (
                pytest.raises(psycopg.errors.InvalidTextRepresentation),
                connection.cursor().copy("COPY copied FROM STDIN") as copy,
            ):
                copy.write("no number\tx\n" * 200_000)
            assert connection.pgconn.exec_(b"COPY copied FROM STDIN").status == ExecStatus.COPY_IN
            connection.pgconn.put_copy_data(b"1\tx\n")
            connection.pgconn.put_copy_end(b"no more")
            failed = connection.pgconn.get_result()
            assert failed is not None
            assert b"no more" in failed.error_message
            assert connection.pgconn.get_result() is None
            assert value(connection, "SELECT count(*) FROM copied") == "100000"
            assert value(other, "SELECT 1") == "1"
        # In the extended protocol the driver sends two Syncs, of which the server makes one answer.
        with connection.cursor().copy("COPY (SELECT g FROM generate_series(1, %s) g) TO STDOUT", [3]) as copy:
            assert list(copy.rows()) == [("1",), ("2",), ("3",)]
        result = connection.pgconn.exec_params(b"COPY copied FROM STDIN", [])
        assert result.status == ExecStatus.COPY_IN
        connection.pgconn.put_copy_data(b"7\tlast\n")
        connection.pgconn.put_copy_end()
        ended = connection.pgconn.get_result()
        assert ended is not None
        assert ended.status == ExecStatus.COMMAND_OK
        while connection.pgconn.get_result() is not None:
            pass
        assert value(connection, "SELECT count(*) FROM copied WHERE id = 7 AND text = 'last'") == "1"
        assert value(other, "SELECT 1") == "1"
        connection.execute("DROP TABLE copied")


def test_a_value_of_64_mb_passes_both_ways_without_being_kept(proxy: Proxy) -> None:
    payload = os.urandom(1 << 20) * 64
    before = status_kib(proxy, "VmHWM")
    with pooled(proxy) as connection:
        for prepare in (False, True):
            row = connection.execute("SELECT %b::bytea", [payload], binary=True, prepare=prepare).fetchone()
            assert row is not None
            assert hashlib.sha256(bytes(row[0])).digest() == hashlib.sha256(payload).digest()
        # As a text of a statement, too.
        row = connection.execute(sql.SQL("SELECT length({})").format("x" * (32 << 20))).fetchone()
        assert row == (32 << 20,)
    assert status_kib(proxy, "VmHWM") - before < 32 * 1024


def test_a_client_that_does_not_read_makes_the_server_wait(proxy: Proxy) -> None:
    before = status_kib(proxy, "VmHWM")
    with pooled(proxy) as slow, pooled(proxy) as other:
        slow.pgconn.send_query(b"SELECT repeat('x', 1000000) FROM generate_series(1, 200)")
        time.sleep(3)
        assert value(other, "SELECT 1") == "1"
        assert status_kib(proxy, "VmHWM") - before < 32 * 1024
        results = 0
        while slow.pgconn.get_result() is not None:
            results += 1
        assert results == 1


def test_set_local_ends_with_its_transaction_and_tracked_settings_follow_their_client(proxy: Proxy) -> None:
    with pooled(proxy) as one, pooled(proxy, application_name="the other") as other:
        one.execute("SET TimeZone = 'Asia/Tokyo'")
        for _ in range(3):
            with one.transaction():
                one.execute("SET LOCAL work_mem = '7MB'")
                one.execute("SET LOCAL DateStyle = 'German'")
                assert value(one, "SHOW work_mem") == "7MB"
            for connection in (one, other):
                assert value(connection, "SHOW work_mem") != "7MB"
                assert value(connection, "SHOW DateStyle") == "ISO, MDY"
            assert value(one, "SHOW TimeZone") == "Asia/Tokyo"
            assert value(other, "SHOW TimeZone") != "Asia/Tokyo"
            assert value(other, "SHOW application_name") == "the other"
            assert value(one, "SHOW application_name") == ""
        assert one.info.parameter_status("TimeZone") == "Asia/Tokyo"


def test_settings_of_the_startup_packet_hold_in_each_transaction(proxy: Proxy) -> None:
    options = "-c work_mem=9MB -c DateStyle=German"
    with (
        pooled(proxy, options=options, application_name="it's \\ a 'name'") as one,
        pooled(proxy, client_encoding="LATIN1", application_name="Zoë") as other,
        pooled(proxy) as plain,
    ):
        assert other.info.parameter_status("client_encoding") == "LATIN1"
        for _ in range(3):
            assert value(one, "SHOW work_mem") == "9MB"
            assert value(one, "SHOW DateStyle") == "German, DMY"
            assert value(one, "SHOW application_name") == "it's \\ a 'name'"
            assert value(other, "SHOW client_encoding") == "LATIN1"
            assert other.execute("SELECT 'ä', length('ä')").fetchone() == ("ä", 1)
            assert value(plain, "SHOW client_encoding") == "UTF8"
            assert value(plain, "SHOW work_mem") == "4MB"
    with pytest.raises(psycopg.OperationalError, match='parameter "client_encoding"'):
        pooled(proxy, client_encoding="KLINGON")
    with pytest.raises(psycopg.OperationalError, match="work_mem"):
        pooled(proxy, options="-c work_mem=-1")


def test_replication_is_refused_with_a_way_out(proxy: Proxy) -> None:
    with pytest.raises(psycopg.OperationalError) as refused:
        pooled(proxy, replication="database")
    assert "replication is not possible through a pooler's host" in str(refused.value)
    assert "endpoint's own host" in str(refused.value)


@pytest.mark.parametrize("version", ["3.0", "3.2"])
def test_a_cancel_reaches_its_own_statement_and_nobody_elses(proxy: Proxy, version: str) -> None:
    changes = {"max_protocol_version": version}
    with pooled(proxy, **changes) as one, pooled(proxy, **changes) as other:
        # Within no transaction there is nothing to cancel, whoever has the server connection now.
        backend(one)
        idle = metric(proxy.http, "weir_proxy_cancel_requests_total", result="idle")
        thread = threading.Thread(target=other.execute, args=["SELECT pg_sleep(2)"])
        thread.start()
        time.sleep(0.3)
        for _ in range(3):
            one.cancel_safe(timeout=10)
        thread.join(20)
        assert metric(proxy.http, "weir_proxy_cancel_requests_total", result="idle") == idle + 3
        outcomes: dict[str, str] = {}

        def sleep(name: str, connection: Connection, seconds: float) -> None:
            try:
                connection.execute("SELECT pg_sleep(%s)", [seconds])
                outcomes[name] = "slept"
            except psycopg.errors.QueryCanceled:
                outcomes[name] = "canceled"

        threads = [threading.Thread(target=sleep, args=each) for each in (("one", one, 60), ("other", other, 3))]
        for thread in threads:
            thread.start()
        time.sleep(1)
        one.cancel_safe(timeout=10)
        for thread in threads:
            thread.join(30)
        assert outcomes == {"one": "canceled", "other": "slept"}


def test_late_cancels_hit_nobody(proxy: Proxy) -> None:
    """One client cancels its own short statements all the time; others on its server connections notice nothing."""
    stop = threading.Event()
    failures: list[str] = []

    def victim() -> None:
        with pooled(proxy) as connection:
            while not stop.is_set():
                try:
                    connection.execute("SELECT pg_sleep(0.001)")
                except psycopg.errors.QueryCanceled as error:
                    failures.append(str(error))

    with pooled(proxy) as hasty:
        victims = [threading.Thread(target=victim) for _ in range(4)]
        for thread in victims:
            thread.start()
        canceller = threading.Thread(target=lambda: [hasty.cancel_safe(timeout=10) for _ in range(150)])
        canceller.start()
        while canceller.is_alive():
            with contextlib.suppress(psycopg.errors.QueryCanceled):
                hasty.execute("SELECT pg_sleep(0.001)")
        stop.set()
        for thread in victims:
            thread.join(30)
    assert failures == []


def test_a_backend_that_dies_is_told_to_its_client_only(proxy: Proxy) -> None:
    with pooled(proxy) as one, pooled(proxy) as other:
        one.execute("BEGIN")
        with proxy.stock.admin() as admin:
            admin.execute("SELECT pg_terminate_backend(%s)", [backend(one)])
        with pytest.raises(psycopg.OperationalError) as lost:
            one.execute("SELECT pg_sleep(5)")
        # What Postgres says of it, and nothing of the proxy's after that: drivers go by the last error.
        assert lost.value.sqlstate == "57P01"
        assert "terminating connection due to administrator command" in str(lost.value)
        assert "broke" not in str(lost.value)
        assert value(other, "SELECT 1") == "1"
        # Those that are idle are replaced, and nobody notices.
        with proxy.stock.admin() as admin:
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'")
        wait_for("their end", lambda: backends(proxy) == 0)
        assert value(other, "SELECT 1") == "1"


def test_clients_outlive_a_restart_of_the_compute(proxy: Proxy) -> None:
    with pooled(proxy) as one, pooled(proxy) as other:
        assert one.execute("SELECT %s::int", [1], prepare=True).fetchone() == (1,)
        other.execute("BEGIN")
        other.execute("SELECT 1")
        proxy.stock.stop("immediate")
        proxy.stock.start()
        with pytest.raises(psycopg.OperationalError):
            other.execute("SELECT 1")
        assert one.execute("SELECT %s::int", [2], prepare=True).fetchone() == (2,)


def test_a_suspended_compute_is_woken_by_the_next_transaction() -> None:
    with proxied("--pool-size", "2", "--wake-seconds", "30") as proxy:
        app = proxy.stock.verifier("app")
        wake = proxy.root / "wake"
        wake.write_text(
            f"#!/bin/sh\ntouch {proxy.root}/start\nwhile [ ! -e {proxy.root}/started ]; do sleep 0.05; done\n"
        )
        wake.chmod(0o755)
        proxy.process.stop()
        proxy.process.arguments += ["--wake-command", str(wake)]
        proxy.process.start()
        with pooled(proxy) as connection:
            assert value(connection, "SELECT 1") == "1"
            proxy.endpoint(ENDPOINT, "suspended", app=app)
            proxy.stock.stop()
            time.sleep(1.5)

            def control_plane() -> None:
                wait_for("a wake", (proxy.root / "start").exists, 30)
                proxy.stock.start()
                proxy.endpoint(ENDPOINT, "running", app=app)
                (proxy.root / "started").touch()

            starter = threading.Thread(target=control_plane)
            starter.start()
            assert value(connection, "SELECT 2") == "2"
            starter.join(30)


def test_discard_all_between_clients_is_a_setting() -> None:
    with proxied("--pool-size", "1") as proxy, pooled(proxy) as one, pooled(proxy) as other:
        one.execute("SET statement_timeout = '77s'")
        # Documented: a session's setting stays on the server connection.
        assert value(other, "SHOW statement_timeout") == "77s"
    with proxied("--pool-size", "1", "--pool-discard") as proxy, pooled(proxy) as one, pooled(proxy) as other:
        for _ in range(2):
            one.execute("SET statement_timeout = '77s'")
            one.execute("CREATE TEMP TABLE IF NOT EXISTS mine (a int)")
            assert one.execute("SELECT %s::int", [1], prepare=True).fetchone() == (1,)
            assert value(one, "SHOW statement_timeout") == "77s"
            assert value(other, "SHOW statement_timeout") == "0"
            assert value(other, "SELECT to_regclass('mine') IS NULL") == "True"
            assert other.execute("SELECT %s::int", [2], prepare=True).fetchone() == (2,)


def test_idle_server_connections_are_closed_and_the_metrics_say_so() -> None:
    with proxied("--pool-size", "3", "--pool-idle-ms", "1500") as proxy, pooled(proxy) as connection:
        with all_taken(proxy, 3):
            busy = lambda: metric(proxy.http, "weir_proxy_pool_server_connections", state="busy")  # noqa: E731
            wait_for("the gauge", lambda: busy() == 3)
        wait_for("them to be closed", lambda: backends(proxy) == 0, 20)
        gauge = lambda state: metric(proxy.http, "weir_proxy_pool_server_connections", state=state)  # noqa: E731
        wait_for("the gauges", lambda: (gauge("idle"), gauge("busy")) == (0, 0))
        assert value(connection, "SELECT 1") == "1"


def test_a_server_connection_that_has_become_old_is_replaced_between_transactions() -> None:
    with proxied("--pool-size", "1", "--pool-lifetime-ms", "1500") as proxy, pooled(proxy) as connection:
        with proxy.stock.admin() as admin:
            admin.execute("ALTER ROLE app SET work_mem = '11MB'")
        with connection.transaction():
            before = backend(connection)
            time.sleep(2)
            assert backend(connection) == before
        assert backend(connection) != before
        assert value(connection, "SHOW work_mem") == "11MB"


def test_an_endpoints_limit_is_shared_by_its_roles_and_idle_ones_make_room() -> None:
    limits = ("--pool-size", "2", "--pool-database-connections", "2", "--pool-queue-timeout-ms", "1500")
    with proxied(*limits) as proxy:
        with proxy.stock.admin() as admin:
            admin.execute(f"CREATE ROLE second LOGIN PASSWORD '{scram_verifier(PASSWORD)}'".encode())
        roles = {"app": proxy.stock.verifier("app"), "second": proxy.stock.verifier("second")}
        proxy.endpoint(ENDPOINT, "running", **roles)
        wait_for("the role", lambda: proxy.psql("SELECT 1", user="second").returncode == 0)
        with pooled(proxy) as app, pooled(proxy, user="second") as second:
            for _ in range(3):
                with all_taken(proxy, 2), pytest.raises(psycopg.OperationalError, match="became free"):
                    pooled(proxy, user="second").execute("SELECT 1")
                # Those of the first role are idle now.
                assert value(second, "SELECT current_user") == "second"
                assert value(app, "SELECT current_user") == "app"
                assert backends(proxy, "usename IN ('app', 'second')") <= 2


def test_after_a_change_of_the_password_no_old_server_connection_is_used(proxy: Proxy) -> None:
    with proxy.stock.admin() as admin:
        admin.execute("CREATE ROLE changing LOGIN PASSWORD 'old'")
        app = proxy.stock.verifier("app")
        roles = lambda: {"app": app, "changing": proxy.stock.verifier("changing")}  # noqa: E731
        proxy.endpoint(ENDPOINT, "running", **roles())
        enter = lambda password: pooled(proxy, user="changing", password=password)  # noqa: E731
        old = wait_for("the role", lambda: attempt(lambda: enter("old")))
        before = backend(old)
        admin.execute("ALTER ROLE changing PASSWORD 'new'")
        proxy.endpoint(ENDPOINT, "running", **roles())
        new = wait_for("the password", lambda: attempt(lambda: enter("new")))
        with old, new:
            assert backend(new) != before
            with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
                enter("old")
            wait_for("the end of the old one", lambda: backends(proxy, f"pid = {before}") == 0)


def attempt(connect: Callable[[], Connection]) -> Connection | None:
    try:
        return connect()
    except psycopg.OperationalError:
        return None


def test_a_stop_lets_transactions_finish_and_ends_idle_clients() -> None:
    with proxied("--drain-seconds", "20") as proxy, pooled(proxy) as idle, pooled(proxy) as busy:
        busy.execute("BEGIN")
        proxy.process.signal(signal.SIGTERM)
        ended = "weir_proxy_connections_ended_total"
        wait_for("the idle one to end", lambda: metric(proxy.http, ended, why="shutdown") == 1, 10)
        with pytest.raises(psycopg.OperationalError, match="the proxy shuts down"):
            idle.execute("SELECT 1")
        assert value(busy, "SELECT 1") == "1"
        busy.execute("COMMIT")
        assert proxy.process.wait(10) == 0
