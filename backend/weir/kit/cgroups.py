"""The kernel's control groups, of both kinds, as far as the control plane looks at them.

Agents make those of computes.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Controller:
    # The kernel's names for it in groups of the first and the second kind.
    first: str
    second: str
    # What it bounds, in words.
    bounds: str


CONTROLLERS = {
    "memory": Controller("memory", "memory", "memory"),
    "cpu": Controller("cpu", "cpu", "processor time"),
    "processes": Controller("pids", "pids", "the number of processes"),
    "io": Controller("blkio", "io", "the disks' time"),
}
_MOUNTS = Path("/proc/self/mountinfo")


def places(group: str, mountinfo: str | None = None) -> dict[str, Path]:
    """Of each controller that bounds groups below `group`: that group's directory, where this process may write.
    `mountinfo`: the kernel's table of mounts, this process's unless it is given."""
    found: dict[str, Path] = {}
    for second, mount, options in sorted(_hierarchies(mountinfo or _MOUNTS.read_text()), reverse=True):
        directory = mount / group.lstrip("/")
        if not os.access(directory, os.W_OK):
            continue
        offered = _offered(directory) if second else set(options)
        for name, controller in CONTROLLERS.items():
            if (controller.second if second else controller.first) in offered:
                found.setdefault(name, directory)
    return found


def remove(group: str, compute_id: str) -> bool:
    """Removes the groups of a compute that has ended, where its agent could not. True if there were any."""
    removed = False
    for directory in set(places(group).values()) if group else ():
        # One with a process in it stays; another one of the compute's takes it up.
        with suppress(OSError):
            (directory / compute_id).rmdir()
            removed = True
    return removed


def _hierarchies(mountinfo: str) -> list[tuple[bool, Path, tuple[str, ...]]]:
    """Whether it is of the second kind, where it is mounted, and its options, among them controllers of the first."""
    found: list[tuple[bool, Path, tuple[str, ...]]] = []
    for line in mountinfo.splitlines():
        mount, _, filesystem = line.partition(" - ")
        words = filesystem.split()
        if words and words[0] in ("cgroup", "cgroup2"):
            found.append((words[0] == "cgroup2", Path(mount.split()[4]), tuple(words[2].split(","))))
    return found


def _offered(directory: Path) -> set[str]:
    try:
        return set((directory / "cgroup.controllers").read_text().split())
    except OSError:
        return set()
