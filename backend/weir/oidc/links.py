"""Links that people make and end themselves between who they are here and who they are at an identity provider.

A link is another way to sign in, so making one and ending one each ask for the password again, and for a code where
there is a second factor. The proof is made before the browser leaves for the provider. The sealed cookie then names
the session that it was made in, and the answer links in that session alone: whoever has another browser's answer, or
another person's session, links nobody.
"""

from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import CursorResult, delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.errors import BadRequestError, ConflictError, NotFoundError, UnauthorizedError
from weir.identity.models import ConsoleSession
from weir.identity.repository import IdentityRepository
from weir.kit.crypto import hash_token
from weir.oidc.accounts import in_turn
from weir.oidc.flow import Begun
from weir.oidc.models import ProviderSession
from weir.oidc.provider import Provider
from weir.oidc.service import House, answered
from weir.oidc.settings import ProviderSettings
from weir.people.models import User, UserIdentity
from weir.people.own import Own
from weir.people.repository import PeopleRepository
from weir.people.schemas import is_email
from weir.people.sign_in import WRONG, Coming, normal_email, note, proven


async def links_of(session: AsyncSession, user_id: UUID) -> list[UserIdentity]:
    """The oldest first."""
    statement = select(UserIdentity).where(UserIdentity.user_id == user_id)
    return list((await session.scalars(statement.order_by(UserIdentity.linked_at, UserIdentity.subject))).all())


async def allow(own: Own, settings: ProviderSettings) -> None:
    """Raises as `weir.people.sign_in.proven`; ConflictError where the person has no password, or has a link with the
    provider."""
    async with own.database.transaction() as session:
        # Before the proof: a refusal uses up neither an attempt nor a code.
        await _has_none_with(session, settings, await _with_password(session, own))
    user = await proven(own.database, own.box, own.attempt)
    async with own.database.transaction() as session:
        await own.again(session, user)
        await own.note(session, user, "user.link.begin", provider=settings.id, issuer=settings.issuer)


async def make(house: House, provider: Provider, begun: Begun, code: str, coming: Coming, token: str | None) -> None:
    """Links the person of the session that `begun` names, whose token is `token`. Nothing changes where the two are
    linked already.

    Raises UnauthorizedError where the session is another one or has ended, ConflictError where who signed in at the
    provider is linked with another person or the person with another one there; otherwise as
    `weir.oidc.service.answered`."""
    idle = house.lifetime.idle
    async with house.database.transaction() as session:
        await _whose(session, begun, token, coming.at, idle)
    said = await answered(house, provider, begun, code, coming.at)
    settings = provider.settings
    async with house.database.transaction() as session:
        await in_turn(session)
        people = PeopleRepository(session)
        user = await people.locked_user(await _whose(session, begun, token, coming.at, idle))
        # What locked the person before may have ended the session.
        if user is None or await _whose(session, begun, token, coming.at, idle) != user.id:
            raise UnauthorizedError(_OTHER_SESSION)
        linked = await session.get(UserIdentity, (settings.issuer, said.subject))
        if linked is not None:
            if linked.user_id == user.id:
                return
            raise ConflictError(
                f"whoever signed in at {settings.name} is linked with another person here; sign in there as somebody "
                "else, or end that link first"
            )
        await _has_none_with(session, settings, user)
        email = normal_email(said.email or "")
        session.add(
            UserIdentity(
                issuer=settings.issuer,
                subject=said.subject,
                user_id=user.id,
                email=email if is_email(email) else user.email,
                linked_at=coming.at,
            )
        )
        memberships = await people.memberships_of(user.id)
        note(
            session, memberships, user.email, coming, "user.link",
            provider=settings.id, issuer=settings.issuer, subject=said.subject,
        )  # fmt: skip


async def end(own: Own, issuer: str, subject: str, keep: UUID | None) -> None:
    """The sessions that came by the link end too, but for `keep`. Raises as `weir.people.sign_in.proven`;
    ConflictError where the person has no password, and so may have no other way to sign in; NotFoundError."""
    async with own.database.transaction() as session:
        await _with_password(session, own)
    user = await proven(own.database, own.box, own.attempt)
    async with own.database.transaction() as session:
        await own.again(session, user)
        link = (UserIdentity.issuer == issuer, UserIdentity.subject == subject, UserIdentity.user_id == user.id)
        result = await session.execute(delete(UserIdentity).where(*link).execution_options(synchronize_session=False))
        if not isinstance(result, CursorResult) or result.rowcount == 0:
            raise NotFoundError(f"you are not linked with {subject!r} of {issuer}")
        came = select(ProviderSession.session_id).where(
            ProviderSession.issuer == issuer, ProviderSession.subject == subject
        )
        ended = delete(ConsoleSession).where(ConsoleSession.id.in_(came), ConsoleSession.user_id == user.id)
        if keep is not None:
            ended = ended.where(ConsoleSession.id != keep)
        await session.execute(ended.execution_options(synchronize_session=False))
        await own.note(session, user, "user.unlink", issuer=issuer, subject=subject)


_OTHER_SESSION = (
    "this link was begun in another session than the one that this browser has now, or that session has ended; "
    "sign in and begin again"
)


async def _whose(session: AsyncSession, begun: Begun, token: str | None, at: datetime, idle: timedelta) -> UUID:
    """The person of the session that the link was begun in, which has to be the one that the browser has."""
    if begun.link_in is None:
        raise BadRequestError("this answer is to a sign-in and not to a link; begin again")
    opened = await IdentityRepository(session).console_session(hash_token(token or ""), at, idle)
    if opened is None or str(opened.id) != begun.link_in or opened.user_id is None:
        raise UnauthorizedError(_OTHER_SESSION)
    return opened.user_id


async def _with_password(session: AsyncSession, own: Own) -> User:
    """The person who asks. To be asked before the proof, which would call no password a wrong one."""
    user = await PeopleRepository(session).user_of_email(own.attempt.email)
    if user is None:
        raise UnauthorizedError(WRONG)
    if user.password_hash is None:
        raise ConflictError(
            f"{user.email} has no password to prove this with, and signs in by an identity provider alone; have an "
            f"operator set a password first (`weir-admin user password {user.email}`), or change the links "
            "(`weir-admin user link`, `weir-admin user unlink`)"
        )
    return user


async def _has_none_with(session: AsyncSession, settings: ProviderSettings, user: User) -> None:
    statement = select(UserIdentity.subject).where(
        UserIdentity.issuer == settings.issuer, UserIdentity.user_id == user.id
    )
    if await session.scalar(statement.limit(1)) is not None:
        raise ConflictError(f"{user.email} is linked with somebody at {settings.name}; end that link first")
