"""Who asks, and what they may touch.

Every route below /api/v2 depends on `CurrentPrincipal`, except the one that opens a console session. An
account owns projects and rollouts; ids of other accounts' answer as if they did not exist. An operator's account sees
the computes and the rollouts of all accounts; projects and what is in them stay their owners' alone.
"""

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit
from uuid import UUID

from fastapi import Depends, Request, Security
from fastapi.security import APIKeyCookie, HTTPBearer
from fastapi.security.http import HTTPAuthorizationCredentials

from weir.db import Session
from weir.errors import ForbiddenError, UnauthorizedError, request_id_of
from weir.identity.models import Account
from weir.identity.repository import IdentityRepository
from weir.kit.clock import now
from weir.kit.crypto import hash_token

SESSION_COOKIE = "weir_session"
SESSION_METHOD = "session_cookie"
SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}

_bearer = HTTPBearer(auto_error=False, description="An API key")
_cookie = APIKeyCookie(name=SESSION_COOKIE, auto_error=False, description="The console's session")


@dataclass(frozen=True)
class Principal:
    account_id: UUID
    name: str
    email: str
    method: str
    api_key_id: int
    request_id: str
    # Of the client, as the connection has it.
    address: str = ""
    operator: bool = False

    @property
    def fleet(self) -> UUID | None:
        """Whose computes and rollouts are seen: those of this account, or, for an operator, everybody's (None)."""
        return None if self.operator else self.account_id


async def current_principal(
    request: Request,
    session: Session,
    bearer: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)],
    cookie: Annotated[str | None, Security(_cookie)],
) -> Principal:
    repository = IdentityRepository(session)
    if bearer is not None:
        found = await repository.account_of_key(hash_token(bearer.credentials))
        if found is None:
            raise UnauthorizedError("the API key is unknown or revoked; use one from GET /api/v2/api_keys' account")
        key, account = found
        await repository.touch_key(key.id, address_of(request), now())
        request.state.api_key_id = key.id
        return principal_of(account, "api_key_user", key.id, request)
    if cookie:
        found = await repository.account_of_session(hash_token(cookie), now())
        if found is None:
            raise UnauthorizedError("the console session has ended; sign in again")
        refuse_foreign_origin(request)
        key, account = found
        request.state.api_key_id = key.id
        return principal_of(account, SESSION_METHOD, key.id, request)
    raise UnauthorizedError("send an API key as `Authorization: Bearer <key>`, or sign in to the console")


def address_of(request: Request) -> str:
    """The client's address as the connection has it; empty where there is none."""
    return request.client.host if request.client else ""


def principal_of(account: Account, method: str, key_id: int, request: Request) -> Principal:
    """Who a request is by: the account, and the key that it was made with or that opened its session."""
    return Principal(
        account_id=account.id,
        name=account.name,
        email=account.email,
        method=method,
        api_key_id=key_id,
        request_id=request_id_of(request),
        address=address_of(request),
        operator=account.operator,
    )


def refuse_foreign_origin(request: Request) -> None:
    """A cookie travels with requests that other sites provoke; those name another origin."""
    origin = request.headers.get("origin")
    if request.method in SAFE_METHODS or origin is None:
        return
    if urlsplit(origin).netloc != request.headers.get("host"):
        raise ForbiddenError(f"a request from {origin} may not use the console's session; use an API key")


CurrentPrincipal = Annotated[Principal, Depends(current_principal)]
