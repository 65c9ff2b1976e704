"""Every page redo makes, against what Postgres has: Postgres's own test suites under wal_consistency_checking.

Runs the suites of the server's own source package on a stock Postgres that logs, with every record, what its pages
look like afterwards; then workloads for the kinds of records that the suites never write; then replays all of that
WAL with Weir's redo and compares each page. The report is `results/oracle.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from weirbench.cluster import Cluster
from weirbench.pgsuite import Outcome, Server, Suites
from weirbench.progress import say
from weirbench.servers import Installed, NoServerError, chosen, installed
from weirbench.unexercised import REASONS, Workload

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "bench/results/oracle.json"

SETTINGS = {
    "fsync": "off",
    "wal_level": "replica",
    "wal_consistency_checking": "all",
    # Every segment stays, to be replayed at the end.
    "wal_keep_size": "'2000GB'",
    "max_wal_size": "'8GB'",
    "checkpoint_timeout": "'10min'",
    # An image would stand in for redo.
    "full_page_writes": "off",
    "wal_compression": "lz4",
    "track_commit_timestamp": "on",
    "max_prepared_transactions": "10",
    "max_connections": "60",
    "shared_buffers": "'256MB'",
    "autovacuum_naptime": "'5s'",
}


def build(example: str) -> Path:
    """A program of `wal-redo`, built from this checkout."""
    command = ["cargo", "build", "--release", "--quiet", "-p", "wal-redo", "--example", example]
    subprocess.run(command, cwd=ROOT / "storage", check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", str(ROOT / "storage/target")))
    return target / "release/examples" / example


class Run:
    """One cluster, through all phases."""

    def __init__(self, work: Path, only: set[str], server: Installed, only_phases: set[str]) -> None:
        self.only = only
        self.only_phases = only_phases
        self.installed = server
        self.major = server.major
        self.outcomes: list[Outcome] = []
        self.phases: list[dict[str, Any]] = []
        # Servers that are not the distribution's are built without lz4 and zstd.
        settings = SETTINGS if server.packaged else {**SETTINGS, "wal_compression": "pglz"}
        self.cluster = Cluster(work, settings, server=server)
        self.before = work / "before"
        self.cluster.copy_data(self.before)
        self.suites = Suites(work, Server(str(work), self.cluster.port, "postgres"), major=self.major)
        self.workload = Workload(self.cluster)

    def suite(self, name: str, run: Callable[[], Outcome]) -> None:
        if self.only and name not in self.only:
            return
        started = time.monotonic()
        outcome = run()
        self.outcomes.append(outcome)
        failed = f", failed: {' '.join(outcome.failed)}" if outcome.failed else ""
        say(f"{outcome.name}: {outcome.tests} tests in {time.monotonic() - started:.0f} s{failed}")

    def phase(self, name: str, settings: dict[str, str], run: Callable[[], None]) -> None:
        if self.only_phases and name not in self.only_phases:
            return
        say(f"phase {name}")
        if self.cluster.running:
            self.cluster.restart(settings)
        else:
            self.cluster.configure(settings)
            self.cluster.start()
        run()
        self.phases.append({"name": name, "settings": settings})

    def seeds(self, into: Path) -> None:
        """Seeds for fuzzing, from a workload of every kind of index and a vacuumed table."""
        self.phase("seeds", {}, self.workload.seeds)
        self.cluster.stop()
        wal = str(self.cluster.data / "pg_wal")
        command = [str(build("seeds")), wal, "--version", str(self.major), "--before", str(self.before), str(into)]
        subprocess.run(command, check=True)

    def everything(self) -> None:
        """The phases in order; the cluster is stopped afterwards."""
        self.phase("suites", {}, self._suites)
        self.phase("what the suites never write", {}, self.workload.unexercised)
        self.phase("pgvector and pg_trgm", {}, self._vectors)
        self.phase("logical", {"wal_level": "logical"}, self._logical)
        for method in ("pglz", "zstd") if self.installed.packaged else ("pglz",):
            settings = {"wal_level": "replica", "full_page_writes": "on", "wal_compression": method}
            self.phase(f"images by {method}", settings, self.workload.with_images)
        self.cluster.stop()

    def _suites(self) -> None:
        self.suite("regress", self.suites.regress)
        self.suite("isolation", self.suites.isolation)
        for module in self.suites.contrib_modules():
            self.suite("contrib", lambda module=module: self.suites.contrib(module))

    def _vectors(self) -> None:
        self.workload.script("CREATE DATABASE vectors")
        self.workload.script(self.suites.vectors(), "vectors")

    def _logical(self) -> None:
        self.workload.logical()
        self.suite("contrib", lambda: self.suites.contrib("test_decoding"))
        # Slots hold back what vacuum may remove.
        self.workload.drop_slots()


def wal_bytes(data: Path) -> int:
    return sum(entry.stat().st_size for entry in (data / "pg_wal").iterdir() if len(entry.name) == 24)


def uncovered(names: list[str]) -> list[dict[str, str]]:
    """Kinds nothing was proven about, each with why; `not explained` is a gap in this program."""
    return [{"op": name, "reason": REASONS.get(name, "not explained")} for name in names]


def replay(oracle: Path, run: Run) -> dict[str, Any]:
    data = run.cluster.data
    output = run.cluster.folder / "report.json"
    command = [str(oracle), str(data / "pg_wal"), "--version", str(run.major)]
    command += ["--before", str(run.before), "--after", str(data)]
    done = subprocess.run([*command, "--json", str(output)], check=False, timeout=3600)
    if done.returncode not in (0, 1):
        raise SystemExit(f"the WAL could not be read to its end (status {done.returncode})")
    return json.loads(output.read_text())


def added(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Two reports as one: figures add up, lists join, and uncovered is what neither covered."""
    names = {entry["op"] for entry in old["uncovered"]} & {entry["op"] for entry in new["uncovered"]}
    sums = ("checked", "mismatched", "files_checked", "files_mismatched", "small_files_checked")
    ops = {
        name: {key: value if isinstance(value, str) else value + old["ops"][name][key] for key, value in op.items()}
        for name, op in new["ops"].items()
    }
    return {
        **{name: old[name] + new[name] for name in sums},
        "uncovered": uncovered(sorted(names)),
        "runs": old["runs"] + new["runs"],
        "ops": ops,
        "not_logged": old.get("not_logged", []) + new["not_logged"],
        "mismatches": old["mismatches"] + new["mismatches"],
        "errors": {**old["errors"], **new["errors"]},
        "unknown": {**old["unknown"], **new["unknown"]},
    }


