"""What decoding and redo cost, beside Postgres's own crash recovery and pg_waldump, on the same WAL.

One TPROC-C run on a stock Postgres with full page writes off gives the WAL; the cluster as it was before, and the WAL
it left when it was killed, lie in memory (`/dev/shm`). Rounds of Weir's programs and Postgres's alternate, each
pinned to one core; compared is CPU time, so that what else the machine does counts for neither. Decoding is timed by
the clock as well, ours on all cores: pg_waldump has one thread, and no option for more. The WAL that both decode lies
in huge pages where the bench may mount them, so that as little as can be goes to the kernel's walk over 4 KB pages
(`weirbench/decoding.py`).
Results: `results/redo.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weirbench import tproc
from weirbench.cluster import Cluster
from weirbench.decoding import Decoding, in_huge_pages, pinned, ratio
from weirbench.postgres import PG_BIN, psql, unprivileged
from weirbench.progress import say
from weirbench.spread import spread

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "bench/results/redo.json"

SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "wal_level": "replica",
    "max_wal_size": "'64GB'",
    "wal_keep_size": "'64GB'",
    "checkpoint_timeout": "'1d'",
    # Everything fits: recovery reads each page once, from memory, and writes none before its end.
    "shared_buffers": "'2GB'",
    "bgwriter_lru_maxpages": "0",
    "autovacuum": "on",
    "max_connections": "40",
    "log_min_messages": "log",
}

# Long chains: one page changed over and over, and one leaf page of an index.
HOT = """
CREATE TABLE hot (id int PRIMARY KEY, v int, pad text) WITH (fillfactor = 50);
INSERT INTO hot SELECT i, 0, repeat('p', 100) FROM generate_series(1, 400) i;
CREATE TABLE keyed (id int PRIMARY KEY, k int) WITH (fillfactor = 50);
CREATE INDEX keyed_k ON keyed (k);
INSERT INTO keyed SELECT i, i FROM generate_series(1, 100) i;
CHECKPOINT;
DO $$ BEGIN FOR i IN 1..40 LOOP FOR j IN 1..40 LOOP
  UPDATE hot SET v = v + 1 WHERE id = i * 10; COMMIT;
END LOOP; END LOOP; END $$;
DO $$ BEGIN FOR i IN 1..60 LOOP
  UPDATE keyed SET k = k + 1 WHERE id <= 50; COMMIT;
  PERFORM count(*) FROM keyed WHERE k >= 0; COMMIT;
END LOOP; END $$;
"""


def build() -> Path:
    command = ["cargo", "build", "--release", "--quiet", "-p", "wal-redo", "--example", "replay"]
    subprocess.run(command, cwd=ROOT / "storage", check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", str(ROOT / "storage/target")))
    return target / "release/examples/replay"


class Recorded:
    """A cluster as it was, and the WAL of what happened then; `crash` is ready to be recovered."""

    def __init__(self, folder: Path, seconds: int, warehouses: int) -> None:
        self.folder = folder
        self.cluster = Cluster(folder, SETTINGS)
        self.before = folder / "before"
        self.cluster.start()
        tproc.load(self.cluster.uri, warehouses)
        self.cluster.sql("VACUUM ANALYZE")
        self.cluster.stop()
        self.cluster.copy_data(self.before)
        self.cluster.start()
        driver = tproc.Driver(
            self.cluster.uri, folder / "pgbench", warehouses=warehouses, clients=4, rate=None, seconds=seconds
        )
        self.run = driver.wait(seconds * 10 + 120)
        self.cluster.stop("immediate")
        self.control = (self.cluster.data / "global/pg_control").read_bytes()
        self.wal = self.cluster.data / "pg_wal"

    def recover(self, core: int) -> tuple[float, float]:
        """Postgres recovers the old files with the new WAL; its own account of redo's CPU seconds, its own and the
        kernel's: that reads files, and gives it the memory of its buffers."""
        data = self.folder / "recovering"
        shutil.copytree(self.before, data, symlinks=True)
        shutil.rmtree(data / "pg_wal")
        shutil.copytree(self.wal, data / "pg_wal")
        (data / "global/pg_control").write_bytes(self.control)
        if os.geteuid() == 0:
            subprocess.run(["chown", "-R", "postgres:postgres", str(data)], check=True)
        data.chmod(0o700)
        log = self.folder / "recovery.log"
        log.unlink(missing_ok=True)
        control = [*unprivileged(), str(PG_BIN / "pg_ctl"), "-D", str(data), "-w", "-t", "900"]
        for command in (pinned(core, [*control, "-l", str(log), "start"]), [*control, "-m", "immediate", "stop"]):
            subprocess.run(command, check=True, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        text = log.read_text()
        shutil.rmtree(data)
        found = re.search(r"redo done at \S+ system usage: CPU: user: ([\d.]+) s, system: ([\d.]+) s", text)
        if not found:
            raise RuntimeError(f"no recovery in the server's log:\n{text}")
        return float(found[1]), float(found[2])


def run_json(command: Sequence[str]) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)


