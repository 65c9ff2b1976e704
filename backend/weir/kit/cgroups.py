"""The kernel's control groups, of both kinds, as far as the control plane looks at them.

Agents make those that bound computes. What is made here bounds nothing: groups with weights, by which the kernel
shares out processors and disks where there is not enough of them for all.
"""

import os
from collections.abc import Iterable
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
# Weights beside that of a compute's Postgres, which has 100 for each unit of its size. Services are what commits and
# reads of all computes go through. The control plane works for whoever asks it, so that one tenant's requests are not
# to come before everybody's queries.
SERVICES, SERVICES_WEIGHT = "services", 1000
CONTROL, CONTROL_WEIGHT = "control", 200
# An agent serves the volume and carries the commits of one compute alone.
AGENT_WEIGHT = 200
_WEIGHED = ("cpu", "io")
# What a group of the first kind has where one of the second has a weight of 100, and the most that it takes.
_USUAL_SHARES = 1024
_MOST_DISK_WEIGHT = 1000
# The niceness of all of a session's processes together, among sessions: three times the weight of another one. The
# services' session has the control plane in it.
_AUTOGROUP_NICE = -5


def places(group: str, mountinfo: str | None = None) -> dict[str, Path]:
    """Of each controller that bounds groups below `group`: that group's directory, where this process may write; none
    where `group` is empty. `mountinfo`: the kernel's table of mounts, this process's unless it is given."""
    found: dict[str, Path] = {}
    if not group:
        return found
    for second, mount, options in sorted(_hierarchies(mountinfo or _MOUNTS.read_text()), reverse=True):
        directory = mount / group.lstrip("/")
        if not os.access(directory, os.W_OK):
            continue
        offered = _offered(directory) if second else set(options)
        for name, controller in CONTROLLERS.items():
            if (controller.second if second else controller.first) in offered:
                found.setdefault(name, directory)
    return found


def weigh(group: str, name: str, weight: int) -> dict[str, Path]:
    """Makes the group `name` below `group` with a weight, where this process can; what it weighs in (`cpu`, `io`),
    with the directory that a process has to enter for it."""
    made: dict[str, Path] = {}
    found = places(group)
    for controller in _WEIGHED:
        if (below := found.get(controller)) is None:
            continue
        directory = below / name
        try:
            if (below / "cgroup.controllers").exists():
                _write(below / "cgroup.subtree_control", f"+{CONTROLLERS[controller].second}")
            directory.mkdir(exist_ok=True)
            file, text = _weight(directory, controller, weight)
            _write(directory / file, text)
            made[controller] = directory
        except OSError:
            # Such as a hierarchy of the first kind for disks on a kernel that does not weigh them.
            if directory not in made.values():
                with suppress(OSError):
                    directory.rmdir()
    return made


def weighed(group: str, name: str) -> list[Path]:
    """The directories of a group that `weigh` has made."""
    found = places(group)
    directories = {found[controller] / name for controller in _WEIGHED if controller in found}
    return sorted(directory for directory in directories if directory.is_dir())


def enter(directories: Iterable[Path], pid: int) -> None:
    """Moves a process, with all of its threads, into groups. Raises OSError where the kernel refuses it."""
    for directory in set(directories):
        _write(directory / "cgroup.procs", str(pid))


def agents(compute_id: str) -> str:
    """The name of the group of a compute's agent: no compute has a full stop in its id."""
    return f"{compute_id}.agent"


def prefer_session(pid: int) -> bool:
    """Has the kernel prefer all processes of this process's session to those of other sessions, where it shares out
    processors by sessions (autogroups) and this process may ask for it. For machines without a group to weigh in."""
    if not is_shared_by_session():
        return False
    try:
        _write(Path(f"/proc/{pid}/autogroup"), str(_AUTOGROUP_NICE))
    except OSError:
        return False
    return True


def is_shared_by_session() -> bool:
    """Whether the kernel shares out processors by sessions first."""
    try:
        return Path("/proc/sys/kernel/sched_autogroup_enabled").read_text().strip() == "1"
    except OSError:
        return False


def remove(group: str, compute_id: str) -> bool:
    """Removes the groups of a compute that has ended, where its agent could not. True if there were any."""
    removed = [remove_one(group, name) for name in (compute_id, agents(compute_id))]
    return any(removed)


def remove_one(group: str, name: str) -> bool:
    """Removes the group `name` below `group`, in each hierarchy where nothing is in it. True if there was one."""
    removed = False
    for directory in set(places(group).values()):
        # One with a process in it stays; another one of the compute's takes it up.
        with suppress(OSError):
            (directory / name).rmdir()
            removed = True
    return removed


def _weight(directory: Path, controller: str, weight: int) -> tuple[str, str]:
    """The file of a group that has its weight, and what is to be written."""
    is_second = (directory.parent / "cgroup.controllers").exists()
    if controller == "cpu":
        return ("cpu.weight", str(weight)) if is_second else ("cpu.shares", str(weight * _USUAL_SHARES // 100))
    if is_second:
        return "io.weight", f"default {weight}"
    return "blkio.weight", str(min(weight, _MOST_DISK_WEIGHT))


def _write(file: Path, text: str) -> None:
    # Without making it: a file that the kernel has not put there means nothing to it.
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


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
