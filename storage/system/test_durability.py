"""Whatever dies, an acknowledged transaction stays, and no page comes back wrong."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import httpx
import pytest
from harness import Compute, Engine, Timeline, lsn, wait_for
from workloads import AcknowledgedInserts, amcheck, pgbench_init, pgbench_invariants, pgbench_start


def check_everything(load: AcknowledgedInserts) -> None:
    assert load.count() > 0
    missing = load.missing()
    assert missing == [], f"{len(missing)} of {load.count()} acknowledged rows are gone: {missing[:10]}"
    pgbench_invariants(load.compute)
    amcheck(load.compute)


def loaded(engine: Engine, timeline: Timeline | None = None) -> tuple[Compute, AcknowledgedInserts]:
    compute = engine.compute(
        timeline or engine.create_timeline(), settings={"checkpoint_timeout": "30s", "max_wal_size": "64MB"}
    )
    pgbench_init(compute)
    load = AcknowledgedInserts(compute)
    load.start()
    return compute, load


def after_more_acknowledgements(load: AcknowledgedInserts, more: int = 200) -> None:
    target = load.count() + more
    wait_for(f"{more} more acknowledged rows (errors: {load.errors[-3:]})", lambda: load.count() >= target)


def test_compute_killed_under_load_starts_again_with_everything_acknowledged(own: Engine) -> None:
    compute, load = loaded(own)
    bench = pgbench_start(compute, 60)
    after_more_acknowledgements(load)
    compute.kill9()
    bench.communicate(timeout=60)
    load.stop()
    before = compute.timeline

    load.compute = own.compute(before)
    check_everything(load)


def test_a_killed_backend_means_a_new_start_not_a_recovery(own: Engine) -> None:
    compute, load = loaded(own)
    bench = pgbench_start(compute, 60)
    after_more_acknowledgements(load)
    term = compute.status()["term"]
    backend = compute.sql("SELECT pg_backend_pid()")[0][0]
    with compute.admin() as session:
        victim = session.execute(
            "SELECT pid FROM pg_stat_activity WHERE usename = 'app' AND pid <> %s LIMIT 1", (backend,)
        ).fetchone()
    assert victim is not None
    os.kill(compute.here(victim[0]), signal.SIGKILL)

    wait_for("a start with a higher term", lambda: compute.status()["term"] > term)
    compute.wait_running()
    assert compute.status()["restarts"] >= 1
    bench.communicate(timeout=90)
    after_more_acknowledgements(load)
    load.stop()
    check_everything(load)


def _first_safekeeper(engine: Engine) -> Callable[[], None]:
    def kill_and_restart() -> None:
        engine.safekeepers[0].kill9()
        engine.safekeepers[0].start()

    return kill_and_restart


def _pageserver(engine: Engine) -> Callable[[], None]:
    def kill_and_restart() -> None:
        engine.pageserver.kill9()
        engine.pageserver.start()

    return kill_and_restart


@pytest.mark.parametrize("victim", [_first_safekeeper, _pageserver])
def test_a_killed_storage_process_costs_no_transaction(
    own: Engine, victim: Callable[[Engine], Callable[[], None]]
) -> None:
    compute, load = loaded(own)
    bench = pgbench_start(compute, 15)
    after_more_acknowledgements(load)
    victim(own)()
    after_more_acknowledgements(load)
    output, _ = bench.communicate(timeout=90)
    assert bench.returncode == 0, output
    load.stop()
    assert load.errors == []
    # What storage made of it is read by a compute that has nothing local.
    compute.kill9()
    load.compute = own.compute(compute.timeline)
    check_everything(load)


def test_one_safekeeper_down_the_whole_time_catches_up(own: Engine) -> None:
    timeline = own.create_timeline()
    own.safekeepers[2].kill9()
    compute, load = loaded(own, timeline)
    after_more_acknowledgements(load, 500)
    own.safekeepers[2].start()

    def caught_up() -> bool:
        path = f"/v1/tenant/{compute.timeline.tenant}/timeline/{compute.timeline.id}"
        states = [httpx.get(f"http://127.0.0.1:{port}{path}", timeout=5).json() for port in own.http_ports]
        return states[2]["term"] == states[0]["term"] and lsn(states[2]["flush_lsn"]) >= lsn(states[0]["commit_lsn"])

    load.stop()
    wait_for("the third safekeeper to catch up", caught_up)
    # Now it counts: with another one gone, it is half of the majority.
    own.safekeepers[0].kill9()
    compute.sql("INSERT INTO acknowledged VALUES (99, 1, 'with the late safekeeper')")
    compute.kill9()
    load.compute = own.compute(compute.timeline)
    load.acknowledged.append(set())
    check_everything(load)
    assert load.compute.sql("SELECT count(*) FROM acknowledged WHERE worker = 99") == [(1,)]
