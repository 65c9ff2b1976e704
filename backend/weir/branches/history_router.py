from typing import Annotated

from fastapi import APIRouter, Query

from weir.authz.access import Access
from weir.branches import history
from weir.branches.history_schemas import BranchHistory, HistoryPoint
from weir.branches.points import Engine
from weir.clients.dependencies import Http, PageserverClient, SafekeeperClients
from weir.db import Session, release
from weir.errors import BadRequestError, NotFoundError, UnauthorizedError, UnavailableError, responses
from weir.kit.schemas import Lsn, PathId, Timestamp

router = APIRouter(
    prefix="/projects/{project_id}/branches/{branch_id}/history",
    tags=["branches"],
    responses=responses(UnauthorizedError, BadRequestError, NotFoundError, UnavailableError),
)


@router.get("")
async def get_project_branch_history(
    project_id: PathId, branch_id: PathId, access: Access, session: Session, pageserver: PageserverClient
) -> BranchHistory:
    """How far back the branch can be branched from or restored to, and where its branches were made."""
    project = await access.project(project_id)
    return await history.history(session, pageserver, project, await access.branch(project, branch_id))


@router.get("/point")
async def get_project_branch_history_point(
    project_id: PathId,
    branch_id: PathId,
    access: Access,
    pageserver: PageserverClient,
    safekeepers: SafekeeperClients,
    http: Http,
    lsn: Annotated[Lsn | None, Query()] = None,
    timestamp: Annotated[Timestamp | None, Query()] = None,
) -> HistoryPoint:
    """Which state an LSN or a moment is: what a branch or a restore of it would begin with. Refused as those would
    be where the branch has no such state."""
    project = await access.project(project_id)
    branch = await access.branch(project, branch_id)
    await release(access.session)
    return await history.state_at(Engine(pageserver, safekeepers, http), project, branch, lsn, timestamp)
