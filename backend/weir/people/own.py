"""What people change of themselves: password, second factor. Each change asks for the password again, so that a
session that was stolen is not enough for it."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from weir.db import Database
from weir.errors import BadRequestError, ConflictError, UnauthorizedError
from weir.identity.repository import IdentityRepository
from weir.kit.crypto import SecretBox
from weir.people import passwords, second_factor, throttle
from weir.people.models import User
from weir.people.repository import PeopleRepository
from weir.people.sign_in import WRONG, Attempt, note, proven


@dataclass(frozen=True)
class Authenticator:
    """`secret` in base 32, and the URI of a QR code that has it. Shown once."""

    secret: str
    uri: str


@dataclass(frozen=True)
class Own:
    """`attempt` has the person's email, their password, and a code where they have a second factor."""

    database: Database
    box: SecretBox
    attempt: Attempt

    async def change_password(self, new: str, keep: UUID | None) -> None:
        """All sessions of the person end but `keep`."""
        passwords.check_new(new, self.attempt.email)
        user = await proven(self.database, self.box, self.attempt)
        written = await passwords.hashed(new)
        async with self.database.transaction() as session:
            current = await self.again(session, user)
            current.password_hash = written
            await IdentityRepository(session).end_sessions_of(user.id, but=keep)
            await self.note(session, user, "user.password")

    async def begin_totp(self) -> Authenticator:
        """A secret, which counts once `confirm_totp` has seen a code of it. Raises ConflictError where one counts."""
        user = await proven(self.database, self.box, self.attempt)
        secret = second_factor.new_secret()
        async with self.database.transaction() as session:
            current = await self.again(session, user)
            if current.totp_confirmed_at is not None:
                raise ConflictError(f"{user.email} has a second factor; end it first, then begin another one")
            current.totp_secret, current.totp_last_step = self.box.seal_bytes(secret), None
            await self.note(session, user, "user.totp.begin")
        return Authenticator(second_factor.as_text(secret), second_factor.uri(secret, user.email))

    async def end_totp(self) -> None:
        """Recovery codes go with it."""
        user = await proven(self.database, self.box, self.attempt)
        async with self.database.transaction() as session:
            current = await self.again(session, user)
            await forget_second_factor(session, current)
            await self.note(session, user, "user.totp.end")

    async def again(self, session: AsyncSession, user: User) -> User:
        """The person, locked, as long as their password is the one that was proven."""
        current = await PeopleRepository(session).locked_user(user.id)
        if current is None or current.password_hash != user.password_hash:
            raise UnauthorizedError(WRONG)
        await throttle.succeeded(session, self.attempt.email, self.attempt.address)
        return current

    async def note(self, session: AsyncSession, user: User, action: str, **detail: Any) -> None:
        memberships = await PeopleRepository(session).memberships_of(user.id)
        note(session, memberships, user.email, self.attempt, action, **detail)


async def confirm_totp(database: Database, box: SecretBox, user_id: UUID, attempt: Attempt) -> list[str]:
    """Has the secret that was begun count; recovery codes, shown once. `attempt` needs no password. Raises
    ConflictError where nothing was begun, BadRequestError when the code is not the secret's, TooManyAttemptsError."""
    await throttle.enter(database, attempt.email, attempt.address, attempt.at)
    async with database.transaction() as session:
        people = PeopleRepository(session)
        user = await people.locked_user(user_id)
        if user is None or user.totp_secret is None or user.totp_confirmed_at is not None:
            raise ConflictError("no second factor waits to be confirmed; begin one first")
        step = second_factor.matching_step(box.unseal_bytes(user.totp_secret), attempt.code or "", attempt.at)
        if step is None:
            raise BadRequestError("the code is not one of this moment; check the clock of the authenticator's device")
        user.totp_confirmed_at, user.totp_last_step = attempt.at, step
        await throttle.succeeded(session, attempt.email, attempt.address)
        codes = second_factor.new_recovery_codes()
        await second_factor.replace_recovery_codes(session, user_id, codes)
        note(session, await people.memberships_of(user_id), user.email, attempt, "user.totp.confirm")
        return codes


async def forget_second_factor(session: AsyncSession, user: User) -> None:
    user.totp_secret = user.totp_confirmed_at = user.totp_last_step = None
    await second_factor.replace_recovery_codes(session, user.id, [])
