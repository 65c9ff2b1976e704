"""Whom a provider's word is for: the person of this installation who is linked with it, or who is made or linked now.

People are told apart by issuer and subject, which a provider never gives to anybody else. An email is no proof of
that kind. It counts once, at the first sign-in, and only where the provider says that it has verified the email and
the installation's settings say that the provider speaks for the email's domain. Even then it opens nothing that
somebody else may hold: a person with a password is not linked by it, since whoever made that password may be another
one. Such a person makes the link themselves (`weir.oidc.links`).
"""

import shlex
from dataclasses import dataclass

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession

from weir.errors import ForbiddenError, UnauthorizedError, UnavailableError
from weir.identity.repository import IdentityRepository
from weir.oidc.settings import ProviderSettings
from weir.people.models import Membership, User, UserIdentity
from weir.people.repository import PeopleRepository
from weir.people.schemas import is_email
from weir.people.sign_in import Coming, normal_email, note

# First sign-ins are decided one after the other.
_FIRST_SIGN_IN_LOCK = 0x77656972_01


@dataclass(frozen=True)
class Proven:
    """What a provider has said of somebody who signed in there. The id_token itself is `token`."""

    subject: str
    sid: str | None
    email: str | None
    email_verified: bool
    name: str | None
    token: str


async def person_of(session: AsyncSession, settings: ProviderSettings, proven: Proven, coming: Coming) -> User:
    """The person, locked until commit. Raises ForbiddenError, which says what an operator can do, when there is none
    and none is to be made; UnauthorizedError when the link ends at the same time."""
    user = await _linked(session, settings, proven)
    if user is not None:
        return user
    email = _email_that_counts(settings, proven)
    await in_turn(session)
    user = await _linked(session, settings, proven)
    if user is not None:
        return user
    known = await PeopleRepository(session).user_of_email(email)
    if known is None:
        user = await _made(session, settings, proven, email, coming)
    else:
        user = await _unclaimed(session, settings, known)
    session.add(
        UserIdentity(
            issuer=settings.issuer, subject=proven.subject, user_id=user.id, email=email, linked_at=coming.at
        )
    )
    await session.flush()
    memberships = await PeopleRepository(session).memberships_of(user.id)
    action = "user.create" if known is None else "user.link"
    note(session, memberships, user.email, coming, action, provider=settings.id, issuer=settings.issuer)
    return user


async def in_turn(session: AsyncSession) -> None:
    """Until commit, nobody else is linked. To be taken before a person is locked."""
    await session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _FIRST_SIGN_IN_LOCK})


async def _linked(session: AsyncSession, settings: ProviderSettings, proven: Proven) -> User | None:
    statement = select(UserIdentity.user_id).where(
        UserIdentity.issuer == settings.issuer, UserIdentity.subject == proven.subject
    )
    user_id = await session.scalar(statement)
    if user_id is None:
        return None
    user = await PeopleRepository(session).locked_user(user_id)
    # It may have ended while the person was locked by what ended it.
    if await session.scalar(statement) != user_id:
        raise UnauthorizedError(f"the link with {settings.name} ended while you signed in; begin again")
    return user


def _email_that_counts(settings: ProviderSettings, proven: Proven) -> str:
    who = f"{settings.name} knows you, and this installation does not yet"
    # To be copied into a shell; what a subject is, the provider decides, or whoever registers there.
    link = f"`weir-admin user link EMAIL {shlex.quote(settings.issuer)} {shlex.quote(proven.subject)}`"
    if not settings.allowed_domains:
        raise ForbiddenError(f"{who}; have an operator link you: {link}")
    email = normal_email(proven.email or "")
    if not is_email(email) or not proven.email_verified:
        raise ForbiddenError(
            f"{who}; it makes people whose email the provider has verified, and yours is not; verify it there, or "
            f"have an operator link you: {link}"
        )
    if email.rpartition("@")[2] not in settings.allowed_domains:
        raise ForbiddenError(
            f"{who}; it makes people with emails of {', '.join(sorted(settings.allowed_domains))}, and yours is "
            "another one; ask an operator of this installation"
        )
    return email


async def _unclaimed(session: AsyncSession, settings: ProviderSettings, known: User) -> User:
    """The person with the email, when nobody can have come by the account in another way."""
    current = await PeopleRepository(session).locked_user(known.id)
    if current is None or current.password_hash is not None:
        raise ForbiddenError(
            f"{known.email} has a password here, and is not linked with {settings.name}; sign in with the password "
            f"and link {settings.name} on the page `Your account`, or have an operator end the password: "
            f"`weir-admin user provider-only {known.email}`"
        )
    other = select(UserIdentity.subject).where(
        UserIdentity.issuer == settings.issuer, UserIdentity.user_id == current.id
    )
    if await session.scalar(other.limit(1)) is not None:
        raise ForbiddenError(
            f"{known.email} was somebody else's at {settings.name} before; have an operator find out who is who, and "
            f"end the link that there is: `weir-admin user unlink {known.email}`"
        )
    return current


async def _made(
    session: AsyncSession, settings: ProviderSettings, proven: Proven, email: str, coming: Coming
) -> User:
    user = User(email=email, name=proven.name or email)
    session.add(user)
    await session.flush()
    if settings.organization:
        account = await IdentityRepository(session).account_named(settings.organization)
        if account is None:
            raise UnavailableError(
                f"the organization {settings.organization!r} of the settings of the provider {settings.id} does not "
                "exist; an operator has to make it (`weir-admin account create`) or to name another one"
            )
        await PeopleRepository(session).lock_organization(account.id)
        session.add(Membership(account_id=account.id, user_id=user.id, role=settings.role, joined_at=coming.at))
        await session.flush()
    return user
