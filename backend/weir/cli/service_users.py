"""Users of the operating system for the services of an installation: numbers without accounts, as computes have.

A service's files outlive it, so that its number stays: each installation has a block of numbers of `[services]
users`, from its first `weir up` by root until its directory is gone. A file of `/var/lib/weir-users` names the
directory that a block belongs to, so that no two installations of a machine share a number. Where that file is lost,
the installation takes a block again, and each service is given its files anew as it starts (`weir.cli.launch`).
"""

import fcntl
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from weir.cli.errors import CliError
from weir.kit import users

# Places in a block: a service keeps its place for ever, so that names are only added, at the end.
SERVICES = (
    *("api", "postgres", "temporal", "prometheus", "pageserver", "proxy", "simulator"),
    *(f"safekeeper-{number}" for number in range(1, 10)),
)
# Groups with more than one member: of all services, and of those that write the object store.
PARTS = "parts"
STORAGE = "storage"
_PLACES = (*SERVICES, PARTS, STORAGE)
SIZE = len(_PLACES)
# The numbers below those of computes that Debian and systemd give to nobody: blocks for seven installations.
POOL = "60578-60705"
# What the settings file says of them.
IN_TEMPLATE: Mapping[str, str | int] = {"service_users": POOL, "service_block": SIZE}


@dataclass(frozen=True)
class ServiceUsers:
    """`pool`: numbers that installations of this machine take blocks from; None: services run as the user who runs
    Weir. `numbers`: this installation's block; None: it has none yet."""

    pool: range | None = None
    numbers: range | None = None

    def of(self, service: str) -> int | None:
        """The number of a service's user and of the group with that user alone; None: it has no user of its own."""
        return None if self.numbers is None else self.numbers[_PLACES.index(service)]

    def group(self, name: str) -> int | None:
        """The number of the group `PARTS` or `STORAGE`."""
        return self.of(name)


def known(home: Path, pool: range | None, directory: Path | None = None) -> ServiceUsers:
    """What this installation has, without taking anything. Nobody but root can give a service a user."""
    if pool is None or os.geteuid() != 0:
        return ServiceUsers()
    return ServiceUsers(pool, _own(_blocks(pool), _records(directory or users.USERS_DIR), home))


def take(home: Path, pool: range, directory: Path | None = None) -> range:
    """This installation's block, from now on if it had none. For root. Raises CliError where none is free."""
    folder = directory or users.USERS_DIR
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _alone(folder):
        blocks, records = _blocks(pool), _records(folder)
        found = _own(blocks, records, home)
        if found is not None:
            return found
        busy = users.of_processes()
        taken = [range(first, first + SIZE) for first, other in records.items() if _is_installation(other, home)]
        for block in blocks:
            if any(block.start < other.stop and other.start < block.stop for other in taken):
                continue
            if any(n in busy or users.has_account(n) or users.has_named_group(n) for n in block):
                continue
            _record(folder, block, home)
            return block
    holders = ", ".join(sorted(str(other) for other in records.values() if _is_installation(other, home)))
    raise CliError(
        f"No block of {SIZE} users of services is free in {pool.start}-{pool.stop - 1}: installations, accounts, "
        f"groups or processes have numbers of each. Installations with numbers: {holders or 'none'}. Give [services] "
        'users in weir.toml another range, or "" for services that run as root.'
    )


def _blocks(pool: range) -> list[range]:
    return [range(first, first + SIZE) for first in range(pool.start, pool.stop - SIZE + 1, SIZE)]


def _own(blocks: list[range], records: dict[int, Path], home: Path) -> range | None:
    """A block of another pool, which the settings named before, does not count."""
    return next((block for block in blocks if records.get(block.start) == home.absolute()), None)


def _is_installation(other: Path, home: Path) -> bool:
    return other != home.absolute() and (other / "weir.toml").is_file()


def _file(folder: Path, first: int) -> Path:
    return folder / f"services-{first}"


def _records(folder: Path) -> dict[int, Path]:
    """Whose each block is, by its first number."""
    found: dict[int, Path] = {}
    for path in folder.glob("services-*"):
        first = path.name.removeprefix("services-")
        if first.isdecimal():
            found[int(first)] = Path(os.fsdecode(path.read_bytes()))
    return found


def _record(folder: Path, block: range, home: Path) -> None:
    """On the disk before anything has an owner of the block."""
    path, draft = _file(folder, block.start), folder / f".services-{block.start}.new"
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(os.fsencode(home.absolute()))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


@contextmanager
def _alone(folder: Path) -> Generator[None]:
    with (folder / users.LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
