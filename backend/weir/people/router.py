"""Signing in with email and password, sessions, and what people change of themselves."""

import asyncio
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Request, Response
from fastapi import status as http

from weir.authz.principal import (
    SESSION_COOKIE,
    CurrentPrincipal,
    idle,
    refuse_foreign_origin,
)
from weir.config import get_settings
from weir.db import Database, Session, release
from weir.errors import (
    BadRequestError,
    CodeRequiredError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    TooManyAttemptsError,
    UnauthorizedError,
    responses,
)
from weir.identity import audit
from weir.identity.cookies import lifetime, set_cookie
from weir.identity.repository import IdentityRepository
from weir.kit.clock import now
from weir.kit.crypto import SecretBox
from weir.people import own
from weir.people.proof import attempt_of, own_of
from weir.people.sign_in import sign_in as signed_in
from weir.people.sign_in import until_beat
from weir.people.sign_in_schemas import (
    PasswordChange,
    PasswordProof,
    RecoveryCodes,
    SessionItem,
    Sessions,
    SignInRequest,
    TotpCode,
    TotpSecret,
)

router = APIRouter(tags=["auth"], responses=responses(UnauthorizedError, BadRequestError))
_ASKS_AGAIN = responses(UnauthorizedError, CodeRequiredError, ForbiddenError, TooManyAttemptsError)


async def _database(request: Request) -> Database:
    return request.app.state.database


InDatabase = Annotated[Database, Depends(_database)]


@router.post("/auth/sign_in", status_code=http.HTTP_204_NO_CONTENT, responses=_ASKS_AGAIN)
async def sign_in(body: SignInRequest, request: Request, response: Response, database: InDatabase) -> None:
    """Sign in with email and password, and with `code` where the person has a second factor; the answer sets an
    HttpOnly cookie. What is wrong is not told, but for `CODE_REQUIRED`: the password is right, repeat the request
    with a code. Failures make the next attempts wait (429)."""
    refuse_foreign_origin(request)
    attempt = attempt_of(request, body.email, body.password.get_secret_value(), body.code)
    box, before = SecretBox.open(get_settings().secrets_dir), request.cookies.get(SESSION_COOKIE)
    clock = asyncio.get_running_loop().time
    began = clock()
    try:
        token = await signed_in(database, box, attempt, lifetime(), before)
    except UnauthorizedError:
        await asyncio.sleep(until_beat(clock() - began))
        raise
    set_cookie(request, response, token)


@router.get("/auth/sessions")
async def list_sessions(principal: CurrentPrincipal, session: Session) -> Sessions:
    """The caller's own, or, for an API key, those that it has opened; the newest first."""
    person = principal.user_id if principal.is_person else None
    found = await IdentityRepository(session).console_sessions(person, principal.api_key_id, now(), idle())
    return Sessions(
        sessions=[
            SessionItem(
                id=row.id,
                created_at=row.created_at,
                last_seen_at=row.last_seen_at,
                expires_at=row.expires_at,
                address=row.address,
                current=row.id == principal.session_id,
            )
            for row in found
        ]
    )


@router.delete(
    "/auth/sessions/{session_id}", status_code=http.HTTP_204_NO_CONTENT, responses=responses(NotFoundError)
)
async def end_session(session_id: UUID, principal: CurrentPrincipal, session: Session) -> None:
    """Ends one of the sessions that `list_sessions` shows."""
    person = principal.user_id if principal.is_person else None
    repository = IdentityRepository(session)
    found = await repository.console_sessions(person, principal.api_key_id, now(), idle())
    row = next((row for row in found if row.id == session_id), None)
    if row is None:
        raise NotFoundError.of("session", session_id)
    await repository.end_session(row.token_hash)
    audit.record(session, principal, "session.revoke", f"session/{session_id}", address=row.address)


@router.put("/auth/password", status_code=http.HTTP_204_NO_CONTENT, responses=_ASKS_AGAIN)
async def change_password(
    body: PasswordChange, request: Request, principal: CurrentPrincipal, session: Session
) -> None:
    """Ends all other sessions of the person."""
    await release(session)
    asked = own_of(request, principal, body)
    await asked.change_password(body.new_password.get_secret_value(), principal.session_id)


@router.post("/auth/totp", responses={**_ASKS_AGAIN, **responses(ConflictError)})
async def begin_totp(
    body: PasswordProof, request: Request, principal: CurrentPrincipal, session: Session
) -> TotpSecret:
    """A second factor, which counts once `POST /auth/totp/confirm` has had a code of it."""
    await release(session)
    made = await own_of(request, principal, body).begin_totp()
    return TotpSecret(secret=made.secret, uri=made.uri)


@router.post("/auth/totp/confirm", responses=responses(ForbiddenError, ConflictError, TooManyAttemptsError))
async def confirm_totp(
    body: TotpCode, request: Request, principal: CurrentPrincipal, session: Session, database: InDatabase
) -> RecoveryCodes:
    """From now on signing in asks for a code. The answer has codes for the day on which the authenticator is lost."""
    await release(session)
    box = SecretBox.open(get_settings().secrets_dir)
    attempt = attempt_of(request, principal.email, "", body.code)
    return RecoveryCodes(recovery_codes=await own.confirm_totp(database, box, _person(principal), attempt))


@router.post("/auth/totp/end", status_code=http.HTTP_204_NO_CONTENT, responses=_ASKS_AGAIN)
async def end_totp(body: PasswordProof, request: Request, principal: CurrentPrincipal, session: Session) -> None:
    """From now on the password alone signs in. Wants a code, as signing in does."""
    await release(session)
    await own_of(request, principal, body).end_totp()


def _person(principal: CurrentPrincipal) -> UUID:
    if principal.user_id is None:
        raise ForbiddenError("this is of a person, who has to sign in with email and password")
    return principal.user_id
