"""A stock Postgres that can be stopped, changed and started again, with its files at hand while it is down."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from .postgres import free_port, query, unprivileged
from .servers import Installed, system


def server_programs(server: Installed, folder: Path) -> Path:
    """Where its programs can be run from: those in root's cache are for root alone, and are copied below `folder`."""
    if server.of_the_system:
        return server.bin
    shutil.copytree(server.bin.parent, folder / "server", symlinks=True)
    return folder / "server/bin"


class Cluster:
    """One cluster below `folder`, which must exist; reached through a socket there. Stopped at first."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str],
        *,
        server: Installed | None = None,
        initdb: tuple[str, ...] = (),
    ) -> None:
        """Of this server; without one, of the system's."""
        server = server or system()
        self.folder = folder
        self.server = server_programs(server, folder)
        self.data = folder / "data"
        self.port = free_port()
        self.running = False
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres", "postgres")
        folder.chmod(0o755)
        if server.major >= 18:
            initdb = ("--no-data-checksums", *initdb)
        self._run("initdb", "-U", "postgres", "--auth=trust", "--no-sync", "--locale=C", "--encoding=UTF8", *initdb)
        self.configure({"unix_socket_directories": f"'{folder}'", "listen_addresses": "''", **settings})

    @property
    def uri(self) -> str:
        return self.database("postgres")

    def database(self, name: str) -> str:
        return f"postgresql://postgres@/{name}?host={self.folder}&port={self.port}"

    def configure(self, settings: Mapping[str, str]) -> None:
        """Adds to postgresql.conf; the next start reads it."""
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = {value}\n" for name, value in settings.items())

    def start(self) -> None:
        log = str(self.folder / "log")
        self._run("pg_ctl", "-w", "-t", "600", "-l", log, "-o", f"-p {self.port}", "start", quiet=True)
        self.running = True

    def stop(self, mode: str = "fast") -> None:
        if self.running:
            self.running = False
            self._run("pg_ctl", "-w", "-t", "600", "-m", mode, "stop", quiet=True)

    def restart(self, settings: Mapping[str, str]) -> None:
        self.stop()
        self.configure(settings)
        self.start()

    def sql(self, text: str, database: str = "postgres") -> str:
        return query(self.database(database), text, timeout=600)

    def copy_data(self, to: Path) -> None:
        """The cluster's files as they are now, WAL left out; for a stopped cluster."""
        shutil.copytree(self.data, to, symlinks=True, ignore=lambda where, _: _wal_of(where, self.data))

    def _run(self, program: str, *arguments: str, quiet: bool = False) -> None:
        command = [*unprivileged(), str(self.server / program), "-D", str(self.data), *arguments]
        sink = subprocess.DEVNULL if quiet else subprocess.PIPE
        done = subprocess.run(command, stdout=sink, stderr=sink, text=True, cwd=self.folder, check=False)
        if done.returncode != 0:
            log = self.folder / "log"
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:]) if log.exists() else done.stderr
            raise RuntimeError(f"{program} ended with status {done.returncode}:\n{tail}")


def _wal_of(where: str | os.PathLike[str], data: Path) -> list[str]:
    folder = Path(where)
    return [entry.name for entry in folder.iterdir()] if folder == data / "pg_wal" else []
