"""Members of organisations, and what they may decide on each other.

Each change locks the organisation's row first and reads the memberships again under the lock: of two owners who
demote each other at once, one is refused, and so is anybody who was demoted while their request was on its way.
"""

from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.authz.principal import Principal
from weir.errors import ConflictError, ForbiddenError, NotFoundError
from weir.identity import audit
from weir.identity.models import Account
from weir.identity.repository import IdentityRepository
from weir.kit.clock import now
from weir.people.models import Membership, User
from weir.people.repository import PeopleRepository
from weir.people.roles import Role, least


async def organization(session: AsyncSession, principal: Principal) -> Account:
    """The one that the request acts in."""
    return await session.get_one(Account, principal.account_id)


async def add(session: AsyncSession, principal: Principal, email: str, role: Role) -> tuple[Membership, User]:
    people = PeopleRepository(session)
    await decides(session, principal, role)
    user = await people.user_of_email(email)
    if user is None:
        raise NotFoundError(f"nobody with the email {email} is known here; `weir-admin user create` makes a person")
    if await people.membership(principal.account_id, user.id) is not None:
        raise ConflictError(f"{email} is a member already; change the role with PATCH")
    row = Membership(account_id=principal.account_id, user_id=user.id, role=role, joined_at=now())
    session.add(row)
    await session.flush()
    audit.record(session, principal, "member.add", f"user/{email}", role=role.value)
    return row, user


async def change(session: AsyncSession, principal: Principal, member_id: UUID, role: Role) -> tuple[Membership, User]:
    await decides(session, principal, role)
    row, user = await _member(session, principal, member_id)
    await decides(session, principal, row.role)
    if role is not Role.OWNER:
        await _refuse_last_owner(session, row, user)
    before, row.role = row.role, role
    audit.record(session, principal, "member.update", f"user/{user.email}", role=role.value, role_before=before.value)
    return row, user


async def remove(session: AsyncSession, principal: Principal, member_id: UUID) -> tuple[Membership, User]:
    await PeopleRepository(session).lock_organization(principal.account_id)
    row, user = await _member(session, principal, member_id)
    await decides(session, principal, row.role)
    await _refuse_last_owner(session, row, user)
    await _end(session, row)
    audit.record(session, principal, "member.remove", f"user/{user.email}", role=row.role.value)
    return row, user


async def leave(session: AsyncSession, principal: Principal) -> None:
    """Takes the person who asks out of the organisation."""
    people = PeopleRepository(session)
    await people.lock_organization(principal.account_id)
    user = None if principal.user_id is None else await people.user(principal.user_id)
    row = None if user is None else await people.membership(principal.account_id, user.id)
    if user is None or row is None:
        raise NotFoundError.of("organization", principal.account_id)
    await _refuse_last_owner(session, row, user)
    await _end(session, row)
    audit.record(session, principal, "member.leave", f"user/{user.email}", role=row.role.value)


async def _end(session: AsyncSession, row: Membership) -> None:
    """Keys that the person made there end too: else they would count again, should the person come back."""
    await IdentityRepository(session).revoke_keys_of(row.account_id, row.user_id, now())
    await session.delete(row)


async def decides(session: AsyncSession, principal: Principal, role: Role) -> None:
    """Locks the organisation. Raises ForbiddenError unless who asks is an admin still, and decides on such a role;
    NotFoundError when the organisation has ended meanwhile."""
    people = PeopleRepository(session)
    if await people.lock_organization(principal.account_id) is None:
        raise NotFoundError.of("organization", principal.account_id)
    mine = principal.role
    if mine is not None and principal.user_id is not None:
        membership = await people.membership(principal.account_id, principal.user_id)
        mine = None if membership is None else least(mine, membership.role)
    if mine is None or not mine.covers(Role.ADMIN) or not mine.covers(role):
        raise ForbiddenError(f"{principal.name} is {mine or 'no member'}, and may not decide on the role {role}")


async def _member(session: AsyncSession, principal: Principal, member_id: UUID) -> tuple[Membership, User]:
    found = await PeopleRepository(session).member(principal.account_id, member_id)
    if found is None:
        raise NotFoundError.of("member", member_id)
    return found


async def _refuse_last_owner(session: AsyncSession, row: Membership, user: User) -> None:
    """With the organisation locked."""
    if row.role is not Role.OWNER:
        return
    others = select(func.count()).where(
        Membership.account_id == row.account_id, Membership.role == Role.OWNER, Membership.id != row.id
    )
    if not await session.scalar(others):
        raise ConflictError(f"{user.email} is the last owner of the organization; make somebody else an owner first")
