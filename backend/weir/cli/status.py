"""`weir status`: every process with its health, and every compute as the API knows it."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import httpx

from weir.cli import installation as installations
from weir.cli import system
from weir.cli.installation import Installation
from weir.cli.output import span, table
from weir.cli.services import services
from weir.cli.supervisor import State, Supervisor

UP, DEGRADED, DOWN = 0, 1, 3
_COLOURS = {"healthy": "green", "done": "green", "starting": "yellow", "restarting": "yellow", "pending": "yellow"}


def status(home: Path, *, as_json: bool) -> int:
    """Print the state; the result is the command's exit code: 0 all healthy, 1 not all, 3 down."""
    installation = installations.load(home)
    supervisor = Supervisor(installation)
    if supervisor.pid() is None or not supervisor.answers():
        return _say_down(installation, as_json=as_json)
    states = supervisor.states()
    good = all(state.is_good for state in states.values())
    computes = _computes(installation)
    if as_json:
        document = {
            "up": good,
            "home": str(home),
            "url": installation.api_url,
            "compute_runtime": installation.compute_runtime,
            "processes": [{**asdict(state), "health": state.health} for state in states.values()],
            "computes": computes or [],
        }
        click.echo(json.dumps(document, indent=2))
        return UP if good else DEGRADED
    click.echo(f"Weir in {home}  console {installation.api_url}  supervisor pid {supervisor.pid()}\n")
    if installation.is_simulated:
        click.echo("Compute runtime: simulated. Computes and storage are a model; no database runs here.\n")
    click.echo(table(("PROCESS", "HEALTH", "PID", "UPTIME", "RESTARTS", "PORTS", ""), _rows(installation, states)))
    click.echo()
    _say_computes(computes)
    return UP if good else DEGRADED


def _say_down(installation: Installation, *, as_json: bool) -> int:
    left = system.processes_of(installation.home)
    if as_json:
        click.echo(json.dumps({"up": False, "home": str(installation.home), "processes": [], "computes": []}))
        return DOWN
    click.echo(f"Weir in {installation.home} is down.")
    for process in left:
        click.echo(f"  still running: {process.service}, pid {process.pid}: {process.command[:80]}")
    if left:
        click.echo("The supervisor is gone. `weir up` takes over, `weir down` ends what is left.")
    return DOWN


def _rows(installation: Installation, states: dict[str, State]) -> list[list[str]]:
    rows: list[list[str]] = []
    for service in services(installation):
        state = states.get(service.name)
        if state is None:
            continue
        ports = ", ".join(str(installation.ports[name]) for name in service.ports) or "-"
        running = state.is_running and state.pid > 0
        rows.append(
            [
                service.name,
                click.style(state.health, fg=_COLOURS.get(state.health, "red")),
                str(state.pid) if running else "-",
                span(state.age_seconds) if running else "-",
                str(state.restarts),
                ports,
                service.what,
            ]
        )
    return rows


def _computes(installation: Installation) -> list[dict[str, Any]] | None:
    """The computes, from the API; None when it does not answer."""
    try:
        key = installation.api_key_file.read_text().strip()
        answer = httpx.get(
            f"{installation.api_url}/api/v2/computes",
            params={"limit": 100},
            headers={"Authorization": f"Bearer {key}"},
            timeout=5,
        )
        answer.raise_for_status()
        return answer.json()["computes"]
    except (OSError, httpx.HTTPError, KeyError, ValueError):
        return None


def _images(actual: bool | None) -> str:
    return "unknown" if actual is None else "on" if actual else "off"


def _say_computes(computes: list[dict[str, Any]] | None) -> None:
    if computes is None:
        click.echo("Computes: unknown, the API does not answer.")
        return
    if not computes:
        click.echo("Computes: none.")
        return
    rows = [
        [
            str(compute.get("id", "")),
            str(compute.get("state", "")),
            str(compute.get("port") or "-"),
            str(compute.get("project_name", "")),
            _images((compute.get("full_page_writes") or {}).get("actual")),
            str(compute.get("reason") or ""),
        ]
        for compute in computes
    ]
    width = shutil.get_terminal_size().columns
    click.echo(
        "\n".join(
            line[:width]
            for line in table(("COMPUTE", "STATE", "PORT", "PROJECT", "PAGE IMAGES", ""), rows).splitlines()
        )
    )
