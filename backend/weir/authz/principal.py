"""Who asks, in which organisation, and what they may do there.

`guard` stands before every route below /api/v2, whatever the route itself asks for: it finds out who asks and holds
that against `weir.authz.rules`. Handlers take the answer as `CurrentPrincipal`.

A request acts in one organisation. An API key is of one. A person acts in the organisation of the path, of the path's
project, of the query's `org_id`, or else in the one that their session has chosen. Whether they are a member, and as
what, is read at each request: who was removed is out at once, with sessions and keys that they still have. What is of
an organisation that the caller is not in answers as if it did not exist. An organisation of operators sees the
computes and the rollouts of all organisations; projects and what is in them stay their owners' alone.
"""

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated
from urllib.parse import urlsplit
from uuid import UUID

from fastapi import Depends, Request
from fastapi.security.utils import get_authorization_scheme_param
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.authz.rules import RULES, Reach, Rule
from weir.config import get_settings
from weir.db import READ_ALONG, Session
from weir.errors import ForbiddenError, NotFoundError, UnauthorizedError, request_id_of
from weir.identity.models import NOWHERE, Account, ApiKey, ConsoleSession
from weir.identity.repository import IdentityRepository
from weir.kit.clock import now
from weir.kit.crypto import hash_token
from weir.kit.ids import ID_PATTERN
from weir.people.repository import PeopleRepository
from weir.people.roles import Role, least
from weir.projects.models import Project

SESSION_COOKIE = "weir_session"
SESSION_METHOD = "session_cookie"
KEY_METHOD = "api_key_user"
SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}


@dataclass(frozen=True)
class Principal:
    """`account_id`: the organisation that the request acts in, with `role` there; None is no role at all. `name`: as
    the audit log calls the caller, a person's email or the organisation's name."""

    account_id: UUID
    name: str
    email: str
    method: str
    api_key_id: int | None
    request_id: str
    # Of the client, as the connection has it.
    address: str = ""
    operator: bool = False
    role: Role | None = None
    # The person who signed in, or who made the key.
    user_id: UUID | None = None
    session_id: UUID | None = None
    # Of the key, if it has them.
    project_id: str | None = None
    read_only: bool = False

    @property
    def fleet(self) -> UUID | None:
        """Whose computes and rollouts are seen: this organisation's, or, for an operator, everybody's (None)."""
        return None if self.operator else self.account_id

    @property
    def is_person(self) -> bool:
        """Whether somebody signed in as themselves, rather than with a key."""
        return self.user_id is not None and self.api_key_id is None


def refusal(rule: Rule, principal: Principal) -> str | None:
    """Why the rule keeps the principal out; None when it lets them in."""
    if rule.reach is Reach.PERSON and not principal.is_person:
        return "this is of a person, who has to sign in with email and password; an API key is not for it"
    if rule.least is None:
        return None
    if principal.role is None:
        return f"{principal.name} is a member of no organisation; an admin of one has to add them"
    if principal.project_id is not None and rule.reach is not Reach.PROJECT:
        return f"the API key is for project {principal.project_id} alone; use one of the organisation"
    if rule.reach is Reach.INSTALLATION and not principal.operator:
        return "this is for operators' organisations only (`weir-admin account operator`)"
    if not principal.role.covers(rule.least):
        what = "the API key is for reading only" if principal.read_only else f"{principal.name} is {principal.role}"
        return f"{what}, and this is for the role {rule.least} or a greater one"
    return None


async def guard(request: Request, session: Session) -> None:
    """Finds out who asks, lets them in by the rule of the operation, and leaves the principal in the request's state:
    none where it is for anybody."""
    name = str(getattr(request.scope.get("route"), "name", ""))
    rule = RULES.get(name)
    if rule is None:
        raise ForbiddenError(f"no rule says who may use {name!r}, so nobody may; this is a fault of Weir's")
    if rule.reach is Reach.OPEN:
        return
    principal = await _identified(request, session)
    why = refusal(rule, principal)
    if why is not None:
        raise ForbiddenError(why)
    request.state.principal = principal


