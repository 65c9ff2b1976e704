"""Going back to a snapshot: as a branch beside the one it was taken of, or in that one's place.

In place the branch keeps its id, name, endpoints and addresses and gets the snapshot's state by the exchange of every
restore (`weir.branches.restore`). Neon gives the new branch the name and the computes of the old one instead; the
names come out the same.
"""

from weir.authz.access import ProjectAccess
from weir.branches.head import Beginning
from weir.branches.models import Branch, BranchState
from weir.branches.repository import BranchRepository
from weir.branches.restore import enqueue_exchange, free_name
from weir.branches.service import new_branch, refuse_leaving
from weir.databases.inheriting import inherit
from weir.errors import BadRequestError, ConflictError, NotFoundError, PreconditionFailedError
from weir.identity import audit
from weir.kit.clock import now
from weir.operations import scopes
from weir.operations.models import Operation, OperationKind
from weir.operations.service import enqueue
from weir.projects.models import Project
from weir.quotas.service import admit_branch
from weir.snapshots import service
from weir.snapshots.models import Snapshot
from weir.snapshots.schemas import SnapshotRestoreRequest

_LONGEST_KEPT_NAME = 220


def replaced_name(branch: Branch) -> str:
    """What a branch's state is kept under once a snapshot's has replaced it."""
    return f"{branch.name[:_LONGEST_KEPT_NAME]}_old_{now():%Y%m%d%H%M%S}"


def _refuse_target(branch: Branch) -> None:
    if branch.state != BranchState.READY:
        raise BadRequestError(f"branch {branch.id} is {branch.state}; only a ready branch can be restored")
    refuse_leaving(branch)
    if branch.protected:
        raise PreconditionFailedError(f"branch {branch.id} is protected; clear `protected` with PATCH first")


async def _refuse_taken(access: ProjectAccess, project: Project, name: str | None) -> None:
    if name is not None and await BranchRepository(access.session).named(project.id, name) is not None:
        raise ConflictError(f"project {project.id} already has a branch named {name!r}; choose another name")


async def _target(
    access: ProjectAccess, project: Project, snapshot: Snapshot, body: SnapshotRestoreRequest
) -> Branch | None:
    """The branch that is to have the state. None: nobody named one, and what the snapshot was taken of is gone."""
    if body.target_branch_id is not None:
        return await access.branch(project, body.target_branch_id)
    try:
        return await access.branch(project, snapshot.source_branch_id or "")
    except NotFoundError:
        return None


async def restore(
    access: ProjectAccess, project_id: str, ident: str, body: SnapshotRestoreRequest
) -> tuple[Branch, list[Operation]]:
    """A branch with the snapshot's state; with `finalize_restore` the target, which has the state when the operations
    have ended. Raises ProjectBusyError while the snapshot is being taken or deleted, or the target is busy."""
    project = await access.locked_project(project_id)
    snapshot, held = await service.find(access, project, ident)
    if held.state != BranchState.READY:
        raise BadRequestError(f"snapshot {ident} is {held.state}; it can be restored when it has been taken")
    refuse_leaving(held)
    target = await _target(access, project, snapshot, body)
    await admit_branch(access.session, project)
    if body.finalize_restore:
        if target is None:
            raise PreconditionFailedError(
                f"the branch that snapshot {ident} was taken of is gone; name the one that is to have its state as "
                "target_branch_id"
            )
        _refuse_target(target)
        return target, await _restore_in_place(access, snapshot, held, target)
    await _refuse_taken(access, project, body.name)
    made, create = await _make(access, snapshot, held, body.name)
    made.restored_as = None if target is None else target.id
    audit.record(
        access.session, access.principal, "snapshot.restore", f"snapshot/{ident}", project.id, branch_id=made.id,
    )  # fmt: skip
    return made, [create]


async def _make(
    access: ProjectAccess, snapshot: Snapshot, held: Branch, name: str | None
) -> tuple[Branch, Operation]:
    """A branch of the state. Where that is was found when it was taken: storage needs not be asked."""
    session = access.session
    made = new_branch(held.project_id, name, default=False, durability=held.durability)
    made.parent_id, made.parent_lsn = held.id, held.parent_lsn
    made.parent_timestamp = snapshot.timestamp
    made.restored_from = snapshot.id
    session.add(made)
    await session.flush()
    await inherit(session, Beginning(held, held.parent_lsn, None, knows_moment=True), made)
    create = await enqueue(
        session,
        OperationKind.CREATE_BRANCH,
        held.project_id,
        branch_id=made.id,
        also_holds=[scopes.history_of(held.project_id, held.id)],
        request_id=access.principal.request_id,
    )
    return made, create


async def _restore_in_place(
    access: ProjectAccess, snapshot: Snapshot, held: Branch, target: Branch
) -> list[Operation]:
    session, request_id = access.session, access.principal.request_id
    kept_as = await free_name(session, target.project_id, replaced_name(target))
    made, create = await _make(access, snapshot, held, kept_as)
    # What the target was stays at the level that the target has.
    made.durability = target.durability
    exchange = await enqueue_exchange(session, target, made, create, request_id=request_id)
    audit.record(
        session, access.principal, "snapshot.restore", f"snapshot/{snapshot.id}", target.project_id,
        branch_id=target.id, preserved_as=made.id,
    )  # fmt: skip
    return [create, exchange]


async def finalize(access: ProjectAccess, project_id: str, ident: str, name: str | None) -> list[Operation]:
    """The branch that a restore was to replace gets the state of the one it made, with what was changed there since;
    that one keeps the replaced state. Raises BadRequestError for a branch that waits for nothing of the kind."""
    project, made = await access.idle_branch(project_id, ident)
    if made.restored_as is None:
        raise BadRequestError(
            f"branch {ident} is of no restore that waits to be finalized: such a branch has a `restored_as`"
        )
    target = await access.branch(project, made.restored_as)
    for row in (made, target):
        _refuse_target(row)
    if made.is_default:
        raise PreconditionFailedError(f"branch {ident} is the project's default branch; make another one it first")
    await _refuse_taken(access, project, name)
    kept_as = name or replaced_name(target)
    request_id = access.principal.request_id
    exchange = await enqueue_exchange(
        access.session, target, made, None, request_id=request_id, preserve_under=kept_as
    )
    audit.record(
        access.session, access.principal, "branch.finalize_restore", f"branch/{target.id}", project.id,
        restored=made.id, preserved_as=kept_as,
    )  # fmt: skip
    return [exchange]
