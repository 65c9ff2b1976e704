from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi import status as http

from weir.authz.access import Access
from weir.branches import detach, restore, service, views
from weir.branches.points import Engine
from weir.branches.repository import BranchRepository
from weir.branches.schemas import (
    Annotation,
    AnnotationObject,
    BranchCount,
    BranchCreated,
    BranchCreateRequest,
    BranchDetail,
    BranchesPage,
    BranchOperations,
    BranchPagination,
    BranchRestoreRequest,
    BranchUpdateRequest,
    BranchView,
)
from weir.branches.sizes import sizes
from weir.clients.dependencies import Http, PageserverClient, SafekeeperClients
from weir.databases.repository import DatabaseRepository
from weir.databases.schemas import DatabaseView, RoleView
from weir.databases.service import connection, password_of
from weir.db import Session, reads, release
from weir.endpoints.schemas import EndpointView
from weir.errors import (
    BadRequestError,
    ConflictError,
    NotBuiltError,
    NotFoundError,
    PreconditionFailedError,
    ProjectBusyError,
    UnauthorizedError,
    UnavailableError,
    responses,
)
from weir.kit.clock import now
from weir.kit.pagination import Page
from weir.kit.schemas import PathId
from weir.operations.schemas import OperationView
from weir.usage import reading as usage
from weir.usage.metering import Amounts

router = APIRouter(
    prefix="/projects/{project_id}/branches",
    tags=["branches"],
    responses=responses(UnauthorizedError, BadRequestError, NotFoundError),
)
Search = Annotated[str | None, Query(max_length=256)]


def _no_annotation(branch_id: str) -> Annotation:
    """Clients want the field; annotations themselves are not built."""
    return Annotation(object=AnnotationObject(type="console/branch", id=branch_id), value={})


@router.get("")
@reads
async def list_project_branches(
    project_id: PathId,
    access: Access,
    session: Session,
    page: Page,
    pageserver: PageserverClient,
    search: Search = None,
    sort_order: Literal["asc", "desc"] = "desc",
) -> BranchesPage:
    project = await access.project(project_id)
    rows = await BranchRepository(session).page(project.id, search, sort_order, page)
    rows, pagination = page.split(rows)
    used = await usage.branches_this_month(session, project, rows, now())
    await release(session)
    held = await sizes(pageserver, project)
    return BranchesPage(
        branches=[BranchView.of(row, used[row.id], held) for row in rows],
        annotations={},
        pagination=BranchPagination(next=pagination.cursor, sort_order=sort_order),
    )


@router.get("/count")
@reads
async def count_project_branches(
    project_id: PathId, access: Access, session: Session, search: Search = None
) -> BranchCount:
    project = await access.project(project_id)
    return BranchCount(count=await BranchRepository(session).count(project.id, search))


@router.post(
    "",
    status_code=http.HTTP_201_CREATED,
    responses=responses(
        BadRequestError, NotBuiltError, ProjectBusyError, PreconditionFailedError, ConflictError, UnavailableError
    ),
)
async def create_project_branch(
    project_id: PathId,
    access: Access,
    session: Session,
    pageserver: PageserverClient,
    safekeepers: SafekeeperClients,
    client: Http,
    body: BranchCreateRequest | None = None,
) -> BranchCreated:
    """A branch of the parent's head, of a past LSN (rounded down to a record) or of a past moment. Nothing is
    copied. Roles and databases, with their passwords, are the parent's of today. So is `durability` unless given."""
    engine = Engine(pageserver, safekeepers, client)
    created = await service.create(access, engine, project_id, body or BranchCreateRequest())
    repository = DatabaseRepository(session)
    uris = [
        connection(endpoint, owner.name, password_of(owner), database.name)
        for endpoint in created.endpoints
        for database in created.databases
        if (owner := await repository.role(created.branch.id, database.owner_name)) is not None
        and owner.password_sealed is not None
    ]
    return BranchCreated(
        branch=BranchView.of(created.branch, Amounts()),
        endpoints=[EndpointView.of(row, created.project.region_id) for row in created.endpoints],
        operations=[OperationView.of(row) for row in created.operations],
        roles=[RoleView.of(row) for row in created.roles],
        databases=[DatabaseView.of(row) for row in created.databases],
        connection_uris=uris,
    )


