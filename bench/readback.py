"""Postgres's regression suite on a Weir compute, and everything it left read back from storage.

Runs the suite on a compute, takes a logical dump of all databases and checks every B-tree index and table with
amcheck; then throws the compute away, with all it has on disk, starts another from storage alone, and does the same
again. Both must agree. The report joins `results/oracle.json` as `read_back`.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from weirbench.pgsuite import Server, Suites
from weirbench.postgres import PG_BIN
from weirbench.progress import say

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "bench/results/oracle.json"
sys.path.insert(0, str(ROOT / "storage/system"))

from harness import Compute, Engine, engine  # noqa: E402

# The suite's expected plans are those of stock Postgres's costs. A compute's default makes index scans cheaper, and
# with it the same five tests fail with the same differences, byte for byte, on a stock server that has it.
SETTINGS = {
    "max_prepared_transactions": "10",
    "max_connections": "60",
    "shared_buffers": "128MB",
    "random_page_cost": "4",
}
# What a compute refuses, with the reason; the rest of the schedule runs.
LEFT_OUT = {"tablespace": "tablespaces are refused by computes"}


def client(compute: Compute, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    where = ["-h", str(compute.directory / "sock"), "-p", str(compute.port), "-U", "weir_admin"]
    command = [str(PG_BIN / program), *where, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)


def dump(compute: Compute) -> list[str]:
    """All databases as SQL, its lines in order of their text. Left out: the key that each dump invents for itself,
    data of unlogged tables, which no crash survives, positions of sequences, which run ahead by what a session had
    fetched, and passwords, which each start sets from its specification with a new salt.
    """
    done = client(compute, "pg_dumpall", "-l", "postgres", "--no-unlogged-table-data")
    if done.returncode != 0:
        raise RuntimeError(f"pg_dumpall: {done.stderr}")
    text = re.sub(r"PASSWORD 'SCRAM[^']*'", "PASSWORD", done.stdout)
    ignored = re.compile(r"\\(un)?restrict |SELECT pg_catalog\.setval\(")
    return sorted(line for line in text.splitlines() if not ignored.match(line))


def amcheck(compute: Compute) -> dict[str, Any]:
    """Every table and B-tree index, heap entries found again in the index; what amcheck says, line by line."""
    arguments = ["--all", "--install-missing", "--heapallindexed", "--parent-check", "--no-strict-names"]
    done = client(compute, "pg_amcheck", "--maintenance-db=postgres", *arguments)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    counted = 0
    for (name,) in compute.admin("postgres").execute("SELECT datname FROM pg_database WHERE datallowconn").fetchall():
        query = "SELECT count(*) FROM pg_class WHERE relkind = 'i' AND relam = 403"
        row = compute.admin(name).execute(query).fetchone()
        counted += row[0] if row else 0
    return {"status": done.returncode, "btree_indexes": counted, "findings": lines}


def without(suites: Suites, tests: dict[str, str]) -> None:
    """Takes tests out of the schedule."""
    schedule = suites.work / "source/src/test/regress/parallel_schedule"
    lines = []
    for line in schedule.read_text().splitlines():
        head, _, rest = line.partition(":")
        kept = [word for word in rest.split() if word not in tests]
        if head == "test" and not kept:
            continue
        lines.append(f"test: {' '.join(kept)}" if head == "test" else line)
    schedule.write_text("\n".join(lines) + "\n")


def read_back(running: Engine, work: Path) -> dict[str, Any]:
    timeline = running.create_timeline()
    compute = running.compute(timeline, settings=SETTINGS)
    with compute.admin("postgres") as admin:
        admin.execute("ALTER SYSTEM SET wal_consistency_checking = 'all'")
        admin.execute("SELECT pg_reload_conf()")
    server = Server(str(compute.directory / "sock"), compute.port, "weir_admin")
    suites = Suites(work, server, as_root=True)
    without(suites, LEFT_OUT)
    started = time.monotonic()
    outcome = suites.regress()
    say(f"regress: {outcome.tests} tests in {time.monotonic() - started:.0f} s, failed: {outcome.failed}")
    checked, dumped = amcheck(compute), dump(compute)
    say(f"before: {len(dumped)} lines of dump, amcheck status {checked['status']}")
    compute.kill9()
    shutil.rmtree(compute.directory, ignore_errors=True)
    again = running.compute(timeline, settings=SETTINGS)
    dumped_again, checked_again = dump(again), amcheck(again)
    say(f"after: {len(dumped_again)} lines of dump, amcheck status {checked_again['status']}")
    once, again_once = Counter(dumped), Counter(dumped_again)
    differing = sorted(((once - again_once) + (again_once - once)).elements())
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
        "tests": outcome.tests,
        "failed": list(outcome.failed),
        "left_out": LEFT_OUT,
        "settings": SETTINGS,
        "dump_lines": len(dumped),
        "dump_identical": dumped == dumped_again,
        "dump_differences": differing[:40],
        "amcheck_before": checked,
        "amcheck_after": checked_again,
        "timeline_state": running.timeline_status(timeline)["state"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="weir-readback-"))
    work.chmod(0o755)
    try:
        root = work / "engine"
        root.mkdir()
        with engine(root) as running:
            found = read_back(running, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    report = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    report["read_back"] = found
    arguments.out.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps({name: found[name] for name in ("tests", "dump_lines", "dump_identical")}))
    clean = found["amcheck_after"]["status"] == 0
    return 0 if found["dump_identical"] and clean and not found["failed"] else 1


if __name__ == "__main__":
    sys.exit(main())
