"""The TPROC-C style workload: load it, drive it with pgbench, read pgbench's logs, check its consistency."""

from __future__ import annotations

import math
import re
import signal
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from .postgres import PG_BIN, psql, query

FOLDER = Path(__file__).resolve().parents[1] / "tproc-c"
MIX = {"neword": 45, "payment": 43, "delivery": 4, "ostat": 4, "slev": 4}
NEW_ORDERS = "SELECT sum(d_next_o_id - 3001) FROM district"


def load(uri: str, warehouses: int) -> float:
    """Create and fill the schema; returns how long it took."""
    started = time.monotonic()
    for name in ("schema", "functions", "load", "indexes", "procedures"):
        psql(uri, "-v", f"warehouses={warehouses}", "-f", str(FOLDER / f"{name}.sql"), timeout=3600)
    return time.monotonic() - started


def violations(uri: str) -> list[str]:
    """The consistency conditions that do not hold, each with how often. Empty on a correct server."""
    rows = psql(uri, "-f", str(FOLDER / "check.sql")).splitlines()
    parsed = [row.rpartition("|") for row in rows if row]
    if not parsed:
        raise RuntimeError("the consistency check returned nothing")
    return [f"{condition} ({count})" for condition, _, count in parsed if count != "0"]


def new_orders(uri: str) -> int:
    """New orders committed since the load."""
    return int(query(uri, NEW_ORDERS))


@dataclass(frozen=True)
class Transaction:
    """One line of pgbench's log. Latency is from when the transaction ran, without the wait for its turn."""

    ended: float
    latency_ms: float
    script: int
    failed: bool


@dataclass
class Summary:
    """What pgbench itself says at the end of a run."""

    status: int
    processed: int
    failed: int
    aborted_clients: int
    text: str = field(repr=False)


class Driver:
    """pgbench under a fixed rate, writing a line for every transaction, until it is stopped or its time is over."""

    def __init__(
        self,
        uri: str,
        folder: Path,
        *,
        warehouses: int,
        clients: int,
        rate: float | None,
        seconds: int,
        seed: int = 1,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.prefix = folder / "transactions"
        self.output = folder / "pgbench.out"
        command = [str(PG_BIN / "pgbench"), "-n", "-M", "prepared", "-c", str(clients), "-j", "1"]
        command += ["-T", str(seconds), "-D", f"warehouses={warehouses}", f"--random-seed={seed}"]
        command += ["-l", f"--log-prefix={self.prefix}", "--failures-detailed"]
        if rate is not None:
            command += ["-R", f"{rate:g}"]
        for script, weight in MIX.items():
            command += ["-f", f"{FOLDER / 'mix' / script}.sql@{weight}"]
        with self.output.open("wb") as sink:
            self.process = subprocess.Popen(
                [*command, uri],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=folder,
                # A Ctrl-C is for who drives it, who then ends pgbench in a way that prints its summary.
                process_group=0,
            )

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def wait(self, timeout: float) -> Summary:
        self.process.wait(timeout=timeout)
        return self.summary()

    def finish(self) -> Summary:
        """End the run as its time being over would: running transactions end, and pgbench prints its summary."""
        if self.running:
            self.process.send_signal(signal.SIGALRM)
        return self.wait(60)

    def kill(self) -> None:
        """End the run now. Its log stays; pgbench prints no summary of a run that was cut short."""
        if self.running:
            self.process.kill()
        self.process.wait(timeout=30)

    def complaints(self) -> list[str]:
        """Errors pgbench has reported so far: failed statements, lost connections, aborted clients."""
        wanted = re.compile(r"error|fatal|abort|lost|could not", re.IGNORECASE)
        ignored = re.compile(r"number of failed transactions: 0|number of .*failures: 0")
        lines = self.output.read_text(errors="replace").splitlines()
        return [line for line in lines if wanted.search(line) and not ignored.search(line)]

    def summary(self) -> Summary:
        text = self.output.read_text(errors="replace")
        processed = re.search(r"number of transactions actually processed: (\d+)", text)
        failed = re.search(r"number of failed transactions: (\d+)", text)
        aborted = len(re.findall(r"client \d+ (?:script \d+ )?aborted", text))
        return Summary(
            status=self.process.returncode if self.process.returncode is not None else -1,
            processed=int(processed[1]) if processed else 0,
            failed=int(failed[1]) if failed else 0,
            aborted_clients=aborted,
            text=text,
        )

    def transactions(self) -> list[Transaction]:
        logs = sorted(self.folder.glob(f"{self.prefix.name}.*"))
        return [row for log in logs for row in parse_log(log.read_text(errors="replace").splitlines())]


def parse_log(lines: Iterable[str]) -> Iterable[Transaction]:
    """pgbench's per-transaction log: client, number, time in us or `failed`/a reason, script, epoch, us[, lag]."""
    for line in lines:
        fields = line.split()
        if len(fields) < 6:
            continue  # the line being written
        failed = not fields[2].isdigit()
        lag = int(fields[6]) if len(fields) > 6 and fields[6].isdigit() else 0
        latency = 0.0 if failed else (int(fields[2]) - lag) / 1000.0
        yield Transaction(int(fields[4]) + int(fields[5]) / 1e6, latency, int(fields[3]), failed)


def percentile(values: list[float], share: float) -> float | None:
    """The nearest-rank percentile; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    # Rounded first: 0.99 * 100 is a little more than 99 in binary.
    rank = math.ceil(round(share * len(ordered), 6))
    return ordered[max(1, rank) - 1]
