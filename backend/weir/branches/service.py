from datetime import datetime
from typing import Literal

from sqlalchemy.ext.asyncio import AsyncSession

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
from weir.endpoints.service import READ_ONLY_REFUSED, add_endpoint, apply_config, inherited_fpw
from weir.errors import (
    BadRequestError,
    ConflictError,
    NotBuiltError,
    PreconditionFailedError,
)
from weir.identity import audit
from weir.kit.clock import now
from weir.kit.ids import branch_id, storage_id
from weir.operations import scopes
from weir.operations.locks import require_free
from weir.operations.models import Operation, OperationKind
from weir.operations.service import enqueue
from weir.projects.models import Project
from weir.quotas.service import admit_branch


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
            f"init_source {fields.init_source!r} is not built yet: a branch shares its parent's data and has no way "
            "to leave the rows behind; leave it out, or run the parent's schema, GET .../schema, in another project"
        )
    for endpoint in endpoints:
        if endpoint.type == "read_only":
            raise NotBuiltError(READ_ONLY_REFUSED)
        if endpoint.type != "read_write":
            raise BadRequestError(f"there are no endpoints of type {endpoint.type!r}; ask for read_write")
    if len(endpoints) > 1:
        raise BadRequestError("a branch has at most one read-write endpoint; ask for one")


async def _refuse_parent(access: ProjectAccess, project: Project, fields: BranchFields, parent: Branch) -> None:
    """Raises what a branch of it with these fields would be refused with."""
    repository = BranchRepository(access.session)
    if parent.state != BranchState.READY:
        raise BadRequestError(f"branch {parent.id} is {parent.state}; only a ready branch can be branched")
    refuse_leaving(parent)
    if parent.expires_at is not None:
        raise PreconditionFailedError(
            f"branch {parent.id} expires at {parent.expires_at.isoformat(timespec='seconds')}, and a branch of it "
            "would keep it from going; set its `expires_at` to null first, or choose another parent"
        )
    if fields.name and await repository.named(project.id, fields.name) is not None:
        raise ConflictError(f"project {project.id} already has a branch named {fields.name!r}")
    policy_of(project).refuse(fields.durability, "durability")


