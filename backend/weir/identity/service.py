from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from weir.authz.principal import Principal
from weir.errors import BadRequestError, ConflictError, ForbiddenError, NotFoundError, UnauthorizedError
from weir.identity import audit
from weir.identity.models import NOWHERE, Account, ApiKey, ConsoleSession
from weir.identity.repository import IdentityRepository
from weir.kit import crypto
from weir.kit.clock import now
from weir.people.models import User
from weir.people.roles import Role
from weir.quotas.service import admit_api_key

BOOTSTRAP_ACCOUNT = "admin"
BOOTSTRAP_EMAIL = "admin@localhost"
# Who changes accounts: whoever may run `weir-admin` on the machine.
ADMIN = "weir-admin"
# Of a key that ends: what is further away than that is a mistake, or no date that Postgres and Python both have.
LONGEST = timedelta(days=3_653)


@dataclass(frozen=True)
class AskedKey:
    """`project_id`: the only project that it is for; None is all of the organisation."""

    name: str
    project_id: str | None = None
    read_only: bool = False
    expires_at: datetime | None = None


async def bootstrap(session: AsyncSession, api_key: str) -> None:
    """Makes the key of the installation's secrets directory valid. Safe to repeat."""
    repository = IdentityRepository(session)
    account = await repository.ensure_account(BOOTSTRAP_ACCOUNT, BOOTSTRAP_EMAIL, operator=True)
    await repository.ensure_key(account.id, "bootstrap", crypto.hash_token(api_key))


async def create_account(session: AsyncSession, name: str, email: str, *, operator: bool) -> str:
    """A new account's first API key."""
    repository = IdentityRepository(session)
    if await repository.account_named(name) is not None:
        raise ConflictError(f"account {name} exists; choose another name, or change its role")
    account = await repository.ensure_account(name, email, operator=operator)
    key = crypto.new_api_key()
    await repository.ensure_key(account.id, "first", crypto.hash_token(key))
    audit.record_system(session, ADMIN, "account.create", f"account/{name}", operator=operator)
    return key


async def create_another_key(session: AsyncSession, name: str) -> str:
    """A further API key of an account that has lost its own, as all have after a recovery."""
    repository = IdentityRepository(session)
    account = await repository.account_named(name)
    if account is None:
        raise NotFoundError(f"account {name} does not exist; make it with `weir-admin account create`")
    key = crypto.new_api_key()
    await repository.ensure_key(account.id, "made by weir-admin", crypto.hash_token(key))
    audit.record_system(session, ADMIN, "api_key.create", f"account/{name}")
    return key


async def set_operator(session: AsyncSession, name: str, *, operator: bool) -> None:
    """From its next request on the account sees and controls the whole fleet, or its own part of it only."""
    account = await IdentityRepository(session).account_named(name)
    if account is None:
        raise NotFoundError(f"account {name} does not exist; make it with `weir-admin account create`")
    if account.operator != operator:
        account.operator = operator
        audit.record_system(session, ADMIN, "account.operator", f"account/{name}", operator=operator)


async def create_key(session: AsyncSession, principal: Principal, asked: AskedKey) -> tuple[ApiKey, str]:
    """A key that may do no more than who asks for it, be that a person or a key. Raises ForbiddenError otherwise."""
    if principal.role is None:
        raise ForbiddenError(f"{principal.name} is a member of no organisation, which a key would be of")
    await admit_api_key(session, principal.account_id)
    repository, at = IdentityRepository(session), now()
    maker = None
    if principal.api_key_id is not None:
        maker = await repository.key(principal.account_id, principal.api_key_id)
        if maker is None:
            raise UnauthorizedError("the API key was revoked meanwhile")
    asked = narrowed(asked, maker, at)
    key = crypto.new_api_key()
    row = ApiKey(
        account_id=principal.account_id,
        name=asked.name,
        key_hash=crypto.hash_token(key),
        created_at=at,
        role=principal.role,
        user_id=principal.user_id,
        project_id=asked.project_id,
        read_only=asked.read_only,
        expires_at=asked.expires_at,
    )
    repository.add(row)
    await repository.flush()
    audit.record(
        session, principal, "api_key.create", f"api_key/{row.id}", asked.project_id,
        name=asked.name, role=row.role.value, read_only=asked.read_only,
        expires_at=asked.expires_at.isoformat() if asked.expires_at else None,
    )  # fmt: skip
    return row, key


