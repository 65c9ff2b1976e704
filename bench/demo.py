"""Weir's main job, shown: four databases under a TPROC-C style load, page images pushed down while they run.

Everything goes through the public API; the load is psql and pgbench. A rollout in two waves (one canary, then the
rest) switches full page writes off, live. Before and after windows span whole checkpoint cycles, at one fixed rate
of transactions and with the same checkpoint settings. Beside the four, one compute at Postgres's default
checkpoint distance shows what is left of the effect there. A second stage has one compute go as fast as it can while
its WAL is held to a rate, where less WAL means more transactions.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from weirbench import capped, report, tproc
from weirbench.api import OPEN, ApiError, Database, Weir
from weirbench.figures import Window, measure, together
from weirbench.parts import client
from weirbench.postgres import SqlError, query
from weirbench.progress import say
from weirbench.prom import Prometheus
from weirbench.report import Line
from weirbench.sampler import Sampler

from weir.cli import installation as installations
from weir.cli.errors import CliError

RESULTS = Path(__file__).resolve().parent / "results" / "demo.json"
OFTEN = {"checkpoint_timeout": "30s", "max_wal_size": "1GB", "wal_compression": "off"}
DEFAULT_DISTANCE = {"checkpoint_timeout": "5min", "max_wal_size": "1GB", "wal_compression": "off"}
SHOWN = ("checkpoint_timeout", "max_wal_size", "checkpoint_completion_target", "wal_compression", "wal_level",
         "synchronous_commit", "shared_buffers", "server_version")  # fmt: skip
IMAGE_THRESHOLD = 16
# Wide: five computes, their load and all of Weir share one small machine, where a neighbour's build is no regression.
# Bounds alone: a minute at a few transactions a second says too little about a p99 for statistics.
BOUNDS = {"judge_by": "bounds", "max_p99_ratio": 5.0, "p99_slack_seconds": 0.25}


@dataclass
class Subject:
    """One database of the demo, with who drives it and who watches it."""

    database: Database
    cycle: int
    driver: tproc.Driver | None = None
    sampler: Sampler | None = None
    summary: tproc.Summary | None = None

    @property
    def name(self) -> str:
        return self.database.name


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--home", type=Path, default=None, help="the installation (default: $WEIR_HOME or the usual one)"
    )
    parser.add_argument("--computes", type=int, default=4)
    parser.add_argument("--warehouses", type=int, default=1)
    parser.add_argument("--clients", type=int, default=2, help="per compute")
    parser.add_argument("--rate", type=float, default=10, help="transactions a second and compute")
    parser.add_argument("--window", type=int, default=120, help="seconds; made whole checkpoint cycles")
    parser.add_argument(
        "--no-default-distance", action="store_true", help="leave out the fifth compute (saves 5 min)"
    )
    parser.add_argument(
        "--cap",
        type=float,
        default=4,
        metavar="MIB",
        help="of WAL a second, in the second stage (4; 0 leaves it out)",
    )
    parser.add_argument("--cap-seconds", type=float, default=60, help="of each of the second stage's two runs (60)")
    parser.add_argument("--only-cap", action="store_true", help="the second stage alone, into the results there are")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    try:
        demo = Demo(arguments)
        return demo.second_stage() if arguments.only_cap else demo.run() | demo.second_stage()
    except (ApiError, SqlError, CliError, httpx.HTTPError) as error:
        say(f"The demo stopped: {error}")
        say("`weir status` and `weir logs` show more. What was created is still there.")
        return 1


class Demo:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        home = arguments.home.absolute() if arguments.home else installations.home_from_environment()
        self.installation = installations.load(home)
        self.weir = Weir(self.installation.api_url, self.installation.api_key_file.read_text().strip())
        self.prometheus = Prometheus(client(self.installation, "prometheus"))
        self.main: list[Subject] = []
        self.beside: list[Subject] = []

    @property
    def everyone(self) -> list[Subject]:
        return [*self.main, *self.beside]

    def run(self) -> int:
        self.create()
        self.load()
        with tempfile.TemporaryDirectory(prefix="weir-demo-") as folder:
            try:
                self.drive(Path(folder))
                settings = self.settings()
                rollouts = self.roll_out()
                problems = self.judge(rollouts, settings)
            finally:
                self.stop()
            # Only now: pgbench writes its log in blocks, and Prometheus scrapes the last samples a moment later.
            time.sleep(2 * self.installation.scrape_interval_seconds)
            lines = self.lines(rollouts[0], self.main)
            beside = self.lines(rollouts[1], self.beside) if self.beside else []
        problems += self.check(lines, beside)
        self.show(lines, beside, settings)
        for problem in problems:
            say(f"NOT AS PROMISED: {problem}")
        return 1 if problems else 0

    def create(self) -> None:
        wanted = [(f"tproc-c-{n}", OFTEN, 30) for n in range(1, self.arguments.computes + 1)]
        if not self.arguments.no_default_distance:
            wanted.append(("tproc-c-default-distance", DEFAULT_DISTANCE, 300))
        names = {name for name, _, _ in wanted}
        for project in self.weir.projects():
            if project["name"] in names:
                say(f"deleting {project['name']} ({project['id']}) of an earlier demo")
                self.weir.delete_project(project["id"])
        for name, settings, cycle in wanted:
            started = time.monotonic()
            database = self.weir.create_database(name, settings)
            subject = Subject(database, cycle)
            (self.main if settings is OFTEN else self.beside).append(subject)
            say(f"{name}: project {database.project_id}, compute {database.compute_id}, "
                f"ready after {time.monotonic() - started:.1f} s")  # fmt: skip

    def load(self) -> None:
        say(f"loading {self.arguments.warehouses} warehouse(s) into each of {len(self.everyone)} databases")

        def fill(subject: Subject) -> None:
            seconds = tproc.load(subject.database.uri, self.arguments.warehouses)
            say(f"{subject.name}: loaded in {seconds:.0f} s")

        with ThreadPoolExecutor(max_workers=2) as pool:
            list(pool.map(fill, self.everyone))

    def drive(self, folder: Path) -> None:
        a = self.arguments
        say(f"driving all at {a.rate:g} transactions/s each, {a.clients} clients each, mix "
            + "/".join(f"{script} {weight}" for script, weight in tproc.MIX.items()))  # fmt: skip
        for number, subject in enumerate(self.everyone, 1):
            subject.driver = tproc.Driver(
                subject.database.uri,
                folder / subject.name,
                warehouses=a.warehouses,
                clients=a.clients,
                rate=a.rate,
                seconds=6 * 3600,
                seed=number,
            )
            subject.sampler = Sampler(subject.database.uri)
            subject.sampler.start()
        # The bulk load's own checkpoint and vacuum must not be part of what is compared.
        say("warming up until the load's last checkpoint is over (35 s)")
        time.sleep(35)
        self.require_running()

    def require_running(self) -> None:
        for subject in self.everyone:
            if subject.driver is not None and not subject.driver.running:
                raise ApiError(f"pgbench on {subject.name} has ended early:\n{subject.driver.summary().text[-1500:]}")

    def settings(self) -> dict[str, dict[str, str]]:
        """The settings that decide how many images there are, as each server itself reports them."""
        return {
            subject.name: {name: query(subject.database.uri, f"SHOW {name}") for name in SHOWN}
            for subject in self.everyone
        }

    def roll_out(self) -> list[dict[str, Any]]:
        rollouts = [self.start_rollout("image pushdown", self.main, self.arguments.window)]
        if self.beside:
            rollouts.append(self.start_rollout("image pushdown, default checkpoint distance", self.beside, 300))
        return [self.follow(rollout["id"]) for rollout in rollouts]

    def start_rollout(self, name: str, subjects: list[Subject], window: int) -> dict[str, Any]:
        canary = [{"count": 1, "name": "canary"}] if len(subjects) > 1 else []
        body = {
            "name": name,
            "feature": "image_pushdown",
            "selector": {"project_ids": [subject.database.project_id for subject in subjects]},
            "strategy": {
                "waves": [*canary, {"percent": 100, "name": "the rest"}],
                "baseline_seconds": window,
                "bake_seconds": window,
                "soak_seconds": 0,
                "image_threshold": IMAGE_THRESHOLD,
                **BOUNDS,
            },
        }
        plan = self.weir.request("POST", "/rollouts/plan", body)["plan"]
        names = {subject.database.compute_id: subject.name for subject in subjects}
        for wave in plan["waves"]:
            own = [names[c["compute_id"]] for c in plan["computes"] if c["wave"] == wave["index"]]
            say(f"plan of {name!r}: {wave['name']}: {', '.join(own)}")
        for entry in plan["excluded"]:
            say(f"plan of {name!r}: excluded {names.get(entry['compute_id'])}: {entry['reason']}")
        rollout = self.weir.request("POST", "/rollouts", body)["rollout"]
        say(f"rollout {rollout['id']} started: {self.weir.url}/rollouts/{rollout['id']}")
        return rollout

    def follow(self, rollout_id: str) -> dict[str, Any]:
        """Until the rollout is over, saying what changes."""
        seen: dict[str, str] = {}
        names = {subject.database.compute_id: subject.name for subject in self.everyone}
        while True:
            rollout = self.weir.rollout(rollout_id)
            states = {names[c["compute_id"]]: c["state"] for c in rollout["computes"]}
            for compute in rollout["computes"]:
                name, state = names[compute["compute_id"]], compute["state"]
                if seen.get(name) != state and state != "pending":
                    lsn = f", FPW_CHANGE at {compute['fpw_change_lsn']}" if compute["fpw_change_lsn"] else ""
                    reason = f": {compute['reason']}" if compute["reason"] else ""
                    say(f"{name}: {state}{lsn if state != 'baseline' else ''}{reason}")
            seen = states
            if rollout["status"] not in OPEN:
                say(f"rollout {rollout_id} is {rollout['status']}" + _because(rollout["status_reason"]))
                return rollout
            self.require_running()
            time.sleep(1)

    def judge(self, rollouts: list[dict[str, Any]], settings: dict[str, dict[str, str]]) -> list[str]:
        problems = [
            f"rollout {rollout['name']!r} ended {rollout['status']}" + _because(rollout["status_reason"])
            for rollout in rollouts
            if rollout["status"] != "completed"
        ]
        if self.settings() != settings:
            problems.append("the settings are not the same before and after")
        return problems

    def lines(self, rollout: dict[str, Any], subjects: list[Subject]) -> list[Line]:
        """A line a compute, and their total when there are several."""
        by_id = {compute["compute_id"]: compute for compute in rollout["computes"]}
        waves = {wave["index"]: wave["name"] for wave in rollout["waves"]}
        lines: list[Line] = []
        for subject in subjects:
            compute = by_id.get(subject.database.compute_id)
            if compute is None or not all(compute[name] and compute[name]["to"] for name in ("baseline", "after")):
                say(f"{subject.name}: not measured, the rollout did not get to it")
                continue
            lines.append(self.line(subject, compute, waves))
        if not lines:
            raise ApiError("no compute has a window before and one after")
        if len(lines) > 1:
            lines.append(
                Line(
                    name="total",
                    compute_id=None,
                    wave="",
                    before=together(entry.before for entry in lines),
                    after=together(entry.after for entry in lines),
                    fpw_change_lsn=None,
                    image_threshold=IMAGE_THRESHOLD,
                    verdict="",
                    failed_transactions=sum(entry.failed_transactions for entry in lines),
                    broken_connections=sum(entry.broken_connections for entry in lines),
                )
            )
        return lines

    def line(self, subject: Subject, compute: dict[str, Any], waves: dict[int, str]) -> Line:
        driver, sampler = subject.driver, subject.sampler
        if driver is None or sampler is None:
            raise ApiError(f"{subject.name} was never driven")
        rows = driver.transactions()

        def window(name: str) -> Window:
            start, end = (datetime.fromisoformat(compute[name][edge]).timestamp() for edge in ("from", "to"))
            # Images come in a burst after each checkpoint, so only whole cycles compare: cut to the last of them.
            start = max(start, end - (end - start) // subject.cycle * subject.cycle)
            return measure(self.prometheus, subject.database.compute_id, start, end, rows, sampler)

        evidence = compute["evidence"] or {}
        return Line(
            name=subject.name,
            compute_id=subject.database.compute_id,
            wave=waves.get(compute["wave"], ""),
            before=window("baseline"),
            after=window("after"),
            fpw_change_lsn=compute["fpw_change_lsn"],
            image_threshold=IMAGE_THRESHOLD,
            verdict=evidence.get("verdict") or compute["state"],
            failed_transactions=sum(row.failed for row in rows),
            broken_connections=len(sampler.broken) + len(driver.complaints()),
        )

    def stop(self) -> None:
        say("stopping the load")
        for subject in self.everyone:
            if subject.driver is not None:
                subject.summary = subject.driver.finish()
            if subject.sampler is not None:
                subject.sampler.stop()

    def check(self, lines: list[Line], beside: list[Line]) -> list[str]:
        """What must hold whatever the figures are."""
        problems: list[str] = []
        for entry in [*lines, *beside]:
            if entry.failed_transactions or entry.broken_connections:
                problems.append(f"{entry.name}: {entry.failed_transactions} failed transactions, "
                                f"{entry.broken_connections} broken connections")  # fmt: skip
            if entry.after.image_bytes:
                problems.append(f"{entry.name}: {entry.after.image_bytes:.0f} bytes of images after the switch")
        for subject in self.everyone:
            summary = subject.summary
            if summary is None or summary.status != 0 or summary.failed or summary.aborted_clients:
                problems.append(
                    f"{subject.name}: pgbench did not end cleanly: {summary.text[-500:] if summary else ''}"
                )
            broken = tproc.violations(subject.database.uri)
            say(f"{subject.name}: {'; '.join(broken) or 'every consistency condition holds'}")
            problems += [f"{subject.name}: consistency condition {condition}" for condition in broken]
        return problems

    def show(self, lines: list[Line], beside: list[Line], settings: dict[str, dict[str, str]]) -> None:
        say("settings, equal before and after:")
        for name, values in settings.items():
            print("   ", name, ", ".join(f"{key} = {value}" for key, value in values.items()))
        print("\n" + report.tables(lines))
        if beside:
            print("\nAt Postgres's default checkpoint distance (checkpoint_timeout 5min), windows of 300 s")
            print("\n" + report.tables(beside))
        self.write(lines, beside, settings)

    def second_stage(self) -> int:
        """One compute as fast as it goes at a cap of its WAL, beside computes that nobody drives any more."""
        if self.arguments.cap > 0:
            rate = round(self.arguments.cap * (1 << 20))
            say(f"second stage: unthrottled, WAL held to {self.arguments.cap:g} MiB a second")
            found = capped.measure(
                self.installation,
                say,
                rate=rate,
                seconds=self.arguments.cap_seconds,
                warehouses=self.arguments.warehouses,
            )
            print("\n" + found.table())
            results: Path = self.arguments.results
            document = json.loads(results.read_text()) if results.exists() else {}
            results.write_text(json.dumps({**document, "capped": found.document()}, indent=2) + "\n")
            for condition in found.broken:
                say(f"NOT AS PROMISED: consistency condition {condition}")
            if found.broken:
                return 1
        print(f"\nConsole: {self.installation.api_url}  (API key: {self.installation.api_key_file})")
        print("Weir is still running; `weir down` stops it.")
        return 0

    def write(self, lines: list[Line], beside: list[Line], settings: dict[str, dict[str, str]]) -> None:
        totals = report.document(lines[-1])
        totals["fpw_change_lsn"] = {entry.compute_id: entry.fpw_change_lsn for entry in lines if entry.compute_id}
        document = {
            "settings": {
                "at": datetime.now(UTC).isoformat(timespec="seconds"),
                "cores": os.cpu_count(),
                "warehouses": self.arguments.warehouses,
                "clients_per_compute": self.arguments.clients,
                "transactions_per_second_offered": self.arguments.rate,
                "window_seconds": lines[0].before.seconds,
                "mix": tproc.MIX,
                "image_threshold": IMAGE_THRESHOLD,
                "bounds": BOUNDS,
                "postgres": settings,
                "units": "bytes; ms or us where the name says so; nopm = new orders a minute; times are UTC",
            },
            "computes": [report.document(entry) for entry in lines if entry.compute_id],
            "totals": totals,
            "default_checkpoint_distance": [report.document(entry) for entry in beside],
        }
        self.arguments.results.parent.mkdir(parents=True, exist_ok=True)
        self.arguments.results.write_text(json.dumps(document, indent=2) + "\n")
        say(f"figures are in {self.arguments.results}")


def _because(reason: str | None) -> str:
    return f": {reason}" if reason else ""


if __name__ == "__main__":
    sys.exit(main())
