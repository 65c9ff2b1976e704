from typing import Literal

from weir.authz.access import ProjectAccess
from weir.branches.head import beginning
from weir.branches.models import Branch, BranchState
from weir.branches.points import Engine
from weir.branches.repository import BranchRepository
from weir.branches.schemas import BranchCreateRequest, BranchEndpoint, BranchFields, BranchUpdate
from weir.databases.inheriting import inherit
from weir.databases.models import BranchDatabase, Role
from weir.durability.levels import Durability
from weir.durability.policy import policy_of
from weir.endpoints.models import Endpoint, EndpointState
from weir.endpoints.repository import EndpointRepository
from weir.endpoints.service import add_endpoint, apply_config, inherited_fpw
from weir.errors import (
    BadRequestError,
    ConflictError,
    NotBuiltError,
    PreconditionFailedError,
)
from weir.identity import audit
from weir.kit.clock import now
from weir.kit.ids import branch_id, storage_id
from weir.operations.models import Operation, OperationKind
from weir.operations.service import enqueue
from weir.projects.models import Project


class CreatedBranch:
    def __init__(self, project: Project, branch: Branch) -> None:
        self.project = project
        self.branch = branch
        self.roles: list[Role] = []
        self.databases: list[BranchDatabase] = []
        self.endpoints: list[Endpoint] = []
        self.operations: list[Operation] = []


def new_branch(
    project_id: str, name: str | None, *, default: bool, durability: Durability = Durability.FLUSH
) -> Branch:
    at = now()
    ident = branch_id()
    return Branch(
        id=ident,
        project_id=project_id,
        name=name or ident,
        timeline_id=storage_id(),
        state=BranchState.INIT,
        state_changed_at=at,
        is_default=default,
        protected=False,
        durability=durability,
        created_at=at,
        updated_at=at,
    )


def _refuse_unbuilt(fields: BranchFields, endpoints: list[BranchEndpoint]) -> None:
    if fields.archived:
        raise NotBuiltError("archived branches are not built yet; leave `archived` out")
    if fields.init_source not in {None, "parent-data"}:
        raise NotBuiltError(
            f"init_source {fields.init_source!r} is not built yet; branches carry their parent's data"
        )
    if fields.expires_at is not None:
        raise NotBuiltError("branches that expire are not built yet; leave `expires_at` out")
    for endpoint in endpoints:
        if endpoint.type != "read_write":
            raise NotBuiltError(f"endpoints of type {endpoint.type!r} are not built yet; ask for read_write")
    if len(endpoints) > 1:
        raise BadRequestError("a branch has at most one read-write endpoint; ask for one")


async def create(access: ProjectAccess, engine: Engine, project_id: str, body: BranchCreateRequest) -> CreatedBranch:
    fields = body.branch or BranchFields()
    endpoints = body.endpoints or []
    _refuse_unbuilt(fields, endpoints)
    project = await access.idle_project(project_id)
    repository = BranchRepository(access.session)
    parent = (
        await access.branch(project, fields.parent_id) if fields.parent_id else await repository.default(project.id)
    )
    if parent.state != BranchState.READY:
        raise BadRequestError(f"branch {parent.id} is {parent.state}; only a ready branch can be branched")
    refuse_leaving(parent)
    if fields.name and await repository.named(project.id, fields.name) is not None:
        raise ConflictError(f"project {project.id} already has a branch named {fields.name!r}")
    policy_of(project).refuse(fields.durability, "durability")
    branch = new_branch(project.id, fields.name, default=False, durability=fields.durability or parent.durability)
    branch.parent_id = parent.id
    branch.parent_lsn = await beginning(
        access.session, engine, project, parent, fields.parent_lsn, fields.parent_timestamp
    )
    branch.parent_timestamp = fields.parent_timestamp
    branch.protected = bool(fields.protected)
    repository.add(branch)
    await access.session.flush()

    created = CreatedBranch(project, branch)
    created.roles, created.databases = await inherit(
        access.session, engine, project, parent, branch, fields.parent_lsn, fields.parent_timestamp
    )
    operation = await enqueue(
        access.session,
        OperationKind.CREATE_BRANCH,
        project.id,
        branch_id=branch.id,
        request_id=access.principal.request_id,
    )
    created.operations.append(operation)
    for options in endpoints:
        endpoint, start = await add_endpoint(
            access, project, branch, options, operation, full_page_writes=await inherited_fpw(access, branch)
        )
        created.endpoints.append(endpoint)
        created.operations += [start] if start else []
    audit.record(
        access.session, access.principal, "branch.create", f"branch/{branch.id}", project.id,
        parent_id=parent.id, parent_lsn=branch.parent_lsn, durability=branch.durability,
    )  # fmt: skip
    return created


