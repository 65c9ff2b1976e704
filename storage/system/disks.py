"""Small file systems of a test's own, and how to fill them."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

FULL = "No space left on device"


class MountRefusedError(RuntimeError):
    """Mounting is not allowed here."""


@contextlib.contextmanager
def small_disk(where: Path, mib: int) -> Iterator[Path]:
    """A file system of its own at `where`, and in it the name of a file that can fill it."""
    where.mkdir(parents=True)
    mounted = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(where)]
    done = subprocess.run(mounted, capture_output=True, check=False, text=True)
    if done.returncode != 0:
        raise MountRefusedError(done.stderr.strip())
    try:
        yield where / "ballast"
    finally:
        # An engine that ended before has unmounted whatever was below its folder, and removed that.
        if where.is_mount():
            subprocess.run(["umount", "--lazy", str(where)], check=True)


def fill(ballast: Path) -> None:
    """To the last byte; whoever frees some meanwhile is outrun."""
    with ballast.open("ab", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * size)
