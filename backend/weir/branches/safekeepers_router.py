from fastapi import APIRouter

from weir.authz.access import Access
from weir.branches import safekeepers, views
from weir.branches.safekeepers_schemas import BranchSafekeepers, BranchSafekeepersRequest
from weir.branches.schemas import BranchOperations
from weir.clients.dependencies import SafekeeperClients
from weir.db import Session
from weir.errors import (
    BadRequestError,
    ConflictError,
    NotFoundError,
    PreconditionFailedError,
    ProjectBusyError,
    UnauthorizedError,
    responses,
)
from weir.kit.schemas import PathId

router = APIRouter(
    prefix="/projects/{project_id}/branches/{branch_id}/safekeepers",
    tags=["branches"],
    responses=responses(UnauthorizedError, BadRequestError, NotFoundError),
)


@router.get("")
async def get_branch_safekeepers(
    project_id: PathId, branch_id: PathId, access: Access, session: Session, keepers: SafekeeperClients
) -> BranchSafekeepers:
    """Who the members of the branch's log are, as the safekeepers say, how each of them is, and what is being
    changed."""
    project = await access.project(project_id)
    branch = await access.branch(project, branch_id)
    return await safekeepers.show(session, keepers, project, branch)


@router.post("", responses=responses(ConflictError, PreconditionFailedError, ProjectBusyError))
async def set_branch_safekeepers(
    project_id: PathId,
    branch_id: PathId,
    body: BranchSafekeepersRequest,
    access: Access,
    keepers: SafekeeperClients,
) -> BranchOperations:
    """Makes these safekeepers the voters of the branch's log, one change after the other, while a compute writes or
    without one: replaces one that is lost, grows to five, shrinks to three. Without an operation in the answer they
    are that already. The log of a safekeeper that is a member no more is kept there."""
    branch, operations = await safekeepers.replace(access, keepers, project_id, branch_id, body.safekeepers)
    return await views.changed(access.session, branch, operations)
