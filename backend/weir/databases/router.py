from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi import status as http

from weir.authz.access import Access
from weir.branches.repository import BranchRepository
from weir.config import get_settings
from weir.databases import dropping, service
from weir.databases.repository import DatabaseRepository
from weir.databases.schemas import (
    ConnectionUriResponse,
    DatabaseCreateRequest,
    DatabaseOperations,
    DatabaseResponse,
    DatabasesResponse,
    DatabaseUpdateRequest,
    DatabaseView,
    RoleCreateRequest,
    RoleOperations,
    RolePasswordResponse,
    RoleResponse,
    RolesResponse,
    RoleView,
)
from weir.db import Session, reads
from weir.endpoints.repository import EndpointRepository
from weir.errors import (
    BadRequestError,
    ConflictError,
    NotBuiltError,
    NotFoundError,
    PreconditionFailedError,
    ProjectBusyError,
    UnauthorizedError,
    responses,
)
from weir.kit.path_names import PathName
from weir.kit.schemas import Id, PathId
from weir.operations.schemas import OperationView

router = APIRouter(responses=responses(UnauthorizedError, BadRequestError, NotFoundError))
_BRANCH = "/projects/{project_id}/branches/{branch_id}"
_CHANGE = responses(ProjectBusyError, ConflictError)
_DELETE = responses(BadRequestError, ProjectBusyError, PreconditionFailedError) | {
    http.HTTP_204_NO_CONTENT: {"description": "There is none, or there is none any more."}
}


@router.get(f"{_BRANCH}/roles", tags=["roles"])
@reads
async def list_project_branch_roles(
    project_id: PathId, branch_id: PathId, access: Access, session: Session
) -> RolesResponse:
    branch = await access.branch(await access.project(project_id), branch_id)
    return RolesResponse(roles=[RoleView.of(row) for row in await DatabaseRepository(session).roles(branch.id)])


@router.post(
    f"{_BRANCH}/roles",
    tags=["roles"],
    status_code=http.HTTP_201_CREATED,
    responses=_CHANGE | responses(BadRequestError, NotBuiltError),
)
async def create_project_branch_role(
    project_id: PathId, branch_id: PathId, body: RoleCreateRequest, access: Access
) -> RoleOperations:
    role, password, operations = await service.create_role(
        access, project_id, branch_id, body.role.name, body.role.no_login
    )
    return RoleOperations(role=RoleView.of(role, password), operations=[OperationView.of(row) for row in operations])


@router.get(f"{_BRANCH}/roles/{{role_name}}", tags=["roles"])
@reads
async def get_project_branch_role(
    project_id: PathId, branch_id: PathId, role_name: PathName, access: Access
) -> RoleResponse:
    branch = await access.branch(await access.project(project_id), branch_id)
    return RoleResponse(role=RoleView.of(await service.get_role(access, branch, role_name)))


@router.get(f"{_BRANCH}/roles/{{role_name}}/reveal_password", tags=["roles"])
async def get_project_branch_role_password(
    project_id: PathId, branch_id: PathId, role_name: PathName, access: Access
) -> RolePasswordResponse:
    branch = await access.branch(await access.project(project_id), branch_id)
    role = await service.get_role(access, branch, role_name)
    password = service.password_of(role)
    service.record_reveal(access, branch, role)
    return RolePasswordResponse(password=password)


@router.post(f"{_BRANCH}/roles/{{role_name}}/reset_password", tags=["roles"], responses=_CHANGE)
async def reset_project_branch_role_password(
    project_id: PathId, branch_id: PathId, role_name: PathName, access: Access
) -> RoleOperations:
    role, password, operations = await service.reset_password(access, project_id, branch_id, role_name)
    return RoleOperations(role=RoleView.of(role, password), operations=[OperationView.of(row) for row in operations])


@router.delete(
    f"{_BRANCH}/roles/{{role_name}}",
    tags=["roles"],
    response_model=RoleOperations,
    responses=_DELETE,
)
async def delete_project_branch_role(
    project_id: PathId, branch_id: PathId, role_name: PathName, access: Access
) -> RoleOperations | Response:
    """Drops a role. What it owns goes to the owner of the database it is in. One that owns a database is refused with
    412, and so is the last one. A suspended compute drops it when it has started next; until then, and after a drop
    that failed, repeating the request goes on."""
    deleted = await dropping.delete_role(access, project_id, branch_id, role_name)
    if deleted is None:
        return Response(status_code=http.HTTP_204_NO_CONTENT)
    role, operations = deleted
    return RoleOperations(role=RoleView.of(role), operations=[OperationView.of(row) for row in operations])


