from uuid import UUID

from fastapi import APIRouter
from fastapi import status as http

from weir.authz.principal import CurrentPrincipal
from weir.db import Session
from weir.errors import BadRequestError, ConflictError, ForbiddenError, NotFoundError, UnauthorizedError, responses
from weir.people import organizations
from weir.people.repository import PeopleRepository
from weir.people.schemas import (
    Member,
    MemberAddRequest,
    Members,
    MemberUpdateRequest,
    MemberWithUser,
    Organization,
)

router = APIRouter(
    prefix="/organizations/{org_id}",
    tags=["organizations"],
    responses=responses(UnauthorizedError, ForbiddenError, NotFoundError, BadRequestError),
)


@router.get("")
async def get_organization(org_id: UUID, principal: CurrentPrincipal, session: Session) -> Organization:
    del org_id
    return Organization.of(await organizations.organization(session, principal))


@router.get("/members")
async def list_organization_members(org_id: UUID, principal: CurrentPrincipal, session: Session) -> Members:
    """The longest members first."""
    del org_id
    found = await PeopleRepository(session).members(principal.account_id)
    return Members(members=[MemberWithUser.of(row, user) for row, user in found])


@router.post("/members", status_code=http.HTTP_201_CREATED, responses=responses(ConflictError))
async def add_organization_member(
    org_id: UUID, body: MemberAddRequest, principal: CurrentPrincipal, session: Session
) -> MemberWithUser:
    """Adds a person whom this installation knows, with a role that is no greater than the caller's."""
    del org_id
    return MemberWithUser.of(*await organizations.add(session, principal, body.email, body.role))


@router.get("/members/{member_id}")
async def get_organization_member(
    org_id: UUID, member_id: UUID, principal: CurrentPrincipal, session: Session
) -> Member:
    del org_id
    found = await PeopleRepository(session).member(principal.account_id, member_id)
    if found is None:
        raise NotFoundError.of("member", member_id)
    return Member.of(found[0])


@router.patch("/members/{member_id}", responses=responses(ConflictError))
async def update_organization_member(
    org_id: UUID, member_id: UUID, body: MemberUpdateRequest, principal: CurrentPrincipal, session: Session
) -> Member:
    """Changes a role. Neither the role before nor the one after may be greater than the caller's; the last owner
    stays one (409)."""
    del org_id
    row, _ = await organizations.change(session, principal, member_id, body.role)
    return Member.of(row)


@router.delete("/members/{member_id}", responses=responses(ConflictError))
async def remove_organization_member(
    org_id: UUID, member_id: UUID, principal: CurrentPrincipal, session: Session
) -> Member:
    """The person is out with their next request, and API keys that they made here are revoked. The last owner stays
    (409)."""
    del org_id
    row, _ = await organizations.remove(session, principal, member_id)
    return Member.of(row)


@router.post("/leave", status_code=http.HTTP_204_NO_CONTENT, responses=responses(ConflictError))
async def leave_organization(org_id: UUID, principal: CurrentPrincipal, session: Session) -> None:
    """Takes the person who asks out of the organization. The last owner stays (409)."""
    del org_id
    await organizations.leave(session, principal)
