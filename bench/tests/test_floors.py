"""Floors are sums of what was measured in the same run, and say how far a commit is from them."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from floors import CORES, appends, floors, machine_cpu_us, show
from weirbench.write import disk
from weirbench.write.workloads import Run

COMMIT = disk.Synced(512, 1, alone_us=90.0, quorum_us=150.0, cpu_us=40.0)


def run(arm: str, p50_ms: float, transactions: int, busy: float) -> Run:
    fsyncs = {f"safekeeper-{number}": 0.5 for number in (1, 2, 3)}
    rate = transactions / 10
    return Run(
        arm,
        "tpcb",
        16,
        10,
        transactions,
        "transactions",
        transactions,
        rate,
        p50_ms,
        p50_ms,
        0,
        {},
        {},
        fsyncs,
        0,
        busy,
    )


def test_the_floor_of_latency_is_postgres_two_round_trips_and_a_majority_of_fsyncs() -> None:
    runs = [
        run("stock_no_fsync", 0.3, 50_000, 1),
        run("standby", 0.7, 20_000, 1),
        run("weir_pushdown", 1.0, 10_000, 1),
    ]
    found = floors(runs, [COMMIT], loopback_us=25.0)["tpcb/16"]
    assert found["latency_floor_ms"] == pytest.approx(0.3 + 0.05 + 0.15)
    assert found["latency_over_floor"] == pytest.approx(1.0 / 0.5)
    assert found["latency_ms"] == {"standby": 0.7, "weir_pushdown": 1.0}


def test_the_floor_of_cpu_counts_the_fsyncs_that_weir_made() -> None:
    runs = [
        run("stock_no_fsync", 0.3, 50_000, 0.5),
        run("standby", 0.7, 20_000, 1),
        run("weir_pushdown", 1, 10_000, 1),
    ]
    found = floors(runs, [COMMIT], loopback_us=25.0)["tpcb/16"]
    own = 0.5 * CORES * 10 * 1e6 / 50_000
    assert machine_cpu_us(runs[0]) == pytest.approx(own)
    assert found["cpu_floor_us"] == pytest.approx(own + 1.5 * 40, abs=0.1)
    assert found["rate_floor_per_second"] == pytest.approx(CORES * 1e6 / (own + 60), rel=1e-3)
    assert found["rate_over_floor"] == pytest.approx(1000 / (CORES * 1e6 / (own + 60)), abs=1e-3)


def test_messages_are_compared_with_files_synced_in_the_same_groups() -> None:
    one = replace(run("weir_pushdown", 1, 10_000, 1), workload="message 8192", clients=1)
    many = replace(one, clients=16, transactions=100_000, per_second=10_000)
    bare = [disk.Synced(8192, 1, 100, 200, 40), disk.Synced(8192, 16, 500, 800, 100)]
    found = appends([one, many], bare)
    assert found["message 8192/1"]["of_disk"] == pytest.approx(1000 / (1e6 / 200))
    assert found["message 8192/16"]["of_disk"] == pytest.approx(10_000 / (16e6 / 800))
    assert "8192" in show({}, found)


def test_the_disk_and_the_loopback_are_measured_and_leave_nothing(tmp_path: Path) -> None:
    measured = disk.synced(tmp_path, 4096, appends=2, rounds=10)
    assert measured.alone_us > 0
    assert measured.quorum_us > 0
    assert measured.cpu_us > 0
    assert list(tmp_path.iterdir()) == []
    assert 0 < disk.loopback_us(rounds=50) < 100_000
