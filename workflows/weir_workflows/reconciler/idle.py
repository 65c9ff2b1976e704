"""Work on what nobody else is working on: what every change by the reconciler starts with."""

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.computes.repository import ComputeRow
from weir.endpoints.models import Endpoint, EndpointState
from weir.operations import scopes
from weir.operations.locks import holder
from weir.projects.models import Project
from weir.rollouts.run.restarts import restarting


async def lock_idle(
    session: AsyncSession, project_id: str, scope: str, *, half_deleted_too: bool = False
) -> Project | None:
    """The project, locked until commit; None when somebody has it locked, an operation that is open holds something
    of the scope (`weir.operations.scopes`), or the project is deleted. A project whose deletion has begun and failed
    is idle too for those who ask with `half_deleted_too`: its computes still have to be stopped."""
    statement = select(Project).where(Project.id == project_id, Project.deleted_at.is_(None))
    if not half_deleted_too:
        statement = statement.where(Project.delete_requested_at.is_(None))
    project = (await session.scalars(statement.with_for_update(skip_locked=True))).one_or_none()
    if project is None or await holder(session, [scope]) is not None:
        return None
    return project


async def lock_running(session: AsyncSession, row: ComputeRow) -> Endpoint | None:
    """The endpoint as it is now, its project locked until commit; None where something is under way with it, or where
    it does not run, or is not to."""
    scope = scopes.of_endpoint(row.project.id, row.branch.id, row.endpoint.id)
    if await lock_idle(session, row.project.id, scope) is None:
        return None
    endpoint = await session.get(Endpoint, row.endpoint.id, populate_existing=True)
    if endpoint is None or endpoint.deleted_at is not None or await restarting(session, endpoint.id):
        return None
    return endpoint if endpoint.desired_state == endpoint.state == EndpointState.ACTIVE else None
