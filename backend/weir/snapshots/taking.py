"""Taking a snapshot: a branch at one LSN, which nobody is shown, keeps the state (ADR 72).

Storage keeps what a branch begins with for as long as there is the branch, however short the history of its parent.
"""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from weir.authz.access import ProjectAccess
from weir.branches.head import Beginning, beginning
from weir.branches.models import Branch, BranchState
from weir.branches.points import Engine, moment
from weir.branches.service import new_branch, refuse_leaving
from weir.databases.inheriting import inherit
from weir.errors import BadRequestError, PreconditionFailedError
from weir.kit.clock import now
from weir.kit.ids import snapshot_id
from weir.operations import scopes
from weir.operations.models import Operation, OperationKind
from weir.operations.service import enqueue
from weir.projects.models import Project
from weir.snapshots.models import Snapshot


@dataclass(frozen=True)
class Wanted:
    """`timestamp`: the moment the state is of, None where nothing was committed by then."""

    name: str | None
    timestamp: datetime | None
    expires_at: datetime | None
    manual: bool
    created_by: str


@dataclass(frozen=True)
class Taken:
    snapshot: Snapshot
    held: Branch
    operation: Operation


def refuse_source(branch: Branch) -> None:
    """Raises where no snapshot of the branch can be taken."""
    if branch.state != BranchState.READY:
        raise BadRequestError(f"branch {branch.id} is {branch.state}; a snapshot is taken of a ready branch")
    refuse_leaving(branch)
    if branch.expires_at is not None:
        raise PreconditionFailedError(
            f"branch {branch.id} expires at {branch.expires_at.isoformat(timespec='seconds')}, and a snapshot of it "
            "would keep it from going; set its `expires_at` to null first"
        )


@dataclass(frozen=True)
class Found:
    """`moment`: of the newest commit of the state; None where nothing was committed by then."""

    project: Project
    begins: Beginning
    moment: datetime | None


async def find_state(
    access: ProjectAccess,
    engine: Engine,
    project_id: str,
    branch_id: str,
    lsn: str | None,
    timestamp: datetime | None,
) -> Found:
    """The state of a branch at an LSN, at a moment, or now, with the project locked on return. Storage is asked, and
    nobody waits for that: raises ProjectBusyError where anything was begun with the branch meanwhile, and what making
    a branch there raises."""
    project = await access.locked_project(project_id)
    source = await access.branch(project, branch_id)
    # Its endpoints as well: what a compute that starts or stops has acknowledged, nobody can tell.
    before = await access.standing(project, scopes.of_branch(project.id, source.id))
    refuse_source(source)
    asked_at = now()
    begins = await beginning(access.session, engine, project, source, lsn, timestamp)
    is_head = lsn is None and timestamp is None
    of_moment = asked_at if is_head else await moment(engine, project, source, lsn, timestamp)
    project = await access.unchanged_project(before)
    refuse_source(await access.branch(project, branch_id))
    return Found(project, begins, of_moment)


async def take(
    session: AsyncSession, begins: Beginning, wanted: Wanted, *, request_id: str = "", origin: str = "request"
) -> Taken:
    """With the project's row locked. Where `begins.lsn` is None the operation finds the head. Raises
    ProjectBusyError while something holds what the snapshot's source is made of: a restore, a deletion, a detach."""
    at, source, ident = now(), begins.source, snapshot_id()
    held = new_branch(source.project_id, ident, default=False, durability=source.durability)
    held.is_snapshot = True
    held.parent_id, held.parent_lsn, held.parent_timestamp = source.id, begins.lsn, wanted.timestamp
    held.expires_at = wanted.expires_at
    session.add(held)
    await session.flush()
    await inherit(session, begins, held)
    snapshot = Snapshot(
        id=ident,
        project_id=source.project_id,
        branch_id=held.id,
        source_branch_id=source.id,
        name=wanted.name or _made_up(source, wanted.timestamp or at, manual=wanted.manual),
        timestamp=wanted.timestamp,
        manual=wanted.manual,
        created_by=wanted.created_by,
        created_at=at,
        updated_at=at,
    )
    session.add(snapshot)
    operation = await enqueue(
        session,
        OperationKind.CREATE_BRANCH,
        source.project_id,
        branch_id=held.id,
        also_holds=[scopes.history_of(source.project_id, source.id)],
        origin=origin,
        request_id=request_id,
    )
    return Taken(snapshot, held, operation)


def _made_up(source: Branch, at: datetime, *, manual: bool) -> str:
    how = "manual" if manual else "scheduled"
    return f"{source.name[:200]} at {at:%Y-%m-%d %H:%M:%S} UTC ({how})"
