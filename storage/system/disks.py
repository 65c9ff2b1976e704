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


_FSYNC = r"""
#include <sys/syscall.h>
#include <stdlib.h>
#include <unistd.h>
static void wait_for_the_disk(void) {
  const char *stuck = getenv("WEIR_TEST_DISK_IS_STUCK");
  while (stuck && access(stuck, F_OK) == 0) usleep(5000);
}
int fsync(int fd) { wait_for_the_disk(); return syscall(SYS_fsync, fd); }
int fdatasync(int fd) { wait_for_the_disk(); return syscall(SYS_fdatasync, fd); }
"""


def stuck_while(folder: Path, there: Path) -> dict[str, str]:
    """The environment of a program whose fsyncs do not return while the file `there` exists, as on a disk that has
    stopped answering while the kernel still takes writes into memory. What it needs is built in `folder`."""
    source, library = folder / "fsync.c", folder / "fsync.so"
    source.write_text(_FSYNC)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source)], check=True)
    return {"LD_PRELOAD": str(library), "WEIR_TEST_DISK_IS_STUCK": str(there)}
