"""Writing intent: an operation row in the transaction of the change it carries out, with what it holds until it
ends."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from opentelemetry import propagate
from sqlalchemy.ext.asyncio import AsyncSession

from weir.kit.clock import now
from weir.kit.ids import operation_id
from weir.operations import locks, scopes
from weir.operations.models import Operation, OperationAction, OperationKind, OperationStatus
from weir.operations.repository import OperationRepository

_ACTIONS = {
    OperationKind.CREATE_PROJECT: OperationAction.CREATE_TIMELINE,
    OperationKind.CREATE_BRANCH: OperationAction.CREATE_BRANCH,
    OperationKind.START_COMPUTE: OperationAction.START_COMPUTE,
    OperationKind.SUSPEND_COMPUTE: OperationAction.SUSPEND_COMPUTE,
    OperationKind.RESTART_COMPUTE: OperationAction.START_COMPUTE,
    OperationKind.DELETE_COMPUTE: OperationAction.SUSPEND_COMPUTE,
    OperationKind.APPLY_CONFIG: OperationAction.APPLY_CONFIG,
    OperationKind.DELETE_BRANCH: OperationAction.DELETE_TIMELINE,
    OperationKind.DELETE_PROJECT: OperationAction.DELETE_TIMELINE,
    OperationKind.APPLY_STORAGE_CONFIG: OperationAction.APPLY_STORAGE_CONFIG,
    OperationKind.RESTORE_BRANCH: OperationAction.SWAP_BINDING_ID,
    OperationKind.DETACH_BRANCH: OperationAction.DETACH_PARENT_BRANCH,
    OperationKind.REPLACE_SAFEKEEPER: OperationAction.REPLACE_SAFEKEEPER,
}


def trace_context() -> dict[str, Any]:
    """The current trace, to be carried on by whoever picks the row up."""
    carrier: dict[str, Any] = {}
    propagate.inject(carrier)
    return carrier


def _holds(kind: OperationKind, project_id: str, branch_id: str | None, endpoint_id: str | None) -> str:
    """What such an operation changes, or needs to stay as it is."""
    if kind == OperationKind.CREATE_PROJECT or branch_id is None:
        return scopes.of_project(project_id)
    if endpoint_id is not None:
        return scopes.of_endpoint(project_id, branch_id, endpoint_id)
    if kind == OperationKind.DETACH_BRANCH:
        return scopes.history_of(project_id, branch_id)
    return scopes.of_branch(project_id, branch_id)


async def enqueue(
    session: AsyncSession,
    kind: OperationKind,
    project_id: str,
    *,
    branch_id: str | None = None,
    endpoint_id: str | None = None,
    depends_on: Operation | None = None,
    also_holds: Sequence[str] = (),
    origin: str = "request",
    request_id: str = "",
    payload: dict[str, Any] | None = None,
) -> Operation:
    """Adds the operation and takes what it holds: the endpoint, the branch or the project that it is on, and what
    `also_holds` names (`weir.operations.scopes`). Raises ProjectBusyError when an open operation of another request
    has some of it."""
    at = now()
    ident = operation_id()
    operation = Operation(
        id=ident,
        project_id=project_id,
        branch_id=branch_id,
        endpoint_id=endpoint_id,
        kind=kind,
        action=_ACTIONS[kind],
        status=OperationStatus.SCHEDULING,
        depends_on=None if depends_on is None else depends_on.id,
        chain=ident if depends_on is None else depends_on.chain,
        holds=scopes.cover([_holds(kind, project_id, branch_id, endpoint_id), *also_holds]),
        origin=origin,
        request_id=request_id,
        trace_context=trace_context(),
        payload=payload or {},
        failures_count=0,
        created_at=at,
        updated_at=at,
    )
    await OperationRepository(session).add(operation)
    await locks.renew(session, operation.chain or ident)
    return operation


async def mark_running(session: AsyncSession, operation_id: UUID) -> Operation:
    row = await OperationRepository(session).by_id(operation_id)
    if row is None:
        raise LookupError(f"operation {operation_id} is not in the database")
    if row.status == OperationStatus.SCHEDULING:
        row.status = OperationStatus.RUNNING
    row.started_at = row.started_at or now()
    return row


async def mark_done(
    session: AsyncSession,
    operation_id: UUID,
    error: str | None,
    warning: str | None = None,
    *,
    cancelled: bool = False,
) -> Operation | None:
    """Finished, perhaps with a warning, failed, or cancelled and undone; what it held is free. The first report
    stands: a repeated activity changes nothing, and the answer is None."""
    repository = OperationRepository(session)
    row = await repository.by_id(operation_id)
    if row is None or row.finished_at is not None:
        return None
    ended = OperationStatus.CANCELLED if cancelled else OperationStatus.FINISHED
    row.status = ended if error is None else OperationStatus.FAILED
    row.error, row.warning = error, warning
    row.finished_at = now()
    if row.chain is not None:
        await locks.renew(session, row.chain)
    await repository.wake_dispatchers()
    if row.endpoint_id is not None:
        await repository.announce_endpoint(row.endpoint_id)
    return row
