"""Which control groups processes of this machine are in."""

from __future__ import annotations

import contextlib
from pathlib import Path

# A hierarchy of the kernel's second kind has no controllers in its line.
SECOND_KIND = "v2"


def controllers_of(name: str, proc: Path = Path("/proc")) -> list[str]:
    """Controllers in whose hierarchies some process is in a group of this name, whatever is above it; `v2` of the
    second kind, which has several. None where there is no such process."""
    found: set[str] = set()
    for file in proc.glob("[0-9]*/cgroup"):
        # Processes end meanwhile.
        with contextlib.suppress(OSError):
            for line in file.read_text().splitlines():
                _, controllers, path = line.split(":", 2)
                if path.rsplit("/", 1)[-1] == name:
                    found.update(controllers.split(",") if controllers else [SECOND_KIND])
    return sorted(found)
