"""What storage says of relations that are gone goes once nothing of them is left, and not before."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

from entries import entries
from harness import Compute, Engine, engine, metric, wait_for

# History of a second, in small layers: what takes weeks at the usual sizes happens in seconds.
SETTINGS = {
    "checkpoint_distance_bytes": 1 << 20,
    "compaction_threshold": 2,
    "compaction_target_bytes": 1 << 20,
    "history_window_seconds": 1,
}
ROUNDS = 5
TABLES = 25
# Heap and TOAST table with an index each.
FORKS = 4
_numbers = itertools.count()


def make_and_drop(compute: Compute, tables: int = TABLES) -> None:
    """Tables with rows, of which every other is cut to nothing before it is dropped."""
    names = [f"t_{next(_numbers)}" for _ in range(tables)]
    with compute.connect() as session:
        for name in names:
            session.execute(f"CREATE TABLE {name} (i int PRIMARY KEY, t text)".encode())
            session.execute(f"INSERT INTO {name} SELECT i, md5(i::text) FROM generate_series(1, 300) i".encode())
        for name in names[::2]:
            session.execute(f"DELETE FROM {name}".encode())
            session.execute(f"VACUUM {name}".encode())
        session.execute(f"DROP TABLE {', '.join(names)}".encode())


def write(engine: Engine, compute: Compute) -> None:
    """Enough to be worth a merge of what is history."""
    random = "SELECT string_agg(md5(random()::text || n || i), '') FROM generate_series(1, 40) n"
    compute.sql(f"UPDATE filler SET t = ({random})")
    compute.sql("VACUUM filler")
    engine.wait_ingested(compute.timeline, compute.status()["commit_lsn"])
    path = f"/v1/tenant/{compute.timeline.tenant}/timeline/{compute.timeline.id}/checkpoint"
    engine.storage.post(path).raise_for_status()


def dropped(engine: Engine, entry: str) -> float:
    return metric(engine.storage, "weir_pageserver_entries_dropped_total", entry=entry)


def test_entries_of_dropped_relations_are_as_many_after_many_rounds_as_after_few() -> None:
    root = Path(tempfile.mkdtemp(prefix="weir-system-"))
    with engine(root) as running:
        timeline = running.create_timeline()
        running.configure_tenant(timeline.tenant, **SETTINGS)
        compute = running.compute(timeline)
        compute.sql("CREATE TABLE filler AS SELECT i, ''::text AS t FROM generate_series(1, 1500) i")

        def few() -> bool:
            write(running, compute)
            return len(entries(running, timeline)) < TABLES * FORKS

        for _ in range(ROUNDS):
            make_and_drop(compute)
            write(running, compute)
        wait_for("entries of what was dropped to go", few, 120)
        for entry in ("tombstone", "floor"):
            assert dropped(running, entry) > (ROUNDS - 1) * TABLES * FORKS, entry

        # As long as a branch reads what was dropped, the entries stay that hide it from the branch it was dropped on.
        compute.sql("CREATE TABLE seen AS SELECT i, md5(i::text) AS t FROM generate_series(1, 1000) i")
        [(of_seen,)] = compute.sql("SELECT pg_relation_filenode('seen')::text")
        running.wait_ingested(timeline, compute.status()["commit_lsn"])
        branch = running.branch(timeline)
        compute.sql("DROP TABLE seen")

        def left() -> set[str]:
            return {key.split()[0] for key in entries(running, timeline) if key.endswith(f"/{of_seen}")}

        before = dropped(running, "floor")
        make_and_drop(compute)
        wait_for("entries of others to go", lambda: few() and dropped(running, "floor") > before, 120)
        assert left() == {"size", "truncations"}

        # Everything again from object storage, as after a crash.
        running.pageserver.kill9()
        running.pageserver.start()
        old = running.compute(branch)
        assert old.sql("SELECT count(*), sum(length(t)) FROM seen") == [(1000, 32_000)]
        # Numbers of relations that storage says nothing of any more are used again by the branch.
        make_and_drop(old, 3)
        old.suspend()
        running.storage.delete(f"/v1/tenant/{branch.tenant}/timeline/{branch.id}").raise_for_status()
        wait_for("entries of what the branch read to go", lambda: few() and left() == set(), 120)
        compute.suspend()
        again = running.compute(timeline)
        assert again.sql("SELECT count(*), min(length(t)) FROM filler") == [(1500, 40 * 32)]
        assert again.sql("SELECT to_regclass('seen')") == [(None,)]
        again.suspend()
