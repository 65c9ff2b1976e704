"""Minors of Postgres: what computes were seen running is recorded; copies nobody needs go."""

import structlog
from sqlalchemy import select, update

from weir.clients.compute import ComputeStatus
from weir.computes.repository import ComputeRow
from weir.endpoints.models import Endpoint
from weir_workflows.common.resources import Resources

log = structlog.get_logger()


async def record_versions(
    resources: Resources, rows: list[ComputeRow], seen: dict[str, ComputeStatus | str]
) -> list[str]:
    """A compute that started again by itself, or whose start was never recorded, may run another minor."""
    changed = {
        row.endpoint.id: status.postgres_version
        for row in rows
        if isinstance(status := seen.get(row.endpoint.id), ComputeStatus)
        and status.postgres_version not in {None, row.endpoint.running_postgres_version}
    }
    if changed:
        async with resources.database.transaction() as session:
            for ident, version in changed.items():
                # Not a change of what is wanted: `updated_at` stays.
                await session.execute(
                    update(Endpoint)
                    .where(Endpoint.id == ident)
                    .values(running_postgres_version=version, updated_at=Endpoint.updated_at)
                )
    return list(changed)


async def keep_servers(resources: Resources) -> list[str]:
    """The wishes are read first: one that is stored later is of a minor that was taken within the last hour, which
    stays."""
    async with resources.database.transaction() as session:
        statement = select(Endpoint.postgres_version).where(Endpoint.deleted_at.is_(None)).distinct()
        wanted = {version for version in await session.scalars(statement) if version is not None}
    try:
        return await resources.computes.keep_servers(wanted)
    except OSError as error:
        log.warning("postgres_copies_not_kept", error=str(error))
        return []