@router.get(f"{_BRANCH}/databases", tags=["databases"])
@reads
async def list_project_branch_databases(
    project_id: PathId, branch_id: PathId, access: Access, session: Session
) -> DatabasesResponse:
    branch = await access.branch(await access.project(project_id), branch_id)
    rows = await DatabaseRepository(session).databases(branch.id)
    return DatabasesResponse(databases=[DatabaseView.of(row) for row in rows])


@router.post(f"{_BRANCH}/databases", tags=["databases"], status_code=http.HTTP_201_CREATED, responses=_CHANGE)
async def create_project_branch_database(
    project_id: PathId, branch_id: PathId, body: DatabaseCreateRequest, access: Access
) -> DatabaseOperations:
    row, operations = await service.create_database(
        access, project_id, branch_id, body.database.name, body.database.owner_name
    )
    return DatabaseOperations(
        database=DatabaseView.of(row), operations=[OperationView.of(operation) for operation in operations]
    )


@router.get(f"{_BRANCH}/databases/{{database_name}}", tags=["databases"])
@reads
async def get_project_branch_database(
    project_id: PathId, branch_id: PathId, database_name: PathName, access: Access
) -> DatabaseResponse:
    branch = await access.branch(await access.project(project_id), branch_id)
    return DatabaseResponse(database=DatabaseView.of(await service.get_database(access, branch, database_name)))


@router.patch(
    f"{_BRANCH}/databases/{{database_name}}",
    tags=["databases"],
    responses=_CHANGE | responses(BadRequestError, NotBuiltError),
)
async def update_project_branch_database(
    project_id: PathId, branch_id: PathId, database_name: PathName, body: DatabaseUpdateRequest, access: Access
) -> DatabaseOperations:
    """Gives a database another owner. Another name is refused."""
    row, operations = await service.change_owner(
        access, project_id, branch_id, database_name, body.database.owner_name, body.database.name
    )
    return DatabaseOperations(
        database=DatabaseView.of(row), operations=[OperationView.of(operation) for operation in operations]
    )


@router.delete(
    f"{_BRANCH}/databases/{{database_name}}",
    tags=["databases"],
    response_model=DatabaseOperations,
    responses=_DELETE,
)
async def delete_project_branch_database(
    project_id: PathId, branch_id: PathId, database_name: PathName, access: Access
) -> DatabaseOperations | Response:
    """Drops a database with all that is in it; sessions in it are ended. Branches keep theirs, and a branch of an
    earlier state has it. A suspended compute drops it when it has started next; until then, and after a drop that
    failed, repeating the request goes on."""
    deleted = await dropping.delete_database(access, project_id, branch_id, database_name)
    if deleted is None:
        return Response(status_code=http.HTTP_204_NO_CONTENT)
    row, operations = deleted
    return DatabaseOperations(
        database=DatabaseView.of(row), operations=[OperationView.of(operation) for operation in operations]
    )


@router.get("/projects/{project_id}/connection_uri", tags=["projects"], responses=responses(NotBuiltError))
async def get_connection_uri(
    project_id: PathId,
    access: Access,
    session: Session,
    database_name: Annotated[str, Query(max_length=63)],
    role_name: Annotated[str, Query(max_length=63)],
    branch_id: Annotated[Id | None, Query()] = None,
    endpoint_id: Annotated[Id | None, Query()] = None,
    pooled: bool = False,
) -> ConnectionUriResponse:
    """The URI of the branch's read-write endpoint; of the default branch when none is named. With `pooled`, the
    client shares server connections with others: it has one only while it is within a transaction."""
    project = await access.project(project_id)
    if pooled and not get_settings().has_proxy:
        raise NotBuiltError(
            "connections are pooled by the proxy, which this installation has not; leave `pooled` out"
        )
    if endpoint_id is not None:
        endpoint = await access.endpoint(project, endpoint_id)
        if branch_id not in {None, endpoint.branch_id}:
            raise BadRequestError(f"endpoint {endpoint_id} belongs to branch {endpoint.branch_id}, not {branch_id}")
        branch = await access.branch(project, endpoint.branch_id)
    else:
        branch = (
            await access.branch(project, branch_id)
            if branch_id
            else await BranchRepository(session).default(project.id)
        )
        found = await EndpointRepository(session).writer_of(branch.id)
        if found is None:
            raise NotFoundError(f"branch {branch.id} has no read-write endpoint; create one first")
        endpoint = found
    role = await service.get_role(access, branch, role_name)
    database = await service.get_database(access, branch, database_name)
    details = service.connection(endpoint, role.name, service.password_of(role), database.name, pooled=pooled)
    service.record_reveal(access, branch, role)
    return ConnectionUriResponse(uri=details.connection_uri)
