"""Services before computes: commits and reads of all computes go through them, on processors that all of them share.

The kernel shares out processors by groups, not by programs. Where the operator has named a control group for
computes, two more are made beside those of computes: one for safekeepers, pageserver and proxy, which every commit
goes through, with the weight of ten compute units; and one for the control plane, with the weight of two, since what
loads it is a tenant's requests. Elsewhere kernels with autogroups give each session as much: one to all services
together, which are started in one, and one to each compute. There the services' session is given more.
"""

import os
import time
from collections.abc import Iterable
from pathlib import Path

from weir.cli.installation import Installation
from weir.cli.output import note
from weir.kit import cgroups

# A group that is not to be entered is said, and keeps nothing from starting.
_ENTER = (
    'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || echo "$1 was not entered" >&2; shift; done; '
    'shift; exec "$@"'
)
_GROUPS = {cgroups.SERVICES: cgroups.SERVICES_WEIGHT, cgroups.CONTROL: cgroups.CONTROL_WEIGHT}
_LEAVING_SECONDS = 5.0
_ON_THE_WAY_OF_COMMITS = ("safekeeper-", "pageserver", "proxy")


def prepare(installation: Installation) -> None:
    """Makes the groups of services, where this process can. Before `words`."""
    if os.geteuid() != 0 or installation.is_simulated:
        return
    for name, weight in _GROUPS.items():
        cgroups.weigh(installation.compute_cgroup, name, weight)


def words(installation: Installation, service: str) -> list[str]:
    """What goes before the words that start a service, or the supervisor; nothing where there is no group for it."""
    if os.geteuid() != 0 or installation.is_simulated:
        return []
    name = cgroups.SERVICES if service.startswith(_ON_THE_WAY_OF_COMMITS) else cgroups.CONTROL
    return entering(cgroups.weighed(installation.compute_cgroup, name))


def entering(directories: Iterable[Path]) -> list[str]:
    """The words before a command that has it, with all that it starts, in groups from its first moment on."""
    chosen = sorted({str(directory) for directory in directories})
    return ["/bin/sh", "-c", _ENTER, "weir", *chosen, "--"] if chosen else []


def prefer(installation: Installation, supervisor: int) -> None:
    """Prefers the services' session where no group of processors is there for them. `supervisor`: its process id."""
    if not installation.is_simulated and "cpu" not in cgroups.places(installation.compute_cgroup):
        cgroups.prefer_session(supervisor)


def missing(installation: Installation) -> str:
    """Why services do not come before computes where there are too few processors; empty where they do."""
    if installation.is_simulated:
        return ""
    said = "services come no sooner than computes where there are too few processors: "
    if os.geteuid() != 0:
        return f"{said}Weir is not run by root"
    if "cpu" in cgroups.places(installation.compute_cgroup) or cgroups.is_shared_by_session():
        return ""
    return f"{said}[computes] cgroup names no control group with the controller cpu, and the kernel has no autogroups"


def remove(installation: Installation) -> None:
    """Removes what was made for services and for this installation's computes, once nothing runs any more. A group of
    services that a process is still in stays, and is said."""
    if not installation.compute_cgroup or os.geteuid() != 0:
        return
    # The kernel takes a process out of its group a moment after it has closed its files and let go of its memory.
    deadline = time.monotonic() + _LEAVING_SECONDS
    while left := _of_services_left(installation.compute_cgroup):
        if time.monotonic() > deadline:
            note(f"a process is still in these control groups, which stay: {', '.join(map(str, left))}")
            break
        time.sleep(0.05)
    if installation.computes_dir.is_dir():
        for folder in installation.computes_dir.iterdir():
            cgroups.remove(installation.compute_cgroup, folder.name)


def _of_services_left(group: str) -> list[Path]:
    """Removes the groups of services that nothing is in; the directories of the others."""
    for name in _GROUPS:
        cgroups.remove_one(group, name)
    return sorted({directory for name in _GROUPS for directory in cgroups.weighed(group, name)})
