"""Copies of Postgres's own files that computes run from, one folder a minor: `WEIR_HOME/servers/15.20`.

A server loads libraries for as long as it runs, plpgsql at a session's first function. Were it run from the package,
an upgrade would put libraries of another minor under it, which it cannot load. A copy never changes: files are hard
links where the file system allows it, and a package manager replaces a file by a rename, which leaves the old one to
whoever has a link to it.

Postgres finds its libraries and shared files relative to its own program, so a copy keeps the package's layout below
`usr`; `bin` is a link to where its programs are.

A copy is made in a folder with a leading dot, tried, and renamed to its name: a crash leaves the former only, which
the next making removes. Everything that makes or removes holds a lock. A package may be replaced while it is copied:
what was copied counts only if the package was whole and the same before and after, and if the copy can make a
database, for which bin, lib and share must be of one minor. Extensions that computes do not offer are left out.
"""

import fcntl
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Collection, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from weir import postgres_versions
from weir.config import Settings
from weir_workflows.runtime import extensions
from weir_workflows.runtime.package import Package, ServerCopyError

log = structlog.get_logger()

ATTEMPTS = 5
PAUSE_SECONDS = 2.0
# A start takes a copy before anything durable names it.
GRACE_SECONDS = 3600.0
TRIAL_SECONDS = 120
# A link beside the copies to the one the metadata store runs from.
METADATA = "metadata"


@dataclass(frozen=True)
class Server:
    """`bin_dir` holds the programs of this minor; None: which minor could not be learnt."""

    version: str | None
    bin_dir: Path


