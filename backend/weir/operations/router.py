from uuid import UUID

from fastapi import APIRouter

from weir.authz.access import Access
from weir.db import Session, reads
from weir.errors import BadRequestError, ConflictError, NotFoundError, UnauthorizedError, responses
from weir.kit.pagination import Page
from weir.kit.schemas import PathId
from weir.operations import cancelling
from weir.operations.repository import OperationRepository
from weir.operations.schemas import OperationResponse, OperationsPage, OperationView

router = APIRouter(tags=["operations"], responses=responses(UnauthorizedError, BadRequestError, NotFoundError))


@router.get("/projects/{project_id}/operations")
@reads
async def list_project_operations(project_id: PathId, access: Access, session: Session, page: Page) -> OperationsPage:
    """Newest first. Answers for deleted projects too, so that a deletion can be followed to its end."""
    await access.project(project_id, with_deleted=True)
    rows, pagination = page.split(await OperationRepository(session).page(project_id, page))
    return OperationsPage(operations=[OperationView.of(row) for row in rows], pagination=pagination)


@router.get("/projects/{project_id}/operations/{operation_id}")
@reads
async def get_project_operation(
    project_id: PathId, operation_id: UUID, access: Access, session: Session
) -> OperationResponse:
    await access.project(project_id, with_deleted=True)
    row = await OperationRepository(session).get(project_id, operation_id)
    if row is None:
        raise NotFoundError.of("operation", operation_id)
    return OperationResponse(operation=OperationView.of(row))


@router.post("/projects/{project_id}/operations/{operation_id}/cancel", responses=responses(ConflictError))
async def cancel_project_operation(project_id: PathId, operation_id: UUID, access: Access) -> OperationResponse:
    """Stops an operation and undoes what it has done: a start, the making of a branch, a detach, a change of
    safekeepers. It is `cancelling` until that is done, then `cancelled`; one that ends before it could be stopped is
    `finished`. Operations that wait for it are skipped. Others are refused with 409, with the reason."""
    return OperationResponse(operation=OperationView.of(await cancelling.cancel(access, project_id, operation_id)))
