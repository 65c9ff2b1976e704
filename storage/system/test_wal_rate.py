"""A compute whose WAL is held to a rate: commits wait for their turn, nothing fails, and nobody else notices."""

from __future__ import annotations

import time

from harness import Compute, Engine, lsn, metric

RATE = 1 << 20
# About 2 MiB of WAL.
INSERT = "INSERT INTO t SELECT n, repeat('x', 900) FROM generate_series(1, 2000) n"


def set_rate(compute: Compute, rate: int | None) -> None:
    code, answer = compute.configure(wal_bytes_per_second=rate)
    assert code == 200, answer


def load(compute: Compute, times: int) -> tuple[float, int]:
    """Seconds that so many inserts took, each acknowledged, and the WAL they made in bytes."""
    before, started = lsn(compute.status()["commit_lsn"]), time.monotonic()
    for _ in range(times):
        compute.sql(INSERT)
    seconds = time.monotonic() - started
    return seconds, lsn(compute.status()["commit_lsn"]) - before


def test_a_wal_rate_is_kept_to_by_commits_that_wait_and_changes_live(shared: Engine) -> None:
    limited = shared.compute(shared.create_timeline(), wal_bytes_per_second=RATE)
    free = shared.compute(shared.create_timeline())
    for compute in (limited, free):
        compute.sql("CREATE TABLE t (id int, filler text)")
    assert metric(limited, "weir_compute_wal_rate_limit_bytes_per_second") == RATE
    seconds, wal = load(limited, 4)
    assert wal > 4 * RATE
    # A burst of 250 ms, and the last piece, which was read before anybody waited for it.
    assert wal < RATE * (seconds + 0.25) + (128 << 10)
    paced = metric(limited, "weir_compute_wal_paced_seconds_total")
    assert paced > 0.5 * (wal / RATE)

    unlimited, _ = load(free, 4)
    assert unlimited < seconds / 2
    assert metric(free, "weir_compute_wal_paced_seconds_total") == 0

    set_rate(limited, None)
    unlimited, _ = load(limited, 4)
    assert unlimited < seconds / 2
    set_rate(limited, RATE)
    # What nobody waits for is not lost with the rate: a suspend lifts it and takes everything along.
    with limited.connect() as session:
        session.execute("SET synchronous_commit = off")
        for _ in range(4):
            session.execute(INSERT)
    limited.suspend()
    again = shared.compute(limited.timeline)
    assert again.sql("SELECT count(*) FROM t") == [(12 * 2000,)]
    again.suspend()
    free.suspend()
