from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Request, Response

from weir.authz.principal import (
    SESSION_COOKIE,
    CurrentPrincipal,
    address_of,
    idle,
    refuse_foreign_origin,
)
from weir.db import Session, release
from weir.errors import (
    BadRequestError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    QuotaExceededError,
    UnauthorizedError,
    request_id_of,
    responses,
)
from weir.identity.cookies import lifetime, public_url, set_cookie
from weir.identity.repository import IdentityRepository
from weir.kit.clock import now
from weir.kit.crypto import hash_token
from weir.people import invitations, passwords
from weir.people.invitation_schemas import (
    InvitationAcceptance,
    InvitationAccepted,
    InvitationItem,
    InvitationMade,
    Invitations,
    InvitationsMade,
    InvitationsRequest,
)
from weir.people.models import User
from weir.people.repository import PeopleRepository
from weir.people.sign_in import Came, open_session

router = APIRouter(tags=["organizations"], responses=responses(UnauthorizedError, ForbiddenError, BadRequestError))
# The console's page for whoever has a link; the token stands behind #, which browsers keep to themselves.
LINK_PATH = "/accept-invitation"


async def _provider_domains(request: Request) -> frozenset[str]:
    """Domains of emails that an identity provider speaks for."""
    return request.app.state.provider_domains


ProviderDomains = Annotated[frozenset[str], Depends(_provider_domains)]


@router.get("/organizations/{org_id}/invitations", responses=responses(NotFoundError))
async def list_organization_invitations(org_id: UUID, principal: CurrentPrincipal, session: Session) -> Invitations:
    """Those that can still be accepted, the newest first."""
    del org_id
    found = await invitations.open_invitations(session, principal, now())
    return Invitations(invitations=[InvitationItem.of(row) for row in found])


@router.post(
    "/organizations/{org_id}/invitations", responses=responses(NotFoundError, ConflictError, QuotaExceededError)
)
async def create_organization_invitations(
    org_id: UUID, body: InvitationsRequest, request: Request, principal: CurrentPrincipal, session: Session
) -> InvitationsMade:
    """Invites people by email, with roles that are no greater than the caller's. Each invitation counts once, for 7
    days. Its link is shown here and never again, and has to be handed on: Weir sends no mail."""
    del org_id
    asked = [(each.email, each.role) for each in body.invitations]
    made = await invitations.invite(session, principal, asked, now())
    base = public_url(request)
    return InvitationsMade(
        invitations=[
            InvitationMade(
                **InvitationItem.of(each.row).model_dump(),
                token=each.token,
                link=f"{base}{LINK_PATH}#{each.token}",
            )
            for each in made
        ]
    )


@router.delete("/organizations/{org_id}/invitations/{invitation_id}", responses=responses(NotFoundError))
async def revoke_organization_invitation(
    org_id: UUID, invitation_id: UUID, principal: CurrentPrincipal, session: Session
) -> InvitationItem:
    """Its link opens nothing any more. The role may be no greater than the caller's."""
    del org_id
    return InvitationItem.of(await invitations.revoke(session, principal, invitation_id, now()))


@router.post("/invitations/accept", responses=responses(NotFoundError, ConflictError))
async def accept_invitation(
    body: InvitationAcceptance, request: Request, response: Response, session: Session, domains: ProviderDomains
) -> InvitationAccepted:
    """Makes the person who is signed in, and has the invited email, a member. Where nobody is signed in, `password`
    makes an account for that email; the answer then sets the cookie of a session."""
    coming = Came(address_of(request), request_id_of(request), now())
    user = await _signed_in(request, session)
    if user is None:
        if body.password is None:
            raise UnauthorizedError(
                "sign in with the invited email, then accept; or send `password` to make an account for that email"
            )
        password = body.password.get_secret_value()
        offered = await invitations.offered(session, body.token, coming.at)
        await invitations.refuse_known(session, offered.email, domains)
        passwords.check_new(password, offered.email)
        # A hash takes a while, and whoever decides on the organisation's members would wait for it.
        await release(session)
        password_hash = await passwords.hashed(password)
        row = await invitations.offered(session, body.token, coming.at)
        user = await invitations.make_account(session, row.email, body.name, password_hash)
        account, membership = await invitations.accept(session, row, user, coming)
        before = request.cookies.get(SESSION_COOKIE)
        token, _ = await open_session(session, user, coming, lifetime(), before, second_factor=False)
        set_cookie(request, response, token)
    else:
        row = await invitations.offered(session, body.token, coming.at)
        account, membership = await invitations.accept(session, row, user, coming)
    return InvitationAccepted(org_id=str(account.id), org_name=account.name, email=user.email, role=membership.role)


async def _signed_in(request: Request, session: Session) -> User | None:
    """The person whose session the request has; None where there is none, or where it is an API key's."""
    cookie = request.cookies.get(SESSION_COOKIE)
    if not cookie:
        return None
    refuse_foreign_origin(request)
    row = await IdentityRepository(session).console_session(hash_token(cookie), now(), idle())
    if row is None or row.user_id is None:
        return None
    return await PeopleRepository(session).user(row.user_id)
