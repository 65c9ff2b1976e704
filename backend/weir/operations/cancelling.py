"""Cancelling an operation.

One that has not begun is undone here, in the transaction that ends it. One that runs is only marked: the dispatcher
asks its workflow (`weir.operations.dispatcher`), which stops, undoes what it has done, and reports. Whatever dies
between the two, the mark stays, and the workflow is asked.
"""

from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.authz.access import ProjectAccess
from weir.branches.models import Branch
from weir.endpoints.models import Endpoint, EndpointState
from weir.endpoints.repository import EndpointRepository
from weir.errors import ConflictError, NotFoundError
from weir.identity import audit
from weir.kit.clock import now
from weir.operations.cancellable import why_not
from weir.operations.models import Operation, OperationKind, OperationStatus
from weir.operations.repository import OperationRepository
from weir.operations.service import mark_done

_ASKED = (OperationStatus.CANCELLING, OperationStatus.CANCELLED)


async def cancel(access: ProjectAccess, project_id: str, operation_id: UUID) -> Operation:
    """The operation, cancelled or on its way there; asking again changes nothing. Raises ConflictError, with the
    reason, for one that cannot be cancelled."""
    await access.project(project_id, with_deleted=True)
    statement = select(Operation).where(Operation.project_id == project_id, Operation.id == operation_id)
    # A dispatcher that hands it over just now comes first.
    row = (await access.session.scalars(statement.with_for_update())).one_or_none()
    if row is None:
        raise NotFoundError.of("operation", operation_id)
    if row.status in _ASKED:
        return row
    reason = why_not(row)
    if reason is not None:
        raise ConflictError(f"operation {row.id} ({row.action}) cannot be cancelled: {reason}")
    if row.status == OperationStatus.SCHEDULING:
        await _undo(access.session, row)
        await mark_done(access.session, row.id, None, cancelled=True)
    else:
        row.status = OperationStatus.CANCELLING
        await OperationRepository(access.session).wake_dispatchers()
    of = f"operation/{row.id}"
    audit.record(access.session, access.principal, "operation.cancel", of, project_id, kind=row.kind.value)
    return row


async def _undo(session: AsyncSession, row: Operation) -> None:
    """Takes back the wish for work of which nothing has begun."""
    at = now()
    if row.kind == OperationKind.START_COMPUTE:
        endpoint = await session.get_one(Endpoint, row.endpoint_id, with_for_update=True, populate_existing=True)
        endpoint.desired_state = endpoint.state = EndpointState.IDLE
        endpoint.updated_at = at
    elif row.kind == OperationKind.CREATE_BRANCH:
        branch = await session.get_one(Branch, row.branch_id, with_for_update=True, populate_existing=True)
        branch.deleted_at = at
        for endpoint in await EndpointRepository(session).of_branch(branch.id):
            endpoint.deleted_at = at
