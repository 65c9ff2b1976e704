"""Snapshots as people ask for them: taken, listed, renamed, kept longer or shorter, deleted."""

from datetime import datetime

from weir.authz.access import ProjectAccess
from weir.branches.models import Branch
from weir.branches.points import Engine
from weir.branches.repository import BranchRepository
from weir.branches.service import deletion_of, enqueue_deletion
from weir.errors import BadRequestError, NotFoundError
from weir.identity import audit
from weir.kit.clock import now
from weir.operations import scopes
from weir.operations.locks import require_free
from weir.operations.models import Operation
from weir.projects.models import Project
from weir.quotas.service import admit_branch
from weir.snapshots.models import Snapshot
from weir.snapshots.repository import SnapshotRepository
from weir.snapshots.schemas import SnapshotUpdate
from weir.snapshots.taking import Taken, Wanted, find_state, take


async def find(access: ProjectAccess, project: Project, ident: str) -> tuple[Snapshot, Branch]:
    """With the branch that holds it. Raises NotFoundError of one that is deleted or has expired, too."""
    found = await SnapshotRepository(access.session).get(project.id, ident, now())
    if found is None:
        raise NotFoundError.of(f"project {project.id}: snapshot", ident)
    return found


def checked_expiry(at: datetime | None) -> datetime | None:
    if at is not None and at <= now():
        raise BadRequestError(f"expires_at {at.isoformat()} is in the past; choose a later one")
    return at


async def create(
    access: ProjectAccess,
    engine: Engine,
    project_id: str,
    branch_id: str,
    *,
    lsn: str | None,
    timestamp: datetime | None,
    name: str | None,
    expires_at: datetime | None,
) -> Taken:
    """Of the LSN or the moment, or else of what is committed now. Raises what making a branch there raises."""
    checked_expiry(expires_at)
    found = await find_state(access, engine, project_id, branch_id, lsn, timestamp)
    # A snapshot keeps history as a branch does, and counts as one.
    await admit_branch(access.session, found.project)
    principal = access.principal
    wanted = Wanted(name, found.moment, expires_at, manual=True, created_by=principal.name)
    taken = await take(access.session, found.begins, wanted, request_id=principal.request_id)
    audit.record(
        access.session, principal, "snapshot.create", f"snapshot/{taken.snapshot.id}", project_id,
        source_branch_id=branch_id, lsn=found.begins.lsn,
    )  # fmt: skip
    return taken


async def update(
    access: ProjectAccess, project_id: str, ident: str, body: SnapshotUpdate
) -> tuple[Project, Snapshot, Branch]:
    project = await access.locked_project(project_id)
    snapshot, held = await find(access, project, ident)
    if body.name is not None:
        snapshot.name = body.name
    if "expires_at" in body.model_fields_set:
        held.expires_at = checked_expiry(body.expires_at)
    snapshot.updated_at = now()
    audit.record(
        access.session, access.principal, "snapshot.update", f"snapshot/{snapshot.id}", project.id,
        **body.model_dump(exclude_unset=True, mode="json"),
    )  # fmt: skip
    return project, snapshot, held


async def delete(access: ProjectAccess, project_id: str, ident: str) -> list[Operation]:
    """Nobody sees the snapshot any more. Its data goes by the operations this answers with, or, where branches that
    were restored from it need the data, with the last of those (by the reconciler, as what expires). Raises
    ProjectBusyError while the snapshot is being taken or restored from."""
    project = await access.locked_project(project_id)
    snapshot, held = await find(access, project, ident)
    await require_free(access.session, [scopes.of_branch(project.id, held.id)])
    # The reconciler finishes what breaks off here.
    snapshot.delete_requested_at = held.expires_at = now()
    operations: list[Operation] = []
    if not await BranchRepository(access.session).children(held.id):
        operations = await enqueue_deletion(access.session, held, request_id=access.principal.request_id)
    audit.record(access.session, access.principal, *deletion_of(held), project.id, name=snapshot.name)
    return operations
