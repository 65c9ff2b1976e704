from fastapi import APIRouter

from weir.authz.access import Access
from weir.authz.principal import CurrentPrincipal
from weir.clients.dependencies import Http
from weir.computes.repository import ComputeRepository
from weir.db import Session, release
from weir.durability import service
from weir.durability.schemas import BranchDurability, ComputeDurability
from weir.errors import (
    BadRequestError,
    ConflictError,
    NotFoundError,
    UnauthorizedError,
    UnavailableError,
    responses,
)
from weir.kit.schemas import PathId

router = APIRouter(responses=responses(UnauthorizedError, BadRequestError, NotFoundError))


@router.get("/projects/{project_id}/branches/{branch_id}/durability", tags=["branches"])
async def get_project_branch_durability(project_id: PathId, branch_id: PathId, access: Access) -> BranchDurability:
    """What the branch's commits wait for, and which levels the policies of the installation and the project leave to
    choose from. It is chosen by `PATCH` of the branch."""
    project = await access.project(project_id)
    return service.of_branch(project, await access.branch(project, branch_id))


@router.get(
    "/computes/{endpoint_id}/durability", tags=["computes"], responses=responses(ConflictError, UnavailableError)
)
async def get_compute_durability(
    endpoint_id: PathId, principal: CurrentPrincipal, session: Session, http: Http
) -> ComputeDurability:
    """The levels that roles and databases have chosen for their sessions, asked of the running compute: the first
    200, weak ones first. Those a policy forbids to branches are marked; nobody can forbid them to roles and
    sessions."""
    row = await ComputeRepository(session, principal.fleet).get(endpoint_id)
    if row is None:
        raise NotFoundError.of("compute", endpoint_id)
    await release(session)
    return await service.of_compute(row, http)
