from typing import Annotated

from fastapi import APIRouter, Query
from fastapi import status as http

from weir.authz.access import Access
from weir.branches import views
from weir.branches.points import Engine
from weir.branches.sizes import sizes
from weir.clients.dependencies import Http, PageserverClient, SafekeeperClients
from weir.db import Session, release
from weir.errors import (
    BadRequestError,
    ConflictError,
    NotFoundError,
    PreconditionFailedError,
    ProjectBusyError,
    UnauthorizedError,
    UnavailableError,
    responses,
)
from weir.kit.clock import now
from weir.kit.schemas import Lsn, PathId, Timestamp, View
from weir.operations.schemas import OperationsResponse, OperationView
from weir.snapshots import restoring, schedules, service
from weir.snapshots.repository import SnapshotRepository
from weir.snapshots.schemas import (
    BackupSchedule,
    BackupScheduleResponse,
    FinalizeRestoreRequest,
    ScheduleItemView,
    SnapshotCreated,
    SnapshotName,
    SnapshotResponse,
    SnapshotRestored,
    SnapshotRestoreRequest,
    SnapshotsResponse,
    SnapshotUpdateRequest,
    SnapshotView,
)

router = APIRouter(tags=["snapshots"], responses=responses(UnauthorizedError, BadRequestError, NotFoundError))
_BRANCH = "/projects/{project_id}/branches/{branch_id}"
_SNAPSHOT = "/projects/{project_id}/snapshots/{snapshot_id}"


class EmptyResponse(View):
    pass


@router.post(
    f"{_BRANCH}/snapshot",
    responses=responses(BadRequestError, ProjectBusyError, PreconditionFailedError, UnavailableError),
)
async def create_snapshot(
    project_id: PathId,
    branch_id: PathId,
    access: Access,
    pageserver: PageserverClient,
    safekeepers: SafekeeperClients,
    client: Http,
    lsn: Annotated[Lsn | None, Query()] = None,
    timestamp: Annotated[Timestamp | None, Query()] = None,
    name: Annotated[SnapshotName | None, Query()] = None,
    expires_at: Annotated[Timestamp | None, Query()] = None,
) -> SnapshotCreated:
    """Keeps the state of a branch, with its roles and databases, for as long as the snapshot is there, whatever
    becomes of the branch's history: all that is committed now, or a state of the past. Nothing is copied."""
    engine = Engine(pageserver, safekeepers, client)
    taken = await service.create(
        access, engine, project_id, branch_id, lsn=lsn, timestamp=timestamp, name=name, expires_at=expires_at
    )
    return SnapshotCreated(
        snapshot=SnapshotView.of(taken.snapshot, taken.held), operations=[OperationView.of(taken.operation)]
    )


@router.get("/projects/{project_id}/snapshots")
async def list_snapshots(
    project_id: PathId, access: Access, session: Session, pageserver: PageserverClient
) -> SnapshotsResponse:
    """All of the project, newest first."""
    project = await access.project(project_id)
    rows = await SnapshotRepository(session).of_project(project.id, now())
    await release(session)
    held_sizes = await sizes(pageserver, project) if rows else {}
    return SnapshotsResponse(snapshots=[SnapshotView.of(row, held, held_sizes) for row, held in rows])


@router.patch(_SNAPSHOT, responses=responses(BadRequestError, ProjectBusyError))
async def update_snapshot(
    project_id: PathId, snapshot_id: PathId, body: SnapshotUpdateRequest, access: Access
) -> SnapshotResponse:
    """Another name or expiry; an `expires_at` of null keeps it until it is deleted."""
    _, snapshot, held = await service.update(access, project_id, snapshot_id, body.snapshot)
    return SnapshotResponse(snapshot=SnapshotView.of(snapshot, held))


@router.delete(_SNAPSHOT, status_code=http.HTTP_202_ACCEPTED, responses=responses(ProjectBusyError))
async def delete_snapshot(project_id: PathId, snapshot_id: PathId, access: Access) -> OperationsResponse:
    """The snapshot is gone at once. Its data goes by the operation, or, where branches restored from it need the
    data, with the last of them: there is no operation then."""
    operations = await service.delete(access, project_id, snapshot_id)
    return OperationsResponse(operations=[OperationView.of(row) for row in operations])


@router.post(
    f"{_SNAPSHOT}/restore",
    responses=responses(BadRequestError, ProjectBusyError, PreconditionFailedError, ConflictError),
)
async def restore_snapshot(
    project_id: PathId, snapshot_id: PathId, access: Access, body: SnapshotRestoreRequest | None = None
) -> SnapshotRestored:
    """Makes a branch, without an endpoint, of the snapshot's state; finalizing the restore later gives the state to
    the target. With `finalize_restore` the target gets it now: it keeps its id, endpoints and addresses, and what it
    was stays as a branch named after it. The answer's branch is the target then."""
    branch, operations = await restoring.restore(access, project_id, snapshot_id, body or SnapshotRestoreRequest())
    return SnapshotRestored(
        branch=await views.view(access.session, branch),
        endpoints=[],
        operations=[OperationView.of(row) for row in operations],
    )


@router.post(
    f"{_BRANCH}/finalize_restore",
    responses=responses(BadRequestError, ProjectBusyError, PreconditionFailedError, ConflictError),
)
async def finalize_restore_branch(
    project_id: PathId, branch_id: PathId, access: Access, body: FinalizeRestoreRequest | None = None
) -> OperationsResponse:
    """Ends a restore that made this branch: its target, `restored_as`, gets what this branch holds by now and keeps
    its own id, endpoints and addresses; this branch keeps what the target was. Computes of both start again."""
    name = None if body is None else body.name
    operations = await restoring.finalize(access, project_id, branch_id, name)
    return OperationsResponse(operations=[OperationView.of(row) for row in operations])


@router.get(f"{_BRANCH}/backup_schedule")
async def get_snapshot_schedule(
    project_id: PathId, branch_id: PathId, access: Access, session: Session
) -> BackupScheduleResponse:
    """When snapshots of the branch are taken by themselves; an empty list where none are."""
    branch = await access.branch(await access.project(project_id), branch_id)
    rows = await SnapshotRepository(session).schedule(branch.id)
    return BackupScheduleResponse(schedule=[ScheduleItemView.of(row) for row in rows])


@router.put(
    f"{_BRANCH}/backup_schedule", responses=responses(BadRequestError, ProjectBusyError, PreconditionFailedError)
)
async def set_snapshot_schedule(
    project_id: PathId, branch_id: PathId, body: BackupSchedule, access: Access
) -> EmptyResponse:
    """Has snapshots of the branch taken at these times, each kept for its `retention_seconds`. Entries that fall
    together give one snapshot, and so do times that were missed. Snapshots that are there stay."""
    await schedules.replace(access, project_id, branch_id, body.schedule)
    return EmptyResponse()
