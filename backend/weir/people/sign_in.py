"""How a person proves who they are, and gets a session.

An email that nobody has, a wrong password and a wrong code are answered alike, and each costs one hash of a password.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from weir.db import Database
from weir.errors import CodeRequiredError, UnauthorizedError
from weir.identity import audit
from weir.identity.cookies import Lifetime
from weir.identity.models import NOWHERE, Account, ConsoleSession
from weir.identity.repository import IdentityRepository
from weir.kit import crypto
from weir.kit.crypto import SecretBox
from weir.people import passwords, second_factor, throttle
from weir.people.models import Membership, User
from weir.people.repository import PeopleRepository

WRONG = "the email, the password or the code is wrong"
# Refusals leave at multiples of this, counted from when the request came. Only what a refusal of a person does more
# than one of nobody, to write an entry of the audit log, differs between them: some milliseconds.
BEAT_SECONDS = 0.2


class Coming(Protocol):
    """Of a request that signs somebody in: the client's address, the request's id, and the moment."""

    @property
    def address(self) -> str: ...
    @property
    def request_id(self) -> str: ...
    @property
    def at(self) -> datetime: ...


@dataclass(frozen=True)
class Came:
    """A `Coming` without a password."""

    address: str
    request_id: str
    at: datetime


@dataclass(frozen=True)
class Attempt:
    """`address`: of the client. `code`: of the second factor, by TOTP or for recovery."""

    email: str
    password: str
    code: str | None
    address: str
    request_id: str
    at: datetime


@dataclass(frozen=True)
class _Doer:
    """Who an audit entry is by (`weir.identity.audit.Actor`)."""

    account_id: UUID
    name: str
    request_id: str
    address: str
    api_key_id: int | None = None


def until_beat(elapsed: float) -> float:
    """Seconds from now to the next beat, for a refusal that took so long."""
    return -elapsed % BEAT_SECONDS


def normal_email(email: str) -> str:
    """As `users.email` has it."""
    return email.strip().lower()


async def sign_in(
    database: Database, box: SecretBox, attempt: Attempt, lifetime: Lifetime, before: str | None
) -> str:
    """The token of a new session. `before`: the token of a session that the client had, which ends.

    Raises UnauthorizedError; CodeRequiredError where the password is right and a code is missing;
    TooManyAttemptsError."""
    user = await proven(database, box, attempt)
    async with database.transaction() as session:
        current = await PeopleRepository(session).locked_user(user.id)
        if current is None or _secrets(current) != _secrets(user):
            # What was proven is not what counts now: perhaps it was changed because somebody else has it.
            raise UnauthorizedError(WRONG)
        if current.password_hash is not None and passwords.outdated(current.password_hash):
            current.password_hash = await passwords.hashed(attempt.password)
        await throttle.succeeded(session, attempt.email, attempt.address)
        second = current.totp_confirmed_at is not None
        token, _ = await open_session(session, current, attempt, lifetime, before, second_factor=second)
    return token


async def open_session(
    session: AsyncSession, user: User, coming: Coming, lifetime: Lifetime, before: str | None, **detail: Any
) -> tuple[str, ConsoleSession]:
    """The token of a new session of a person who has proven who they are, and its row. `before`: the token of a
    session that the client had, which ends: nobody goes on in a session that somebody else may know. `detail` is for
    the audit log."""
    identity = IdentityRepository(session)
    token = crypto.new_api_key()
    await identity.drop_expired_sessions(coming.at, lifetime.idle)
    if before is not None:
        await identity.end_session(crypto.hash_token(before))
    memberships = await PeopleRepository(session).memberships_of(user.id)
    row = ConsoleSession(
        user_id=user.id,
        account_id=memberships[0][1].id if memberships else None,
        token_hash=crypto.hash_token(token),
        address=coming.address,
        created_at=coming.at,
        last_seen_at=coming.at,
        expires_at=coming.at + lifetime.most,
    )
    identity.add(row)
    note(session, memberships, user.email, coming, "session.create", **detail)
    return token, row


def _secrets(user: User) -> tuple[object, ...]:
    return user.password_hash, user.totp_secret, user.totp_confirmed_at


async def proven(database: Database, box: SecretBox, attempt: Attempt) -> User:
    """The person whose password, and whose code where they have a second factor, the attempt has. The code is used up
    then. Raises as `sign_in`."""
    await throttle.enter(database, attempt.email, attempt.address, attempt.at)
    async with database.transaction() as session:
        user = await PeopleRepository(session).user_of_email(attempt.email)
    right = await passwords.fits(attempt.password, None if user is None else user.password_hash)
    if user is None or not right:
        raise await _refused(database, user, attempt, "password")
    if user.totp_confirmed_at is None or user.totp_secret is None:
        return user
    if not attempt.code:
        await throttle.undecided(database, attempt.email, attempt.address)
        raise CodeRequiredError("send `code` too: six digits of the authenticator, or a recovery code")
    async with database.transaction() as session:
        taken = await _take_code(session, box.unseal_bytes(user.totp_secret), user.id, attempt)
    if not taken:
        raise await _refused(database, user, attempt, "code")
    return user


async def _take_code(session: AsyncSession, secret: bytes, user_id: UUID, attempt: Attempt) -> bool:
    code = "".join((attempt.code or "").split())
    if len(code) == second_factor.DIGITS and code.isascii() and code.isdigit():
        step = second_factor.matching_step(secret, code, attempt.at)
        return step is not None and await second_factor.use_step(session, user_id, step)
    return await second_factor.use_recovery_code(session, user_id, code, attempt.at)


async def _refused(database: Database, user: User | None, attempt: Attempt, what: str) -> UnauthorizedError:
    """Failures at an email that nobody has are not entries: strangers could fill the log with them."""
    if user is not None:
        async with database.transaction() as session:
            memberships = await PeopleRepository(session).memberships_of(user.id)
            note(session, memberships, user.email, attempt, "session.refuse", wrong=what)
    return UnauthorizedError(WRONG)


def note(
    session: AsyncSession,
    memberships: Sequence[tuple[Membership, Account]],
    email: str,
    coming: Coming,
    action: str,
    **detail: Any,
) -> None:
    """An entry of the audit log in each organisation of the person; one of no organisation when they are in none."""
    for account_id in [account.id for _, account in memberships] or [NOWHERE]:
        doer = _Doer(account_id, email, coming.request_id, coming.address)
        audit.record(session, doer, action, f"user/{email}", **detail)
