"""Work on a project that nobody else is working on: what every change by the reconciler starts with."""

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.operations.repository import OperationRepository
from weir.projects.models import Project


async def lock_idle(session: AsyncSession, project_id: str, *, half_deleted_too: bool = False) -> Project | None:
    """The project, locked until commit; None when somebody has it locked, an operation on it is open, or it is
    deleted. A project whose deletion has begun and failed is idle too for those who ask with `half_deleted_too`:
    its computes still have to be stopped."""
    statement = select(Project).where(Project.id == project_id, Project.deleted_at.is_(None))
    if not half_deleted_too:
        statement = statement.where(Project.delete_requested_at.is_(None))
    project = (await session.scalars(statement.with_for_update(skip_locked=True))).one_or_none()
    if project is None or await OperationRepository(session).open_of_project(project_id) is not None:
        return None
    return project
