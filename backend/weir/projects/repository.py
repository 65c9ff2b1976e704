from uuid import UUID

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.kit.pagination import PageRequest
from weir.projects.models import Project


class ProjectRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    def add(self, project: Project) -> None:
        self._session.add(project)

    async def page(
        self, account_id: UUID, search: str | None, page: PageRequest, *, only: str | None = None
    ) -> list[Project]:
        """Of an organisation; `only`: the one project of it that may be seen."""
        statement = select(Project).where(Project.account_id == account_id, Project.deleted_at.is_(None))
        if only is not None:
            statement = statement.where(Project.id == only)
        if search:
            statement = statement.where(or_(Project.name.icontains(search, autoescape=True), Project.id == search))
        table = Project.__table__
        statement = page.apply(statement, table.c.created_at, table.c.id)
        return list((await self._session.scalars(statement)).all())
