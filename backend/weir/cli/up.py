"""`weir up`: from whatever state the last run, a crash or a power cut left, to everything healthy."""

import datetime as dt
import fcntl
import shutil
import signal
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from weir.cli import (
    certificates,
    encryption,
    folders,
    keys,
    metadata,
    ownership,
    precedence,
    prometheus_files,
    proofs,
    service_users,
    system,
)
from weir.cli import installation as installations
from weir.cli.doctor import together, unbounded
from weir.cli.errors import CliError
from weir.cli.files import write_whole
from weir.cli.installation import Installation
from weir.cli.output import note, span
from weir.cli.port_section import PORTS
from weir.cli.services import Service, services, supervisor_config
from weir.cli.supervisor import State, Supervisor

_TOO_MANY_RESTARTS = 5
_PORTS_SECONDS = 15


def up(home: Path, *, port_base: int | None, timeout: float) -> Installation:
    first = not installations.exists(home)
    installation = installations.create(home, port_base)
    with only_one(installation):
        if first:
            note(f"new installation in {home}")
        if (pool := installation.own_users.pool) is not None:
            service_users.take(home, pool)
            installation = installations.load(home)
        for folder in folders.close(home, installation.own_users.group(service_users.STORAGE)):
            note(f"other users could look into {folder}; no longer")
        if installation.shared_user:
            note(f"computes are not kept apart from each other: {installation.shared_user}")
        supervisor = Supervisor(installation)
        keys.prepare(installation)
        encryption.prepare(installation)
        proofs.prepare(installation)
        if installation.has_proxy:
            renew_certificate(installation)
        ownership.prepare(installation)
        precedence.prepare(installation)
        chosen = services(installation)
        reasons = (
            *together(installation, chosen),
            *unbounded(installation),
            *proofs.unproven(installation),
            precedence.missing(installation),
        )
        for reason in filter(None, reasons):
            note(reason)
        config = supervisor_config(installation, chosen)
        if supervisor.pid() is not None and supervisor.answers():
            return _already_up(installation, supervisor, chosen, config, timeout)
        _require_programs(installation, chosen)
        _clear_remains(installation, supervisor)
        metadata.copy_server(installation)
        # With the programs that were just chosen.
        chosen = services(installation)
        config = supervisor_config(installation, chosen)
        _require_ports(installation, chosen)
        _prepare_files(installation)
        supervisor.start(config)
        _wait_healthy(installation, supervisor, chosen, timeout)
    return installation


@contextmanager
def only_one(installation: Installation) -> Generator[None]:
    """Two `weir up` at once: the second waits for the first and then finds everything up."""
    # Services of the installation pass through the folder: one that could open the file could hold the lock.
    path = installation.run_dir / "lock"
    path.touch(mode=0o600)
    path.chmod(0o600)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note("another `weir up` or `weir down` is at work; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _already_up(
    installation: Installation, supervisor: Supervisor, chosen: Sequence[Service], config: str, timeout: float
) -> Installation:
    if (installation.run_dir / "services.json").read_text() != config:
        note("settings or programs have changed since Weir was started: `weir down` and `weir up` apply them")
    if all(state.is_good for state in supervisor.states().values()):
        note("already up")
        return installation
    _wait_healthy(installation, supervisor, chosen, timeout)
    return installation


def _require_programs(installation: Installation, chosen: Sequence[Service]) -> None:
    wanted = {service.command[0] for service in chosen}
    wanted |= {service.health[0] for service in chosen if service.health and not isinstance(service.health, str)}
    if not installation.is_simulated:
        # The worker starts computes later, so their program is looked for as well.
        wanted |= {str(installation.bin_dir / name) for name in ("weir-compute", "weir-pageserver")}
    missing = sorted(program for program in wanted if not Path(program).is_file())
    if missing:
        raise CliError("These programs are missing; `make setup` builds them:\n  " + "\n  ".join(missing))


def _clear_remains(installation: Installation, supervisor: Supervisor) -> None:
    """End services that outlived their supervisor, detach dead mounts. Running computes are left alone."""
    session = supervisor.session()
    orphans = [p for p in system.processes_of(installation.home) if p.session == session and not p.is_compute]
    if orphans:
        names = ", ".join(sorted({p.service for p in orphans}))
        note(f"the supervisor was gone; ending what it left running: {names}")
        quick = [p.pid for p in orphans if p.service == "postgres"]
        system.end(quick, signal.SIGINT)
        system.end((p.pid for p in orphans if p.service != "postgres"), signal.SIGTERM)
        left = system.wait_gone((p.pid for p in orphans), 20)
        system.end(left, signal.SIGKILL)
        if system.wait_gone(left, 10):
            raise CliError(f"These processes of the last run cannot be ended: {left}. They may hang in the kernel.")
    _end_left_behind(installation)
    alive = {p.pid for p in system.processes_of(installation.home) if p.is_compute}
    for mount in system.mounts_below(installation.computes_dir):
        if not _has_living_agent(installation, mount, alive):
            note(f"detaching a mount whose compute is gone: {mount}")
            system.unmount(mount)
    if metadata.forget_stale_lock(installation):
        note("the metadata store was not shut down cleanly; it will recover")
    supervisor.forget()


