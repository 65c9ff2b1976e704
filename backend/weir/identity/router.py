from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi import status as http

from weir.authz.principal import SESSION_COOKIE, CurrentPrincipal, refuse_foreign_origin
from weir.config import get_settings
from weir.db import Session
from weir.errors import BadRequestError, NotFoundError, UnauthorizedError, responses
from weir.identity import service
from weir.identity.models import AuditEntry
from weir.identity.repository import IdentityRepository
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
    Organizations,
    SessionCreateRequest,
    SessionResponse,
    SessionUser,
)
from weir.kit.crypto import hash_token
from weir.kit.pagination import Page, Pagination
from weir.kit.schemas import MOST_BIGINT

router = APIRouter(responses=responses(UnauthorizedError, BadRequestError))


@router.post("/auth/session", status_code=http.HTTP_204_NO_CONTENT, tags=["auth"])
async def create_session(body: SessionCreateRequest, request: Request, response: Response, session: Session) -> None:
    """Sign in to the console with an API key; the answer sets an HttpOnly cookie."""
    refuse_foreign_origin(request)
    settings = get_settings()
    token, _ = await service.open_session(session, body.api_key.strip(), settings.session_hours)
    response.set_cookie(
        SESSION_COOKIE,
        token,
        max_age=settings.session_hours * 3600,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
        path="/",
    )


@router.get("/auth/session", tags=["auth"])
async def get_session(principal: CurrentPrincipal) -> SessionResponse:
    user = SessionUser(
        id=principal.account_id, name=principal.name, email=principal.email, operator=principal.operator
    )
    return SessionResponse(user=user)


@router.delete("/auth/session", status_code=http.HTTP_204_NO_CONTENT, tags=["auth"])
async def delete_session(request: Request, response: Response, session: Session) -> None:
    """Sign out. Repeating it changes nothing."""
    refuse_foreign_origin(request)
    token = request.cookies.get(SESSION_COOKIE)
    if token:
        await IdentityRepository(session).end_session(hash_token(token))
    response.delete_cookie(SESSION_COOKIE, path="/")


@router.get("/auth", tags=["auth"])
async def get_auth_details(principal: CurrentPrincipal) -> AuthDetails:
    return AuthDetails(account_id=str(principal.account_id), auth_method=principal.method)


@router.get("/users/me", tags=["users"])
async def get_current_user(principal: CurrentPrincipal) -> CurrentUser:
    return CurrentUser(
        id=str(principal.account_id),
        login=principal.name,
        name=principal.name,
        email=principal.email,
        auth_accounts=[],
    )


@router.get("/users/me/organizations", tags=["users"])
async def get_current_user_organizations(principal: CurrentPrincipal) -> Organizations:
    """Organisations are not built yet: every project belongs to its account."""
    del principal
    return Organizations(organizations=[])


@router.get("/api_keys", tags=["api keys"])
async def list_api_keys(principal: CurrentPrincipal, session: Session) -> list[ApiKeyItem]:
    creator = ApiKeyCreator(id=principal.account_id, name=principal.name)
    return [
        ApiKeyItem(
            id=key.id,
            name=key.name,
            created_at=key.created_at,
            created_by=creator,
            last_used_at=key.last_used_at,
            last_used_from_addr=key.last_used_from_addr,
        )
        for key in await service.keys(session, principal.account_id)
    ]


@router.post("/api_keys", tags=["api keys"])
async def create_api_key(body: ApiKeyCreateRequest, principal: CurrentPrincipal, session: Session) -> ApiKeyCreated:
    row, key = await service.create_key(session, principal, body.key_name)
    return ApiKeyCreated(id=row.id, key=key, name=row.name, created_at=row.created_at, created_by=row.account_id)


KeyId = Annotated[int, Path(ge=-MOST_BIGINT - 1, le=MOST_BIGINT)]


@router.delete("/api_keys/{key_id}", tags=["api keys"], responses=responses(NotFoundError))
async def revoke_api_key(key_id: KeyId, principal: CurrentPrincipal, session: Session) -> ApiKeyRevoked:
    row = await service.revoke_key(session, principal, key_id)
    return ApiKeyRevoked(
        id=row.id,
        name=row.name,
        created_at=row.created_at,
        created_by=row.account_id,
        last_used_at=row.last_used_at,
        last_used_from_addr=row.last_used_from_addr,
        revoked=True,
    )


@router.get("/audit", tags=["audit"])
async def list_audit(
    principal: CurrentPrincipal,
    session: Session,
    page: Page,
    resource: Annotated[str | None, Query(max_length=120, description="Such as `rollout/ro-...`")] = None,
    project_id: Annotated[str | None, Query(max_length=60)] = None,
) -> AuditEntries:
    rows = await IdentityRepository(session).audit_page(
        principal.account_id, principal.fleet, resource, project_id, page
    )
    return audit_view(rows, page)


def audit_view(rows: list[AuditEntry], page: Page) -> AuditEntries:
    last = rows[page.limit - 1] if len(rows) > page.limit else None
    return AuditEntries(
        entries=[AuditEntryView.model_validate(row) for row in rows[: page.limit]],
        pagination=Pagination(cursor=page.cursor_after(last.at, last.id)) if last else Pagination(),
    )