def narrowed(asked: AskedKey, maker: ApiKey | None, at: datetime) -> AskedKey:
    """What is asked for within what the key that asks has (None: a person asks). Raises BadRequestError for a key
    that would be over already, ForbiddenError for one that would be wider."""
    if asked.expires_at is not None and asked.expires_at <= at:
        raise BadRequestError("`expires_at` is not in the future; a key that is over opens nothing")
    if asked.expires_at is not None and asked.expires_at > at + LONGEST:
        raise BadRequestError(
            f"`expires_at` is more than {LONGEST.days} days away; leave it out for a key without end"
        )
    if maker is None:
        return asked
    if maker.project_id is not None and asked.project_id not in {None, maker.project_id}:
        raise ForbiddenError(f"a key of project {maker.project_id} makes none of another")
    if maker.expires_at is not None and asked.expires_at is not None and asked.expires_at > maker.expires_at:
        raise ForbiddenError(f"a key that ends at {maker.expires_at.isoformat()} makes none that lives longer")
    return AskedKey(
        name=asked.name,
        project_id=maker.project_id or asked.project_id,
        read_only=maker.read_only or asked.read_only,
        expires_at=asked.expires_at or maker.expires_at,
    )


def _mine(principal: Principal) -> UUID | None:
    """Whose keys the caller sees and revokes: those that it made itself; None, for admins, is everybody's."""
    if principal.role is not None and principal.role.covers(Role.ADMIN):
        return None
    return principal.user_id or NOWHERE


async def revoke_key(session: AsyncSession, principal: Principal, key_id: int) -> ApiKey:
    if key_id == principal.api_key_id:
        raise BadRequestError("a key cannot revoke itself; use another key of the account")
    row = await IdentityRepository(session).key(principal.account_id, key_id)
    if row is None or _mine(principal) not in {None, row.user_id}:
        raise NotFoundError.of("API key", key_id)
    row.revoked_at = now()
    audit.record(session, principal, "api_key.revoke", f"api_key/{row.id}", row.project_id, name=row.name)
    return row


async def keys(session: AsyncSession, principal: Principal) -> list[tuple[ApiKey, User | None]]:
    """Each with the person who made it."""
    return await IdentityRepository(session).keys(principal.account_id, _mine(principal))


async def key_that_opens(session: AsyncSession, api_key: str) -> tuple[ApiKey, Account]:
    """The key that is to open a console session. Raises UnauthorizedError for one that is unknown or revoked."""
    found = await IdentityRepository(session).account_of_key(crypto.hash_token(api_key))
    if found is None:
        raise UnauthorizedError("the API key is unknown or revoked; the first one is in WEIR_HOME/secrets/api_key")
    return found


async def open_session(
    session: AsyncSession, key: ApiKey, address: str, most: timedelta, idle: timedelta, before: str | None
) -> str:
    """The token of a new console session of a key. `before`: the token of a session that the client had, which
    ends."""
    repository, at = IdentityRepository(session), now()
    await repository.drop_expired_sessions(at, idle)
    if before is not None:
        await repository.end_session(crypto.hash_token(before))
    token = crypto.new_api_key()
    repository.add(
        ConsoleSession(
            account_id=key.account_id,
            api_key_id=key.id,
            token_hash=crypto.hash_token(token),
            address=address,
            created_at=at,
            last_seen_at=at,
            expires_at=at + most,
        )
    )
    return token
