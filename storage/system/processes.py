"""Processes of computes, whose servers number them in PID namespaces of their own."""

from __future__ import annotations

from pathlib import Path


def children(pid: int) -> set[int]:
    """Numbers of what a process has started, or has inherited, and what has not ended."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        found |= {int(number) for number in (task / "children").read_text().split()}
    return found


def here(agent: int, pid: int) -> int:
    """The number that a process of a compute has on this machine. `agent`: the compute's, on this machine; `pid`: the
    process's, as Postgres says it in a view, its log, or postmaster.pid."""
    namespaces = {namespace(child) for child in children(agent)}
    for each in (one for space in namespaces for one in members(space)):
        if number_inside(each) == pid:
            return each
    raise LookupError(f"no process of the agent {agent} has the number {pid}")


def namespace(pid: int) -> Path | None:
    """The PID namespace of a process; None once it has ended."""
    try:
        return Path(f"/proc/{pid}/ns/pid").readlink()
    except OSError:
        return None


def members(space: Path | None) -> set[int]:
    """Numbers, on this machine, of the processes in a PID namespace."""
    pids = {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    return {pid for pid in pids if space is not None and namespace(pid) == space}


def number_inside(pid: int) -> int | None:
    """The number that a process has in its own PID namespace; None once it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[-1]) for line in lines if line.startswith("NSpid:")), None)