def start_lsn(data: Path) -> str:
    """Where the stopped cluster's WAL ends, as pg_waldump takes it."""
    text = subprocess.run(
        [str(PG_BIN / "pg_controldata"), str(data)], capture_output=True, text=True, check=True
    ).stdout
    found = re.search(r"^Latest checkpoint location:\s+(\S+)$", text, re.MULTILINE)
    if not found:
        raise RuntimeError(f"pg_controldata names no checkpoint:\n{text}")
    return found[1]


def replayed(program: Path, recorded: Recorded, core: int) -> dict[str, Any]:
    """What the program says of its own replay of the recorded WAL, `seconds` of CPU among it."""
    return run_json(pinned(core, [str(program), "wal", str(recorded.wal), "--before", str(recorded.before)]))


class Earlier:
    """Another build of the replaying program, measured in turns with ours on the same WAL.

    Two builds are compared by this only: each run of the bench records a WAL of its own, and ratios to Postgres's
    programs of two runs differ by a few percent for one build.
    """

    def __init__(self, program: Path, recorded: Recorded, decoding: Decoding, core: int) -> None:
        self._program, self._recorded, self._decoding, self._core = program, recorded, decoding, core
        self._seconds: list[float] = []

    def round(self, end: str) -> None:
        self._seconds.append(replayed(self._program, self._recorded, self._core)["seconds"])
        self._decoding.round(end)

    def report(self, replay_seconds: Sequence[float], decoding: Decoding) -> dict[str, Any]:
        """Ratios of the other build's CPU seconds to ours: above 1, ours takes less."""
        return {
            "replay_ratio_vs_beside": ratio(self._seconds, replay_seconds),
            "decode_ratio_vs_beside": ratio(self._decoding.cpu_seconds(), decoding.cpu_seconds()),
            "replay_cpu_seconds": spread(self._seconds),
            "decode_cpu_seconds": spread(self._decoding.cpu_seconds()),
        }


