"""A project as a pageserver has it, a stock Postgres started from its pages, and the WAL that Postgres writes.

What a pageserver takes in must begin where its project begins: so the data directory is made from the project, by the
Rust half of the bench (`storage/crates/pageserver/examples/bench`), and Postgres starts there without recovery.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .postgres import PG_BIN, free_port, query, unprivileged
from .tproc import FOLDER, MIX

ROOT = Path(__file__).resolve().parents[2]
USER = "weir_admin"

SETTINGS = {
    "fsync": "off",
    "wal_level": "replica",
    # Every segment stays, and none is used again: the directory is the whole WAL.
    "wal_keep_size": "1TB",
    "wal_recycle": "off",
    "max_wal_size": "1GB",
    "checkpoint_timeout": "30s",
    "shared_buffers": "256MB",
    "max_connections": "40",
    "autovacuum": "on",
}


def program(crate: str = "pageserver", example: str = "bench") -> Path:
    """Builds the Rust half; where it is."""
    command = ["cargo", "build", "--release", "--quiet", "-p", crate, "--example", example]
    subprocess.run(command, cwd=ROOT / "storage", check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", str(ROOT / "storage/target")))
    return target / "release/examples" / example


def run_json(command: Sequence[str | Path], timeout: float = 7200) -> dict[str, Any]:
    """What the command printed, a line of JSON. RuntimeError with what it complained of when it failed."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=timeout)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} ended with status {done.returncode}:\n{done.stderr}\n{done.stdout}")
    return json.loads(done.stdout.splitlines()[-1])


class Recorded:
    """One cluster below `folder`: `objects` is the project at its start, at the LSN `begun`; `data` the cluster,
    stopped or running."""

    def __init__(self, bench: Path, folder: Path, begun: str) -> None:
        self.bench = bench
        self.folder = folder
        self.begun = begun
        self.objects = folder / "objects"
        self.data = folder / "pgdata"
        self.port = free_port()
        self.running = False

    @classmethod
    def prepared(cls, bench: Path, folder: Path) -> Recorded:
        folder.mkdir(parents=True)
        folder.chmod(0o755)
        prepared = run_json([bench, "prepare", folder])
        return cls(bench, folder, prepared["start"])

    def copy(self, folder: Path) -> Recorded:
        """The same cluster once more; this one must be stopped. The project at its start is shared."""
        folder.mkdir(parents=True)
        command = ["cp", "-a", "--reflink=auto", str(self.data), str(folder / "pgdata")]
        subprocess.run(command, check=True)
        copied = Recorded(self.bench, folder, self.begun)
        copied.objects = self.objects
        return copied

    @property
    def wal(self) -> Path:
        return self.data / "pg_wal"

    @property
    def uri(self) -> str:
        return f"postgresql://{USER}@/postgres?host={self.folder}/socket&port={self.port}"

    def start(self, settings: Mapping[str, str]) -> None:
        socket = self.folder / "socket"
        socket.mkdir(exist_ok=True)
        if os.geteuid() == 0:
            shutil.chown(socket, "postgres", "postgres")
        given = {"listen_addresses": "", "unix_socket_directories": str(socket), **SETTINGS, **settings}
        options = " ".join(f"-c {name}='{value}'" for name, value in given.items())
        self._control("-o", f"-p {self.port} {options}", "-l", str(socket / "log"), "start")
        self.running = True

    def switch(self, full_page_writes: bool) -> None:
        """Changes full page writes while it runs, and waits until the WAL says so. Who reads the WAL knows the state
        by these records: a start with another value than before writes none."""
        self._reload(full_page_writes=not full_page_writes)
        time.sleep(1)
        before = self.sql("SELECT pg_current_wal_insert_lsn()")
        self._reload(full_page_writes=full_page_writes)
        deadline = time.monotonic() + 10
        while self.sql(f"SELECT pg_current_wal_insert_lsn() > '{before}'") != "t":
            if time.monotonic() > deadline:
                raise RuntimeError(f"the WAL does not say within 10 s that full_page_writes is {full_page_writes}")
            time.sleep(0.05)

    def _reload(self, *, full_page_writes: bool) -> None:
        self.sql(f"ALTER SYSTEM SET full_page_writes = {'on' if full_page_writes else 'off'}")
        self.sql("SELECT pg_reload_conf()")

    def stop(self) -> str:
        """Ends it cleanly; where its WAL ends."""
        if self.running:
            self.running = False
            self._control("-m", "fast", "stop")
        return self.end()

    def end(self) -> str:
        """The end of the last record of the stopped cluster."""
        return run_json([self.bench, "end", self.data])["end"]

    def sql(self, text: str, timeout: float = 3600) -> str:
        return query(self.uri, text, timeout=timeout)

    def classes(self) -> dict[int, str]:
        """Tables and indexes of the workload, by file number."""
        rows = self.sql(
            "SELECT pg_relation_filenode(oid), CASE relkind WHEN 'r' THEN 'heap' ELSE 'index' END FROM pg_class "
            "WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i')"
        )
        pairs = [row.split("|") for row in rows.splitlines()]
        return {int(file): kind for file, kind in pairs}

    def transactions(self, each: int, *, warehouses: int, clients: int = 4, seed: int = 1) -> str:
        """A fixed number of TPROC-C transactions, the same ones each time; what pgbench says of them."""
        command = [str(PG_BIN / "pgbench"), "-n", "-M", "prepared", "-c", str(clients), "-j", "1", "-t", str(each)]
        command += ["-D", f"warehouses={warehouses}", f"--random-seed={seed}"]
        for script, weight in MIX.items():
            command += ["-f", f"{FOLDER / 'mix' / script}.sql@{weight}"]
        done = subprocess.run([*command, self.uri], capture_output=True, text=True, check=False, timeout=3600)
        if done.returncode != 0 or "number of failed transactions: 0 " not in done.stdout:
            raise RuntimeError(f"pgbench:\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def _control(self, *arguments: str) -> None:
        command = [*unprivileged(), str(PG_BIN / "pg_ctl"), "-D", str(self.data), "-w", "-t", "600", *arguments]
        sink = subprocess.DEVNULL
        done = subprocess.run(command, stdout=sink, stderr=sink, cwd=self.folder, check=False)
        if done.returncode != 0:
            log = self.folder / "socket/log"
            raise RuntimeError(f"pg_ctl {arguments[-1]}:\n{log.read_text(errors='replace')[-2000:]}")
