from datetime import timedelta
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from weir.authz.principal import Principal
from weir.errors import BadRequestError, ConflictError, NotFoundError, UnauthorizedError
from weir.identity import audit
from weir.identity.models import Account, ApiKey, ConsoleSession
from weir.identity.repository import IdentityRepository
from weir.kit import crypto
from weir.kit.clock import now
from weir.quotas.service import admit_api_key

BOOTSTRAP_ACCOUNT = "admin"
BOOTSTRAP_EMAIL = "admin@localhost"
# Who changes accounts: whoever may run `weir-admin` on the machine.
ADMIN = "weir-admin"


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


async def create_key(session: AsyncSession, principal: Principal, name: str) -> tuple[ApiKey, str]:
    await admit_api_key(session, principal.account_id)
    key = crypto.new_api_key()
    row = ApiKey(account_id=principal.account_id, name=name, key_hash=crypto.hash_token(key), created_at=now())
    repository = IdentityRepository(session)
    repository.add(row)
    await repository.flush()
    audit.record(session, principal, "api_key.create", f"api_key/{row.id}", name=name)
    return row, key


async def revoke_key(session: AsyncSession, principal: Principal, key_id: int) -> ApiKey:
    if key_id == principal.api_key_id:
        raise BadRequestError("a key cannot revoke itself; use another key of the account")
    row = await IdentityRepository(session).key(principal.account_id, key_id)
    if row is None:
        raise NotFoundError.of("API key", key_id)
    row.revoked_at = now()
    audit.record(session, principal, "api_key.revoke", f"api_key/{row.id}", name=row.name)
    return row


async def open_session(session: AsyncSession, api_key: str, hours: int) -> tuple[str, ApiKey, Account]:
    """The token of a new console session, and whose it is."""
    repository = IdentityRepository(session)
    found = await repository.account_of_key(crypto.hash_token(api_key))
    if found is None:
        raise UnauthorizedError("the API key is unknown or revoked; the first one is in WEIR_HOME/secrets/api_key")
    key, account = found
    await repository.drop_expired_sessions(now())
    token = crypto.new_api_key()
    repository.add(
        ConsoleSession(
            account_id=account.id,
            api_key_id=key.id,
            token_hash=crypto.hash_token(token),
            expires_at=now() + timedelta(hours=hours),
        )
    )
    return token, key, account


async def close_session(session: AsyncSession, token: str) -> tuple[ApiKey, Account] | None:
    """Ends a console session; whose it was, or None when there is none of that token any more."""
    repository, token_hash = IdentityRepository(session), crypto.hash_token(token)
    found = await repository.account_of_session(token_hash, now())
    await repository.end_session(token_hash)
    return found


async def keys(session: AsyncSession, account_id: UUID) -> list[ApiKey]:
    return await IdentityRepository(session).keys(account_id)
