"""Users of the operating system for computes: one each, shared with no other compute while it runs.

They are numbers of a pool (`[computes] users`), without names. A number is taken by a lock on its file in the folder
`USERS_DIR`, which all installations of the machine share. The agent inherits the lock and gives it to nobody, so that
it ends with the agent however that ends, and a crash of this process before it has started an agent frees the number
at once.

What a compute leaves on the disk outlives its lock. The folder of a compute belongs to root, and its group alone may
pass through: the file of a number names the folder that was opened to its group last, and before the number goes to
another compute that folder is closed, whoever it belongs to. The name is on the disk before the folder is opened:
whatever moment a crash comes at, an open folder is known.

Who gains Postgres's rights may leave processes behind that outlive the agent. A number that any process has is not
given to another compute.
"""

import fcntl
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import structlog

from weir.kit.users import LOCK, USERS_DIR, has_account, of_processes

log = structlog.get_logger()

_CLOSED = 0o700
_FOR_GROUP = 0o710
_SHARED = 0o711


class NoUserError(Exception):
    """Each number of the pool is in use; the message says what to do."""


class Users:
    """`pool`: the numbers that computes get; None: computes share a user. Without root they do in any case."""

    def __init__(self, pool: Sequence[int] | None, directory: Path | None = None) -> None:
        self._pool = pool if os.geteuid() == 0 else None
        self._directory = directory or USERS_DIR

    @contextmanager
    def taken(self, folder: Path) -> Generator[tuple[int, int] | None]:
        """A number for the compute of this folder, which is open to it, and the descriptor of its lock: while the
        body runs, and for as long as any process has inherited the descriptor. None: there is no pool, and the folder
        is open to the user that computes share. Blocks for some milliseconds."""
        if self._pool is None:
            if os.geteuid() == 0:
                _give(folder, 0, _SHARED)
            yield None
            return
        number, descriptor = self._take(self._pool, folder)
        try:
            yield number, descriptor
        finally:
            os.close(descriptor)

    def close(self, folder: Path) -> None:
        """No user but root reaches what is in the folder. For one of a compute that does not run."""
        if os.geteuid() == 0:
            with suppress(FileNotFoundError):
                _give(folder, 0, _CLOSED)

    def _take(self, pool: Sequence[int], folder: Path) -> tuple[int, int]:
        self._directory.mkdir(mode=0o700, exist_ok=True)
        with self._alone():
            others = of_processes()
            for number in pool:
                descriptor = self._lock(number)
                if descriptor is None:
                    continue
                if number in others or has_account(number):
                    log.warning("compute_user_skipped", user=number, reason="processes or an account have it")
                    os.close(descriptor)
                    continue
                try:
                    self._open(folder, number, descriptor)
                except BaseException:
                    os.close(descriptor)
                    raise
                return number, descriptor
        raise NoUserError(
            f"all {len(pool)} users of computes ({pool[0]}-{pool[-1]}) are in use; give [computes] users in "
            "weir.toml a greater range"
        )

    @contextmanager
    def _alone(self) -> Generator[None]:
        """One at a time on this machine: folders are opened and closed under this lock only."""
        with (self._directory / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _lock(self, number: int) -> int | None:
        path = self._directory / str(number)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    def _open(self, folder: Path, number: int, descriptor: int) -> None:
        now, last = folder.absolute(), Path(os.fsdecode(os.pread(descriptor, 4096, 0)))
        if last.is_absolute() and last != now:
            with suppress(FileNotFoundError, NotADirectoryError):
                # Its compute may have another number by now.
                if last.lstat().st_gid == number:
                    _give(last, 0, _CLOSED)
        if last != now:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, os.fsencode(now), 0)
        # Costs nothing where it was there before.
        os.fsync(descriptor)
        _give(folder, number, _FOR_GROUP)


def _give(folder: Path, group: int, mode: int) -> None:
    """Only the folder itself; a link is not followed."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # First for nobody, so that no moment shows it to the group before with the mode of the one after.
        os.fchmod(descriptor, _CLOSED)
        os.fchown(descriptor, 0, group)
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)
