from typing import Literal

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.branches.models import Branch
from weir.kit.pagination import PageRequest


def _shown(project_id: str) -> tuple[ColumnElement[bool], ...]:
    return Branch.project_id == project_id, Branch.deleted_at.is_(None), Branch.is_snapshot.is_(False)


class BranchRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    def add(self, branch: Branch) -> None:
        self._session.add(branch)

    async def default(self, project_id: str) -> Branch:
        statement = select(Branch).where(
            Branch.project_id == project_id, Branch.is_default, Branch.deleted_at.is_(None)
        )
        return (await self._session.scalars(statement)).one()

    async def of_project(self, project_id: str) -> list[Branch]:
        """With those that hold snapshots."""
        statement = (
            select(Branch)
            .where(Branch.project_id == project_id, Branch.deleted_at.is_(None))
            .order_by(Branch.created_at, Branch.id)
        )
        return list((await self._session.scalars(statement)).all())

    async def ever_of_project(self, project_id: str) -> list[Branch]:
        """With deleted ones."""
        return list((await self._session.scalars(select(Branch).where(Branch.project_id == project_id))).all())

    async def named(self, project_id: str, name: str) -> Branch | None:
        statement = select(Branch).where(
            Branch.project_id == project_id, Branch.name == name, Branch.deleted_at.is_(None)
        )
        return (await self._session.scalars(statement)).one_or_none()

    async def children(self, branch_id: str) -> list[Branch]:
        """What needs its data: branches, and those that hold snapshots."""
        statement = select(Branch).where(Branch.parent_id == branch_id, Branch.deleted_at.is_(None))
        return list((await self._session.scalars(statement)).all())

    async def descendants(self, branch: Branch) -> list[Branch]:
        """Its branches, theirs and so on, snapshots among them; each comes after the one it was made from."""
        of_parent: dict[str | None, list[Branch]] = {}
        for row in await self.of_project(branch.project_id):
            of_parent.setdefault(row.parent_id, []).append(row)
        found: list[Branch] = []
        front = [branch]
        while front:
            front = [child for parent in front for child in of_parent.get(parent.id, [])]
            found += front
        return found

    async def page(
        self, project_id: str, search: str | None, order: Literal["asc", "desc"], page: PageRequest
    ) -> list[Branch]:
        statement = select(Branch).where(*_shown(project_id))
        if search:
            statement = statement.where(Branch.name.icontains(search, autoescape=True))
        table = Branch.__table__
        statement = page.apply(statement, table.c.created_at, table.c.id, ascending=order == "asc")
        return list((await self._session.scalars(statement)).all())

    async def count(self, project_id: str, search: str | None) -> int:
        statement = select(func.count()).select_from(Branch).where(*_shown(project_id))
        if search:
            statement = statement.where(Branch.name.icontains(search, autoescape=True))
        return (await self._session.scalars(statement)).one()
