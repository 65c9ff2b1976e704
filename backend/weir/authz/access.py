"""Loads resources on behalf of a principal. Nothing else filters by account."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.authz.principal import CurrentPrincipal, Principal
from weir.branches.models import Branch
from weir.db import Session
from weir.endpoints.models import Endpoint
from weir.errors import ConflictError, NotFoundError, ProjectBusyError
from weir.operations.repository import OperationRepository
from weir.projects.locking import lock_idle
from weir.projects.models import Project


@dataclass(frozen=True)
class Standing:
    """An idle project, and its newest operation then: while that stays its newest, and no other is open, nobody has
    begun anything with it."""

    project: Project
    newest_operation: int


class ProjectAccess:
    def __init__(self, session: AsyncSession, principal: Principal) -> None:
        self.session = session
        self.principal = principal

    async def project(self, project_id: str, *, with_deleted: bool = False) -> Project:
        statement = select(Project).where(Project.id == project_id, Project.account_id == self.principal.account_id)
        if not with_deleted:
            statement = statement.where(Project.deleted_at.is_(None))
        project = (await self.session.scalars(statement)).one_or_none()
        if project is None:
            raise NotFoundError.of("project", project_id)
        return project

    async def idle_project(self, project_id: str, *, deleting: bool = False) -> Project:
        """The project, locked until commit and free of open operations: what every change starts with.

        A project whose deletion failed half way takes nothing but another deletion (`deleting`)."""
        await self.project(project_id)
        project = await lock_idle(self.session, project_id)
        if project.deleted_at is not None:
            raise NotFoundError.of("project", project_id)
        if project.delete_requested_at is not None and not deleting:
            raise ConflictError(f"project {project_id} is half deleted; delete it again to finish")
        return project

    async def standing(self, project_id: str) -> Standing:
        """As `idle_project`, for a change that has to ask storage before it is made: ask after `weir.db.release`, and
        go on with `unchanged_project`."""
        project = await self.idle_project(project_id)
        return Standing(project, await OperationRepository(self.session).newest_of_project(project_id))

    async def unchanged_project(self, before: Standing) -> Project:
        """The project, locked again until commit. Raises ProjectBusyError when anything was begun with it since: what
        storage said may be of another state. What changes without an operation, the caller has to check again."""
        after = await self.standing(before.project.id)
        if after.newest_operation != before.newest_operation:
            raise ProjectBusyError(
                f"project {before.project.id} was changed by another request while storage was asked for this one; "
                "repeat the request"
            )
        return after.project

    async def projects_of_fleet(self, project_ids: list[str]) -> None:
        """Raises unless each is a project whose computes the principal sees: an operator's fleet is everybody's."""
        statement = select(Project.id).where(Project.id.in_(project_ids), Project.deleted_at.is_(None))
        if self.principal.fleet is not None:
            statement = statement.where(Project.account_id == self.principal.fleet)
        found = set((await self.session.scalars(statement)).all())
        for ident in project_ids:
            if ident not in found:
                raise NotFoundError.of("project", ident)

    async def branch(self, project: Project, branch_id: str) -> Branch:
        statement = select(Branch).where(
            Branch.id == branch_id, Branch.project_id == project.id, Branch.deleted_at.is_(None)
        )
        branch = (await self.session.scalars(statement)).one_or_none()
        if branch is None:
            raise NotFoundError.of(f"project {project.id}: branch", branch_id)
        return branch

    async def endpoint(self, project: Project, endpoint_id: str) -> Endpoint:
        statement = select(Endpoint).where(
            Endpoint.id == endpoint_id, Endpoint.project_id == project.id, Endpoint.deleted_at.is_(None)
        )
        endpoint = (await self.session.scalars(statement)).one_or_none()
        if endpoint is None:
            raise NotFoundError.of(f"project {project.id}: endpoint", endpoint_id)
        return endpoint


def _access(session: Session, principal: CurrentPrincipal) -> ProjectAccess:
    return ProjectAccess(session, principal)


Access = Annotated[ProjectAccess, Depends(_access)]
