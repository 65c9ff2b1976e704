"""A safekeeper whose stored WAL is damaged says so, and is repaired from its peers while Postgres writes.

What is planted is what disks do: a changed byte, a file that is too short, a file that is gone, a file that cannot be
read, in a segment that is finished and in the one that is being written.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg
from disks import failing_file
from harness import Compute, Engine, Timeline, engine, lsn, metric, wait_for
from stored_wal import SEGMENT_BYTES, flip, segment

LOOKS = ["--verify-period-seconds", "1", "--verify-mib-per-second", "200"]


@dataclass
class Writer:
    """Inserts one row after the other, and remembers which were acknowledged and what went wrong."""

    compute: Compute
    acknowledged: int = 0
    errors: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def _run(self) -> None:
        try:
            with self.compute.connect() as connection:
                while not self._stop.is_set():
                    connection.execute("INSERT INTO kept VALUES (%s)", (self.acknowledged + 1,))
                    self.acknowledged += 1
        except psycopg.Error as error:
            self.errors.append(str(error))

    @contextlib.contextmanager
    def writing(self) -> Generator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()


def folder(running: Engine, timeline: Timeline) -> Path:
    return running.root / "safekeeper-1" / timeline.tenant / timeline.id


def evidence(running: Engine, timeline: Timeline) -> list[Path]:
    kept = folder(running, timeline) / "damaged"
    return sorted(kept.iterdir()) if kept.exists() else []


def counted(running: Engine, number: int, name: str, **labels: str) -> float:
    with httpx.Client(base_url=f"http://127.0.0.1:{running.http_ports[number]}") as client:
        return metric(client, name, **labels)


def damage(running: Engine, timeline: Timeline) -> list[dict[str, Any]]:
    return running.safekeeper_status(0, timeline)["damage"]


def let_it_know_its_peers(running: Engine) -> None:
    safekeeper = running.safekeepers[0]
    safekeeper.stop()
    safekeeper.arguments += ["--peers", ",".join(running.wal_addresses())]
    safekeeper.start()


def timeline_that_keeps_its_wal(running: Engine) -> Timeline:
    timeline = running.create_timeline()
    running.configure_tenant(timeline.tenant, checkpoint_timeout_ms=3_600_000, checkpoint_distance_bytes=1 << 30)
    return timeline


def finished_segment(compute: Compute, running: Engine, timeline: Timeline) -> int:
    """A position within a segment that is committed as a whole everywhere, with content around it."""
    begin = lsn(compute.sql("SELECT pg_current_wal_lsn()::text")[0][0])
    compute.sql("INSERT INTO bulk SELECT g, repeat('x', 1000) FROM generate_series(1, 2000) g")
    with compute.admin() as connection:
        connection.execute("SELECT pg_switch_wal()")
    compute.sql("INSERT INTO bulk VALUES (0, 'after')")
    end = (begin // SEGMENT_BYTES + 1) * SEGMENT_BYTES

    def is_everywhere() -> bool:
        return all(lsn(running.safekeeper_status(n, timeline)["commit_lsn"]) > end for n in range(3))

    wait_for("every safekeeper to have the segment", is_everywhere, 30)
    return begin + 200_000


def same_as_peer(running: Engine, timeline: Timeline, place: int) -> bool:
    ours, theirs = (segment(running, number, timeline, place) for number in (0, 2))
    return ours.exists() and ours.read_bytes() == theirs.read_bytes()


def is_repaired(running: Engine, timeline: Timeline, place: int, kept: int) -> Callable[[], bool]:
    def check() -> bool:
        mended = same_as_peer(running, timeline, place) and len(evidence(running, timeline)) == kept
        return mended and damage(running, timeline) == []

    return check


def flip_and_look(running: Engine, timeline: Timeline, place: int) -> None:
    """Without peers it can only say what is damaged; with them, it is repaired after a start."""
    before = segment(running, 0, timeline, place).read_bytes()
    flip(running, 0, timeline, place)
    damaged = segment(running, 0, timeline, place).read_bytes()
    assert before != damaged
    (found,) = wait_for(
        "the damage to be found, and not to be repaired",
        lambda: [it for it in damage(running, timeline) if it["unrepaired"]],
        30,
    )
    assert lsn(found["from_lsn"]) <= place < lsn(found["to_lsn"])
    assert found["segment"] == segment(running, 0, timeline, place).name
    assert "checksum" in found["reason"]
    assert "--peers" in found["unrepaired"]
    assert counted(running, 0, "weir_safekeeper_damaged_bytes") > 0
    assert segment(running, 0, timeline, place).read_bytes() == damaged
    # The peer that is asked first has damage of its own there.
    flip(running, 1, timeline, place + 8)
    let_it_know_its_peers(running)
    wait_for("the flipped byte to be repaired", is_repaired(running, timeline, place, 1), 60)
    assert evidence(running, timeline)[0].read_bytes() == damaged
    flip(running, 1, timeline, place + 8)


def damage_what_is_written_now(running: Engine, compute: Compute, timeline: Timeline, kept: int) -> None:
    begin = lsn(compute.sql("SELECT pg_current_wal_lsn()::text")[0][0])
    compute.sql("INSERT INTO bulk SELECT g, repeat('x', 100) FROM generate_series(1, 500) g")
    place = begin + 20_000
    assert place // SEGMENT_BYTES == begin // SEGMENT_BYTES
    flip(running, 0, timeline, place)

    def repaired() -> bool:
        return len(evidence(running, timeline)) == kept and damage(running, timeline) == []

    wait_for("the segment that is being written to be repaired", repaired, 60)
    segment(running, 0, timeline, place).unlink()
    wait_for(
        "a file that was removed under the process to be there again", segment(running, 0, timeline, place).exists
    )
    compute.sql("INSERT INTO bulk VALUES (0, 'after')")
    end = lsn(compute.sql("SELECT pg_current_wal_flush_lsn()::text")[0][0])
    wait_for("it to have all", lambda: lsn(running.safekeeper_status(0, timeline)["commit_lsn"]) >= end, 30)
    ours, theirs = (segment(running, number, timeline, place).read_bytes() for number in (0, 1))
    assert ours[: end % SEGMENT_BYTES] == theirs[: end % SEGMENT_BYTES]


def verified(running: Engine, timeline: Timeline) -> dict[str, Any]:
    directories = [str(running.root / f"safekeeper-{number}") for number in (1, 2, 3)]
    command = [str(running.bin_dir / "weir-log"), "verify", "--json", "--timeline", timeline.id, *directories]
    return json.loads(subprocess.run(command, capture_output=True, check=False, timeout=120).stdout)


def test_a_damaged_safekeeper_is_repaired_from_its_peers_while_postgres_writes() -> None:
    root = Path(tempfile.mkdtemp(prefix="weir-system-"))
    bad_file = root / "bad-file"
    environments = {1: failing_file(root, bad_file)}
    with engine(root, safekeeper_options=LOOKS, safekeeper_environments=environments) as running:
        timeline = timeline_that_keeps_its_wal(running)
        compute = running.compute(timeline)
        compute.sql("CREATE TABLE kept (id int)")
        compute.sql("CREATE TABLE bulk (id int, filler text)")
        writer = Writer(compute)
        with writer.writing():
            flip_and_look(running, timeline, finished_segment(compute, running, timeline))

            place = finished_segment(compute, running, timeline)
            os.truncate(segment(running, 0, timeline, place), place % SEGMENT_BYTES)
            wait_for("the short file to be repaired", is_repaired(running, timeline, place, 2), 60)
            assert evidence(running, timeline)[1].stat().st_size == place % SEGMENT_BYTES

            place = finished_segment(compute, running, timeline)
            segment(running, 0, timeline, place).unlink()
            wait_for("the lost file to be repaired", is_repaired(running, timeline, place, 2), 60)

            place = finished_segment(compute, running, timeline)
            bad_file.symlink_to(str(segment(running, 0, timeline, place).stat().st_ino))
            wait_for("the unreadable file to be repaired", is_repaired(running, timeline, place, 3), 60)

            # Missing when the safekeeper starts.
            place = finished_segment(compute, running, timeline)
            end = (place // SEGMENT_BYTES + 1) * SEGMENT_BYTES
            wait_for("the commit LSN to be stored", lambda: lsn(running.stored_commits(timeline)[0]) > end, 30)
            running.safekeepers[0].kill9()
            segment(running, 0, timeline, place).unlink()
            running.safekeepers[0].start()
            wait_for("what was lost in between to be repaired", is_repaired(running, timeline, place, 3), 60)

            damage_what_is_written_now(running, compute, timeline, 4)
        assert writer.errors == []
        assert compute.sql("SELECT count(*), max(id) FROM kept") == [(writer.acknowledged, writer.acknowledged)]
        assert writer.acknowledged > 100
        report = verified(running, timeline)
        assert report["sound"], report["findings"]


def finished_objects(root: Path, timeline: Timeline, begin: int) -> list[str]:
    objects = root / "objects" / timeline.tenant / timeline.id / "wal"
    names = sorted(path.name for path in objects.iterdir()) if objects.exists() else []
    whole = f"{begin:016X}-{begin + SEGMENT_BYTES:016X}"
    # With a #, it is still being written.
    return [name for name in names if name.startswith(whole) and "#" not in name]


def test_what_was_checked_once_and_is_damaged_since_is_not_offloaded() -> None:
    root = Path(tempfile.mkdtemp(prefix="weir-system-"))
    options = ["--object-store", "file://{objects}", "--offload-idle-seconds", "1", "--verify-period-seconds", "3600"]
    with engine(root, safekeeper_options=options) as running:
        timeline = timeline_that_keeps_its_wal(running)
        compute = running.compute(timeline)
        compute.sql("CREATE TABLE bulk (id int, filler text)")
        with compute.admin() as connection:
            connection.execute("SELECT pg_switch_wal()")
        compute.sql("INSERT INTO bulk SELECT g, repeat('x', 1000) FROM generate_series(1, 1000) g")
        end = lsn(compute.sql("SELECT pg_current_wal_flush_lsn()::text")[0][0])
        begin = end - end % SEGMENT_BYTES

        def offloaded(number: int) -> int:
            return lsn(running.safekeeper_status(number, timeline)["offloaded_lsn"] or "0/0")

        # Everyone has read and checked the beginning of the segment.
        wait_for("the end of the log to be offloaded", lambda: all(offloaded(n) >= end for n in range(3)), 120)
        place = begin + 300_000
        for number in range(3):
            flip(running, number, timeline, place)
        compute.sql("INSERT INTO bulk SELECT g, repeat('x', 1000) FROM generate_series(1, 1000) g")
        with compute.admin() as connection:
            connection.execute("SELECT pg_switch_wal()")
        compute.sql("INSERT INTO bulk VALUES (0, 'after')")
        for number in range(3):
            wait_for(
                "the damage to be noticed",
                lambda number=number: (
                    counted(running, number, "weir_safekeeper_offloads_total", outcome="damaged") > 0
                ),
                60,
            )
        time.sleep(2)
        assert finished_objects(root, timeline, begin) == []
        flip(running, 1, timeline, place)
        wait_for("a whole copy to be offloaded", lambda: finished_objects(root, timeline, begin), 120)
        assert len(finished_objects(root, timeline, begin)) == 1
