"""`weir recover --logs`: the logs of all branches, made again where all safekeepers are lost."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from weir.cli import installation as installations
from weir.cli.errors import CliError
from weir.cli.output import note, table

if TYPE_CHECKING:
    from weir.recovery.logs import Report


def recover_logs(home: Path, *, dry_run: bool, accepted: Sequence[str]) -> bool:
    """Print what became of each branch's log; whether every branch has one now."""
    installation = installations.load(home)
    if installation.is_simulated:
        raise CliError("This installation's storage is a model; there is nothing to recover.")
    # What the control plane reads from its environment: the same as its processes do.
    os.environ.update(installation.environment())
    reports = asyncio.run(_recover(dry_run=dry_run, accepted=accepted))
    click.echo(describe(reports))
    for report in reports:
        if report.remark:
            note(f"{report.of.project}/{report.of.branch}: {report.remark}")
    if dry_run:
        note("nothing was changed (--dry-run)")
    return not any(report.outcome == "REFUSED" for report in reports)


async def _recover(*, dry_run: bool, accepted: Sequence[str]) -> "list[Report]":
    # Late, since no other command needs what speaks with the database.
    from sqlalchemy.exc import OperationalError  # noqa: PLC0415

    from weir.clients.connections import Connections  # noqa: PLC0415
    from weir.clients.pageserver import Pageserver  # noqa: PLC0415
    from weir.clients.safekeeper import Safekeeper  # noqa: PLC0415
    from weir.config import get_settings  # noqa: PLC0415
    from weir.db import Database  # noqa: PLC0415
    from weir.identity import audit  # noqa: PLC0415
    from weir.recovery import logs  # noqa: PLC0415
    from weir.recovery.service import ACTOR  # noqa: PLC0415

    settings = get_settings()
    database, connections = Database(settings), Connections()
    reports: list[Report] = []
    try:
        async with database.transaction() as session:
            found = await logs.branch_logs(session, len(settings.safekeeper_http_urls))
        _check(accepted, [name for of in found for name in (of.branch_id, of.branch)])
        pageserver = Pageserver(settings.pageserver_http_url, connections)
        keepers = [
            Safekeeper(number, url, connections) for number, url in enumerate(settings.safekeeper_http_urls, 1)
        ]
        lock = logs.project_locked(database, len(settings.safekeeper_http_urls))
        for of in found:
            accept = of.branch_id in accepted or of.branch in accepted
            report = await logs.recover_log(of, pageserver, keepers, lock=lock, dry_run=dry_run, accept_loss=accept)
            reports.append(report)
            if report.outcome == logs.Outcome.RECOVERED:
                async with database.transaction() as session:
                    audit.record_system(
                        session,
                        ACTOR,
                        "branch.recover_log",
                        f"branch/{of.branch_id}",
                        of.project_id,
                        lsn=report.lsn,
                        origin=report.origin,
                    )
    except OperationalError as error:
        raise CliError(f"The metadata database does not answer: {error.orig}. Start Weir with `weir up`.") from None
    finally:
        await connections.aclose()
        await database.close()
    return reports


def _check(accepted: Sequence[str], known: Sequence[str]) -> None:
    unknown = set(accepted) - set(known)
    if unknown:
        raise CliError(f"There is no branch {min(unknown)}; --accept-loss-of takes a branch's id or name.")


def describe(reports: "Sequence[Report]") -> str:
    if not reports:
        return "There are no branches."
    rows = [
        (
            report.of.project,
            report.of.branch,
            report.outcome.value,
            report.lsn or "",
            report.origin,
            report.at or "",
        )
        for report in reports
    ]
    return table(("PROJECT", "BRANCH", "ITS LOG", "COMES BACK TO", "WHICH WAS", "LAST COMMIT"), rows)
