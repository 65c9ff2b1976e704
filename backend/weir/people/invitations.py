"""Invitations: a link by which somebody becomes a member of an organisation, once.

Weir sends no mail. Whoever invites is shown the link and hands it on, so to have the link is no proof of reading mail
at the invited email. What a link gives is a membership and nothing else: it is taken by the person of that email, who
is signed in, or by making an account with a password, which is refused where a provider speaks for the email's
domain.

An invitation is as good as whoever made it: it counts for nothing once they may not decide on its role any more. Each
change locks the organisation, as other changes of members do.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from weir.authz.principal import Principal
from weir.errors import BadRequestError, ConflictError, ForbiddenError, NotFoundError, QuotaExceededError
from weir.identity import audit
from weir.identity.models import Account, ApiKey
from weir.kit.crypto import hash_token
from weir.people.models import Invitation, Membership, User
from weir.people.organizations import decides
from weir.people.repository import PeopleRepository
from weir.people.roles import Role
from weir.people.sign_in import Coming, note

LASTS = timedelta(days=7)
# Open ones that an organisation may have.
MOST_OPEN = 200
_PREFIX = "weir_invitation_"


@dataclass(frozen=True)
class Made:
    """`token` is shown once."""

    row: Invitation
    token: str


async def invite(
    session: AsyncSession, principal: Principal, asked: Sequence[tuple[str, Role]], at: datetime
) -> list[Made]:
    """Invitations by email and role: all of them, or none. One that an email has already ends with the new one.
    Raises BadRequestError, ConflictError, ForbiddenError, QuotaExceededError."""
    emails = [email for email, _ in asked]
    if len(set(emails)) != len(emails):
        raise BadRequestError("an email is invited twice in one request; name each once")
    for _, role in asked:
        await decides(session, principal, role)
    people = PeopleRepository(session)
    before = await _open(session, principal.account_id, at)
    left = [row for row in before if row.email not in emails]
    if len(left) + len(asked) > MOST_OPEN:
        raise QuotaExceededError(f"an organization has {MOST_OPEN} open invitations at most; revoke some first")
    made: list[Made] = []
    for email, role in asked:
        user = await people.user_of_email(email)
        if user is not None and await people.membership(principal.account_id, user.id) is not None:
            raise ConflictError(f"{email} is a member already; change the role with PATCH")
        await _end_earlier(session, principal, email, at)
        token = f"{_PREFIX}{secrets.token_urlsafe(32)}"
        row = Invitation(
            account_id=principal.account_id,
            email=email,
            role=role,
            token_hash=hash_token(token),
            invited_by=principal.user_id,
            invited_with=principal.api_key_id,
            invited_at=at,
            expires_at=at + LASTS,
        )
        session.add(row)
        await session.flush()
        audit.record(
            session, principal, "invitation.create", f"user/{email}", role=role.value, invitation=str(row.id)
        )
        made.append(Made(row, token))
    return made


async def _end_earlier(session: AsyncSession, principal: Principal, email: str, at: datetime) -> None:
    """Those that were not taken, expired ones among them."""
    statement = select(Invitation).where(
        Invitation.account_id == principal.account_id,
        Invitation.email == email,
        Invitation.accepted_at.is_(None),
        Invitation.revoked_at.is_(None),
    )
    for row in await session.scalars(statement):
        # Else an admin would take back what an owner has offered.
        await decides(session, principal, row.role)
        row.revoked_at = at
    await session.flush()


async def _open(session: AsyncSession, account_id: UUID, at: datetime) -> list[Invitation]:
    statement = (
        select(Invitation)
        .where(
            Invitation.account_id == account_id,
            Invitation.accepted_at.is_(None),
            Invitation.revoked_at.is_(None),
            Invitation.expires_at > at,
        )
        .order_by(Invitation.invited_at.desc(), Invitation.id)
        .limit(MOST_OPEN)
    )
    return list(await session.scalars(statement))


async def open_invitations(session: AsyncSession, principal: Principal, at: datetime) -> list[Invitation]:
    """Those of the organisation that can still be taken, the newest first."""
    return await _open(session, principal.account_id, at)


async def revoke(session: AsyncSession, principal: Principal, invitation_id: UUID, at: datetime) -> Invitation:
    """Raises NotFoundError for one that was taken or revoked, or that there is not; ForbiddenError."""
    await PeopleRepository(session).lock_organization(principal.account_id)
    statement = select(Invitation).where(
        Invitation.account_id == principal.account_id,
        Invitation.id == invitation_id,
        Invitation.accepted_at.is_(None),
        Invitation.revoked_at.is_(None),
    )
    row = (await session.scalars(statement)).one_or_none()
    if row is None:
        raise NotFoundError.of("invitation", invitation_id)
    await decides(session, principal, row.role)
    row.revoked_at = at
    audit.record(
        session, principal, "invitation.revoke", f"user/{row.email}", role=row.role.value, invitation=str(row.id)
    )
    return row


async def offered(session: AsyncSession, token: str, at: datetime) -> Invitation:
    """The invitation that a token is of, its organisation locked until commit. Raises NotFoundError for a token of
    none, ConflictError for one that counts no more."""
    by_token = select(Invitation).where(Invitation.token_hash == hash_token(token))
    found = (await session.scalars(by_token)).one_or_none()
    if found is None:
        raise NotFoundError("this is no invitation; use the link as it was given, to its last character")
    await PeopleRepository(session).lock_organization(found.account_id)
    row = (await session.scalars(by_token.execution_options(populate_existing=True))).one()
    if row.accepted_at is not None:
        raise ConflictError("this invitation was accepted before, and counts once; ask for another one")
    if row.revoked_at is not None:
        raise ConflictError("this invitation was taken back; ask for another one")
    if row.expires_at <= at:
        raise ConflictError(
            f"this invitation has expired at {row.expires_at:%Y-%m-%d %H:%M} UTC; ask for another one"
        )
    if not await _still_decides(session, row, at):
        raise ConflictError(
            f"whoever made this invitation may not decide on the role {row.role} any more; ask for another one"
        )
    return row


async def _still_decides(session: AsyncSession, row: Invitation, at: datetime) -> bool:
    """With the organisation locked: whether the person who invited, and the key that was used, still may."""
    if row.invited_with is not None:
        key = await session.get(ApiKey, row.invited_with)
        if key is None or key.revoked_at is not None or not key.role.covers(row.role):
            return False
        if key.expires_at is not None and key.expires_at <= at:
            return False
    if row.invited_by is None:
        return row.invited_with is not None
    membership = await PeopleRepository(session).membership(row.account_id, row.invited_by)
    return membership is not None and membership.role.covers(Role.ADMIN) and membership.role.covers(row.role)


async def accept(session: AsyncSession, row: Invitation, user: User, coming: Coming) -> tuple[Account, Membership]:
    """Makes the person a member, with the organisation locked by `offered`. Raises ForbiddenError for somebody with
    another email, ConflictError for a member."""
    if user.email != row.email:
        raise ForbiddenError(
            f"this invitation is for somebody else than {user.email}; sign in with the invited email"
        )
    people = PeopleRepository(session)
    if await people.membership(row.account_id, user.id) is not None:
        raise ConflictError(f"{user.email} is a member already; the invitation is not needed")
    membership = Membership(account_id=row.account_id, user_id=user.id, role=row.role, joined_at=coming.at)
    session.add(membership)
    row.accepted_at, row.accepted_by = coming.at, user.id
    await session.flush()
    account = await session.get_one(Account, row.account_id)
    note(
        session, [(membership, account)], user.email, coming, "invitation.accept",
        role=row.role.value, invitation=str(row.id),
    )  # fmt: skip
    return account, membership


async def refuse_known(session: AsyncSession, email: str, provider_domains: frozenset[str]) -> None:
    """For an invitation that an account is to be made for. Raises ConflictError where the email has one, and
    ForbiddenError where a provider speaks for its domain: whoever has the link could else take the account of the
    person who reads mail there, before that person first signs in."""
    if email.rpartition("@")[2] in provider_domains:
        raise ForbiddenError(
            f"{email} signs in by an identity provider of this installation; sign in there, then accept the "
            "invitation"
        )
    if await PeopleRepository(session).user_of_email(email) is not None:
        raise ConflictError(f"{email} has an account here; sign in, then accept the invitation")


async def make_account(session: AsyncSession, email: str, name: str, password_hash: str) -> User:
    """Raises ConflictError when somebody else has just made it."""
    statement = (
        insert(User)
        .values(email=email, name=name or email, password_hash=password_hash)
        .on_conflict_do_nothing(index_elements=["email"])
        .returning(User.id)
    )
    made = await session.scalar(statement)
    if made is None:
        raise ConflictError(f"{email} has an account here; sign in, then accept the invitation")
    return await session.get_one(User, made)