async def current_principal(request: Request) -> Principal:
    """What `guard` found, which ran before: a route that it does not stand before has no caller, and lets nobody
    in."""
    principal: Principal | None = getattr(request.state, "principal", None)
    if principal is None:
        raise UnauthorizedError("an operation for anybody has no caller")
    return principal


async def _identified(request: Request, session: AsyncSession) -> Principal:
    scheme, credentials = get_authorization_scheme_param(request.headers.get("authorization"))
    if scheme.lower() == "bearer" and credentials:
        key, account = await _key_and_account(request, session, hash_token(credentials))
        principal = await principal_of_key(session, key, account, request)
        await IdentityRepository(session).touch_key(key, address_of(request), now())
        request.state.api_key_id = key.id
        return principal
    cookie = request.cookies.get(SESSION_COOKIE)
    if cookie:
        principal = await _of_session(cookie, request, session)
        request.state.api_key_id = principal.api_key_id or str(principal.user_id)
        return principal
    raise UnauthorizedError("send an API key as `Authorization: Bearer <key>`, or sign in to the console")


async def _key_and_account(request: Request, session: AsyncSession, key_hash: bytes) -> tuple[ApiKey, Account]:
    """Leaves the project that the path names to `ProjectAccess`, where it is that account's. Raises UnauthorizedError
    for a key that there is not, or that is revoked."""
    repository, project_id = IdentityRepository(session), _project_of_path(request)
    if project_id is None:
        found = await repository.account_of_key(key_hash)
    else:
        found = await repository.account_of_key_for(key_hash, project_id)
    if found is None:
        raise UnauthorizedError("the API key is unknown or revoked; use one from GET /api/v2/api_keys' account")
    key, account, *rest = found
    session.info[READ_ALONG] = rest[0] if rest else None
    return key, account


def _project_of_path(request: Request) -> str | None:
    """The id of a project that the path names. Text that is no id is the route's to refuse."""
    given = request.path_params.get("project_id")
    return given if given is not None and re.fullmatch(ID_PATTERN, given) else None


async def _of_session(cookie: str, request: Request, session: AsyncSession) -> Principal:
    repository, at = IdentityRepository(session), now()
    row = await repository.console_session(hash_token(cookie), at, idle())
    if row is None:
        raise UnauthorizedError("the console session has ended; sign in again")
    refuse_foreign_origin(request)
    principal = await principal_of_session(session, row, request)
    await repository.touch_session(row, at)
    return principal


async def principal_of_session(session: AsyncSession, opened: ConsoleSession, request: Request) -> Principal:
    """Who a request in this session is by. Raises UnauthorizedError when the key that opened it has ended."""
    if opened.user_id is not None:
        return await principal_of_person(session, opened, opened.user_id, request)
    found = await IdentityRepository(session).account_of_key_id(opened.api_key_id)
    if found is None:
        raise UnauthorizedError("the API key that opened the console session is revoked; sign in again")
    return await principal_of_key(session, *found, request, opened)


def idle() -> timedelta:
    """For how long a session without a request lives."""
    return timedelta(minutes=get_settings().session_idle_minutes)


def address_of(request: Request) -> str:
    """The client's address as the connection has it; empty where there is none."""
    return request.client.host if request.client else ""


