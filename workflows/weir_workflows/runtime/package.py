"""The installed files of Postgres: which they are, whether they are whole, and linking them elsewhere."""

import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# What dpkg has unpacked and not yet put in place, and what it keeps to go back to.
_HALF_DONE = (".dpkg-new", ".dpkg-tmp")
# Folders of a self-contained installation that a server reads.
_PREFIX_FOLDERS = ("bin", "lib", "lib64", "share")
_SHARED_WITH_OTHERS = {"/", "/usr", "/usr/local"}
# ioctl_ficlone(2): shares the blocks of the other file until one of them is written.
_FICLONE = 0x40049409


class ServerCopyError(Exception):
    """No copy could be made; the message says why."""


@dataclass(frozen=True)
class Package:
    """Where the installed files lie: `folders`, relative to `root`, and the programs in `bin`, relative as well."""

    root: Path
    folders: tuple[Path, ...]
    bin: Path

    @classmethod
    def of(cls, bin_dir: Path) -> "Package":
        programs = Path(os.path.realpath(bin_dir / "postgres")).parent
        if programs.parts[-4:-2] == ("lib", "postgresql"):
            # Debian's: usr/lib/postgresql/15/{bin,lib} and usr/share/postgresql/15.
            root, name = programs.parents[3], programs.parts[-2]
            folders = (Path("lib/postgresql") / name, Path("share/postgresql") / name)
        else:
            root = programs.parent
            folders = tuple(Path(name) for name in _PREFIX_FOLDERS if (root / name).is_dir())
            if str(root) in _SHARED_WITH_OTHERS or programs.name != "bin":
                raise ServerCopyError(f"Postgres has no folder of its own in {programs}, so that it cannot be copied")
        shared = root / folders[-1]
        if not (programs / "postgres").is_file() or next(shared.rglob("postgres.bki"), None) is None:
            raise ServerCopyError(f"no Postgres server is in {programs} with postgres.bki below {shared}")
        return cls(root, folders, programs.relative_to(root))

    def fingerprint(self) -> frozenset[tuple[str, int, int, int]]:
        """Another one as soon as a file has been replaced. Raises while dpkg is at work on the files."""
        found: set[tuple[str, int, int, int]] = set()
        for path in self._files():
            if path.suffix in _HALF_DONE:
                raise ServerCopyError(f"{path} shows that the package is being replaced, or that this was broken off")
            about = path.lstat()
            found.add((str(path), about.st_ino, about.st_size, about.st_mtime_ns))
        return frozenset(found)

    def _files(self) -> Iterator[Path]:
        for folder in self.folders:
            for base, folders, names in os.walk(self.root / folder):
                links = (name for name in folders if os.path.islink(os.path.join(base, name)))  # noqa: PTH114, PTH118
                yield from (Path(base, name) for name in (*names, *links))

    def place(self, target: Path) -> "Placed":
        """All files at the same places below `target`."""
        placed = Placed()
        for folder in self.folders:
            source = self.root / folder
            if source.is_symlink() or not source.is_dir():
                raise ServerCopyError(f"{source} is not a folder")
            for base, folders, _ in os.walk(source):
                folders[:] = [name for name in folders if not Path(base, name).is_symlink()]
                (target / Path(base).relative_to(self.root)).mkdir(mode=0o755, parents=True, exist_ok=True)
        for path in self._files():
            self._place_one(path, target / path.relative_to(self.root), placed)
        return placed

    def _place_one(self, path: Path, to: Path, placed: "Placed") -> None:
        if not path.is_symlink():
            placed.put(path, to)
            return
        # Dictionaries and the like may be links out of the package: to files of other packages.
        real = Path(os.path.realpath(path))
        within = real.is_relative_to(self.root) and any(
            real.is_relative_to(self.root / folder) for folder in self.folders
        )
        if within:
            to.symlink_to(os.path.relpath(real, path.parent))
        elif real.is_file():
            placed.put(real, to)
        else:
            to.symlink_to(real)


@dataclass
class Placed:
    """How many files became hard links, how many copies."""

    linked: int = 0
    copied: int = 0

    def put(self, path: Path, to: Path) -> None:
        try:
            to.hardlink_to(path)
        except FileNotFoundError:
            raise
        except OSError:
            # Another file system, or files that the account may not link to.
            _copy(path, to)
            self.copied += 1
        else:
            self.linked += 1


def _copy(path: Path, to: Path) -> None:
    with path.open("rb") as source, to.open("xb") as copy:
        cloned = False
        with suppress(OSError):
            fcntl.ioctl(copy.fileno(), _FICLONE, source.fileno())
            cloned = True
        if not cloned:
            shutil.copyfileobj(source, copy, 1 << 20)
        copy.flush()
        # The folder gets its name only once it is whole, after a power cut as well.
        os.fsync(copy.fileno())
    to.chmod(stat.S_IMODE(path.stat().st_mode) & 0o755)
