from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path
from fastapi import status as http

from weir.authz.access import Access
from weir.authz.principal import CurrentPrincipal
from weir.db import Session
from weir.errors import (
    BadRequestError,
    ConflictError,
    ForbiddenError,
    NotBuiltError,
    NotFoundError,
    ProjectBusyError,
    QuotaExceededError,
    UnauthorizedError,
    responses,
)
from weir.kit.ids import ID_PATTERN
from weir.kit.schemas import PathId
from weir.transfers import service
from weir.transfers.schemas import (
    ProjectsTransfer,
    Transferred,
    TransferRequestAccept,
    TransferRequestCreate,
    TransferRequestView,
)

router = APIRouter(tags=["transfers"], responses=responses(UnauthorizedError, BadRequestError))
_MOVES = responses(ForbiddenError, QuotaExceededError, NotFoundError, ConflictError, ProjectBusyError)
# Not called `project_id`: who accepts a project is not of the organisation that has it, and that name in a path has
# the guard look for the project among the caller's.
OfferedProject = Annotated[str, Path(pattern=ID_PATTERN)]


@router.post(
    "/projects/{project_id}/transfer_requests",
    status_code=http.HTTP_201_CREATED,
    responses=responses(NotFoundError, ConflictError, ProjectBusyError),
)
async def create_project_transfer_request(
    project_id: PathId, access: Access, body: TransferRequestCreate | None = None
) -> TransferRequestView:
    """Offers the project to whoever is told the answer's `id`, which is shown this once."""
    made = await service.offer(access, project_id, (body or TransferRequestCreate()).ttl_seconds)
    return TransferRequestView.model_validate(made)


@router.delete(
    "/projects/{project_id}/transfer_requests",
    status_code=http.HTTP_204_NO_CONTENT,
    responses=responses(NotFoundError, ConflictError, ProjectBusyError),
)
async def delete_project_transfer_requests(project_id: PathId, access: Access) -> None:
    """Weir's own: ends all offers of the project that nobody has taken."""
    await service.withdraw(access, project_id)


@router.put(
    "/projects/{offered_project_id}/transfer_requests/{request_id}",
    status_code=http.HTTP_204_NO_CONTENT,
    responses=_MOVES,
)
async def accept_project_transfer_request(
    offered_project_id: OfferedProject,
    request_id: UUID,
    principal: CurrentPrincipal,
    session: Session,
    body: TransferRequestAccept | None = None,
) -> None:
    """Takes the project, with all that is in it, into the caller's organization, whose quotas have to have room for
    it. Its computes run on. API keys for this project alone are revoked."""
    org_id = None if body is None else body.org_id
    await service.accept(session, principal, offered_project_id, request_id, org_id)


@router.post("/organizations/{org_id}/projects/transfer", responses=_MOVES)
async def transfer_projects_from_org_to_org(
    org_id: UUID, body: ProjectsTransfer, principal: CurrentPrincipal, session: Session
) -> Transferred:
    """Moves projects to another organization that the person who asks is a member of: all of them, or none. A key
    acts in one organization, and makes a transfer request instead."""
    del org_id
    await service.move(session, principal, body.destination_org_id, body.project_ids)
    return Transferred()


@router.post("/users/me/projects/transfer", responses=responses(NotBuiltError))
async def transfer_projects_from_user_to_org(body: ProjectsTransfer, principal: CurrentPrincipal) -> Transferred:
    """Always refused: people have no projects of their own here."""
    del body, principal
    raise NotBuiltError(
        "projects belong to organizations here, and no person has any; move them with "
        "POST /organizations/{org_id}/projects/transfer of the one that has them"
    )