def _refuse_deleting(branch: Branch) -> None:
    if branch.is_default:
        raise BadRequestError(f"branch {branch.id} is the project's default branch; delete the project instead")
    if branch.protected:
        raise PreconditionFailedError(f"branch {branch.id} is protected; clear `protected` with PATCH first")


def refuse_leaving(branch: Branch) -> None:
    """One whose deletion has begun and broke off may have lost part of its data already."""
    if branch.delete_requested_at is not None:
        raise PreconditionFailedError(
            f"branch {branch.id} is being deleted since {branch.delete_requested_at.isoformat(timespec='seconds')}, "
            "and was not to the end; repeat its DELETE, or choose another branch"
        )


def named(branches: list[Branch]) -> str:
    return ", ".join(f"{branch.name} ({branch.id})" for branch in branches)


async def delete(
    access: ProjectAccess, project_id: str, ident: str, children: Literal["refuse", "delete"]
) -> tuple[Branch, list[Operation]]:
    """With `delete` everything below goes as well, leaves first; all of it or, when one must stay, nothing. Repeating
    a deletion that broke off goes on with it."""
    project = await access.idle_project(project_id)
    branch = await access.branch(project, ident)
    _refuse_deleting(branch)
    below = await BranchRepository(access.session).descendants(branch)
    if below and children == "refuse":
        raise PreconditionFailedError(
            f"branch {ident} has branches that need its data: {named(below)}; delete them first, or ask for "
            "children=delete to delete them as well"
        )
    for child in below:
        _refuse_deleting(child)
    operations: list[Operation] = []
    for leaving in [*reversed(below), branch]:
        leaving.delete_requested_at = now()
        endpoints = await EndpointRepository(access.session).of_branch(leaving.id)
        operations += await delete_endpoints(access, endpoints, operations[-1] if operations else None)
        operations.append(
            await enqueue(
                access.session,
                OperationKind.DELETE_BRANCH,
                project.id,
                branch_id=leaving.id,
                depends_on=operations[-1] if operations else None,
                request_id=access.principal.request_id,
            )
        )
        audit.record(access.session, access.principal, "branch.delete", f"branch/{leaving.id}", project.id)
    return branch, operations


async def delete_endpoints(
    access: ProjectAccess, endpoints: list[Endpoint], depends_on: Operation | None = None
) -> list[Operation]:
    """A chain: each waits for the one before it, and what follows the chain for its last."""
    operations: list[Operation] = []
    for endpoint in endpoints:
        endpoint.desired_state = EndpointState.IDLE
        endpoint.delete_requested_at = now()
        operations.append(
            await enqueue(
                access.session,
                OperationKind.DELETE_COMPUTE,
                endpoint.project_id,
                branch_id=endpoint.branch_id,
                endpoint_id=endpoint.id,
                depends_on=operations[-1] if operations else depends_on,
                request_id=access.principal.request_id,
            )
        )
    return operations


async def update(
    access: ProjectAccess, project_id: str, ident: str, body: BranchUpdate
) -> tuple[Branch, list[Operation]]:
    project = await access.idle_project(project_id)
    branch = await access.branch(project, ident)
    if body.expires_at is not None:
        raise NotBuiltError("branches that expire are not built yet; leave `expires_at` out")
    if body.name is not None and body.name != branch.name:
        if await BranchRepository(access.session).named(project.id, body.name) is not None:
            raise ConflictError(f"project {project.id} already has a branch named {body.name!r}")
        branch.name = body.name
    if body.protected is not None:
        branch.protected = body.protected
    operations: list[Operation] = []
    before = branch.durability
    if body.durability is not None and body.durability != before:
        policy_of(project).refuse(body.durability, "durability")
        branch.durability = body.durability
        operations = await apply_config(access, await EndpointRepository(access.session).of_branch(branch.id))
    branch.updated_at = now()
    audit.record(
        access.session, access.principal, "branch.update", f"branch/{branch.id}", project.id,
        **body.model_dump(exclude_none=True, mode="json"),
        **({"durability_before": before} if branch.durability != before else {}),
    )  # fmt: skip
    return branch, operations
