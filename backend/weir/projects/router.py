from typing import Annotated

from fastapi import APIRouter, Query
from fastapi import status as http
from sqlalchemy.ext.asyncio import AsyncSession

from weir.authz.access import Access
from weir.authz.principal import CurrentPrincipal
from weir.branches.schemas import BranchView
from weir.config import get_settings
from weir.databases.schemas import DatabaseView, RoleView
from weir.databases.service import connection
from weir.db import Session, reads
from weir.endpoints.schemas import EndpointView
from weir.errors import (
    BadRequestError,
    ConflictError,
    NotBuiltError,
    NotFoundError,
    ProjectBusyError,
    UnauthorizedError,
    UnavailableError,
    responses,
)
from weir.kit.clock import now
from weir.kit.pagination import Page, Pagination
from weir.kit.schemas import PathId
from weir.operations.schemas import OperationView
from weir.projects import service
from weir.projects.repository import ProjectRepository
from weir.projects.schemas import (
    ProjectCreated,
    ProjectCreateRequest,
    ProjectListItem,
    ProjectOperations,
    ProjectResponse,
    ProjectsPage,
    ProjectUpdateRequest,
    ProjectView,
    Regions,
    RegionView,
)
from weir.usage import reading as usage
from weir.usage.metering import Amounts

router = APIRouter(tags=["projects"], responses=responses(UnauthorizedError, BadRequestError))


async def _view(session: AsyncSession, project: service.Project) -> ProjectView:
    consumed = await usage.this_month(session, [project], now())
    return ProjectView.of(project, get_settings().public_host, consumed[project.id])


@router.get("/projects")
@reads
async def list_projects(
    principal: CurrentPrincipal,
    session: Session,
    page: Page,
    search: Annotated[str | None, Query(max_length=256)] = None,
    org_id: Annotated[str | None, Query(max_length=60, description="Of an organization of the caller's")] = None,
) -> ProjectsPage:
    """Newest first. Of the organization that the request acts in, or, with a key of one project, that one."""
    del org_id
    found = await ProjectRepository(session).page(principal.account_id, search, page, only=principal.project_id)
    rows, pagination = page.split(found)
    host = get_settings().public_host
    consumed = await usage.this_month(session, rows, now())
    items = [ProjectListItem.of(row, host, consumed[row.id]) for row in rows]
    return ProjectsPage(projects=items, pagination=pagination)


@router.get("/projects/shared")
async def list_shared_projects(principal: CurrentPrincipal) -> ProjectsPage:
    """Sharing is not built: always empty."""
    del principal
    return ProjectsPage(projects=[], pagination=Pagination())


@router.get("/regions")
async def get_active_regions(principal: CurrentPrincipal) -> Regions:
    del principal
    region = get_settings().region_id
    return Regions(regions=[RegionView(region_id=region, name=region)])


@router.post(
    "/projects",
    status_code=http.HTTP_201_CREATED,
    responses=responses(BadRequestError, NotBuiltError, NotFoundError, UnavailableError),
)
async def create_project(body: ProjectCreateRequest, access: Access) -> ProjectCreated:
    """A project with a main branch, a role, a database and a read-write endpoint that is being started.
    `default_endpoint_settings.pg_settings` are the Postgres settings of this and later endpoints."""
    created = await service.create(access, body.project)
    project = created.project
    return ProjectCreated(
        project=ProjectView.of(project, get_settings().public_host, usage.nothing(project.created_at)),
        branch=BranchView.of(created.branch, Amounts()),
        roles=[RoleView.of(created.role, created.password)],
        databases=[DatabaseView.of(created.database)],
        endpoints=[EndpointView.of(row, project.region_id) for row in created.endpoints],
        operations=[OperationView.of(row) for row in created.operations],
        connection_uris=[
            connection(row, created.role.name, created.password, created.database.name) for row in created.endpoints
        ],
    )


@router.get("/projects/{project_id}", responses=responses(NotFoundError))
@reads
async def get_project(project_id: PathId, access: Access) -> ProjectResponse:
    return ProjectResponse(project=await _view(access.session, await access.project(project_id)))


@router.patch(
    "/projects/{project_id}",
    responses=responses(BadRequestError, NotBuiltError, NotFoundError, ProjectBusyError, ConflictError),
)
async def update_project(project_id: PathId, body: ProjectUpdateRequest, access: Access) -> ProjectOperations:
    """A changed `history_retention_seconds` reaches storage by the operation it answers with. What a shorter one
    gives up is gone for good, branches' own points aside."""
    project, operations = await service.update(access, project_id, body.project)
    view = await _view(access.session, project)
    return ProjectOperations(project=view, operations=[OperationView.of(row) for row in operations])


@router.delete("/projects/{project_id}", responses=responses(NotFoundError, ProjectBusyError))
async def delete_project(project_id: PathId, access: Access) -> ProjectOperations:
    """Deletes the project with everything in it. Its operations stay readable, to follow the deletion."""
    project, operations = await service.delete(access, project_id)
    view = await _view(access.session, project)
    return ProjectOperations(project=view, operations=[OperationView.of(row) for row in operations])
