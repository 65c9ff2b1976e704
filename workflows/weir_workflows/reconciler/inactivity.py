"""Computes whose clients have done nothing for so long that they are suspended, as somebody's request would do it."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from weir.clients.compute import ComputeStatus
from weir.clients.http import RemoteError
from weir.computes.repository import ComputeRow
from weir.endpoints.models import Endpoint, EndpointState
from weir.errors import ProjectBusyError
from weir.identity import audit
from weir.kit.clock import now
from weir.operations.models import OperationKind
from weir.operations.service import enqueue
from weir_workflows.common.resources import Resources
from weir_workflows.reconciler.idle import lock_running

log = structlog.get_logger()

ORIGIN = "inactivity"


async def suspend_inactive(
    resources: Resources,
    rows: Sequence[ComputeRow],
    seen: Mapping[str, ComputeStatus | str],
    rolling: Mapping[str, str],
) -> list[str]:
    """Queues the suspension of running computes that have been idle for their `suspend_timeout_seconds`, and answers
    with their ids. A compute that a rollout works on stays: what the rollout measures would end with it."""
    queued: list[str] = []
    for row in rows:
        if row.endpoint.id in rolling or _idle_for(row.endpoint, seen.get(row.endpoint.id)) is None:
            continue
        try:
            if await _suspend(resources, row):
                queued.append(row.endpoint.id)
        except (SQLAlchemyError, ProjectBusyError) as error:
            log.warning("inactivity_postponed", endpoint_id=row.endpoint.id, error=str(error))
    return queued


def _idle_for(endpoint: Endpoint, status: ComputeStatus | str | None) -> timedelta | None:
    """How long clients have done nothing, once that is the endpoint's limit and a suspend loses nothing."""
    if not isinstance(status, ComputeStatus) or status.state != "running" or status.idle_seconds is None:
        return None
    # A suspend empties unlogged tables. Whoever filled them did not ask for that by doing nothing.
    if status.unlogged_bytes != 0:
        return None
    if endpoint.suspend_timeout_seconds <= 0 or status.idle_seconds < endpoint.suspend_timeout_seconds:
        return None
    return timedelta(seconds=status.idle_seconds)


async def _suspend(resources: Resources, row: ComputeRow) -> bool:
    # The round began a while ago: a client may have come since. Asked outside of the transaction.
    try:
        status = await resources.agent(row.endpoint).status()
    except RemoteError:
        return False
    idle = _idle_for(row.endpoint, status)
    if idle is None:
        return False
    async with resources.database.transaction() as session:
        return await _queue(session, row, idle)


async def _queue(session: AsyncSession, row: ComputeRow, idle: timedelta) -> bool:
    endpoint = await lock_running(session, row)
    # Somebody may have changed the limit.
    if endpoint is None or not 0 < endpoint.suspend_timeout_seconds <= idle.total_seconds():
        return False
    endpoint.desired_state = EndpointState.IDLE
    endpoint.last_active = now() - idle
    await enqueue(
        session,
        OperationKind.SUSPEND_COMPUTE,
        endpoint.project_id,
        branch_id=endpoint.branch_id,
        endpoint_id=endpoint.id,
        origin=ORIGIN,
    )
    audit.record_system(
        session, ORIGIN, "endpoint.suspend", f"endpoint/{endpoint.id}", endpoint.project_id,
        idle_seconds=round(idle.total_seconds()), suspend_timeout_seconds=endpoint.suspend_timeout_seconds,
    )  # fmt: skip
    log.info("endpoint_inactive", endpoint_id=endpoint.id, idle_seconds=idle.total_seconds())
    return True
