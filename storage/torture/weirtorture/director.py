"""Makes the faults of a schedule happen, each in a thread of its own, and ends all of them when it is told to heal.

A fault claims what it is about, a process or the computes as a whole; one that finds it claimed waits for a while,
and is left out then and says so. Disturbed links are claimed by nobody, so they coincide with everything.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg
from disks import fill
from harness import wait_for

from . import damage
from .availability import Away
from .cluster import Cluster
from .membership import Membership
from .schedule import FOUNDERS, SPARES, Fault

# How long one change of members may take before heal takes it over, seconds.
MEMBERS_PATIENCE = 40.0
# How often bits of stored WAL are changed until the safekeeper finds one of them.
PLANTINGS = 5
# How long a fault waits for another one of the same process to end before it is left out, seconds.
CLAIM_PATIENCE = 6.0


class LeftOutError(Exception):
    """The fault cannot happen now; the message says why."""


@dataclass
class Director:
    cluster: Cluster
    away: Away
    membership: Membership
    # What became of each fault: the fault, when it began and ended (seconds of the load), `done` or why not.
    log: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    healing: threading.Event = field(default_factory=threading.Event)
    _began: float = 0.0
    _ended: threading.Event = field(default_factory=threading.Event)
    _claims: dict[str, threading.Lock] = field(default_factory=dict[str, threading.Lock])
    _threads: list[threading.Thread] = field(default_factory=list[threading.Thread])
    _stack_lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, faults: tuple[Fault, ...]) -> None:
        self._began = time.monotonic()
        for fault in faults:
            thread = threading.Thread(target=self._run, args=(fault,), daemon=True)
            self._threads.append(thread)
            thread.start()
        self._follower = threading.Thread(target=self._follow, daemon=True)
        self._follower.start()

    def _follow(self) -> None:
        while not self._ended.wait(0.3):
            self.cluster.follow()

    def end(self) -> None:
        """Nobody leads clients to another compute from here on."""
        self.healing.set()
        self._ended.set()
        self._follower.join(60)

    def heal(self) -> None:
        """Ends every fault that lasts, and waits until what it disturbed is started again."""
        self.healing.set()
        for thread in self._threads:
            thread.join(90)
            if thread.is_alive():
                raise RuntimeError("a fault does not end")
        self.away.close()

    def done(self) -> list[str]:
        return [entry["fault"]["kind"] for entry in self.log if entry["outcome"] == "done"]

    def _now(self) -> float:
        return round(time.monotonic() - self._began, 2)

    def _rest(self, seconds: float) -> None:
        self.healing.wait(max(0.0, seconds))

    def _run(self, fault: Fault) -> None:
        before = fault.at - float(fault.details.get("copy_age", 0))
        self._rest(before)
        if self.healing.is_set():
            return
        entry: dict[str, Any] = {"fault": asdict(fault), "began": self._now(), "outcome": "done"}
        try:
            getattr(self, f"_{fault.kind}")(fault)
        except LeftOutError as reason:
            entry["outcome"] = f"left out: {reason}"
        except Exception as error:  # noqa: BLE001 - whatever it is, the trial goes on and its report says it
            entry["outcome"] = f"failed: {type(error).__name__}: {error}"[:2000]
        entry["ended"] = self._now()
        self.log.append(entry)

    @contextlib.contextmanager
    def _claim(self, *names: str) -> Generator[None]:
        with contextlib.ExitStack() as held:
            for name in sorted(names):
                with self._stack_lock:
                    lock = self._claims.setdefault(name, threading.Lock())
                until = time.monotonic() + CLAIM_PATIENCE
                while not lock.acquire(timeout=0.1):
                    if self.healing.is_set() or time.monotonic() > until:
                        raise LeftOutError(f"{name} is in another fault")
                held.callback(lock.release)
            yield

    @contextlib.contextmanager
    def _safekeepers(self, fault: Fault) -> Generator[list[Any]]:
        """Their processes, claimed, and counted as away until the end."""
        with self._claim(*(f"safekeeper-{number}" for number in fault.safekeepers)):
            self.away.safekeepers(fault.safekeepers, 1)
            try:
                yield [self.cluster.safekeeper(number) for number in fault.safekeepers]
            finally:
                self.away.safekeepers(fault.safekeepers, -1)

    @contextlib.contextmanager
    def _without(self, who: str) -> Generator[None]:
        with self._claim(who):
            self.away.other(who, 1)
            try:
                yield
            finally:
                self.away.other(who, -1)

    # --- safekeepers

    def _safekeeper_killed(self, fault: Fault) -> None:
        with self._safekeepers(fault) as processes:
            for process in processes:
                process.kill9()
            self._rest(fault.seconds)
            for process in processes:
                process.start()

    _majority_killed = _safekeeper_killed
    _all_safekeepers_killed = _safekeeper_killed

    def _safekeeper_restarted(self, fault: Fault) -> None:
        with self._safekeepers(fault) as (process,):
            process.stop()
            self._rest(fault.seconds)
            process.start()

    def _safekeeper_stopped(self, fault: Fault) -> None:
        with self._safekeepers(fault) as (process,):
            process.signal(signal.SIGSTOP)
            self._rest(fault.seconds)
            process.signal(signal.SIGCONT)

    def _safekeeper_disk_full(self, fault: Fault) -> None:
        (number,) = fault.safekeepers
        with self._safekeepers(fault):
            ballast = self.cluster.disk(number) / "ballast"
            fill(ballast)
            until = time.monotonic() + fault.seconds
            while time.monotonic() < until and not self.healing.is_set():
                self._rest(0.2)
                fill(ballast)
            ballast.unlink()
            self._mend(number)

    def _safekeeper_disk_fails(self, fault: Fault) -> None:
        (number,) = fault.safekeepers
        with self._safekeepers(fault):
            sick = self.cluster.sick_disk(number, "fails")
            sick.touch()
            self._rest(fault.seconds)
            sick.unlink()
            self._mend(number)

    def _safekeeper_disk_stuck(self, fault: Fault) -> None:
        (number,) = fault.safekeepers
        with self._safekeepers(fault):
            sick = self.cluster.sick_disk(number, "stuck")
            sick.touch()
            self._rest(fault.seconds)
            sick.unlink()

    def _mend(self, number: int) -> None:
        """As an operator does once the disk works again: starts the safekeeper anew where it has stopped itself."""
        process = self.cluster.safekeeper(number)
        time.sleep(0.5)
        if process.child.poll() is not None:
            process.start()
            return
        with contextlib.suppress(httpx.HTTPError):
            if self.cluster.engine.safekeeper_status(number - 1, self.cluster.timeline)["state"] == "active":
                return
        process.kill9()
        process.start()

    def _safekeeper_disk_lost(self, fault: Fault) -> None:
        self._another_disk(fault, None)

    def _safekeeper_disk_restored(self, fault: Fault) -> None:
        (number,) = fault.safekeepers
        copy = self.cluster.root / f"copy-{number}"
        process = self.cluster.safekeeper(number)
        with self._claim(f"safekeeper-{number}"):
            # Stopped meanwhile, so that the copy is one moment's, as a snapshot is.
            process.signal(signal.SIGSTOP)
            subprocess.run(["cp", "-a", self.cluster.disk(number), copy], check=True)
            process.signal(signal.SIGCONT)
        self._rest(float(fault.details["copy_age"]))
        self._another_disk(fault, copy)

    def _another_disk(self, fault: Fault, content: Path | None) -> None:
        (number,) = fault.safekeepers
        process, disk = self.cluster.safekeeper(number), self.cluster.disk(number)
        lost = self.cluster.root / f"lost-{number}"
        with self._claim(f"safekeeper-{number}"):
            # Away until it votes again: what it was is no voter's disk any more.
            self.away.safekeepers(fault.safekeepers, 1)
            process.kill9()
            lost.mkdir()
            for entry in disk.iterdir():
                shutil.move(entry, lost / entry.name)
            if content:
                subprocess.run(["cp", "-a", f"{content}/.", disk], check=True)
            self._rest(fault.seconds)
            process.start()
        # From here on it can be killed again while it catches up.
        self.membership.reach(time.monotonic() + MEMBERS_PATIENCE, self.healing)
        self.away.safekeepers(fault.safekeepers, -1)

    def _safekeeper_wal_damaged(self, fault: Fault) -> None:
        (number,) = fault.safekeepers
        rest = fault.seconds
        # A bit may be trimmed before anybody looks, once the pageserver has it; the next one is looked for at once.
        for _ in range(PLANTINGS):
            try:
                with self._claim(f"safekeeper-{number}"):
                    damage.plant(self.cluster, number, fault.details["places"])
                self._rest(rest)
                # Peers may be away; what cannot be repaired now is when everything is healed.
                if damage.found_in(self.cluster, number):
                    break
            except httpx.HTTPError:
                # Cut off meanwhile.
                break
            rest = 0.0
        self.healing.wait()
        damage.wait_repaired(self.cluster, number)
        if not damage.evidence(self.cluster, number):
            raise LeftOutError("too little is committed, or what was changed was trimmed, or is under no checksum")

    # --- members

    def _members_five_and_back(self, fault: Fault) -> None:
        with self._claim("members"):
            self.membership.wanted = set(FOUNDERS + SPARES)
            self.membership.reach(time.monotonic() + MEMBERS_PATIENCE, self.healing)
            self._rest(fault.seconds)
            self.membership.wanted = set(FOUNDERS)
            self.membership.reach(time.monotonic() + MEMBERS_PATIENCE, self.healing)

    # --- links

    def _disturb(self, near: str, fault: Fault, **weather: Any) -> None:
        far = tuple(f"safekeeper-{number}" for number in fault.safekeepers)
        rule = self.cluster.network.begin(near, far, **weather)
        self._rest(fault.seconds)
        self.cluster.network.end(rule)

    def _partition(self, fault: Fault, **weather: Any) -> None:
        self.away.safekeepers(fault.safekeepers, 1)
        self._disturb("compute", fault, **(weather or {"frozen": True}))
        self.away.safekeepers(fault.safekeepers, -1)

    def _one_way_partition(self, fault: Fault) -> None:
        self._partition(fault, **{f"frozen_{fault.details['lost']}": True})

    def _node_partition(self, fault: Fault) -> None:
        """Cuts a safekeeper off, or everybody from it: its wire, or its links where it has no wire of its own."""
        (number,) = fault.safekeepers
        lost = fault.details["lost"]
        self.away.safekeepers(fault.safekeepers, 1)
        node = self.cluster.nodes.get(number)
        if node is None:
            self._disturb("", fault, **{"frozen" if lost == "both" else f"frozen_{lost}": True})
        else:
            with self._claim(f"network of safekeeper-{number}"):
                node.lose(lost)
                self._rest(fault.seconds)
                node.heal()
        self.away.safekeepers(fault.safekeepers, -1)

    def _links_closed(self, fault: Fault) -> None:
        self._partition(fault, closed=True)

    def _pageserver_partition(self, fault: Fault) -> None:
        # Pages of new WAL can be had as long as one safekeeper is within reach.
        alone = len(fault.safekeepers) == len(FOUNDERS)
        self.away.other("pageserver's links", int(alone))
        self._disturb("pageserver", fault, frozen=True)
        self.away.other("pageserver's links", -int(alone))

    def _links_slow(self, fault: Fault) -> None:
        self._disturb("", fault, **fault.details)

    _links_lossy = _links_slow
    _links_cut = _links_slow

    # --- clocks

    def _clock_moved(self, who: str, fault: Fault) -> None:
        with self._claim(f"clock of {who}"):
            self.cluster.clocks[who].move(float(fault.details["hours"]) * 3600)
            self._rest(fault.seconds)
            self.cluster.clocks[who].move(0)

    def _safekeeper_clock_moved(self, fault: Fault) -> None:
        self._clock_moved(f"safekeeper-{fault.safekeepers[0]}", fault)

    def _pageserver_clock_moved(self, fault: Fault) -> None:
        self._clock_moved("pageserver", fault)

    def _compute_clock_moved(self, fault: Fault) -> None:
        self._clock_moved(self.cluster.name(self.cluster.current()), fault)

    # --- the pageserver

    def _pageserver_killed(self, fault: Fault, lose: bool = False) -> None:
        pageserver = self.cluster.engine.pageserver
        with self._without("pageserver"):
            pageserver.kill9()
            if lose:
                shutil.rmtree(self.cluster.root / "pageserver")
            self._rest(fault.seconds)
            pageserver.start()

    def _pageserver_disk_lost(self, fault: Fault) -> None:
        self._pageserver_killed(fault, lose=True)

    def _pageserver_stopped(self, fault: Fault) -> None:
        with self._without("pageserver"):
            self.cluster.engine.pageserver.signal(signal.SIGSTOP)
            self._rest(fault.seconds)
            self.cluster.engine.pageserver.signal(signal.SIGCONT)

    # --- computes

    def _compute_killed(self, fault: Fault) -> None:
        with self._without("compute"):
            compute = self.cluster.current()
            compute.kill9()
            self._rest(fault.seconds)
            compute.process.launch()

    def _compute_stopped(self, fault: Fault) -> None:
        with self._without("compute"):
            compute = self.cluster.current()
            compute.process.signal(signal.SIGSTOP)
            self._rest(fault.seconds)
            compute.process.signal(signal.SIGCONT)

    def _backend_killed(self, fault: Fault) -> None:
        with self._claim("compute"):
            compute = self.cluster.current()
            try:
                with compute.admin() as session:
                    row = session.execute("SELECT pid FROM pg_stat_activity WHERE usename = 'app' LIMIT 1").fetchone()
            except psycopg.Error as error:
                raise LeftOutError(f"Postgres does not answer: {error}") from None
            if row is None:
                raise LeftOutError("no session is there")
            os.kill(compute.here(row[0]), signal.SIGKILL)

    def _takeover(self, fault: Fault) -> None:
        with self._claim("compute"):
            old = self.cluster.current()
            self._hand_over()
            self._rest(fault.seconds)
            if fault.details.get("old_is") == "killed_after":
                old.kill9()

    def _isolated_takeover(self, fault: Fault) -> None:
        """The old agent loses its network, or stands still; it goes on when another has long been writing."""
        with self._claim("compute"), contextlib.ExitStack() as undo:
            old = self.cluster.current()
            if fault.details.get("old_is") == "stopped":
                old.process.signal(signal.SIGSTOP)
                undo.callback(old.process.signal, signal.SIGCONT)
            else:
                far = ("pageserver", *(f"safekeeper-{number}" for number in FOUNDERS + SPARES))
                rule = self.cluster.network.begin(self.cluster.name(old), far, frozen=True)
                undo.callback(self.cluster.network.end, rule)
            self._hand_over()
            self._rest(fault.seconds)

    def _hand_over(self) -> None:
        """Clients go to another compute as soon as that runs, unless the trial heals before."""
        new = self.cluster.new_compute()

        def state() -> str | None:
            said = new.status()["state"]
            return said if said in ("running", "fenced") or self.healing.is_set() else None

        with contextlib.suppress(TimeoutError):
            if wait_for("the new compute", state, 60) != "fenced":
                self.cluster.give_out(new)
