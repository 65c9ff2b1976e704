"""The folders of an installation, and who may look into them: nobody but their owner.

Computes and the metadata store have users of their own and must come to what is theirs, so folders on the way can be
passed through, but not listed. What clients and computes read is not secret: the CA's certificate, and copies of
Postgres's own files.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from weir.cli.errors import CliError

OWN = 0o700
# As `weir.cli.ownership` opens one to the services of an installation.
_FOR_SERVICES = 0o710
PASSAGE = 0o711
# Made by the first `weir up`, with their modes.
MADE: Mapping[str, int] = {"secrets": OWN, "run": OWN, "log": OWN, "computes": PASSAGE}
# For everybody to read.
_PUBLIC = frozenset(("tls", "servers"))
# Bits of a mode with which others list, read or change.
_TO_OTHERS = 0o066


def make(folder: Path, mode: int) -> None:
    """A folder of `MADE`, new or not. One that services of the installation pass through stays so: they run."""
    folder.mkdir(mode=mode, exist_ok=True)
    if mode != OWN or stat.S_IMODE(folder.stat().st_mode) != _FOR_SERVICES:
        folder.chmod(mode)


def open_to_others(home: Path, sharing: int | None = None) -> Iterator[Path]:
    """Folders of an installation that others than their owner can list or write to. `sharing`: a group whose members
    are no others where a folder is the group's. Links are not followed."""
    for folder in _folders(home):
        # Computes come and go meanwhile.
        with suppress(FileNotFoundError):
            found = folder.lstat()
            bits = _TO_OTHERS & 0o007 if found.st_gid == sharing else _TO_OTHERS
            if stat.S_IMODE(found.st_mode) & bits:
                yield folder


def close(home: Path, sharing: int | None = None) -> list[Path]:
    """Takes from others what `open_to_others` finds, and answers with that. A folder that others pass through stays
    passable, since a compute may be running in it."""
    closed = list(open_to_others(home, sharing))
    for path in closed:
        try:
            with suppress(FileNotFoundError):
                _close(path)
        except PermissionError as error:
            raise CliError(f"{path} is open to other users and cannot be closed: {error.strerror}.") from None
    return closed


def _close(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchmod(descriptor, stat.S_IMODE(os.fstat(descriptor).st_mode) & ~_TO_OTHERS)
    finally:
        os.close(descriptor)


def _folders(home: Path) -> Iterator[Path]:
    yield home
    for folder in _below(home):
        if folder.name not in _PUBLIC:
            yield folder
            if folder.name == "computes":
                yield from _below(folder)


def _below(folder: Path) -> list[Path]:
    """None of a folder that this account may not list, as others may not."""
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    except PermissionError:
        return []
