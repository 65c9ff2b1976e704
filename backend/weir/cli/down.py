"""`weir down`: computes first, cleanly, then the services; no process and no mount stays."""

import signal
import subprocess
import time
from pathlib import Path

from weir.cli import installation as installations
from weir.cli import precedence, proofs, system
from weir.cli.errors import CliError
from weir.cli.installation import Installation, script
from weir.cli.output import note, span
from weir.cli.supervisor import Supervisor
from weir.cli.up import only_one

_COMPUTE_SECONDS = 120
_SERVICES_SECONDS = 90


def down(home: Path, *, immediate: bool) -> None:
    installation = installations.load(home)
    with only_one(installation):
        started = time.monotonic()
        supervisor = Supervisor(installation)
        running = supervisor.pid() is not None and supervisor.answers()
        if not running and not system.processes_of(home) and not system.mounts_below(home):
            note("already down")
            return
        if running:
            # The worker would start again what is stopped next.
            note("stopping the worker")
            supervisor.stop_service("worker")
        _stop_computes(installation, immediate=immediate)
        if running:
            note("stopping the services")
            if not supervisor.stop(_SERVICES_SECONDS):
                note(f"the supervisor has not ended after {_SERVICES_SECONDS} s; ending what is left")
        _sweep(installation)
        precedence.remove(installation)
        supervisor.forget()
        note(f"down after {span(time.monotonic() - started)}; no process and no mount is left")


def _computes(installation: Installation) -> list[system.Process]:
    return [p for p in system.processes_of(installation.home) if p.is_compute]


def _stop_computes(installation: Installation, *, immediate: bool) -> None:
    """Through their agents: Postgres shuts down, everything is committed, what a later start wants is shipped."""
    if not _computes(installation) and not system.mounts_below(installation.computes_dir):
        return
    note("stopping the computes")
    # Their agents answer who speaks as the settings said when they were started.
    as_started = proofs.as_started(installation, system.processes_of(installation.home))
    mode = "immediate" if immediate else "suspend"
    log = installation.log_file("down")
    with log.open("ab") as sink:
        try:
            result = subprocess.run(
                [script("weir-computes"), "stop-all", "--mode", mode],
                env=as_started.environment(),
                cwd=installation.home,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                timeout=_COMPUTE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            note(f"computes have not stopped after {_COMPUTE_SECONDS} s; ending them as a crash would (see {log})")
            return
    if result.returncode != 0:
        note(f"not every compute stopped cleanly (see {log}); what is left is ended as a crash would")


def _sweep(installation: Installation) -> None:
    """Nothing may stay: what did not end when asked is ended, and whatever resists is an error."""
    for sig, seconds in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0)):
        left = system.processes_of(installation.home)
        if not left:
            break
        for process in left:
            what = "compute" if process.is_compute else process.service
            note(f"ending {what} (pid {process.pid}): {process.command[:70]}")
        system.end((p.pid for p in left), sig)
        system.wait_gone((p.pid for p in left), seconds)
    for mount in system.mounts_below(installation.home):
        note(f"detaching {mount}")
        system.unmount(mount)
    processes, mounts = system.processes_of(installation.home), system.mounts_below(installation.home)
    if processes or mounts:
        raise CliError(
            "These could not be ended: "
            + ", ".join([*(f"pid {p.pid} ({p.service})" for p in processes), *map(str, mounts)])
        )
