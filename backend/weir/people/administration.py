"""What `weir-admin` does with people: whoever may run it on the machine makes the first ones, and helps those who
have lost their way in."""

from sqlalchemy import CursorResult, delete
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from weir.errors import BadRequestError, ConflictError, NotFoundError
from weir.identity import audit
from weir.identity.repository import IdentityRepository
from weir.identity.service import ADMIN
from weir.kit.clock import now
from weir.people import passwords, throttle
from weir.people.models import Membership, User, UserIdentity
from weir.people.own import forget_second_factor
from weir.people.repository import PeopleRepository
from weir.people.roles import Role
from weir.people.schemas import is_email
from weir.people.sign_in import normal_email


async def create_user(session: AsyncSession, email: str, name: str, password: str, of: str, role: Role) -> User:
    """A person who is a member of the organisation `of`."""
    people, email = PeopleRepository(session), normal_email(email)
    if not is_email(email):
        raise BadRequestError(f"{email!r} is no email; give one such as name@example.org")
    passwords.check_new(password, email)
    account = await IdentityRepository(session).account_named(of)
    if account is None:
        raise NotFoundError(f"organization {of} does not exist; make it with `weir-admin account create`")
    if await people.user_of_email(email) is not None:
        raise ConflictError(f"{email} is known; change the password with `weir-admin user password`")
    user = User(email=email, name=name or email, password_hash=await passwords.hashed(password))
    session.add(user)
    await session.flush()
    session.add(Membership(account_id=account.id, user_id=user.id, role=role, joined_at=now()))
    audit.record_system(session, ADMIN, "user.create", f"user/{email}", organization=of, role=role.value)
    await session.flush()
    return user


async def set_password(session: AsyncSession, email: str, password: str) -> None:
    """All sessions of the person end, and what slowed their sign-in does."""
    user = await _user(session, email)
    passwords.check_new(password, user.email)
    user.password_hash = await passwords.hashed(password)
    await IdentityRepository(session).end_sessions_of(user.id)
    await throttle.clear(session, user.email)
    audit.record_system(session, ADMIN, "user.password", f"user/{user.email}")


async def end_second_factor(session: AsyncSession, email: str) -> None:
    """For a person who has lost both the authenticator and the recovery codes."""
    user = await _user(session, email)
    await forget_second_factor(session, user)
    audit.record_system(session, ADMIN, "user.totp.end", f"user/{user.email}")


async def link(session: AsyncSession, email: str, issuer: str, subject: str) -> None:
    """From now on whoever an identity provider calls `subject` signs in as this person."""
    user = await _user(session, email)
    statement = (
        insert(UserIdentity)
        .values(issuer=issuer, subject=subject, user_id=user.id, email=user.email, linked_at=now())
        .on_conflict_do_nothing(index_elements=["issuer", "subject"])
    )
    result = await session.execute(statement)
    if isinstance(result, CursorResult) and result.rowcount == 0:
        raise ConflictError(f"{subject!r} of {issuer} is linked already; `weir-admin user unlink EMAIL` ends a link")
    audit.record_system(session, ADMIN, "user.link", f"user/{user.email}", issuer=issuer, subject=subject)


async def unlink(session: AsyncSession, email: str) -> int:
    """Ends all links of the person with identity providers, and all their sessions; how many links there were."""
    user = await _user(session, email)
    ended = await _end_links(session, user)
    await IdentityRepository(session).end_sessions_of(user.id)
    audit.record_system(session, ADMIN, "user.unlink", f"user/{user.email}", links=ended)
    return ended


async def _end_links(session: AsyncSession, user: User) -> int:
    # Waits for a link that is being made, so that none comes after.
    await PeopleRepository(session).locked_user(user.id)
    statement = delete(UserIdentity).where(UserIdentity.user_id == user.id)
    result = await session.execute(statement.execution_options(synchronize_session=False))
    return result.rowcount if isinstance(result, CursorResult) else 0


async def end_password(session: AsyncSession, email: str) -> None:
    """The person signs in by an identity provider alone: password, second factor and all sessions end, and so do the
    API keys and the links that were made with them, since somebody else may have known the password."""
    user = await _user(session, email)
    await _end_links(session, user)
    user.password_hash = None
    await forget_second_factor(session, user)
    identity = IdentityRepository(session)
    await identity.end_sessions_of(user.id)
    for _, account in await PeopleRepository(session).memberships_of(user.id):
        await identity.revoke_keys_of(account.id, user.id, now())
    audit.record_system(session, ADMIN, "user.password.end", f"user/{user.email}")


async def set_member(session: AsyncSession, email: str, of: str, role: Role) -> None:
    """Makes a person a member of an organisation, or changes their role there."""
    people, user = PeopleRepository(session), await _user(session, email)
    account = await IdentityRepository(session).account_named(of)
    if account is None:
        raise NotFoundError(f"organization {of} does not exist; make it with `weir-admin account create`")
    await people.lock_organization(account.id)
    row = await people.membership(account.id, user.id)
    if row is None:
        session.add(Membership(account_id=account.id, user_id=user.id, role=role, joined_at=now()))
    else:
        owners = [member for member, _ in await people.members(account.id) if member.role is Role.OWNER]
        if role is not Role.OWNER and [member.id for member in owners] == [row.id]:
            raise ConflictError(f"{user.email} is the last owner of {of}; make somebody else an owner first")
        row.role = role
    audit.record_system(session, ADMIN, "member.update", f"user/{user.email}", organization=of, role=role.value)


async def _user(session: AsyncSession, email: str) -> User:
    user = await PeopleRepository(session).user_of_email(normal_email(email))
    if user is None:
        raise NotFoundError(f"nobody with the email {email} is known; make them with `weir-admin user create`")
    return user
