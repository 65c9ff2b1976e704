from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.identity.models import Account
from weir.people.models import Membership, User


class PeopleRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def user(self, user_id: UUID) -> User | None:
        return await self._session.get(User, user_id)

    async def locked_user(self, user_id: UUID) -> User | None:
        """The person as stored now, locked until commit."""
        statement = select(User).where(User.id == user_id).with_for_update()
        return (await self._session.scalars(statement.execution_options(populate_existing=True))).one_or_none()

    async def user_of_email(self, email: str) -> User | None:
        return (await self._session.scalars(select(User).where(User.email == email))).one_or_none()

    async def memberships_of(self, user_id: UUID) -> list[tuple[Membership, Account]]:
        """The longest first."""
        statement = (
            select(Membership, Account)
            .join(Account, Account.id == Membership.account_id)
            .where(Membership.user_id == user_id, Account.deleted_at.is_(None))
            .order_by(Membership.joined_at, Membership.id)
        )
        return [(row[0], row[1]) for row in (await self._session.execute(statement)).all()]

    async def membership(self, account_id: UUID, user_id: UUID) -> Membership | None:
        statement = select(Membership).where(Membership.account_id == account_id, Membership.user_id == user_id)
        statement = statement.execution_options(populate_existing=True)
        return (await self._session.scalars(statement)).one_or_none()

    async def members(self, account_id: UUID) -> list[tuple[Membership, User]]:
        """The longest first."""
        statement = (
            select(Membership, User)
            .join(User, User.id == Membership.user_id)
            .where(Membership.account_id == account_id)
            .order_by(Membership.joined_at, Membership.id)
        )
        return [(row[0], row[1]) for row in (await self._session.execute(statement)).all()]

    async def member(self, account_id: UUID, member_id: UUID) -> tuple[Membership, User] | None:
        statement = (
            select(Membership, User)
            .join(User, User.id == Membership.user_id)
            .where(Membership.account_id == account_id, Membership.id == member_id)
            .execution_options(populate_existing=True)
        )
        row = (await self._session.execute(statement)).first()
        return None if row is None else (row[0], row[1])

    async def lock_organization(self, account_id: UUID) -> Account | None:
        """Held until commit: whatever decides on members decides one after the other. None where there is no such
        organisation, or it has ended."""
        statement = select(Account).where(Account.id == account_id, Account.deleted_at.is_(None)).with_for_update()
        return (await self._session.scalars(statement.execution_options(populate_existing=True))).one_or_none()
