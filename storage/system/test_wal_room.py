"""WAL that storage does not take: a safekeeper keeps so much of it for each branch and no more, the branch's compute
is slowed down before that and stopped with the reason, nobody else notices, and it heals by itself."""

from __future__ import annotations

import secrets
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psycopg
import pytest
from disks import fill, small_disk
from harness import Compute, Engine, Timeline, engine, metric, wait_for
from workloads import SMALL_LAYERS, AcknowledgedInserts

MIB = 1 << 20
# About 3 KiB that cannot be compressed.
FILLER = "(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 96))"
REFUSED = "weir_compute_writes_refused"


def kept(running: Engine, timeline: Timeline) -> list[float]:
    """Bytes of WAL of the timeline on each safekeeper."""
    name = "weir_safekeeper_wal_kept_bytes"
    clients = [httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10) for port in running.http_ports]
    try:
        return [metric(client, name, timeline_id=timeline.id) for client in clients]
    finally:
        for client in clients:
            client.close()


@dataclass
class Pace:
    """How many commits were acknowledged, second by second."""

    load: AcknowledgedInserts
    counts: list[int] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def start(self) -> Pace:
        threading.Thread(target=self._look, daemon=True).start()
        return self

    def _look(self) -> None:
        while not self._stop.wait(1):
            self.counts.append(self.load.count())

    def stop(self) -> list[int]:
        self._stop.set()
        return [after - before for before, after in zip(self.counts, self.counts[1:], strict=False)]


def stopped_with_a_reason(compute: Compute, seconds: float = 240) -> str:
    def reason() -> str | None:
        said = compute.status()["reason"] or ""
        return said if "WAL that storage has not made durable" in said else None

    return wait_for("writes to be refused", reason, seconds)


def test_a_branch_whose_wal_is_stuck_slows_down_stops_with_the_reason_and_heals() -> None:
    root = Path(tempfile.mkdtemp(prefix="weir-system-"))
    tenant = secrets.token_hex(16)
    options = ["--wal-quota-mib", "64"]
    with engine(root, safekeeper_options=options) as running, small_disk(root / "objects" / tenant, 64) as ballast:
        stuck, other = running.compute(running.create_timeline(tenant)), running.compute(running.create_timeline())
        for timeline in (stuck.timeline, other.timeline):
            running.configure_tenant(timeline.tenant, **SMALL_LAYERS)
        neighbour = AcknowledgedInserts(other, workers=1, pause=0.05)
        neighbour.start()
        fill(ballast)
        load = AcknowledgedInserts(stuck, filler=FILLER)
        load.start()
        pace = Pace(load).start()
        reason = stopped_with_a_reason(stuck)
        per_second = pace.stop()
        load.stop()
        assert "a branch may have no more there" in reason, reason
        assert metric(stuck, REFUSED) == 1
        assert metric(stuck, "weir_compute_wal_held_back_seconds_total") > 5
        # Slower and slower: the seconds before the stop take a fraction of what the first ones did, not all or none.
        best, last = max(per_second), sorted(per_second[-12:-2])
        assert 0 < last[len(last) // 2] < best / 3, per_second
        assert load.slowest < 20, "a commit waited for long before writes were refused"
        assert max(kept(running, stuck.timeline)) <= 64 * MIB
        assert all(running.safekeeper_status(it, stuck.timeline)["state"] == "active" for it in range(3))

        # Reads go on, writes are refused with an error.
        assert load.missing() == []
        count = stuck.sql("SELECT count(*) FROM acknowledged")
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            stuck.sql("INSERT INTO acknowledged VALUES (100, 1, '')")

        # Logs without room elect: a compute that starts wins its term, and waits for storage only.
        before = stuck.status()["term"]
        stuck.kill9()
        again = running.compute(stuck.timeline, wait=False)
        wait_for("a newer term", lambda: (again.status()["term"] or 0) > before)
        wait_for("the reason", lambda: again.status()["reason"])
        assert again.status()["state"] == "starting"
        assert max(kept(running, stuck.timeline)) > 48 * MIB

        neighbour.stop()
        assert neighbour.errors == []
        assert neighbour.slowest < 5, "the neighbour noticed"
        assert metric(other, "weir_compute_wal_held_back_seconds_total") == 0

        ballast.unlink()
        again.wait_running()
        load.compute = again
        assert again.sql("SELECT count(*) FROM acknowledged") == count
        wait_for("writes to be taken again", lambda: metric(again, REFUSED) == 0 and again.status()["reason"] is None)
        again.sql("INSERT INTO acknowledged VALUES (100, 1, '')")
        assert load.missing() == []
        assert max(kept(running, stuck.timeline)) < 64 * MIB


def test_a_disk_that_fills_stops_who_keeps_much_and_is_never_full() -> None:
    """Promise: below the reserve a branch that keeps much WAL takes no more, one that keeps little goes on, and no
    log meets a full disk."""
    root = Path(tempfile.mkdtemp(prefix="weir-system-"))
    options = ["--wal-quota-mib", "0", "--disk-reserve-mib", "64"]
    tenant = secrets.token_hex(16)
    with ExitStack() as disks:
        for number in (1, 2, 3):
            disks.enter_context(small_disk(root / f"safekeeper-{number}", 192))
        running = disks.enter_context(engine(root, safekeeper_options=options))
        ballast = disks.enter_context(small_disk(root / "objects" / tenant, 64))
        greedy, modest = running.compute(running.create_timeline(tenant)), running.compute(running.create_timeline())
        for timeline in (greedy.timeline, modest.timeline):
            running.configure_tenant(timeline.tenant, **SMALL_LAYERS)
        neighbour = AcknowledgedInserts(modest, workers=1, pause=0.1)
        neighbour.start()
        fill(ballast)
        load = AcknowledgedInserts(greedy, filler=FILLER)
        load.start()
        reason = stopped_with_a_reason(greedy)
        load.stop()
        assert "short of disk space" in reason, reason
        before = neighbour.count()
        time.sleep(3)
        assert neighbour.count() > before, "the neighbour goes on"
        for number, port in enumerate(running.http_ports, 1):
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10) as client:
                assert metric(client, "weir_safekeeper_disk_free_bytes") > 9 * MIB
                assert metric(client, "weir_safekeeper_timelines", state="stopped") == 0, number
        ballast.unlink()
        wait_for("writes to be taken again", lambda: metric(greedy, REFUSED) == 0)
        greedy.sql("INSERT INTO acknowledged VALUES (100, 1, '')")
        neighbour.stop()
        assert neighbour.errors == []
        assert load.missing() == []
        assert neighbour.missing() == []