@router.get("/{branch_id}")
@reads
async def get_project_branch(
    project_id: PathId, branch_id: PathId, access: Access, pageserver: PageserverClient
) -> BranchDetail:
    project = await access.project(project_id)
    branch = await access.branch(project, branch_id)
    used = await usage.branches_this_month(access.session, project, [branch], now())
    await release(access.session)
    held = await sizes(pageserver, project)
    view = BranchView.of(branch, used[branch.id], held)
    return BranchDetail(branch=view, annotation=_no_annotation(branch.id))


@router.delete("/{branch_id}", responses=responses(BadRequestError, ProjectBusyError, PreconditionFailedError))
async def delete_project_branch(
    project_id: PathId, branch_id: PathId, access: Access, children: Literal["refuse", "delete"] = "refuse"
) -> BranchOperations:
    """Deletes a branch with its endpoints. One that is protected is refused with 412, and so is one that has
    children, with their names; `children=delete` deletes them too, unless one of them is protected."""
    branch, operations = await service.delete(access, project_id, branch_id, children)
    return await views.changed(access.session, branch, operations)


@router.post(
    "/{branch_id}/restore",
    responses=responses(BadRequestError, ProjectBusyError, PreconditionFailedError, ConflictError, UnavailableError),
)
async def restore_project_branch(
    project_id: PathId,
    branch_id: PathId,
    body: BranchRestoreRequest,
    access: Access,
    pageserver: PageserverClient,
    safekeepers: SafekeeperClients,
    client: Http,
) -> BranchOperations:
    """Puts a branch back to its own past, or to a state of another branch. Id, name, endpoints and addresses stay;
    running computes start again on the restored state once it is there, and a restore that fails before changes
    nothing. Roles and databases are the source's of today, with the branch's passwords where it has the role."""
    engine = Engine(pageserver, safekeepers, client)
    branch, operations = await restore.restore(access, engine, project_id, branch_id, body)
    return await views.changed(access.session, branch, operations)


@router.post(
    "/{branch_id}/set_as_default", responses=responses(BadRequestError, ProjectBusyError, PreconditionFailedError)
)
async def set_default_project_branch(project_id: PathId, branch_id: PathId, access: Access) -> BranchOperations:
    """Makes a branch the one that is taken where none is named. It cannot be deleted then, and may not expire; the
    branch that was the default before can. Whether a branch is protected is another matter."""
    branch = await service.set_default(access, project_id, branch_id)
    return await views.changed(access.session, branch, [])


@router.post("/{branch_id}/detach", responses=responses(BadRequestError, ProjectBusyError, ConflictError))
async def detach_project_branch(project_id: PathId, branch_id: PathId, access: Access) -> BranchOperations:
    """Makes a branch independent of its parent, which can then be deleted or let go of its history. Storage copies
    what the branch reads there; computes run on meanwhile, and branches of the branch stay its branches. One without
    a parent is refused with 409."""
    branch, operations = await detach.detach(access, project_id, branch_id)
    return await views.changed(access.session, branch, operations)


@router.patch(
    "/{branch_id}",
    responses=responses(BadRequestError, NotBuiltError, ProjectBusyError, PreconditionFailedError, ConflictError),
)
async def update_project_branch(
    project_id: PathId, branch_id: PathId, body: BranchUpdateRequest, access: Access
) -> BranchOperations:
    """A changed `durability` reaches running computes by the operations it answers with; one that a policy forbids is
    refused with 412."""
    branch, operations = await service.update(access, project_id, branch_id, body.branch)
    return await views.changed(access.session, branch, operations)
