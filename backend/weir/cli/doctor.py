"""`weir doctor`: whether this machine and this installation are as Weir needs them, and what to do where not."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click

from weir import postgres_versions
from weir.cli import encryption, folders, launching, precedence, proofs, service_users, system
from weir.cli import installation as installations
from weir.cli.errors import CliError
from weir.cli.installation import Installation
from weir.cli.port_section import PORTS
from weir.cli.services import Service, services
from weir.cli.supervisor import Supervisor
from weir.kit import cgroups

_BINARIES = tuple(
    f"weir-{name}" for name in ("safekeeper", "pageserver", "compute", "log", "members", "proxy", "probe")
)
_MAJOR = 15
# The version of Landlock that knows ports.
_LANDLOCK = 4
# None: worth knowing, but nothing stands in the way.
_Finding = tuple[bool | None, str, str]


_MARKS = {
    True: click.style("ok  ", fg="green"),
    False: click.style("FAIL", fg="red"),
    None: click.style("warn", fg="yellow"),
}


def doctor(home: Path) -> bool:
    """Print one line a check; False when something stands in the way."""
    fine = True
    installation = installations.load(home) if installations.exists(home) else None
    checks: list[Callable[[], Iterator[_Finding]]] = [_machine, lambda: _programs(installation)]
    if installation is None:
        click.echo(f"No installation in {home} yet; `weir up` makes one.")
    else:
        checks += [lambda: _state(installation), lambda: _ports(installation)]
    for check in checks:
        for good, what, remedy in check():
            fine = fine and good is not False
            click.echo(f"{_MARKS[good]}  {what}")
            if not good:
                click.echo(f"      {remedy}")
    return fine


def _machine() -> Iterator[_Finding]:
    yield (
        Path("/dev/fuse").exists(),
        "/dev/fuse exists",
        "Load the module (`modprobe fuse`) or give the container it.",
    )
    yield shutil.which("fusermount3") is not None, "fusermount3 is installed", "apt-get install fuse3"
    if os.geteuid() == 0:
        try:
            pwd.getpwnam("postgres")
            known = True
        except KeyError:
            known = False
        yield known, "the account `postgres` exists", "apt-get install postgresql-15 makes it."

    landlock = system.landlock_version()
    if landlock >= _LANDLOCK:
        yield True, f"the kernel keeps a database's server to its own port (Landlock {landlock})", ""
    else:
        yield (
            None,
            f"the kernel does not keep a database's server to its own port (its Landlock is {landlock or 'off'})",
            f"Version {_LANDLOCK} does: Linux 6.7 or newer, with `landlock` among its `lsm=`.",
        )


def _programs(installation: Installation | None) -> Iterator[_Finding]:
    pg_bin = installation.pg_bin if installation else Path("/usr/lib/postgresql/15/bin")
    text = _output([str(pg_bin / "postgres"), "--version"])
    version = postgres_versions.of_programs(pg_bin)
    oldest = postgres_versions.TESTED[_MAJOR][0]
    good = version is not None and _in_range(version, oldest)
    yield (
        good,
        f"Postgres in {pg_bin}: {text or 'not found'}",
        f"{oldest} or newer of {_MAJOR} is needed: make setup",
    )
    if good and version is not None:
        yield tested(version)
    bin_dir = installation.bin_dir if installation else installations.cache_dir() / "target" / "release"
    for name in _BINARIES:
        yield (bin_dir / name).is_file(), f"{bin_dir / name}", "make setup builds it."
    built = installations.cache_dir() / "bin"
    for name in ("process-compose", "temporal", "prometheus"):
        path = built / name if (built / name).is_file() else shutil.which(name)
        yield path is not None, f"{name}: {path}", "make setup installs it."


def _in_range(version: str, oldest: str) -> bool:
    order = postgres_versions.order
    return postgres_versions.major_of(version) == _MAJOR and order(version) >= order(oldest)


def tested(version: str) -> _Finding:
    """Whether Weir's tests have passed with this minor, or what to do about it."""
    minors = postgres_versions.TESTED[postgres_versions.major_of(version)]
    newest, order = minors[-1], postgres_versions.order
    if version == newest:
        return True, f"Postgres {version} is the newest minor Weir was tested with", ""
    if order(version) > order(newest):
        return (
            None,
            f"Postgres {version} is newer than {newest}, the newest minor Weir was tested with",
            "Computes stay on their minor until a rollout moves them; begin with one that matters least.",
        )
    return (
        None,
        f"Postgres {version} is older than {newest}, the newest minor Weir was tested with",
        f"apt-get update && apt-get install --only-upgrade postgresql-{_MAJOR}: running computes are not touched.",
    )


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout.strip()
    except OSError:
        return ""


