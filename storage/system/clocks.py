"""Clocks that are wrong: the wall clock of single programs is moved while they run, their monotonic clock is not."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

import preload

_MOVED_CLOCK = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static const volatile int64_t *moved;
__attribute__((constructor)) static void look(void) {
  const char *path = getenv("WEIR_TEST_CLOCK");
  int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void *at = mmap(NULL, sizeof *moved, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (at != MAP_FAILED) moved = at;
}
static int64_t seconds(void) { return moved ? *moved : 0; }
int clock_gettime(clockid_t clock, struct timespec *now) {
  int result = syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += seconds();
  return result;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  int result = syscall(SYS_gettimeofday, now, zone);
  if (result == 0 && now) now->tv_sec += seconds();
  return result;
}
time_t time(time_t *now) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (now) *now = exact.tv_sec;
  return exact.tv_sec;
}
"""


class Clock:
    """The wall clock of every program that is started with `environment`, and of its children.

    It is right until it is moved. What it needs is built and kept in `folder`, which their users have to be able to
    read. Sleeping until a time of the wall clock is not changed by it.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._file = folder / f"clock-{name}"
        self._file.write_bytes(struct.pack("q", 0))
        built = preload.library(folder, "moved_clock", _MOVED_CLOCK)
        self.environment = {"LD_PRELOAD": str(built), "WEIR_TEST_CLOCK": str(self._file)}

    def move(self, seconds: float) -> None:
        """From here on it shows so much more than the machine's, or less; whole seconds."""
        with self._file.open("r+b") as file, mmap.mmap(file.fileno(), 8) as shown:
            # At once: one store of eight bytes that are aligned.
            shown[:] = struct.pack("q", round(seconds))