async def create(access: ProjectAccess, engine: Engine, project_id: str, body: BranchCreateRequest) -> CreatedBranch:
    fields = body.branch or BranchFields()
    endpoints = body.endpoints or []
    _refuse_unbuilt(fields, endpoints)
    project = await access.locked_project(project_id)
    named_so, repository = fields.parent_id, BranchRepository(access.session)
    parent = await access.branch(project, named_so) if named_so else await repository.default(project.id)
    # Its endpoints as well: what a compute that starts or stops has acknowledged, nobody can tell.
    before = await access.standing(project, scopes.of_branch(project.id, parent.id))
    await _refuse_parent(access, project, fields, parent)
    begins = await beginning(access.session, engine, project, parent, fields.parent_lsn, fields.parent_timestamp)
    project = await access.unchanged_project(before)
    # The same, even if another one has become the default: that is the one whose state was asked for.
    parent = await access.branch(project, parent.id)
    await _refuse_parent(access, project, fields, parent)
    await admit_branch(access.session, project)
    branch = new_branch(project.id, fields.name, default=False, durability=fields.durability or parent.durability)
    branch.parent_id = parent.id
    branch.parent_lsn = begins.lsn
    branch.parent_timestamp = fields.parent_timestamp
    branch.protected = bool(fields.protected)
    branch.expires_at = checked_expiry(branch, [], fields.expires_at)
    BranchRepository(access.session).add(branch)
    await access.session.flush()

    created = CreatedBranch(project, branch)
    created.roles, created.databases = await inherit(access.session, begins, branch)
    operation = await enqueue(
        access.session,
        OperationKind.CREATE_BRANCH,
        project.id,
        branch_id=branch.id,
        also_holds=[scopes.history_of(project.id, parent.id)],
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
    """As their readers know them: a snapshot by its id, which is the name of the row that holds it."""
    return ", ".join(
        f"snapshot {branch.name}" if branch.is_snapshot else f"{branch.name} ({branch.id})" for branch in branches
    )


def kinds(branches: list[Branch]) -> str:
    """What they are, in words for a message."""
    found = {branch.is_snapshot for branch in branches}
    return "branches and snapshots" if len(found) > 1 else "snapshots" if True in found else "branches"


async def delete(
    access: ProjectAccess, project_id: str, ident: str, children: Literal["refuse", "delete"]
) -> tuple[Branch, list[Operation]]:
    """With `delete` everything below goes as well, leaves first; all of it or, when one must stay, nothing. Repeating
    a deletion that broke off goes on with it."""
    project = await access.locked_project(project_id)
    branch = await access.branch(project, ident)
    below = await BranchRepository(access.session).descendants(branch)
    await require_free(access.session, [scopes.of_branch(project.id, each.id) for each in (branch, *below)])
    _refuse_deleting(branch)
    if below and children == "refuse":
        raise PreconditionFailedError(
            f"branch {ident} has {kinds(below)} that need its data: {named(below)}; delete them first, or ask for "
            "children=delete to delete them as well"
        )
    for child in below:
        _refuse_deleting(child)
    operations: list[Operation] = []
    for leaving in [*reversed(below), branch]:
        operations += await enqueue_deletion(
            access.session,
            leaving,
            depends_on=operations[-1] if operations else None,
            request_id=access.principal.request_id,
        )
        audit.record(access.session, access.principal, *deletion_of(leaving), project.id)
    return branch, operations


def deletion_of(branch: Branch) -> tuple[str, str]:
    """Action and resource of its deletion in the audit log."""
    if branch.is_snapshot:
        return "snapshot.delete", f"snapshot/{branch.name}"
    return "branch.delete", f"branch/{branch.id}"


async def enqueue_deletion(
    session: AsyncSession,
    branch: Branch,
    *,
    depends_on: Operation | None = None,
    request_id: str = "",
    origin: str = "request",
) -> list[Operation]:
    """The operations that delete a branch with its endpoints, to be called with the project's row locked. Whether it
    may go is the caller's question."""
    branch.delete_requested_at = now()
    endpoints = await EndpointRepository(session).of_branch(branch.id)
    operations = await delete_endpoints(session, endpoints, depends_on, request_id=request_id, origin=origin)
    last = await enqueue(
        session,
        OperationKind.DELETE_BRANCH,
        branch.project_id,
        branch_id=branch.id,
        depends_on=operations[-1] if operations else depends_on,
        request_id=request_id,
        origin=origin,
    )
    return [*operations, last]


async def delete_endpoints(
    session: AsyncSession,
    endpoints: list[Endpoint],
    depends_on: Operation | None = None,
    *,
    request_id: str = "",
    origin: str = "request",
) -> list[Operation]:
    """A chain: each waits for the one before it, and what follows the chain for its last."""
    operations: list[Operation] = []
    for endpoint in endpoints:
        endpoint.desired_state = EndpointState.IDLE
        endpoint.delete_requested_at = now()
        operations.append(
            await enqueue(
                session,
                OperationKind.DELETE_COMPUTE,
                endpoint.project_id,
                branch_id=endpoint.branch_id,
                endpoint_id=endpoint.id,
                depends_on=operations[-1] if operations else depends_on,
                request_id=request_id,
                origin=origin,
            )
        )
    return operations


def checked_expiry(branch: Branch, children: list[Branch], at: datetime | None) -> datetime | None:
    """`at`, if the branch may expire then: it may not where its deletion would be refused."""
    if at is None:
        return None
    if at <= now():
        raise BadRequestError(f"expires_at {at.isoformat()} is in the past; delete the branch instead")
    if branch.is_default:
        raise PreconditionFailedError(f"branch {branch.id} is the project's default branch, which never expires")
    if branch.protected:
        raise PreconditionFailedError(
            f"branch {branch.id} is protected, and would not go at its `expires_at`; clear one of the two"
        )
    if children:
        raise PreconditionFailedError(
            f"branch {branch.id} has {kinds(children)} that need its data: {named(children)}; it can expire when "
            "they are gone"
        )
    return at


async def set_default(access: ProjectAccess, project_id: str, ident: str) -> Branch:
    """The branch that is taken where none is named, and that cannot be deleted; the one before stays as it is
    otherwise. Repeating it changes nothing."""
    project, branch = await access.branch_to_write(project_id, ident)
    if branch.is_default:
        return branch
    if branch.state != BranchState.READY:
        raise BadRequestError(f"branch {branch.id} is {branch.state}; only a ready branch can be the default")
    refuse_leaving(branch)
    if branch.expires_at is not None:
        raise PreconditionFailedError(
            f"branch {branch.id} expires at {branch.expires_at.isoformat(timespec='seconds')}, and a default branch "
            "never does; set its `expires_at` to null first"
        )
    before = await BranchRepository(access.session).default(project.id)
    before.is_default = False
    # No two are the default at any moment.
    await access.session.flush()
    branch.is_default = True
    branch.updated_at = before.updated_at = now()
    audit.record(
        access.session, access.principal, "branch.set_as_default", f"branch/{branch.id}", project.id,
        before=before.id,
    )  # fmt: skip
    return branch


async def update(
    access: ProjectAccess, project_id: str, ident: str, body: BranchUpdate
) -> tuple[Branch, list[Operation]]:
    project, branch = await access.branch_to_write(project_id, ident)
    if body.name is not None and body.name != branch.name:
        if await BranchRepository(access.session).named(project.id, body.name) is not None:
            raise ConflictError(f"project {project.id} already has a branch named {body.name!r}")
        branch.name = body.name
    if body.protected is not None:
        branch.protected = body.protected
    if "expires_at" in body.model_fields_set:
        branch.expires_at = body.expires_at
    if branch.expires_at is not None and body.model_fields_set & {"expires_at", "protected"}:
        checked_expiry(branch, await BranchRepository(access.session).children(branch.id), branch.expires_at)
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