def store(out: Path, major: int, report: dict[str, Any], *, add: bool) -> None:
    """Puts the report where that version's stands: 15's is the file itself, the others' are in its `versions`. What
    else the file holds stays.
    """
    whole: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    kept = whole if major == 15 else whole.setdefault("versions", {}).setdefault(str(major), {})
    if add and kept:
        report.update(added(kept, report))
    kept.update(report)
    out.write_text(json.dumps(whole, indent=2) + "\n")


def summary(report: dict[str, Any]) -> str:
    lines = [f"{report['checked']} pages compared, {report['mismatched']} differ"]
    lines += [f"not covered: {entry['op']}: {entry['reason']}" for entry in report["uncovered"]]
    return "\n".join(lines)


def ask(server: Installed, arguments: argparse.Namespace, *, add: bool) -> bool:
    """One server through all phases; its report joins the file. Whether nothing was found wrong."""
    started = time.monotonic()
    say(f"Postgres {server.version}")
    work = Path(tempfile.mkdtemp(prefix="weir-oracle-"))
    run = None
    try:
        run = Run(work, set(arguments.only), server, set(arguments.phase))
        if arguments.seeds:
            run.seeds(arguments.seeds)
            return True
        oracle = arguments.oracle or build("oracle")
        run.everything()
        size = wal_bytes(run.cluster.data)
        say(f"replay of {size / 1e9:.1f} GB of WAL")
        found = replay(oracle, run)
        report: dict[str, Any] = {
            "checked": found.pop("checked"),
            "mismatched": found.pop("mismatched"),
            "uncovered": uncovered(found.pop("uncovered")),
            "runs": [
                {
                    "at": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
                    "suite": run.suites.version,
                    "minor": server.version,
                    "server": run_version(run.cluster),
                    "wal_bytes": size,
                    "seconds": round(time.monotonic() - started),
                    "last_lsn": found.pop("last_lsn"),
                    "phases": run.phases,
                    "suites": [asdict(outcome) for outcome in run.outcomes],
                }
            ],
            **found,
        }
        store(arguments.out, server.major, report, add=add)
        print(summary(report))
        gaps = [entry for entry in report["uncovered"] if entry["reason"] == "not explained"]
        return not (report["mismatched"] or report["errors"] or report["unknown"] or gaps)
    finally:
        if run is not None:
            run.cluster.stop("immediate")
        if arguments.keep:
            print(f"kept: {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=["regress", "isolation", "contrib", "none"], default=[])
    parser.add_argument(
        "--version",
        default="15",
        help="the server's version, as 15.18; a major alone means each of its minors that is installed",
    )
    parser.add_argument("--phase", action="append", default=[], help="only this phase, by its name in the report")
    parser.add_argument("--add", action="store_true", help="add to the report that is there")
    parser.add_argument("--keep", action="store_true", help="leave the cluster and its WAL, print where")
    parser.add_argument("--oracle", type=Path, help="the replaying program, instead of building it")
    parser.add_argument("--seeds", type=Path, help="only write seeds for the fuzz targets there")
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args()
    try:
        servers = chosen(arguments.version, installed())
    except NoServerError as missing:
        parser.error(str(missing))
    if arguments.seeds:
        # Seeds of one minor are as good as of another.
        servers = servers[-1:]
    # A second minor adds to the report of the first.
    good = [ask(server, arguments, add=arguments.add or which > 0) for which, server in enumerate(servers)]
    return 0 if all(good) else 1


def run_version(cluster: Cluster) -> str:
    command = [str(cluster.server / "postgres"), "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