def _state(installation: Installation) -> Iterator[_Finding]:
    free = shutil.disk_usage(installation.home).free
    yield free > 2 << 30, f"{free >> 30} GiB free in {installation.home}", "Make room: a full disk stops writes."
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    of_memory = ("memory_mib", "recent_layers_mib", "block_cache_mib", "page_cache_mib")
    wanted = sum(installation.pageserver_limits[name] for name in of_memory)
    yield (
        wanted <= memory * 3 // 4,
        f"the pageserver may take {wanted} MiB of this machine's {memory} MiB of memory",
        f"Lower memory_mib in [pageserver] of {installation.config_file} while Weir is down.",
    )
    for path in (installation.home / "secrets").glob("*"):
        private = path.stat().st_mode & _closed(installation, path) == 0
        yield private, f"{path} is private", f"chmod go-rw {path}"
    yield from _storage_keys(installation)
    yield from _kept_apart(installation)
    yield from _bounded(installation)
    yield from _proven(installation)
    supervisor = Supervisor(installation)
    running = supervisor.pid() is not None
    orphans = [p for p in system.processes_of(installation.home) if not p.is_compute] if not running else []
    remedy = "`weir up` takes over, `weir down` ends them."
    yield not orphans, f"{len(orphans)} services without a supervisor", remedy
    alive = {p.pid for p in system.processes_of(installation.home) if p.is_compute}
    mounts = system.mounts_below(installation.computes_dir)
    yield bool(alive) or not mounts, f"{len(mounts)} volumes mounted, {len(alive)} compute processes", remedy
    if running:
        bad = [f"{s.name}: {s.health}" for s in supervisor.states().values() if not s.is_good]
        yield not bad, f"services healthy{': not ' + ', '.join(bad) if bad else ''}", "`weir logs NAME` says why."


def _closed(installation: Installation, path: Path) -> int:
    """The bits of a secret's mode that have to be off. The services of the installation pass through the folder of
    tokens, and none can list it; those of storage read the keys of what is encrypted."""
    if path.is_dir():
        return 0o067
    return 0o037 if path == installation.storage_keys and path.stat().st_uid == 0 else 0o077


def _storage_keys(installation: Installation) -> Iterator[_Finding]:
    if not installation.encryption and not installation.storage_keys.exists():
        return
    try:
        names = [key.name for key in encryption.read(installation.storage_keys)]
    except CliError as error:
        yield False, "keys of encrypted storage", str(error)
    else:
        yield True, f"keys of encrypted storage, the newest last: {', '.join(names)}", ""


def _kept_apart(installation: Installation) -> Iterator[_Finding]:
    users = installation.own_users
    opened = list(folders.open_to_others(installation.home, users.group(service_users.STORAGE)))
    for folder in opened:
        yield False, f"other users can look into {folder}", f"chmod go-rw {folder}; `weir up` does it, too."
    if not opened:
        yield True, "no other user can look into the installation's folders", ""
    if installation.shared_user:
        yield None, installation.shared_user, "Whoever gains the rights of one database's server has them all."
    elif installation.compute_users:
        low, high = (int(part) for part in installation.compute_users.split("-"))
        named = [entry.pw_name for entry in pwd.getpwall() if low <= entry.pw_uid <= high]
        yield (
            not named,
            f"computes have users of their own, of {installation.compute_users}",
            f"Accounts have numbers of these: {', '.join(named)}. Choose other numbers in [computes] users.",
        )
    try:
        chosen = services(installation)
    except CliError as error:
        yield False, "services can be described", str(error)
        return
    for reason in together(installation, chosen):
        yield (
            None,
            reason,
            "Whoever takes over one of these has what the others have; docs/operating.md, Users of services.",
        )
    if users.numbers is not None:
        named = [entry.pw_name for entry in pwd.getpwall() if entry.pw_uid in users.numbers]
        apart = [service.name for service in chosen if service.own is not None and not _cause(installation, service)]
        yield (
            not named,
            f"services with users of their own, of {users.numbers[0]}-{users.numbers[-1]}: {', '.join(apart)}",
            f"Accounts have numbers of these: {', '.join(named)}. Choose another range in [services] users.",
        )


