from contextlib import suppress
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi import status as http
from fastapi.responses import StreamingResponse

from weir.authz.access import Access
from weir.authz.principal import (
    SESSION_COOKIE,
    CurrentPrincipal,
    Principal,
    idle,
    principal_of_key,
    principal_of_session,
    refuse_foreign_origin,
)
from weir.db import Database, Session
from weir.errors import BadRequestError, NotFoundError, UnauthorizedError, responses
from weir.identity import audit, export, service
from weir.identity.cookies import lifetime, set_cookie
from weir.identity.models import ApiKey, AuditEntry
from weir.identity.repository import AuditFilter, IdentityRepository
from weir.identity.schemas import (
    ApiKeyCreated,
    ApiKeyCreateRequest,
    ApiKeyCreator,
    ApiKeyItem,
    ApiKeyRevoked,
    AuditEntries,
    AuditEntryView,
    AuthDetails,
    CurrentUser,
    SessionCreateRequest,
    SessionPerson,
    SessionResponse,
    SessionUser,
)
from weir.kit.clock import now
from weir.kit.crypto import hash_token
from weir.kit.pagination import Page, Pagination
from weir.kit.schemas import MOST_BIGINT, Timestamp
from weir.people.organizations import organization
from weir.people.repository import PeopleRepository
from weir.people.schemas import Organization, OrganizationChoice, Organizations

router = APIRouter(responses=responses(UnauthorizedError, BadRequestError))


@router.post("/auth/session", status_code=http.HTTP_204_NO_CONTENT, tags=["auth"])
async def create_session(body: SessionCreateRequest, request: Request, response: Response, session: Session) -> None:
    """Sign in to the console with an API key; the answer sets an HttpOnly cookie. The session may do what the key
    may, and ends with it."""
    refuse_foreign_origin(request)
    key, account = await service.key_that_opens(session, body.api_key.strip())
    actor = await principal_of_key(session, key, account, request)
    lives, before = lifetime(), request.cookies.get(SESSION_COOKIE)
    token = await service.open_session(session, key, actor.address, lives.most, lives.idle, before)
    audit.record(session, actor, "session.create", f"account/{account.name}", key=key.name)
    set_cookie(request, response, token)


@router.get("/auth/session", tags=["auth"])
async def get_session(principal: CurrentPrincipal, session: Session) -> SessionResponse:
    named = principal.role is not None
    person = None
    if principal.is_person and principal.user_id is not None:
        person = await PeopleRepository(session).user(principal.user_id)
    user = SessionUser(
        id=_id_of(principal),
        name=principal.name,
        email=principal.email,
        operator=principal.operator,
        organization_id=principal.account_id if named else None,
        role=principal.role,
        person=SessionPerson.of(person) if person is not None else None,
        project_id=principal.project_id,
        read_only=principal.read_only,
    )
    return SessionResponse(user=user)


def _id_of(principal: CurrentPrincipal) -> UUID:
    """Of the person, or, where a key stands for no person, of the organisation."""
    return principal.user_id or principal.account_id


@router.put(
    "/auth/session/organization",
    status_code=http.HTTP_204_NO_CONTENT,
    tags=["auth"],
    responses=responses(NotFoundError),
)
async def choose_organization(body: OrganizationChoice, principal: CurrentPrincipal, session: Session) -> None:
    """Has requests of this session act in an organization, where their path and query name none."""
    people = PeopleRepository(session)
    if principal.user_id is None or await people.membership(body.org_id, principal.user_id) is None:
        raise NotFoundError.of("organization", body.org_id)
    if principal.session_id is not None:
        await IdentityRepository(session).choose_organization(principal.session_id, body.org_id)


@router.delete("/auth/session", status_code=http.HTTP_204_NO_CONTENT, tags=["auth"])
async def delete_session(request: Request, response: Response, session: Session) -> None:
    """Sign out. Repeating it changes nothing."""
    refuse_foreign_origin(request)
    token = request.cookies.get(SESSION_COOKIE)
    row = await IdentityRepository(session).console_session(hash_token(token), now(), idle()) if token else None
    if token and row is not None:
        # The key or the person may have ended before the session.
        with suppress(UnauthorizedError):
            actor = await principal_of_session(session, row, request)
            audit.record(session, actor, "session.delete", _signed_in(actor))
        await IdentityRepository(session).end_session(row.token_hash)
    response.delete_cookie(SESSION_COOKIE, path="/")


def _signed_in(actor: Principal) -> str:
    return f"user/{actor.name}" if actor.is_person else f"account/{actor.name}"


@router.get("/auth", tags=["auth"])
async def get_auth_details(principal: CurrentPrincipal) -> AuthDetails:
    return AuthDetails(account_id=str(_id_of(principal)), auth_method=principal.method)


@router.get("/users/me", tags=["users"])
async def get_current_user(principal: CurrentPrincipal) -> CurrentUser:
    return CurrentUser(
        id=str(_id_of(principal)),
        login=principal.name,
        name=principal.name,
        email=principal.email,
        auth_accounts=[],
    )


