from uuid import UUID

from fastapi import APIRouter
from fastapi import status as http

from weir.authz.principal import CurrentPrincipal
from weir.db import Session
from weir.errors import BadRequestError, ConflictError, ForbiddenError, NotFoundError, UnauthorizedError, responses
from weir.people import keeping
from weir.people.keeping_schemas import KeptOrganization, OrganizationChange, OrganizationCreateRequest

router = APIRouter(
    prefix="/fleet/organizations",
    tags=["organizations"],
    responses=responses(UnauthorizedError, ForbiddenError, BadRequestError),
)


@router.post("", status_code=http.HTTP_201_CREATED, responses=responses(NotFoundError, ConflictError))
async def create_organization(
    body: OrganizationCreateRequest, principal: CurrentPrincipal, session: Session
) -> KeptOrganization:
    """For operators. The caller is no member of it. A name that an organization has already is answered with 409, an
    owner whom nobody knows with 404."""
    return KeptOrganization.of(await keeping.create(session, principal, body))


@router.get("/{organization_id}", responses=responses(NotFoundError))
async def get_kept_organization(
    organization_id: UUID, principal: CurrentPrincipal, session: Session
) -> KeptOrganization:
    """For operators, whoever is a member of it."""
    del principal
    return KeptOrganization.of(await keeping.get(session, organization_id))


@router.patch("/{organization_id}", responses=responses(NotFoundError, ConflictError))
async def update_organization(
    organization_id: UUID, body: OrganizationChange, principal: CurrentPrincipal, session: Session
) -> KeptOrganization:
    """For operators. A name that another organization has is answered with 409."""
    return KeptOrganization.of(await keeping.change(session, principal, organization_id, body))


@router.delete("/{organization_id}", responses=responses(NotFoundError, ConflictError))
async def delete_organization(
    organization_id: UUID, principal: CurrentPrincipal, session: Session
) -> KeptOrganization:
    """For operators. While it has projects, or runs the installation, it stays (409). Its members are out with their
    next request, its keys are revoked, and its invitations taken back; its audit log and what its projects used
    stay."""
    return KeptOrganization.of(await keeping.end(session, principal, organization_id))
