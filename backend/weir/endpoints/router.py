from typing import Annotated

from fastapi import APIRouter, Query
from fastapi import status as http

from weir.authz.access import Access
from weir.clients.dependencies import Http
from weir.db import Session, reads
from weir.endpoints import service
from weir.endpoints.models import Endpoint
from weir.endpoints.repository import EndpointRepository
from weir.endpoints.schemas import (
    EndpointCreateRequest,
    EndpointOperations,
    EndpointResponse,
    EndpointsResponse,
    EndpointUpdateRequest,
    EndpointView,
)
from weir.errors import (
    BadRequestError,
    ConflictError,
    NotBuiltError,
    NotFoundError,
    ProjectBusyError,
    UnauthorizedError,
    UnavailableError,
    UnloggedRowsError,
    responses,
)
from weir.kit.schemas import PathId
from weir.operations.models import Operation
from weir.operations.schemas import OperationView
from weir.projects.models import Project

router = APIRouter(tags=["endpoints"], responses=responses(UnauthorizedError, BadRequestError, NotFoundError))
_CHANGE = responses(ProjectBusyError)
_STOP = responses(ProjectBusyError, UnloggedRowsError, UnavailableError)
DiscardUnlogged = Annotated[bool, Query(description="Stop the compute even if rows of unlogged tables are lost")]


def _answer(result: tuple[Project, Endpoint, list[Operation]]) -> EndpointOperations:
    project, endpoint, operations = result
    return EndpointOperations(
        endpoint=EndpointView.of(endpoint, project.region_id),
        operations=[OperationView.of(operation) for operation in operations],
    )


@router.get("/projects/{project_id}/endpoints")
@reads
async def list_project_endpoints(project_id: PathId, access: Access, session: Session) -> EndpointsResponse:
    project = await access.project(project_id)
    rows = await EndpointRepository(session).listed(project.id)
    return EndpointsResponse(endpoints=[EndpointView.of(row, project.region_id) for row in rows])


@router.get("/projects/{project_id}/branches/{branch_id}/endpoints")
@reads
async def list_project_branch_endpoints(
    project_id: PathId, branch_id: PathId, access: Access, session: Session
) -> EndpointsResponse:
    project = await access.project(project_id)
    branch = await access.branch(project, branch_id)
    rows = await EndpointRepository(session).of_branch(branch.id)
    return EndpointsResponse(endpoints=[EndpointView.of(row, project.region_id) for row in rows])


@router.post(
    "/projects/{project_id}/endpoints",
    status_code=http.HTTP_201_CREATED,
    responses=_CHANGE | responses(BadRequestError, NotBuiltError, ConflictError, UnavailableError),
)
async def create_project_endpoint(
    project_id: PathId, body: EndpointCreateRequest, access: Access
) -> EndpointOperations:
    """Creates a read-write endpoint and starts it. A branch has at most one; read-only ones are refused."""
    return _answer(await service.create(access, project_id, body.endpoint))


@router.get("/projects/{project_id}/endpoints/{endpoint_id}")
@reads
async def get_project_endpoint(project_id: PathId, endpoint_id: PathId, access: Access) -> EndpointResponse:
    project = await access.project(project_id)
    endpoint = await access.endpoint(project, endpoint_id)
    return EndpointResponse(endpoint=EndpointView.of(endpoint, project.region_id))


@router.patch(
    "/projects/{project_id}/endpoints/{endpoint_id}",
    responses=_STOP | responses(BadRequestError, NotBuiltError),
)
async def update_project_endpoint(
    project_id: PathId, endpoint_id: PathId, body: EndpointUpdateRequest, access: Access, client: Http
) -> EndpointOperations:
    """`settings.pg_settings` replaces the endpoint's Postgres settings and is applied to a running compute.
    `disabled` suspends it, and is refused as a suspend is while unlogged tables hold rows."""
    return _answer(await service.update(access, client, project_id, endpoint_id, body.endpoint))


@router.delete("/projects/{project_id}/endpoints/{endpoint_id}", responses=_CHANGE)
async def delete_project_endpoint(project_id: PathId, endpoint_id: PathId, access: Access) -> EndpointOperations:
    return _answer(await service.delete(access, project_id, endpoint_id))


@router.post("/projects/{project_id}/endpoints/{endpoint_id}/start", responses=_CHANGE)
async def start_project_endpoint(project_id: PathId, endpoint_id: PathId, access: Access) -> EndpointOperations:
    """Starts the compute. Of a running one: 200 with no operations. While the endpoint or its branch is busy (the
    first start still under way, say): 423."""
    return _answer(await service.start(access, project_id, endpoint_id))


@router.post("/projects/{project_id}/endpoints/{endpoint_id}/suspend", responses=_STOP)
async def suspend_project_endpoint(
    project_id: PathId, endpoint_id: PathId, access: Access, client: Http, discard_unlogged: DiscardUnlogged = False
) -> EndpointOperations:
    """Stops the compute cleanly. Of an idle one: 200 with no operations. While unlogged tables hold rows, which a
    suspend loses: 409 `UNLOGGED_ROWS`, unless the project's `unlogged_on_suspend` says otherwise."""
    return _answer(await service.suspend(access, client, project_id, endpoint_id, discard_unlogged=discard_unlogged))


@router.post("/projects/{project_id}/endpoints/{endpoint_id}/restart", responses=_STOP)
async def restart_project_endpoint(
    project_id: PathId, endpoint_id: PathId, access: Access, client: Http, discard_unlogged: DiscardUnlogged = False
) -> EndpointOperations:
    """Stops the compute and starts it. Refused as a suspend is while unlogged tables hold rows."""
    return _answer(await service.restart(access, client, project_id, endpoint_id, discard_unlogged=discard_unlogged))
