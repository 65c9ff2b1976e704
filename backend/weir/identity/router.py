from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi import status as http
from fastapi.responses import StreamingResponse

from weir.authz.principal import (
    SESSION_COOKIE,
    SESSION_METHOD,
    CurrentPrincipal,
    principal_of,
    refuse_foreign_origin,
)
from weir.config import get_settings
from weir.db import Database, Session
from weir.errors import BadRequestError, NotFoundError, UnauthorizedError, responses
from weir.identity import audit, export, service
from weir.identity.models import AuditEntry
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
    Organizations,
    SessionCreateRequest,
    SessionResponse,
    SessionUser,
)
from weir.kit.pagination import Page, Pagination
from weir.kit.schemas import MOST_BIGINT, Timestamp

router = APIRouter(responses=responses(UnauthorizedError, BadRequestError))


@router.post("/auth/session", status_code=http.HTTP_204_NO_CONTENT, tags=["auth"])
async def create_session(body: SessionCreateRequest, request: Request, response: Response, session: Session) -> None:
    """Sign in to the console with an API key; the answer sets an HttpOnly cookie."""
    refuse_foreign_origin(request)
    settings = get_settings()
    token, key, account = await service.open_session(session, body.api_key.strip(), settings.session_hours)
    actor = principal_of(account, SESSION_METHOD, key.id, request)
    audit.record(session, actor, "session.create", f"account/{account.name}", key=key.name)
    response.set_cookie(
        SESSION_COOKIE,
        token,
        max_age=settings.session_hours * 3600,
        httponly=True,
        samesite="strict",
        secure=settings.behind_tls or request.url.scheme == "https",
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
    ended = await service.close_session(session, token) if token else None
    if ended is not None:
        key, account = ended
        actor = principal_of(account, SESSION_METHOD, key.id, request)
        audit.record(session, actor, "session.delete", f"account/{account.name}", key=key.name)
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


def audit_filter(
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
