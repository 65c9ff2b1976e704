"""The oracle on a Weir compute: its WAL as safekeepers have it, each block of each record against Postgres's image.

`oracle.py` proves redo on the WAL of a stock Postgres. Here the server is a compute, with page images off and
`wal_consistency_checking = all`, under the regression suite, the isolation suite and a workload for indexes; the WAL
is what a safekeeper stored of it, the pages before it are those of the cluster that storage began the timeline with.
The report joins `results/oracle.json` as `compute`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oracle import build
from readback import LEFT_OUT, SETTINGS, without
from weirbench.pgsuite import Outcome, Server, Suites
from weirbench.postgres import psql
from weirbench.progress import say
from weirbench.unexercised import INDEXES, RARE

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "bench/results/oracle.json"
sys.path.insert(0, str(ROOT / "storage/system"))

from harness import Compute, Engine, Timeline, engine, lsn  # noqa: E402


@dataclass
class Segments:
    """A timeline's WAL segments, all that ever were: safekeepers remove them once storage has them."""

    stored: Path
    kept: Path

    def keep(self) -> None:
        """A second name for each file there is. One that is still written to has the same content under both."""
        for segment in self.stored.iterdir():
            link = self.kept / segment.name
            if len(segment.name) == 24 and not link.exists():
                with_suffix = link.with_suffix(".new")
                try:
                    os.link(segment, with_suffix)
                except FileNotFoundError:
                    continue
                with_suffix.rename(link)

    @contextmanager
    def collected(self) -> Generator[None]:
        """Keeps looking until the block ends, and once more."""
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.2):
                self.keep()

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            self.keep()

    @property
    def bytes(self) -> int:
        return sum(segment.stat().st_size for segment in self.kept.iterdir())


def segments_of(root: Path, timeline: Timeline, kept: Path) -> Segments:
    """Of the first safekeeper; its directory of the timeline holds the segments, whatever it is called."""
    kept.mkdir()
    found = list((root / "safekeeper-1" / timeline.tenant / timeline.id).rglob("0000000*"))
    if not found:
        raise RuntimeError("the safekeeper has no segment of the timeline")
    return Segments(found[0].parent, kept)


def load(compute: Compute, suites: Suites, work: Path, only: set[str]) -> list[Outcome]:
    """The suites, then the workload for indexes in a database of its own."""
    outcomes: list[Outcome] = []
    for name, run in (("regress", suites.regress), ("isolation", suites.isolation)):
        if not only or name in only:
            started = time.monotonic()
            outcome = run()
            outcomes.append(outcome)
            say(f"{name}: {outcome.tests} tests in {time.monotonic() - started:.0f} s, failed: {outcome.failed}")
    with compute.admin("postgres") as admin:
        admin.execute("CREATE DATABASE workload STRATEGY file_copy")
    script = work / "script.sql"
    uri = f"postgresql://weir_admin@/workload?host={compute.directory / 'sock'}&port={compute.port}"
    for text in (INDEXES, RARE, suites.vectors()):
        script.write_text(text)
        psql(uri, "-o", "/dev/null", "-v", "part=5", "-f", str(script), timeout=1800)
    say("workload for indexes done")
    return outcomes


def run(running: Engine, root: Path, work: Path, oracle: Path, only: set[str]) -> dict[str, Any]:
    timeline = running.create_timeline()
    before = work / "before"
    shutil.copytree(root / "pageserver/templates/15", before, symlinks=True)
    compute = running.compute(timeline, settings=SETTINGS, full_page_writes=False)
    segments = segments_of(root, timeline, work / "wal")
    with segments.collected():
        with compute.admin("postgres") as admin:
            admin.execute("ALTER SYSTEM SET wal_consistency_checking = 'all'")
            admin.execute("SELECT pg_reload_conf()")
        suites = Suites(work, Server(str(compute.directory / "sock"), compute.port, "weir_admin"), as_root=True)
        without(suites, LEFT_OUT)
        outcomes = load(compute, suites, work, only)
        with compute.admin("postgres") as admin:
            row = admin.execute("SELECT pg_current_wal_flush_lsn()").fetchone()
        end = str(row[0]) if row else "0/0"
        running.wait_ingested(timeline, end, 600)
        compute.suspend()
    say(f"replay of {segments.bytes / 1e9:.1f} GB of WAL, from {timeline.start_lsn} past {end}")
    output = work / "report.json"
    command = [str(oracle), str(segments.kept), "--before", str(before), "--json", str(output)]
    done = subprocess.run(command, check=False, timeout=3600)
    if done.returncode not in (0, 1):
        raise SystemExit(f"the WAL could not be read to its end (status {done.returncode})")
    found = json.loads(output.read_text())
    if lsn(found["last_lsn"]) < lsn(end):
        raise SystemExit(f"the WAL kept ends at {found['last_lsn']}, the compute wrote up to {end}")
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
        "settings": SETTINGS | {"full_page_writes": "off", "wal_consistency_checking": "all"},
        "suites": [asdict(outcome) for outcome in outcomes],
        "wal_bytes": segments.bytes,
        "timeline_state": running.timeline_status(timeline)["state"],
        **{name: found[name] for name in ("checked", "mismatched", "mismatches", "errors", "unknown", "last_lsn")},
        "ops": {name: op["checked"] for name, op in found["ops"].items() if op["checked"]},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=["regress", "isolation", "none"], default=[])
    parser.add_argument("--oracle", type=Path, help="the replaying program, instead of building it")
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args()
    oracle = arguments.oracle or build("oracle")
    work = Path(tempfile.mkdtemp(prefix="weir-oracle-compute-"))
    work.chmod(0o755)
    try:
        root = work / "engine"
        root.mkdir()
        with engine(root) as running:
            found = run(running, root, work, oracle, set(arguments.only))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    report = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    report["compute"] = found
    arguments.out.write_text(json.dumps(report, indent=2) + "\n")
    print(f"{found['checked']} pages compared, {found['mismatched']} differ")
    return 1 if found["mismatched"] or found["errors"] or found["unknown"] else 0


if __name__ == "__main__":
    sys.exit(main())
