"""One trial: a cluster of its own, load, the storm of one seed, healing, and the checks."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import PG_BIN, Compute, lsn, wait_for

from .availability import Away, longest_wait
from .checks import Findings, check_content, check_history, check_indexes, check_logs, read_content, stored_commits
from .clients import SCHEMA, Load
from .cluster import Cluster, server_minor
from .director import Director
from .membership import Membership
from .schedule import FOUNDERS, Schedule

# After the last fault has ended: until clients commit again, until the voters are the wanted ones, until a compute
# that was taken over from is gone, seconds.
COMMITS_AGAIN = 90.0
MEMBERS_AGAIN = 60.0
OLD_COMPUTE_GONE = 45.0
# After a new compute has started: until every voter has what is committed, seconds.
CAUGHT_UP = 60.0


@dataclass
class Result:
    seed: int
    postgres: str
    schedule: dict[str, Any]
    faults: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    done: list[str] = field(default_factory=list[str])
    acknowledged: int = 0
    unknown: int = 0
    history: dict[str, Any] = field(default_factory=dict[str, Any])
    lost: list[str] = field(default_factory=list[str])
    wrong: list[str] = field(default_factory=list[str])
    undecided: list[str] = field(default_factory=list[str])
    # Whether safekeepers had networks of their own, or the proxy had to do.
    namespaces: bool = False
    # What did not come back though everything had healed, or broke the trial itself.
    stuck: list[str] = field(default_factory=list[str])
    unavailable_seconds: float = 0.0
    excused_seconds: float = 0.0
    load_seconds: float = 0.0
    seconds: float = 0.0

    @property
    def clean(self) -> bool:
        return not (self.lost or self.wrong or self.undecided or self.stuck)

    def words(self) -> str:
        verdict = "clean" if self.clean else "NOT CLEAN"
        return (
            f"seed {self.seed}: {verdict}; {self.acknowledged} acknowledged, {self.unknown} unknown, "
            f"{len(self.lost)} lost, {len(self.wrong)} wrong, longest wait {self.unavailable_seconds:.1f} s, "
            f"{len(self.done)}/{len(self.schedule['faults'])} faults, Postgres {self.postgres}, {self.seconds:.0f} s"
        )


class StuckError(Exception):
    """Something does not come back."""


@dataclass
class Trial:
    schedule: Schedule
    # Where artefacts go: history, schedule, logs.
    keep: Path
    pg_bin_dir: Path = PG_BIN
    clients: int = 8
    durability: str = "flush"
    # Whether safekeepers get networks of their own: in a process that has one itself (`apart.py`).
    namespaces: bool = False

    def run(self) -> Result:
        began = time.monotonic()
        root = Path(tempfile.mkdtemp(prefix="weir-torture-"))
        result = Result(
            self.schedule.seed,
            server_minor(self.pg_bin_dir),
            self.schedule.as_json(),
            namespaces=self.namespaces,
        )
        small = tuple(
            number
            for fault in self.schedule.faults
            if fault.kind == "safekeeper_disk_full"
            for number in fault.safekeepers
        )
        cluster = Cluster(
            root,
            self.schedule.seed,
            self.schedule.full_page_writes,
            small,
            self.pg_bin_dir,
            self.durability,
            self.namespaces,
        )
        shutil.rmtree(self.keep, ignore_errors=True)
        self.keep.mkdir(parents=True)
        try:
            cluster.start()
            self._storm(cluster, result)
        except Exception as error:  # noqa: BLE001 - the trial has no verdict, says why, and the next one begins
            result.stuck.append(f"{type(error).__name__}: {error}"[:4000])
        finally:
            result.seconds = round(time.monotonic() - began, 1)
            self._keep(root, result, cluster)
            cluster.close()
        return result

    def _storm(self, cluster: Cluster, result: Result) -> None:
        compute = cluster.new_compute()
        cluster.wait_running(compute, 60)
        cluster.give_out(compute)
        with compute.connect() as session:
            session.execute(SCHEMA.encode())
        away = Away(set(FOUNDERS))
        membership = Membership(cluster, away)
        director = Director(cluster, away, membership)
        load = Load(self.schedule.seed, cluster.current, self.clients)
        load.start()
        director.start(self.schedule.faults)
        try:
            time.sleep(self.schedule.seconds)
            director.heal()
            self._recovered(load, membership)
        finally:
            ended = time.monotonic()
            director.end()
            load.stop()
            result.faults, result.done = director.log, director.done()
            result.load_seconds = round(ended - load.began, 1)
            result.acknowledged = len(load.history.acknowledged())
            result.unknown = sum(1 for it in load.history.operations if it.changes and it.outcome == "unknown")
            commits = load.history.commit_times()
            result.unavailable_seconds = round(longest_wait(load.began, ended, commits, away.windows), 2)
            result.excused_seconds = round(sum(to - start for start, to in away.windows), 1)
            (self.keep / "client-errors.txt").write_text("\n".join(load.errors()) + "\n")
            (self.keep / "members.txt").write_text("\n".join(membership.steps) + "\n")
            load.history.write(self.keep / "history.jsonl")
        failed = [entry for entry in director.log if entry["outcome"].startswith("failed")]
        result.stuck.extend(f"{entry['fault']['kind']} {entry['outcome']}" for entry in failed)
        self._check(cluster, load, result)

    def _recovered(self, load: Load, membership: Membership) -> None:
        before = len(load.history.acknowledged())
        try:
            wait_for("commits", lambda: len(load.history.acknowledged()) > before + 50, COMMITS_AGAIN)
        except TimeoutError as error:
            raise StuckError(f"clients do not commit again after everything has healed: {error}") from None
        if not membership.reach(time.monotonic() + MEMBERS_AGAIN):
            raise StuckError(f"the members do not become the wanted ones: {membership.steps[-1]}")

    def _check(self, cluster: Cluster, load: Load, result: Result) -> None:
        findings = Findings()
        last = cluster.current()
        for old in cluster.computes:
            if old is not last:
                self._gone(old, cluster.name(old), result)
        # By turns a clean end and a sudden one.
        if self.schedule.seed % 2:
            last.suspend()
        else:
            last.kill9()
        fresh = cluster.new_compute()
        cluster.wait_running(fresh, 60)
        content = read_content(fresh, load.history)
        check_content(load.history, content, findings)
        check_indexes(fresh, findings)
        self._caught_up(cluster, fresh)
        fresh.suspend()
        self._settled(cluster)
        check_logs(cluster.root, cluster.engine.bin_dir, cluster.timeline.id, findings)
        result.history = check_history(load.history, self.keep / "history.jsonl", self.keep, findings)
        result.lost, result.wrong, result.undecided = findings.lost, findings.wrong, findings.undecided

    def _gone(self, old: Compute, name: str, result: Result) -> None:
        """Whoever was taken over from has noticed by now."""

        def gone() -> bool:
            ended = old.process.child is None or old.process.child.poll() is not None
            return ended or old.status()["state"] == "fenced"

        try:
            wait_for(f"{name} to notice that another compute has taken over", gone, OLD_COMPUTE_GONE)
        except TimeoutError as error:
            result.stuck.append(str(error))

    def _caught_up(self, cluster: Cluster, compute: Compute) -> None:
        """Every voter has what is committed by now, also those that were away."""
        committed = lsn(compute.status()["commit_lsn"])

        def behind() -> list[int]:
            statuses = {number: cluster.engine.safekeeper_status(number - 1, cluster.timeline) for number in FOUNDERS}
            return [number for number, status in statuses.items() if lsn(status["flush_lsn"]) < committed]

        try:
            wait_for("every voter to catch up", lambda: not behind(), CAUGHT_UP)
        except TimeoutError:
            raise StuckError(f"safekeepers {behind()} do not catch up within {CAUGHT_UP:.0f} s") from None

    def _settled(self, cluster: Cluster) -> None:
        """A control file follows what is committed by a second."""

        def equal() -> bool:
            stored = stored_commits(cluster.root, cluster.engine.bin_dir, cluster.timeline.id)
            return None not in stored and len(set(stored)) == 1

        try:
            wait_for("the voters to have stored the same commit LSN", equal, 20)
        except TimeoutError as error:
            raise StuckError(str(error)) from None

    def _keep(self, root: Path, result: Result, cluster: Cluster) -> None:
        (self.keep / "result.json").write_text(json.dumps(result.__dict__, indent=1) + "\n")
        for log in root.glob("*.log"):
            shutil.copy(log, self.keep / log.name)
        for log in root.glob("computes/*/postgres.log"):
            shutil.copy(log, self.keep / f"{log.parent.name}-postgres.log")
        if not result.clean:
            # The logs themselves, too: they are what a lost row is looked for in.
            for number in FOUNDERS:
                disk = cluster.disk(number)
                shutil.copytree(disk, self.keep / disk.name, ignore=shutil.ignore_patterns("ballast"))
            for lost in root.glob("lost-*"):
                shutil.copytree(lost, self.keep / lost.name)
            if (root / "objects").is_dir():
                shutil.copytree(root / "objects", self.keep / "objects")