async def principal_of_key(
    session: AsyncSession, key: ApiKey, account: Account, request: Request, opened: ConsoleSession | None = None
) -> Principal:
    """Who a request with this key is by, or one of the session that the key has opened. Raises UnauthorizedError when
    the key has ended, NotFoundError when the path names what it is not for."""
    if key.expires_at is not None and key.expires_at <= now():
        raise UnauthorizedError(f"the API key has expired at {key.expires_at:%Y-%m-%d %H:%M} UTC; make another one")
    role, name, email = key.role, account.name, account.email
    if key.user_id is not None:
        people = PeopleRepository(session)
        user, membership = await people.user(key.user_id), await people.membership(account.id, key.user_id)
        if user is None or membership is None:
            raise UnauthorizedError("the API key was made by a person who is no member any more; use another one")
        role, name, email = least(role, membership.role), user.email, user.email
    if key.read_only:
        role = Role.VIEWER
    _refuse_other_organization(request, {account.id})
    project_id = request.path_params.get("project_id")
    if key.project_id is not None and project_id not in {None, key.project_id}:
        raise NotFoundError.of("project", project_id)
    return Principal(
        account_id=account.id,
        name=name,
        email=email,
        method=KEY_METHOD if opened is None else SESSION_METHOD,
        api_key_id=key.id,
        request_id=request_id_of(request),
        address=address_of(request),
        operator=account.operator,
        role=role,
        user_id=key.user_id,
        session_id=None if opened is None else opened.id,
        project_id=key.project_id,
        read_only=key.read_only,
    )


async def principal_of_person(
    session: AsyncSession, opened: ConsoleSession, user_id: UUID, request: Request
) -> Principal:
    """Who a request of a person's session is by, in the organisation that it acts in."""
    people = PeopleRepository(session)
    user = await people.user(user_id)
    if user is None:
        raise UnauthorizedError("the person who signed in does not exist any more")
    found = {account.id: (membership, account) for membership, account in await people.memberships_of(user_id)}
    named = _refuse_other_organization(request, set(found))
    project_id = _project_of_path(request)
    if project_id is not None:
        project = (await session.scalars(select(Project).where(Project.id == project_id))).one_or_none()
        if project is None or project.account_id not in found or named not in {None, project.account_id}:
            raise NotFoundError.of("project", project_id)
        named = project.account_id
        session.info[READ_ALONG] = project
    if named is None:
        named = opened.account_id if opened.account_id in found else next(iter(found), None)
    membership, account = (None, None) if named is None else found[named]
    return Principal(
        account_id=NOWHERE if account is None else account.id,
        name=user.email,
        email=user.email,
        method=SESSION_METHOD,
        api_key_id=None,
        request_id=request_id_of(request),
        address=address_of(request),
        operator=account is not None and account.operator,
        role=None if membership is None else membership.role,
        user_id=user.id,
        session_id=opened.id,
    )


def _refuse_other_organization(request: Request, mine: set[UUID]) -> UUID | None:
    """The organisation that the path or the query names; None where they name none. Raises NotFoundError for a path,
    ForbiddenError for a query, when it is none of `mine`, whether or not there is such an organisation."""
    for given, of_path in ((request.path_params.get("org_id"), True), (request.query_params.get("org_id"), False)):
        if not given:
            continue
        try:
            named = UUID(given)
        except ValueError:
            named = None
        if named in mine:
            return named
        if of_path:
            raise NotFoundError.of("organization", given)
        raise ForbiddenError(f"the caller acts in no organization {given!r}; leave `org_id` out, or name its own")
    return None


def refuse_foreign_origin(request: Request) -> None:
    """A cookie travels with requests that other sites provoke. Browsers say where those come from: in `Origin`, or,
    where that was taken away, in `Sec-Fetch-Site`, which no script can set."""
    if request.method in SAFE_METHODS:
        return
    origin = request.headers.get("origin")
    if origin is None:
        site = request.headers.get("sec-fetch-site")
        if site not in {None, "same-origin", "none"}:
            raise ForbiddenError("a request from another site may not use the console's session; use an API key")
    elif urlsplit(origin).netloc != request.headers.get("host"):
        raise ForbiddenError(f"a request from {origin} may not use the console's session; use an API key")


CurrentPrincipal = Annotated[Principal, Depends(current_principal)]
