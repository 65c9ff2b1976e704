"""How services run as users of their own: the words before a service's program, and which service cannot, and why."""

import json
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from weir.cli import launch
from weir.cli.errors import CliError
from weir.cli.installation import Installation, python
from weir.cli.service_users import PARTS

_PRIVATE = 0o077
# What is made in a folder with a group is that group's to read and to change.
_SHARED = 0o007
_READ = 4


@dataclass(frozen=True)
class Own:
    """What a service needs so that it can run as a user of its own."""

    # Its name in `service_users.SERVICES`.
    user: str
    # What it writes to, its alone.
    folder: Path | None = None
    # Groups beside that of all services.
    groups: Sequence[str] = ()
    # What it reads beside its program and what is in `WEIR_HOME`.
    sees: Sequence[Path] = ()
    # Files of the operator's, which it has to be able to read.
    given: Sequence[Path] = ()
    # Whether it, or a program that it runs, asks for the user's name.
    has_account: bool = False
    # A folder that it shares with others of its groups, who read and change what it makes there.
    shared: Path | None = None
    # The account in place of a user of its own, for what refuses to be root; empty: root.
    otherwise: str = ""


@dataclass(frozen=True)
class _Identity:
    user: int
    group: int
    groups: tuple[int, ...] = ()


def words(installation: Installation, own: Own, program: str, ports: Sequence[str]) -> list[str]:
    """What goes before a service's program: it starts as its user, or as who runs Weir where it has none. Raises
    CliError."""
    if os.geteuid() != 0:
        return []
    identity = None if reason(installation, own, program) else _identity(installation, own)
    if identity is None and own.otherwise:
        identity = _account(own.otherwise)
    if identity is None:
        # What it makes is to be found by a user of its own later, and what a user of its own made is to be root's.
        return _launcher(installation, own, _Identity(0, 0), []) if own.folder else []
    is_low = any(installation.ports[port] < _first_free_port() for port in ports)
    capabilities = "-all,+net_bind_service" if is_low else "-all"
    return [
        *_launcher(installation, own, identity, _sees(own, program)),
        *(setpriv(), f"--reuid={identity.user}", f"--regid={identity.group}"),
        f"--groups={','.join(map(str, identity.groups))}" if identity.groups else "--clear-groups",
        *("--no-new-privs", f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}", "--"),
    ]


def _launcher(installation: Installation, own: Own, identity: _Identity, sees: Sequence[str]) -> list[str]:
    spec = {
        "user": identity.user,
        "group": identity.group,
        "groups": identity.groups,
        "folder": str(own.folder or ""),
        "sees": sees,
        "account": f"weir-{own.user}" if own.has_account and identity.user != 0 else "",
        "umask": _PRIVATE if own.shared is None else _SHARED,
        "scratch": str(scratch(installation)),
    }
    return [python(), "-I", "-S", str(Path(launch.__file__).resolve()), json.dumps(spec)]


def reason(installation: Installation, own: Own, program: str) -> str:
    """Why a service that could have a user of its own in this installation has none; empty where it has one, or where
    no service has."""
    identity = _identity(installation, own)
    if identity is None:
        return ""
    groups = (identity.group, *identity.groups)
    home = str(installation.home)
    if (closed := launch.closed_folder(home, identity.user, groups)) is not None:
        return f"{closed} is closed to others, so that its user, {identity.user}, cannot come to {home}"
    for file in own.given:
        if file.exists() and (blocked := _blocked(str(file), identity.user, groups)) is not None:
            return f"its user, {identity.user}, cannot read {file}: {blocked} is closed to it"
    for path in (program, *map(str, own.sees)):
        if Path(path).exists() and not launch.passes(Path(path).stat(), identity.user, groups, _READ):
            return f"its user, {identity.user}, cannot read {path}: its mode does not let others"
    covered = launch.hidden(_sees(own, program), identity.user, groups)
    if (covered or own.has_account) and (refused := mount_namespaces_refused()):
        closed = f"{min(covered)} is closed to others, and t" if covered else "T"
        return f"{closed}he kernel refuses it a mount namespace ({refused})"
    return ""


def _sees(own: Own, program: str) -> list[str]:
    return [program, *map(str, own.sees), *([] if own.shared is None else [str(own.shared)])]


def _blocked(path: str, user: int, groups: Sequence[int]) -> str | None:
    """What keeps a user from reading a file: a folder on the way, or the file."""
    real = os.path.realpath(path)
    for way in (path, real):
        if (folder := launch.closed_folder(way, user, groups)) is not None:
            return folder
    return None if launch.passes(Path(real).stat(), user, groups, _READ) else real


def _identity(installation: Installation, own: Own) -> _Identity | None:
    users = installation.own_users
    number = users.of(own.user)
    if number is None:
        return None
    groups = (users.group(name) for name in (PARTS, *own.groups))
    return _Identity(number, number, tuple(group for group in groups if group is not None))


def _account(name: str) -> _Identity:
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise CliError(
            f"There is no account {name}, which [postgres] user names; Postgres refuses to be root."
        ) from None
    return _Identity(found.pw_uid, found.pw_gid)


def setpriv() -> str:
    """The program that starts another one as a user."""
    found = shutil.which("setpriv")
    if found is None:
        raise CliError("The program `setpriv` is missing (package util-linux); root needs it to start services.")
    return found


def scratch(installation: Installation) -> Path:
    """Where mounts of a service's own namespace are made."""
    return installation.run_dir / "mounts"


@lru_cache
def mount_namespaces_refused() -> str:
    """Why this process can't give a service a mount namespace; empty when it can."""
    try:
        done = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, timeout=20, check=False)
    except OSError as error:
        return f"unshare: {error.strerror}"
    return "" if done.returncode == 0 else done.stderr.strip() or "unshare failed"


def _first_free_port() -> int:
    """The first port that a program needs no privilege to listen on."""
    try:
        return int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
    except (OSError, ValueError):
        return 1024


def python_paths() -> list[Path]:
    """Where a service in Python has its code, and the console beside it."""
    packages = [Path(entry) for entry in sys.path if entry and Path(entry).is_dir()]
    consoles = [entry.parent / "frontend" / "dist" for entry in packages if (entry / "weir").is_dir()]
    return [Path(sys.prefix), Path(sys.base_prefix), *packages, *consoles]


def object_store_folder(installation: Installation) -> Path | None:
    """The folder that pageserver and safekeepers share; None where the object store is a bucket."""
    address = urlsplit(installation.object_store)
    return Path(unquote(address.path)) if address.scheme in {"file", "mount"} else None
