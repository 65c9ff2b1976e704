"""Which servers there are to run against: the system's, and those that set-up keeps in the cache for redo's tests."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .postgres import PG_BIN

MAJORS = (15, 17, 18)


@dataclass(frozen=True)
class Installed:
    """A server's programs. Those outside the system are root's alone and have to be copied to run."""

    version: str
    bin: Path
    # By the distribution, with every method of compression; the others have pglz alone.
    packaged: bool

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])

    @property
    def minor(self) -> int:
        return int(self.version.split(".")[1])

    @property
    def of_the_system(self) -> bool:
        return self.bin == PG_BIN


class NoServerError(Exception):
    """No such server is here; the message says what to do."""


def in_directory(programs: Path) -> Installed | None:
    try:
        said = subprocess.run([programs / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.search(r"\(PostgreSQL\) (\d+\.\d+)", said)
    return Installed(found[1], programs, "Debian" in said) if found else None


def installed() -> list[Installed]:
    """By version, oldest first; the system's before one of the same version in the cache."""
    cache = Path(os.environ.get("WEIR_CACHE", str(Path.home() / ".cache/weir")))
    places = [PG_BIN, *sorted(home / "bin" for home in cache.glob("postgres-*") if (home / "bin/postgres").exists())]
    found: dict[str, Installed] = {}
    for server in map(in_directory, places):
        if server and server.major in MAJORS:
            found.setdefault(server.version, server)
    return sorted(found.values(), key=lambda server: (server.major, server.minor))


def chosen(version: str, among: list[Installed]) -> list[Installed]:
    """`15.18` is that server; `15` are all of that major, oldest first."""
    exact = "." in version
    found = [server for server in among if version == (server.version if exact else str(server.major))]
    if not found:
        have = ", ".join(server.version for server in among) or "none"
        raise NoServerError(
            f"there is no Postgres {version} here (there is: {have}): `scripts/setup --only servers` installs those "
            "of the other minors and majors"
        )
    return found


def system() -> Installed:
    server = in_directory(PG_BIN)
    if server is None:
        raise NoServerError(f"there is no Postgres server in {PG_BIN}")
    return server
