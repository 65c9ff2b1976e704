from collections.abc import Collection
from datetime import datetime

from sqlalchemy import bindparam, delete, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from weir.databases.models import BranchDatabase, DroppedKind, DroppedName, Role

_ROLES = select(Role).where(Role.branch_id == bindparam("branch_id")).order_by(Role.created_at, Role.name)
_DATABASES = (
    select(BranchDatabase).where(BranchDatabase.branch_id == bindparam("branch_id")).order_by(BranchDatabase.id)
)


class DatabaseRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    def add(self, row: Role | BranchDatabase | DroppedName) -> None:
        self._session.add(row)

    async def roles(self, branch_id: str) -> list[Role]:
        return list((await self._session.scalars(_ROLES, {"branch_id": branch_id})).all())

    async def role(self, branch_id: str, name: str) -> Role | None:
        return await self._session.get(Role, (branch_id, name))

    async def databases(self, branch_id: str) -> list[BranchDatabase]:
        return list((await self._session.scalars(_DATABASES, {"branch_id": branch_id})).all())

    async def database(self, branch_id: str, name: str) -> BranchDatabase | None:
        statement = select(BranchDatabase).where(BranchDatabase.branch_id == branch_id, BranchDatabase.name == name)
        return (await self._session.scalars(statement)).one_or_none()

    async def dropped(self, branch_id: str) -> list[DroppedName]:
        """All deletions that are remembered, newest first."""
        statement = select(DroppedName).where(DroppedName.branch_id == branch_id).order_by(DroppedName.id.desc())
        return list((await self._session.scalars(statement)).all())

    async def to_drop(self, branch_id: str) -> list[DroppedName]:
        """Deletions that no compute has carried out yet, in the order in which they were asked for."""
        statement = select(DroppedName).where(DroppedName.branch_id == branch_id, DroppedName.dropped_at.is_(None))
        return list((await self._session.scalars(statement.order_by(DroppedName.id))).all())

    async def branches_to_drop_in(self, branch_ids: Collection[str]) -> set[str]:
        """Those of the branches where something is to be dropped."""
        statement = select(DroppedName.branch_id).where(
            DroppedName.branch_id.in_(branch_ids), DroppedName.dropped_at.is_(None)
        )
        return set((await self._session.scalars(statement)).all())

    async def mark_dropped(self, branch_id: str, kind: DroppedKind, names: Collection[str], at: datetime) -> None:
        await self._session.execute(
            update(DroppedName)
            .where(
                DroppedName.branch_id == branch_id,
                DroppedName.kind == kind,
                DroppedName.name.in_(names),
                DroppedName.dropped_at.is_(None),
            )
            .values(dropped_at=at)
        )

    async def forget_dropped(self, branch_id: str, before: datetime) -> None:
        """Those that were dropped before a moment which no branch can begin at any more."""
        await self._session.execute(
            delete(DroppedName).where(DroppedName.branch_id == branch_id, DroppedName.dropped_at < before)
        )
