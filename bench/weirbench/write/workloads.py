"""What is done in each arm, and what one run of it gives."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from weirbench import tproc
from weirbench.postgres import PG_BIN, psql, query

from .arms import Arm
from .usage import measure

# Rows of the table that batches are merged into, and of one batch.
SYNCED_ROWS, BATCH = 400_000, 500
COPIED_ROWS = 1_000_000
_SYNCED = f"""
DROP TABLE IF EXISTS synced;
CREATE TABLE synced
    (id bigint PRIMARY KEY, category int NOT NULL, payload text NOT NULL, changed timestamptz NOT NULL);
CREATE INDEX ON synced (category);
CREATE INDEX ON synced (changed);
INSERT INTO synced SELECT id, id % 1000, repeat(md5(id::text), 4), now() FROM generate_series(1, {SYNCED_ROWS}) id;
"""  # noqa: S608 - numbers of ours
_UPSERT = f"""\\set base random(1, {SYNCED_ROWS // BATCH})
INSERT INTO synced SELECT (:base * {BATCH} + g * 7919) % {SYNCED_ROWS} + 1, (:base + g) % 1000, \
repeat(md5((:base + g)::text), 4), now() FROM generate_series(1, {BATCH}) g
ON CONFLICT (id) DO UPDATE SET category = excluded.category, payload = excluded.payload, changed = excluded.changed;
"""  # noqa: S608 - numbers of ours


@dataclass
class Run:
    arm: str
    workload: str
    clients: int
    seconds: float
    # Of what `unit` says: transactions, new orders, rows.
    done: int
    unit: str
    transactions: int
    per_second: float
    p50_ms: float | None = None
    p99_ms: float | None = None
    wal_bytes_per_transaction: float = 0.0
    # By group of processes; the client's own is not in it.
    cpu_us_per_transaction: Mapping[str, float] = field(default_factory=dict[str, float])
    written_bytes_per_transaction: Mapping[str, float] = field(default_factory=dict[str, float])
    fsyncs_per_transaction: Mapping[str, float] = field(default_factory=dict[str, float])
    # Of the whole machine, the client included.
    context_switches_per_transaction: float = 0.0
    busy_share: float = 0.0


@dataclass(frozen=True)
class _Work:
    """What a workload itself says it did."""

    done: int
    transactions: int
    latencies_ms: list[float] = field(default_factory=list[float])


@dataclass(frozen=True)
class Workload:
    name: str
    clients: int
    unit: str
    # Gives an arm, and how long it may take where time is what ends it.
    work: Callable[[Arm, float], _Work]

    @property
    def label(self) -> str:
        return f"{self.name}, {self.clients} clients" if self.clients > 1 else self.name

    def run(self, arm: Arm, seconds: float) -> Run:
        arm.quiesce()
        usage, fsyncs, position, began = measure(arm.groups), arm.fsyncs(), arm.wal_position(), time.monotonic()
        work = self.work(arm, seconds)
        took = time.monotonic() - began
        # Backends hand in their statistics at most once a second, and end of themselves.
        used = measure(arm.groups).since(usage)
        time.sleep(1.2)
        synced = {group: count - fsyncs[group] for group, count in arm.fsyncs().items()}
        each = max(1, work.transactions)
        busy = used.machine_user_seconds + used.machine_system_seconds
        return Run(
            arm.name,
            self.name,
            self.clients,
            round(took, 2),
            work.done,
            self.unit,
            work.transactions,
            round(work.done / took, 2),
            tproc.percentile(work.latencies_ms, 0.5),
            tproc.percentile(work.latencies_ms, 0.99),
            round((arm.wal_position() - position) / each, 1),
            {group: round(value * 1e6 / each, 1) for group, value in used.cpu_seconds.items()},
            {group: round(value / each, 1) for group, value in used.written_bytes.items()},
            {group: round(value / each, 4) for group, value in synced.items()},
            round(used.context_switches / each, 2),
            round(busy / max(0.01, busy + used.machine_idle_seconds), 3),
        )


def _pgbench(arm: Arm, clients: int, seconds: float, *arguments: str) -> _Work:
    with tempfile.TemporaryDirectory(prefix="weir-pgbench-") as folder:
        command = [str(PG_BIN / "pgbench"), "-n", "-M", "prepared", "-c", str(clients), "-j", str(min(2, clients))]
        command += ["-T", f"{seconds:.0f}", "-l", "--log-prefix", f"{folder}/log", "--sampling-rate", "0.2"]
        done = subprocess.run(
            [*command, *arguments, arm.uri], capture_output=True, text=True, check=False, timeout=seconds + 120
        )
        (count,) = [line for line in done.stdout.splitlines() if "actually processed" in line] or [""]
        if done.returncode != 0 or not count or "number of failed transactions: 0 " not in done.stdout:
            raise RuntimeError(f"pgbench in {arm.name} was not clean:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
        logs = [line for path in Path(folder).glob("log.*") for line in path.read_text().splitlines()]
        latencies = [row.latency_ms for row in tproc.parse_log(logs) if not row.failed]
        transactions = int(count.split(":")[1].split("/")[0])
        return _Work(transactions, transactions, latencies)


def pgbench(name: str, clients: int, *arguments: str) -> Workload:
    return Workload(name, clients, "transactions", lambda arm, seconds: _pgbench(arm, clients, seconds, *arguments))


def messages(clients: int, size: int) -> Workload:
    """WAL alone: each transaction is one logical message of `size` bytes, which touches no page."""

    def work(arm: Arm, seconds: float) -> _Work:
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
            script.write(f"SELECT pg_logical_emit_message(true, 'bench', repeat('x', {size}));\n")
            script.flush()
            return _pgbench(arm, clients, seconds, "-f", script.name)

    return Workload(f"message {size}", clients, "messages", work)


def tproc_c(clients: int, warehouses: int) -> Workload:
    """As fast as it goes; one terminal's pace is not kept, so that NOPM is no audited figure."""

    def work(arm: Arm, seconds: float) -> _Work:
        before = tproc.new_orders(arm.uri)
        with tempfile.TemporaryDirectory(prefix="weir-tproc-") as folder:
            driver = tproc.Driver(
                arm.uri, Path(folder), warehouses=warehouses, clients=clients, rate=None, seconds=round(seconds)
            )
            summary = driver.wait(seconds + 120)
            latencies = [row.latency_ms for row in driver.transactions() if not row.failed]
        if summary.status != 0 or summary.failed or summary.aborted_clients:
            raise RuntimeError(f"TPROC-C in {arm.name} was not clean:\n{summary.text[-1500:]}")
        return _Work(tproc.new_orders(arm.uri) - before, summary.processed, latencies)

    return Workload("tproc-c", clients, "new orders", work)


def upserts(clients: int) -> Workload:
    """Batches merged into a table with three indexes, as a table that is kept the same as another one has them."""

    def work(arm: Arm, seconds: float) -> _Work:
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
            script.write(_UPSERT)
            script.flush()
            batches = _pgbench(arm, clients, seconds, "-f", script.name)
        return _Work(batches.done * BATCH, batches.transactions, batches.latencies_ms)

    return Workload("synced table", clients, "rows", work)


def _initialize(arm: Arm, scale: int) -> _Work:
    command = [str(PG_BIN / "pgbench"), "-i", "-s", str(scale), "-q", arm.uri]
    subprocess.run(command, capture_output=True, check=True, timeout=900)
    return _Work(scale * 100_000, 1)


def _copy(arm: Arm, source: Path) -> _Work:
    psql(
        arm.uri,
        *("-c", "DROP TABLE IF EXISTS copied"),
        *("-c", "CREATE TABLE copied (id bigint, category int, payload text)"),
        *("-c", f"\\copy copied FROM '{source}'"),
    )
    return _Work(COPIED_ROWS, 1)


def _index(arm: Arm) -> _Work:
    psql(arm.uri, "-c", "CREATE INDEX ON copied (payload)", "-c", "CREATE INDEX ON copied (category, id)")
    return _Work(2 * COPIED_ROWS, 2)


def bulk(folder: Path, scale: int) -> list[Workload]:
    """Each once: `seconds` of the run is what counts. The index is made on what was copied, so their order counts."""
    source = folder / "rows"
    with source.open("w") as rows:
        for number in range(COPIED_ROWS):
            rows.write(f"{number}\t{number % 1000}\t{(number * 2654435761) % 2**32:08x}{'x' * 60}\n")
    return [
        Workload("copy", 1, "rows", lambda arm, _: _copy(arm, source)),
        Workload("index build", 1, "rows", lambda arm, _: _index(arm)),
        Workload("pgbench -i", 1, "rows", lambda arm, _: _initialize(arm, scale)),
    ]


def prepare(arm: Arm, scale: int, warehouses: int | None = None) -> None:
    """Everything that the workloads need to be there; without warehouses pgbench's own tables alone."""
    _initialize(arm, scale)
    if warehouses is None:
        return
    query(arm.uri, "DROP TABLE IF EXISTS copied")
    psql(arm.uri, "-c", _SYNCED, timeout=900)
    tproc.load(arm.uri, warehouses)


def chosen(folder: Path, clients: list[int], scale: int, warehouses: int, only: list[str]) -> list[Workload]:
    found: list[Workload] = []
    for count in clients:
        found.append(pgbench("tpcb", count, "-b", "tpcb-like"))
        found.append(pgbench("simple update", count, "-b", "simple-update"))
        found.append(pgbench("select", count, "-b", "select-only"))
    found += [tproc_c(4, warehouses), upserts(2), *bulk(folder, scale)]
    return [workload for workload in found if not only or workload.name in only]
