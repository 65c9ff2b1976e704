"""Small file systems of a test's own, and how to fill them."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import preload

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


# Only what concerns files below a folder fails: the program's log and its sockets stay as they are.
_SICK_DISK = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
static int there(const char *variable) {
  const char *path = getenv(variable);
  return path && access(path, F_OK) == 0;
}
static void wait_for_the_disk(void) {
  while (there("WEIR_TEST_DISK_IS_STUCK")) usleep(5000);
}
static int is_bad_file(int fd) {
  const char *variable = getenv("WEIR_TEST_BAD_FILE");
  char number[32];
  struct stat facts;
  if (!variable) return 0;
  ssize_t length = readlink(variable, number, sizeof number - 1);
  if (length <= 0 || fstat(fd, &facts) != 0) return 0;
  number[length] = 0;
  return facts.st_ino == strtoull(number, NULL, 10);
}
static int fails(int fd) {
  if (is_bad_file(fd)) return 1;
  char link[40], path[4096];
  const char *disk = getenv("WEIR_TEST_DISK");
  if (!disk || !there("WEIR_TEST_DISK_FAILS")) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return 0;
  path[length] = 0;
  return strncmp(path, disk, strlen(disk)) == 0;
}
#define OR_FAIL(call) do { if (fails(fd)) { errno = EIO; return -1; } return call; } while (0)
int fsync(int fd) { wait_for_the_disk(); OR_FAIL(syscall(SYS_fsync, fd)); }
int fdatasync(int fd) { wait_for_the_disk(); OR_FAIL(syscall(SYS_fdatasync, fd)); }
ssize_t read(int fd, void *b, size_t n) { OR_FAIL(syscall(SYS_read, fd, b, n)); }
ssize_t write(int fd, const void *b, size_t n) { OR_FAIL(syscall(SYS_write, fd, b, n)); }
ssize_t pread64(int fd, void *b, size_t n, off_t at) { OR_FAIL(syscall(SYS_pread64, fd, b, n, at)); }
ssize_t pwrite64(int fd, const void *b, size_t n, off_t at) { OR_FAIL(syscall(SYS_pwrite64, fd, b, n, at)); }
ssize_t pread(int fd, void *b, size_t n, off_t at) { OR_FAIL(syscall(SYS_pread64, fd, b, n, at)); }
ssize_t pwrite(int fd, const void *b, size_t n, off_t at) { OR_FAIL(syscall(SYS_pwrite64, fd, b, n, at)); }
ssize_t writev(int fd, const struct iovec *v, int n) { OR_FAIL(syscall(SYS_writev, fd, v, n)); }
"""


def _library(folder: Path) -> Path:
    return preload.library(folder, "sick_disk", _SICK_DISK)


def stuck_while(folder: Path, there: Path) -> dict[str, str]:
    """The environment of a program whose fsyncs do not return while the file `there` exists, as on a disk that has
    stopped answering while the kernel still takes writes into memory. What it needs is built in `folder`."""
    return {"LD_PRELOAD": str(_library(folder)), "WEIR_TEST_DISK_IS_STUCK": str(there)}


def failing_while(folder: Path, disk: Path, there: Path) -> dict[str, str]:
    """The environment of a program for which reads, writes and fsyncs of files below `disk` end with EIO while the
    file `there` exists, as on a disk that has died under its file system. What it needs is built in `folder`."""
    return {
        "LD_PRELOAD": str(_library(folder)),
        "WEIR_TEST_DISK": f"{disk}/",
        "WEIR_TEST_DISK_FAILS": str(there),
    }


def failing_file(folder: Path, named: Path) -> dict[str, str]:
    """The environment of a program for which reads, writes and fsyncs of one file end with EIO, whatever its name is:
    the one whose inode's number the symbolic link `named` points to. What it needs is built in `folder`."""
    return {"LD_PRELOAD": str(_library(folder)), "WEIR_TEST_BAD_FILE": str(named)}
