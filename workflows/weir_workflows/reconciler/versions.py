"""Minors of Postgres: what computes were seen running is recorded, a restart that was cut off is finished, and copies
nobody needs go."""

import structlog
from sqlalchemy import select, update

from weir.clients.compute import ComputeStatus
from weir.computes.repository import ComputeRow
from weir.endpoints.models import Endpoint, EndpointState
from weir.identity import audit
from weir.operations import scopes
from weir.operations.models import OperationKind
from weir.operations.service import enqueue
from weir.rollouts.run.repository import RolloutRepository
from weir.rollouts.run.restarts import minors_needed, restarting
from weir_workflows.common.resources import Resources
from weir_workflows.reconciler.idle import lock_idle

ORIGIN = "reconciler"
RESTARTS_A_ROUND = 4
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


async def finish_restarts(
    resources: Resources, rows: list[ComputeRow], seen: dict[str, ComputeStatus | str], rolling: dict[str, str]
) -> list[str]:
    """A compute that runs another minor than the one wanted, since the restart that was to bring it there was cut
    off: it is stopped by an operation, and started as everything that should run and does not. Those that a rollout
    works on now are that rollout's business. Nobody else ever changes the wish of a compute that runs."""
    drifted = [
        (row, status)
        for row in rows
        if row.endpoint.id not in rolling
        and row.endpoint.desired_state == EndpointState.ACTIVE
        and row.endpoint.postgres_version is not None
        and isinstance(status := seen.get(row.endpoint.id), ComputeStatus)
        and status.state == "running"
        and status.postgres_version not in {None, row.endpoint.postgres_version}
    ]
    return [row.endpoint.id for row, status in drifted[:RESTARTS_A_ROUND] if await _queue(resources, row, status)]


async def _queue(resources: Resources, row: ComputeRow, status: ComputeStatus) -> bool:
    async with resources.database.transaction() as session:
        scope = scopes.of_endpoint(row.project.id, row.branch.id, row.endpoint.id)
        if await lock_idle(session, row.project.id, scope, half_deleted_too=True) is None:
            return False
        endpoint = await session.get(Endpoint, row.endpoint.id, populate_existing=True)
        wanted = None if endpoint is None else endpoint.postgres_version
        # The round began a while ago: what is wanted may be another by now, or a rollout at work.
        if endpoint is None or wanted in {None, status.postgres_version}:
            return False
        rolling = await RolloutRepository(session).in_progress([endpoint.id])
        if rolling or await restarting(session, endpoint.id) or endpoint.desired_state != EndpointState.ACTIVE:
            return False
        await enqueue(
            session,
            OperationKind.SUSPEND_COMPUTE,
            endpoint.project_id,
            branch_id=endpoint.branch_id,
            endpoint_id=endpoint.id,
            origin=ORIGIN,
        )
        reason = f"runs Postgres {status.postgres_version} and is wanted on {wanted}: a restart was cut off"
        audit.record_system(
            session, ORIGIN, "endpoint.restart", f"endpoint/{endpoint.id}", endpoint.project_id, reason=reason
        )
    log.info("compute_restarted", endpoint_id=row.endpoint.id, reason=reason)
    return True


async def keep_servers(resources: Resources) -> list[str]:
    """The wishes are read first: one that is stored later is of a minor that was taken within the last hour, which
    stays."""
    async with resources.database.transaction() as session:
        statement = select(Endpoint.postgres_version).where(Endpoint.deleted_at.is_(None)).distinct()
        wanted = {version for version in await session.scalars(statement) if version is not None}
        wanted |= await minors_needed(session)
    try:
        return await resources.computes.keep_servers(wanted)
    except OSError as error:
        log.warning("postgres_copies_not_kept", error=str(error))
        return []