def compare(
    replay: Path, recorded: Recorded, decoding: Decoding, rounds: int, core: int, earlier: Earlier | None
) -> dict[str, Any]:
    """Rounds of ours and Postgres's in turn."""
    ours: list[dict[str, Any]] = []
    theirs: list[float] = []
    theirs_own: list[float] = []
    for number in range(rounds):
        ours.append(replayed(replay, recorded, core))
        if earlier:
            earlier.round(ours[-1]["end"])
        own, kernel = recorded.recover(core)
        theirs.append(own + kernel)
        theirs_own.append(own)
        decoded = decoding.round(ours[-1]["end"])
        say(f"round {number + 1}: replay {ours[-1]['seconds']:.3f} s, Postgres {theirs[-1]:.2f} s; {decoded}")
    replay_seconds = [entry["seconds"] for entry in ours]
    steps = {name: statistics.median([entry["steps"][name] for entry in ours]) for name in ours[0]["steps"]}
    return {
        "replay_ratio_vs_postgres": ratio(theirs, replay_seconds),
        # Ours has its pages and buffers in its own memory, and leaves nothing to the kernel.
        "replay_ratio_without_kernel": ratio(theirs_own, replay_seconds),
        **decoding.ratios(decoding.reading),
        "replay": {
            "records": ours[0]["records"],
            "changes": ours[0]["changes"],
            "wal_bytes": ours[0]["bytes"],
            "pages_touched": ours[0]["pages_touched"],
            "ours_cpu_seconds": spread(replay_seconds),
            "postgres_cpu_seconds": spread(theirs),
            "postgres_cpu_seconds_without_kernel": spread(theirs_own),
            "ours_ns_per_record": round(1e9 * statistics.median(replay_seconds) / ours[0]["records"]),
            "where_ours_goes_seconds": steps,
        },
        "decode": decoding.report(ours[0]["bytes"]),
        **({"beside": earlier.report(replay_seconds, decoding)} if earlier else {}),
    }


def chains(replay: Path, folder: Path, core: int) -> dict[str, Any]:
    """Redo alone, by length of chain: on a WAL made to have long ones."""
    cluster = Cluster(folder, {**SETTINGS, "shared_buffers": "'256MB'", "autovacuum": "off"})
    before = folder / "before"
    cluster.copy_data(before)
    cluster.start()
    script = folder / "hot.sql"
    script.write_text(HOT)
    psql(cluster.uri, "-f", str(script))
    cluster.stop("immediate")
    command = [str(replay), "chains", str(cluster.data / "pg_wal"), "--before", str(before)]
    return run_json(pinned(core, command))


def short(measured: dict[str, Any], kind: str) -> float | None:
    entry = measured[kind]["3"]
    return round(entry["ns_per_record"]) if entry else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="of the TPROC-C run that makes the WAL")
    parser.add_argument("--warehouses", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--replay", type=Path, help="the replaying program, instead of building it")
    parser.add_argument("--beside", type=Path, help="an older build of it, measured on the same WAL in turns")
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args()
    replay = arguments.replay or build()
    work = Path(tempfile.mkdtemp(prefix="weir-redo-bench-", dir="/dev/shm"))
    work.chmod(0o755)
    try:
        say("chains")
        (work / "chains").mkdir()
        by_length = chains(replay, work / "chains", arguments.core)
        say(f"TPROC-C, {arguments.warehouses} warehouse(s), {arguments.seconds} s")
        (work / "tproc").mkdir()
        recorded = Recorded(work / "tproc", arguments.seconds, arguments.warehouses)
        say(f"{recorded.run.processed} transactions")
        with in_huge_pages(recorded.wal, work / "wal") as huge:
            start = start_lsn(recorded.before)
            core, wal = arguments.core, huge or recorded.wal
            decoding = Decoding(replay, wal, start, core, bool(huge))
            earlier = None
            if arguments.beside:
                other = Decoding(arguments.beside, wal, start, core, bool(huge))
                earlier = Earlier(arguments.beside, recorded, other, core)
            compared = compare(replay, recorded, decoding, arguments.rounds, core, earlier)
        report = {
            "short_heap_ns": short(by_length, "heap"),
            "short_btree_ns": short(by_length, "btree"),
            **compared,
            "chains": by_length,
            "settings": {
                "at": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
                "transactions": recorded.run.processed,
                "warehouses": arguments.warehouses,
                "rounds": arguments.rounds,
                "decoded_wal_lies_in": "tmpfs with huge pages" if decoding.huge else "tmpfs",
                "load_average": os.getloadavg()[0],
                "postgres": SETTINGS,
            },
        }
        arguments.out.write_text(json.dumps(report, indent=2) + "\n")
        shown = [*list(report)[:7], *(["beside"] if earlier else [])]
        print(json.dumps({name: report[name] for name in shown}, indent=2))
        return 0
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