def together(installation: Installation, chosen: Sequence[Service]) -> list[str]:
    """Which services are not kept apart from the others, and why. Those that have to be root do not count."""
    own = [service for service in chosen if service.own is not None]
    if os.geteuid() != 0:
        names = ", ".join(service.name for service in own)
        return [f"services are not kept apart from each other: Weir is not run by root, so {names} share its user"]
    if installation.own_users.pool is None:
        return ["services are not kept apart from each other: [services] users is empty, so they run as root"]
    if installation.own_users.numbers is None:
        return ["services are not kept apart from each other: they get users of their own by the next `weir up`"]
    causes = [(service, _cause(installation, service)) for service in own]
    return [
        f"{service.name} runs as {(service.own and service.own.otherwise) or 'root'}: {cause}"
        for service, cause in causes
        if cause
    ]


def _cause(installation: Installation, service: Service) -> str:
    """Why it has no user of its own where others have."""
    return "" if service.own is None else launching.reason(installation, service.own, service.command[0])


def _proven(installation: Installation) -> Iterator[_Finding]:
    for reason in proofs.unproven(installation):
        yield None, reason, "docs/operating.md, TLS between parts, has how to change it."
    if installation.has_tls:
        yield True, "parts prove to each other who they are", ""


def _bounded(installation: Installation) -> Iterator[_Finding]:
    for reason in unbounded(installation):
        yield None, reason, "One database can slow down or end all others; docs/operating.md, Limits of computes."
    if installation.compute_cgroup and os.geteuid() == 0:
        found = ", ".join(cgroups.CONTROLLERS[name].bounds for name in cgroups.places(installation.compute_cgroup))
        if found:
            yield True, f"computes are bounded by control groups below {installation.compute_cgroup}: {found}", ""
    if reason := precedence.missing(installation):
        yield None, reason, "One database can hold up the commits of others; docs/operating.md, Limits of computes."
    elif not installation.is_simulated:
        yield True, "services come before computes where there are too few processors", ""


def unbounded(installation: Installation) -> list[str]:
    """What of this machine computes can take as much of as they like, and why."""
    if installation.is_simulated:
        return []
    group = installation.compute_cgroup
    if os.geteuid() != 0:
        return ["nothing bounds what computes take of this machine: Weir is not run by root"]
    if not group:
        return ["nothing bounds what computes take of this machine: [computes] cgroup is empty"]
    found = cgroups.places(group)
    return [
        f"nothing bounds what computes take of {known.bounds}: no control group {group} that Weir can write to has "
        f"the controller {known.second}"
        for name, known in cgroups.CONTROLLERS.items()
        if name not in found
    ]


def _ports(installation: Installation) -> Iterator[_Finding]:
    if Supervisor(installation).pid() is not None:
        return
    try:
        names = [name for service in services(installation) for name in service.ports]
    except CliError as error:
        yield False, "services can be described", str(error)
        return
    for name in names:
        port = installation.ports[name]
        if not system.port_is_free(port):
            remedy = f"Stop it, or choose another under [ports] in {installation.config_file}."
            yield (
                False,
                f"port {port} ({PORTS[name][1]}) is held by {system.holder_of(port) or 'another process'}",
                remedy,
            )
    taken = sum(not system.port_is_free(installation.ports[name]) for name in names)
    if not taken:
        yield True, f"all {len(names)} ports are free", ""
