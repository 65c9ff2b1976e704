"""The lock that every change of a project begins with."""

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.operations.service import require_idle
from weir.projects.models import Project


async def lock_idle(session: AsyncSession, project_id: str) -> Project:
    """The row of a project that there is, as it is stored now, locked until the transaction ends. Raises
    ProjectBusyError when an operation of the project is open."""
    statement = select(Project).where(Project.id == project_id).with_for_update()
    project = (await session.scalars(statement.execution_options(populate_existing=True))).one()
    await require_idle(session, project_id)
    return project
