"""Minor versions of Postgres: which Weir has been tested with, and which is installed."""

import re
import subprocess
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from weir.config import Settings

# By major, oldest first: `make test` runs whole on the newest, and compares redo page by page on all of them.
TESTED: dict[int, tuple[str, ...]] = {15: ("15.18", "15.20")}

_ANSWER = re.compile(r"\(PostgreSQL\) (\d+[.\w]*)")
_ANSWER_SECONDS = 20


def order(version: str) -> tuple[int, ...]:
    """A key that sorts 15.9 before 15.18."""
    return tuple(int(number) for number in re.findall(r"\d+", version))


def newest(versions: Iterable[str]) -> str | None:
    return max(versions, key=order, default=None)


def major_of(version: str) -> int:
    return order(version)[0]


def of_programs(bin_dir: Path) -> str | None:
    """What `postgres --version` says, such as 15.20; None where there is no such program or it does not run."""
    command = [str(bin_dir / "postgres"), "--version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _ANSWER.search(answer.stdout)
    return None if found is None else found[1]


def installed(bin_dir: Path) -> str | None:
    """`of_programs`, asked again only once the program is another file."""
    program = bin_dir / "postgres"
    try:
        stat = program.stat()
    except OSError:
        return None
    return _asked(bin_dir, stat.st_ino, stat.st_mtime_ns)


def copied(folder: Path) -> list[str]:
    """Minors there are copies of below `WEIR_HOME/servers`, oldest first."""
    try:
        names = [entry.name for entry in folder.iterdir() if entry.name[0].isdigit()]
    except FileNotFoundError:
        return []
    return sorted(names, key=order)


def available(settings: Settings) -> list[str]:
    """Minors a compute can be started on, oldest first: those copied, and the one that is installed."""
    if settings.compute_runtime == "simulated":
        return sorted((version for versions in TESTED.values() for version in versions), key=order)
    package = installed(settings.pg_bin_dir)
    return sorted({*copied(settings.servers_dir), *([] if package is None else [package])}, key=order)


@lru_cache(maxsize=8)
def _asked(bin_dir: Path, _inode: int, _changed: int) -> str | None:
    return of_programs(bin_dir)