class Servers:
    """The copies of this installation. Blocks: to be called in a thread."""

    def __init__(self, settings: Settings) -> None:
        self._bin_dir = settings.pg_bin_dir
        self._user = settings.pg_user
        self.folder = settings.servers_dir

    def versions(self) -> list[str]:
        """Minors there are copies of, oldest first."""
        return postgres_versions.copied(self.folder)

    def find(self, version: str) -> Server | None:
        bin_dir = self.folder / version / "bin"
        return Server(version, Path(os.path.realpath(bin_dir))) if (bin_dir / "postgres").is_file() else None

    def available(self) -> list[str]:
        """Minors a compute can be started on: those copied, and the one that is installed."""
        installed = postgres_versions.installed(self._bin_dir)
        found = {*self.versions(), *([] if installed is None else [installed])}
        return sorted(found, key=postgres_versions.order)

    def provide(self, wanted: str | None) -> Server:
        """The wanted minor, or the newest when none is wanted or the wanted one is neither copied nor installed.
        Where no copy can be made it is the package itself, which is better than no database."""
        # Without the lock, so that no start waits while another minor is copied: what an endpoint is wanted on is not
        # removed.
        if wanted is not None and (found := self.find(wanted)) is not None:
            self._touch(wanted)
            return found
        with self._locked():
            found = self._newest(wanted)
            if found.version is not None:
                self._touch(found.version)
            return found

    def copy_installed(self) -> None:
        """There is a copy of the installed minor, if one can be made now: it may be replaced soon. It is tried once,
        since whoever calls this does so again and again."""
        installed = postgres_versions.installed(self._bin_dir)
        if installed is not None and self.find(installed) is None:
            with self._locked():
                self._of_package(attempts=1)

    def version_of(self, bin_dir: Path) -> str | None:
        """The copy that these programs belong to."""
        base = Path(os.path.realpath(self.folder))
        return bin_dir.relative_to(base).parts[0] if bin_dir.is_relative_to(base) else None

    def _newest(self, wanted: str | None) -> Server:
        installed = self._of_package()
        if wanted is not None:
            if installed.version == wanted:
                return installed
            log.warning("postgres_version_gone", wanted=wanted, available=self.available())
        of = wanted if installed.version is None else installed.version
        newest = postgres_versions.newest(v for v in self.versions() if of is None or _same_major(v, of))
        return (None if newest is None else self.find(newest)) or installed

    def _of_package(self, attempts: int | None = None) -> Server:
        installed = postgres_versions.installed(self._bin_dir)
        try:
            return (None if installed is None else self.find(installed)) or self._make(attempts or ATTEMPTS)
        except (ServerCopyError, OSError, KeyError, subprocess.SubprocessError) as error:
            log.warning("postgres_not_copied", bin_dir=str(self._bin_dir), error=str(error))
            return Server(installed, self._bin_dir)

    def _make(self, attempts: int) -> Server:
        attempt = 1
        while True:
            try:
                return self._make_once()
            except (ServerCopyError, FileNotFoundError) as error:
                log.info("postgres_copy_failed", attempt=attempt, reason=str(error))
                if attempt == attempts:
                    raise
            attempt += 1
            time.sleep(PAUSE_SECONDS)

    def _make_once(self) -> Server:
        self._clear_unfinished()
        package = Package.of(self._bin_dir)
        version = postgres_versions.of_programs(self._bin_dir)
        if version is None:
            raise ServerCopyError(f"{self._bin_dir}/postgres --version does not say which version it is")
        if (found := self.find(version)) is not None:
            return found
        before = package.fingerprint()
        draft = Path(tempfile.mkdtemp(prefix=f".{version}.", dir=self.folder))
        draft.chmod(0o755)
        placed = package.place(draft / "usr")
        # Whatever this process's umask: users of computes read what is in it.
        for base, _, _ in os.walk(draft):
            Path(base).chmod(0o755)
        (draft / "bin").symlink_to(Path("usr") / package.bin)
        if package.fingerprint() != before or postgres_versions.of_programs(draft / "bin") != version:
            raise ServerCopyError(f"the Postgres in {self._bin_dir} was replaced while it was copied")
        refused = extensions.close(draft, version)
        self._try(draft)
        draft.rename(self.folder / version)
        _sync(self.folder)
        log.info("postgres_copied", version=version, linked=placed.linked, copied=placed.copied, refused=refused)
        found = self.find(version)
        if found is None:
            raise ServerCopyError(f"the copy of Postgres {version} has no program postgres")
        return found

    def _try(self, draft: Path) -> None:
        """Makes a database with the copy: it loads plpgsql and reads what lies in share."""
        with tempfile.TemporaryDirectory(prefix=".trial.", dir=self.folder) as trial:
            command = [os.path.realpath(draft / "bin" / "initdb"), "--no-sync", "--pgdata", f"{trial}/data"]
            account = pwd.getpwnam(self._user) if os.geteuid() == 0 else None
            if account is not None:
                os.chown(trial, account.pw_uid, account.pw_gid)
            answer = subprocess.run(
                [*command, "--username=weir", "--auth=trust", "--encoding=UTF8", "--locale=C"],
                capture_output=True,
                text=True,
                cwd="/",
                check=False,
                timeout=TRIAL_SECONDS,
                user=None if account is None else account.pw_uid,
                group=None if account is None else account.pw_gid,
                extra_groups=None if account is None else [],
            )
        if answer.returncode != 0:
            raise ServerCopyError(
                f"the copy cannot make a database: {(answer.stderr or answer.stdout).strip()[-500:]}"
            )

    def remove_unused(self, wanted: Collection[str]) -> list[str]:
        """Removes copies that nothing needs: not wanted, not the newest, not what the metadata store or any process
        runs from, and not taken by a start within the last hour."""
        with self._locked():
            self._clear_unfinished()
            versions = self.versions()
            newest = {postgres_versions.major_of(version): version for version in versions}
            kept = {*wanted, *newest.values(), self.metadata_version(), *self._run_from()}
            removed = [version for version in versions if version not in kept and self._is_old(version)]
            for version in removed:
                gone = self.folder / f".{version}.gone"
                (self.folder / version).rename(gone)
                shutil.rmtree(gone, ignore_errors=True)
                log.info("postgres_copy_removed", version=version)
        return removed

    def metadata_version(self) -> str | None:
        """The minor the metadata store runs from, which `weir up` chooses when it starts it."""
        try:
            return (self.folder / METADATA).readlink().name
        except OSError:
            return None

    def use_for_metadata(self) -> Server:
        """Has the metadata store run from the newest minor from its next start on."""
        server = self.provide(None)
        link, draft = self.folder / METADATA, self.folder / f".{METADATA}"
        draft.unlink(missing_ok=True)
        if server.version is None or self.find(server.version) is None:
            link.unlink(missing_ok=True)
        else:
            draft.symlink_to(server.version)
            draft.replace(link)
        return server

    def _run_from(self) -> set[str]:
        base = os.path.realpath(self.folder) + "/"
        found: set[str] = set()
        for link in Path("/proc").glob("[0-9]*/exe"):
            try:
                program = os.readlink(link)  # noqa: PTH115  a deleted program's name is no path
            except OSError:
                continue
            if program.startswith(base):
                found.add(program.removeprefix(base).split("/")[0])
        return found

    def _touch(self, version: str) -> None:
        with suppress(FileNotFoundError):
            os.utime(self.folder / version)

    def _is_old(self, version: str) -> bool:
        return time.time() - (self.folder / version).stat().st_mtime > GRACE_SECONDS

    def _clear_unfinished(self) -> None:
        for entry in self.folder.iterdir():
            if entry.name.startswith(".") and entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)

    @contextmanager
    def _locked(self) -> Generator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        # Users of computes read what is in copies, and the API, which has a user of its own, which copies there are.
        self.folder.chmod(0o755)
        lock = self.folder / ".lock"
        # Who could open it could hold it.
        lock.touch(mode=0o600)
        lock.chmod(0o600)
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _same_major(one: str, other: str) -> bool:
    return postgres_versions.major_of(one) == postgres_versions.major_of(other)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
