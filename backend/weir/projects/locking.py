"""The lock that every change of a project begins with.

The project's row is locked for as long as a change is decided on and written down, milliseconds, so that two requests
never decide on one state. What takes longer is an operation, and holds what it works on until it ends
(`weir.operations.locks`).
"""

from collections.abc import Sequence

from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.operations.locks import require_free
from weir.projects.models import Project

_LOCKED = (
    select(Project)
    .where(Project.id == bindparam("project_id"))
    .with_for_update()
    .execution_options(populate_existing=True)
)


async def lock_project(session: AsyncSession, project_id: str) -> Project:
    """The row of a project that there is, as it is stored now, locked until the transaction ends."""
    return (await session.scalars(_LOCKED, {"project_id": project_id})).one()


async def lock_idle(session: AsyncSession, project_id: str, scopes: Sequence[str]) -> Project:
    """As `lock_project`. Raises ProjectBusyError when an open operation holds something of these scopes."""
    project = await lock_project(session, project_id)
    await require_free(session, scopes)
    return project
