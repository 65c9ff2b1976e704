"""Loads resources on behalf of a principal. Nothing else filters by account."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends
from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.authz.principal import CurrentPrincipal, Principal
from weir.branches.models import Branch
from weir.db import READ_ALONG, Session
from weir.endpoints.models import Endpoint
from weir.errors import ConflictError, NotFoundError, ProjectBusyError
from weir.operations import scopes
from weir.operations.locks import require_free
from weir.operations.repository import OperationRepository
from weir.projects.locking import lock_project
from weir.projects.models import Project

# Made once, as those of `weir.identity.repository`.
_EVER_A_PROJECT = select(Project).where(
    Project.id == bindparam("project_id"), Project.account_id == bindparam("account_id")
)
_PROJECT = _EVER_A_PROJECT.where(Project.deleted_at.is_(None))
_BRANCH = select(Branch).where(
    Branch.id == bindparam("branch_id"),
    Branch.project_id == bindparam("project_id"),
    Branch.deleted_at.is_(None),
    Branch.is_snapshot.is_(False),
)
_ENDPOINT = select(Endpoint).where(
    Endpoint.id == bindparam("endpoint_id"),
    Endpoint.project_id == bindparam("project_id"),
    Endpoint.deleted_at.is_(None),
)


@dataclass(frozen=True)
class Standing:
    """Scopes of a project that no operation held, and the newest operation then: while none of the project's that
    overlaps with them is newer, nobody has begun anything there."""

    project: Project
    scopes: tuple[str, ...]
    newest_operation: int


class ProjectAccess:
    def __init__(self, session: AsyncSession, principal: Principal) -> None:
        self.session = session
        self.principal = principal

    async def project(self, project_id: str, *, with_deleted: bool = False) -> Project:
        # What was read with the key of this request, for whoever asks first; later it is read anew.
        project: Project | None = self.session.info.pop(READ_ALONG, None)
        if project is None or project.id != project_id:
            given = {"project_id": project_id, "account_id": self.principal.account_id}
            statement = _EVER_A_PROJECT if with_deleted else _PROJECT
            project = (await self.session.scalars(statement, given)).one_or_none()
        if project is None or not self._sees(project) or (project.deleted_at is not None and not with_deleted):
            raise NotFoundError.of("project", project_id)
        return project

    def _sees(self, project: Project) -> bool:
        """Whether it is the organisation's, and, of a key for one project, that one."""
        only = self.principal.project_id
        return project.account_id == self.principal.account_id and only in {None, project.id}

    async def _locked(self, project_id: str) -> Project:
        await self.project(project_id)
        project = await lock_project(self.session, project_id)
        # It may have gone, or become another organisation's, while this waited for the lock.
        if project.deleted_at is not None or project.account_id != self.principal.account_id:
            raise NotFoundError.of("project", project_id)
        return project

    async def _require(self, project: Project, scope: str) -> None:
        """In this order: while a deletion is under way the answer is that the project is busy."""
        await require_free(self.session, [scope])
        if project.delete_requested_at is not None:
            raise ConflictError(f"project {project.id} is half deleted; delete it again to finish")

    async def locked_project(self, project_id: str) -> Project:
        """The project, locked until commit, with no operation open that holds all of it: what every change starts
        with. One whose deletion failed half way takes nothing but another deletion (`project_to_delete`)."""
        project = await self._locked(project_id)
        await self._require(project, scopes.record_of_project(project_id))
        return project

    async def project_to_delete(self, project_id: str) -> Project:
        """The project, locked until commit, with no operation open anywhere in it; one too whose deletion failed half
        way."""
        project = await self._locked(project_id)
        await require_free(self.session, [scopes.of_project(project_id)])
        return project

    async def idle_branch(self, project_id: str, branch_id: str) -> tuple[Project, Branch]:
        """The branch, its project locked until commit, with no operation open on it, nor on an endpoint of it."""
        project = await self._locked(project_id)
        branch = await self.branch(project, branch_id)
        await self._require(project, scopes.of_branch(project_id, branch_id))
        return project, branch

    async def branch_to_detach(self, project_id: str, branch_id: str) -> tuple[Project, Branch]:
        """As `idle_branch`, but endpoints of the branch may be busy."""
        project = await self._locked(project_id)
        branch = await self.branch(project, branch_id)
        await self._require(project, scopes.history_of(project_id, branch_id))
        return project, branch

    async def branch_to_write(self, project_id: str, branch_id: str) -> tuple[Project, Branch]:
        """As `idle_branch`, for what is changed in the database alone: only an operation that holds the whole branch
        is in the way. What is to reach endpoints by an operation is refused where they are busy, by `enqueue`."""
        project = await self._locked(project_id)
        branch = await self.branch(project, branch_id)
        await self._require(project, scopes.record_of(project_id, branch_id))
        return project, branch

    async def idle_endpoint(self, project_id: str, endpoint_id: str) -> tuple[Project, Endpoint]:
        """The endpoint, its project locked until commit, with no operation open on it, nor on its branch as a
        whole."""
        project = await self._locked(project_id)
        endpoint = await self.endpoint(project, endpoint_id)
        await self._require(project, scopes.of_endpoint(project_id, endpoint.branch_id, endpoint_id))
        return project, endpoint

    async def standing(self, project: Project, *asked: str) -> Standing:
        """With the project locked. For a change that has to ask storage before it is made: ask after
        `weir.db.release`, and go on with `unchanged_project`. Raises ProjectBusyError when something of these scopes
        is held."""
        await require_free(self.session, asked)
        return Standing(project, asked, await OperationRepository(self.session).newest())

    async def unchanged_project(self, before: Standing) -> Project:
        """The project, locked again until commit. Raises ProjectBusyError when anything was begun since with what was
        free: what storage said may be of another state. What changes without an operation, the caller has to check
        again."""
        project = await self.locked_project(before.project.id)
        await require_free(self.session, before.scopes)
        since = await OperationRepository(self.session).begun_since(project.id, before.newest_operation)
        if any(scopes.overlaps_any(operation.holds, before.scopes) for operation in since):
            raise ProjectBusyError(
                f"project {project.id} was changed by another request while storage was asked for this one; "
                "repeat the request"
            )
        return project

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
        given = {"branch_id": branch_id, "project_id": project.id}
        branch = (await self.session.scalars(_BRANCH, given)).one_or_none()
        if branch is None:
            raise NotFoundError.of(f"project {project.id}: branch", branch_id)
        return branch

    async def endpoint(self, project: Project, endpoint_id: str) -> Endpoint:
        given = {"endpoint_id": endpoint_id, "project_id": project.id}
        endpoint = (await self.session.scalars(_ENDPOINT, given)).one_or_none()
        if endpoint is None:
            raise NotFoundError.of(f"project {project.id}: endpoint", endpoint_id)
        return endpoint


async def _access(session: Session, principal: CurrentPrincipal) -> ProjectAccess:
    return ProjectAccess(session, principal)


Access = Annotated[ProjectAccess, Depends(_access)]
