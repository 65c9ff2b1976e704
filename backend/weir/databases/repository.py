from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.databases.models import BranchDatabase, Role


class DatabaseRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    def add(self, row: Role | BranchDatabase) -> None:
        self._session.add(row)

    async def roles(self, branch_id: str) -> list[Role]:
        statement = select(Role).where(Role.branch_id == branch_id).order_by(Role.created_at, Role.name)
        return list((await self._session.scalars(statement)).all())

    async def role(self, branch_id: str, name: str) -> Role | None:
        return await self._session.get(Role, (branch_id, name))

    async def databases(self, branch_id: str) -> list[BranchDatabase]:
        statement = select(BranchDatabase).where(BranchDatabase.branch_id == branch_id).order_by(BranchDatabase.id)
        return list((await self._session.scalars(statement)).all())

    async def database(self, branch_id: str, name: str) -> BranchDatabase | None:
        statement = select(BranchDatabase).where(BranchDatabase.branch_id == branch_id, BranchDatabase.name == name)
        return (await self._session.scalars(statement)).one_or_none()