@router.get("/users/me/organizations", tags=["users"])
async def get_current_user_organizations(principal: CurrentPrincipal, session: Session) -> Organizations:
    """Those that the person is a member of; of an API key the one that it is of."""
    if principal.is_person and principal.user_id is not None:
        found = [account for _, account in await PeopleRepository(session).memberships_of(principal.user_id)]
    else:
        found = [await organization(session, principal)]
    return Organizations(organizations=[Organization.of(row) for row in found])


@router.get("/api_keys", tags=["api keys"])
async def list_api_keys(principal: CurrentPrincipal, session: Session) -> list[ApiKeyItem]:
    """Of the organization; of a member who is no admin, those that they made."""
    home = await organization(session, principal)
    return [
        ApiKeyItem(
            id=key.id,
            name=key.name,
            created_at=key.created_at,
            created_by=ApiKeyCreator(id=user.id if user else home.id, name=user.email if user else home.name),
            last_used_at=key.last_used_at,
            last_used_from_addr=key.last_used_from_addr,
            **_scope(key),
        )
        for key, user in await service.keys(session, principal)
    ]


def _scope(key: ApiKey) -> dict[str, Any]:
    return {
        "role": key.role,
        "project_id": key.project_id,
        "read_only": key.read_only,
        "expires_at": key.expires_at,
    }


@router.post("/api_keys", tags=["api keys"], responses=responses(NotFoundError))
async def create_api_key(body: ApiKeyCreateRequest, principal: CurrentPrincipal, access: Access) -> ApiKeyCreated:
    """A key that may do what the caller may, or less: in one project alone, reading alone, up to a moment. It ends
    with the membership of the person who made it."""
    if body.project_id is not None:
        await access.project(body.project_id)
    asked = service.AskedKey(body.key_name, body.project_id, body.read_only, body.expires_at)
    row, key = await service.create_key(access.session, principal, asked)
    return ApiKeyCreated(
        id=row.id,
        key=key,
        name=row.name,
        created_at=row.created_at,
        created_by=row.user_id or row.account_id,
        **_scope(row),
    )


KeyId = Annotated[int, Path(ge=-MOST_BIGINT - 1, le=MOST_BIGINT)]


@router.delete("/api_keys/{key_id}", tags=["api keys"], responses=responses(NotFoundError))
async def revoke_api_key(key_id: KeyId, principal: CurrentPrincipal, session: Session) -> ApiKeyRevoked:
    row = await service.revoke_key(session, principal, key_id)
    return ApiKeyRevoked(
        id=row.id,
        name=row.name,
        created_at=row.created_at,
        created_by=row.user_id or row.account_id,
        last_used_at=row.last_used_at,
        last_used_from_addr=row.last_used_from_addr,
        revoked=True,
    )


async def audit_filter(
    resource: Annotated[str | None, Query(max_length=120, description="Such as `rollout/ro-...`")] = None,
    project_id: Annotated[str | None, Query(max_length=60)] = None,
    actor: Annotated[str | None, Query(max_length=256, description="An account's name")] = None,
    action: Annotated[
        str | None, Query(max_length=60, description="`role.delete`, or `role.` for all of them")
    ] = None,
    since: Annotated[Timestamp | None, Query()] = None,
    until: Annotated[Timestamp | None, Query(description="Not itself")] = None,
) -> AuditFilter:
    return AuditFilter(resource, project_id, actor, action, since, until)


@router.get("/audit", tags=["audit"])
async def list_audit(
    principal: CurrentPrincipal,
    session: Session,
    page: Page,
    wanted: Annotated[AuditFilter, Depends(audit_filter)],
) -> AuditEntries:
    """Every change, every secret that was shown and every sign-in that the account may know of, newest first."""
    rows = await IdentityRepository(session).audit_page(principal.account_id, principal.fleet, wanted, page)
    return audit_view(rows, page)


@router.get(
    "/audit/export",
    tags=["audit"],
    response_class=StreamingResponse,
    responses={200: {"content": {"application/x-ndjson": {"schema": {"type": "string"}}}}},
)
async def export_audit(
    request: Request,
    principal: CurrentPrincipal,
    wanted: Annotated[AuditFilter, Depends(audit_filter)],
) -> StreamingResponse:
    """The same entries, all of them, one JSON object a line."""
    database: Database = request.app.state.database
    lines = export.lines(database, principal, wanted)
    headers = {"Content-Disposition": 'attachment; filename="weir-audit.ndjson"'}
    return StreamingResponse(lines, media_type="application/x-ndjson", headers=headers)


def audit_view(rows: list[AuditEntry], page: Page) -> AuditEntries:
    last = rows[page.limit - 1] if len(rows) > page.limit else None
    return AuditEntries(
        entries=[AuditEntryView.model_validate(row) for row in rows[: page.limit]],
        pagination=Pagination(cursor=page.cursor_after(last.at, last.id)) if last else Pagination(),
    )