def _end_left_behind(installation: Installation) -> None:
    """The reconciler would do so, too, after half a minute of silence in which nothing of theirs is committed."""
    pids = proofs.left_behind(installation, system.processes_of(installation.home))
    if not pids:
        return
    note(f"[security] tls has changed: ending {len(pids)} compute(s) from before, which the worker starts anew")
    # None of them can say goodbye to storage, which does not run yet. What they have committed is there.
    system.end(pids, signal.SIGKILL)
    if left := system.wait_gone(pids, 10):
        raise CliError(f"These computes cannot be ended: {left}. They may hang in the kernel.")


def _has_living_agent(installation: Installation, mount: Path, alive: set[int]) -> bool:
    compute = mount.relative_to(installation.computes_dir).parts[0]
    try:
        pid = int((installation.computes_dir / compute / "pid").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return False
    return pid in alive


def _require_ports(installation: Installation, chosen: Sequence[Service]) -> None:
    """Every taken port is named at once, with who has it."""
    names = [name for service in chosen for name in service.ports]
    deadline = time.monotonic() + _PORTS_SECONDS
    while True:
        taken = [name for name in names if not system.port_is_free(installation.ports[name])]
        if not taken:
            return
        holders = {name: system.holder_of(installation.ports[name]) for name in taken}
        # A port that nobody holds is that of a process that is just ending.
        if all(holders.values()) or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    lines = [
        f"  {installation.ports[name]} ({PORTS[name][1]}) is held by {holder or 'a process that cannot be seen'}"
        for name, holder in holders.items()
    ]
    raise CliError(
        "Ports that Weir needs are in use:\n"
        + "\n".join(lines)
        + f"\nStop what holds them, or choose others under [ports] in {installation.config_file}."
    )


def _prepare_files(installation: Installation) -> None:
    for name in (
        "temporal",
        "prometheus",
        "objects",
        "pageserver",
        *(path.name for path in installation.safekeeper_dirs),
    ):
        (installation.home / name).mkdir(mode=folders.OWN, exist_ok=True)
    ownership.prepare_store(installation)
    if not metadata.is_initialised(installation):
        note("making the metadata store")
        metadata.initialise(installation)
    write_whole(installation.run_dir / "prometheus.yml", prometheus_files.config(installation), 0o644)
    if installation.has_tls:
        write_whole(prometheus_files.web_file(installation), prometheus_files.web_config(installation), 0o644)
    from weir.computes import recorded  # noqa: PLC0415  no other command needs what speaks with Prometheus

    for name in ("prometheus.yml", "rules.yml"):
        # Where older versions wrote them, in what is Prometheus's own folder now.
        (installation.home / "prometheus" / name).unlink(missing_ok=True)
    rules = recorded.rules(installation.scrape_interval_seconds)
    write_whole(installation.run_dir / "rules.yml", rules, 0o644)
    free = shutil.disk_usage(installation.home).free
    if free < 2 << 30:
        note(f"only {free >> 20} MiB are free in {installation.home}")


def renew_certificate(installation: Installation) -> None:
    """The proxy reads a new one while it runs."""
    at = dt.datetime.now(dt.UTC)
    for what in certificates.prepare(installation.proxy_files, installation.proxy.names, at):
        note(what)


def _wait_healthy(
    installation: Installation, supervisor: Supervisor, chosen: Sequence[Service], timeout: float
) -> None:
    started = time.monotonic()
    shown: set[str] = set()
    what = {service.name: service.what for service in chosen}
    announced = started
    while True:
        states = supervisor.states()
        for name, state in states.items():
            if state.is_good and name not in shown:
                shown.add(name)
                note(f"{span(time.monotonic() - started):>4}  {name} {state.health} ({what.get(name, '')})")
        waiting = [state for state in states.values() if not state.is_good]
        if not waiting:
            return
        _stop_waiting_for_hopeless(installation, waiting)
        now = time.monotonic()
        if now - started > timeout:
            names = ", ".join(f"{s.name} ({s.health})" for s in waiting)
            raise CliError(
                f"Not healthy after {span(timeout)}: {names}.\n{_last_words(installation, waiting[0].name)}"
            )
        if now - announced > 10:
            announced = now
            note(f"{span(now - started):>4}  waiting for {', '.join(s.name for s in waiting)}")
        time.sleep(0.25)


def _stop_waiting_for_hopeless(installation: Installation, waiting: Sequence[State]) -> None:
    for state in waiting:
        failed = state.status in {"Error", "Skipped"} or (state.status == "Completed" and state.exit_code != 0)
        if failed or state.restarts >= _TOO_MANY_RESTARTS:
            raise CliError(
                f"{state.name} does not stay up ({state.restarts} restarts, last exit code {state.exit_code}).\n"
                + _last_words(installation, state.name)
            )


def _last_words(installation: Installation, name: str) -> str:
    log = installation.log_file(name)
    try:
        lines = log.read_text(errors="replace").splitlines()[-15:]
    except OSError:
        lines = []
    return click.style(f"The end of {log}:\n", bold=True) + "\n".join(f"  {line}" for line in lines)
