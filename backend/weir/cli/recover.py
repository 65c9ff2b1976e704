"""`weir recover`: from an object store to projects and branches in the metadata database."""

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import click

from weir.cli import installation as installations
from weir.cli.errors import CliError
from weir.cli.installation import Installation
from weir.cli.output import note, table
from weir.cli.services import with_object_store_variables

_PATIENCE_SECONDS = 600


def recover(home: Path, store: str | None, *, dry_run: bool, beside_others: bool) -> None:
    installation = installations.load(home)
    if installation.is_simulated:
        raise CliError("This installation's storage is a model; there is nothing to recover.")
    store = store or installation.object_store
    click.echo(f"Looking at {store}")
    found = inventory(installation, store)
    # What the control plane reads from its environment: the same as its processes do.
    os.environ.update(installation.environment())
    asyncio.run(_recover(found, dry_run=dry_run, beside_others=beside_others))


def inventory(installation: Installation, store: str) -> dict[str, Any]:
    """What `weir-pageserver inventory` says. It reads only, so the pageserver may run meanwhile."""
    program = installation.bin_dir / "weir-pageserver"
    if not program.is_file():
        raise CliError(f"The program {program} is missing; `make setup` builds it.")
    variables = with_object_store_variables(installation) if store == installation.object_store else []
    command = [*variables, str(program), "inventory", "--object-store", store]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise CliError(f"{store} was not read within {_PATIENCE_SECONDS} s.") from None
    if done.returncode != 0:
        raise CliError(f"{store} cannot be read:\n{done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout)


async def _recover(document: dict[str, Any], *, dry_run: bool, beside_others: bool) -> None:
    # Late, since no other command needs what speaks with the database.
    from sqlalchemy.exc import OperationalError  # noqa: PLC0415

    from weir.config import get_settings  # noqa: PLC0415
    from weir.db import Database  # noqa: PLC0415
    from weir.errors import WeirError  # noqa: PLC0415
    from weir.recovery import service  # noqa: PLC0415
    from weir.recovery.inventory import parse  # noqa: PLC0415

    settings = get_settings()
    database = Database(settings)
    try:
        found = parse(document)
        async with database.transaction() as session:
            if dry_run:
                recovery = await service.plan(session, found, settings)
            else:
                recovery = await service.recover(session, found, settings, beside_others=beside_others)
            click.echo(describe(recovery))
    except WeirError as error:
        raise CliError(error.message) from None
    except OperationalError as error:
        raise CliError(f"The metadata database does not answer: {error.orig}. Start Weir with `weir up`.") from None
    finally:
        await database.close()
    if not recovery.made:
        note("nothing to do")
    elif dry_run:
        note("nothing was changed (--dry-run)")
    else:
        note(f"{len(recovery.made)} project(s) made again; start their computes in the console or by the API")


def describe(recovery: Any) -> str:
    rows: list[tuple[str, ...]] = []
    for built in recovery.made:
        endpoints = {endpoint.branch_id: endpoint.id for endpoint in built.endpoints}
        for branch in built.branches:
            made_up = branch.name in built.made_up or built.project.name in built.made_up
            remark = "not described: the name is made up" if made_up else ""
            where = f"{branch.parent_lsn}" if branch.parent_lsn else ""
            rows.append(
                (built.project.name, built.project.id, branch.name, where, endpoints.get(branch.id, ""), remark)
            )
        rows += [
            (built.project.name, built.project.id, lost, "", "", "LOST: not in the store") for lost in built.lost
        ]
    rows += [(project.name, project.id, "", "", "", "in the database already") for project in recovery.known]
    rows += [(f"tenant {tenant.id}", "", "", "", "", "has no branch left") for tenant in recovery.empty]
    if not rows:
        return "There are no projects."
    return table(("PROJECT", "ID", "BRANCH", "LEFT ITS PARENT AT", "ENDPOINT", ""), rows)
