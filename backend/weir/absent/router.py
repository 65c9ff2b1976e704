"""`neonctl status` and others list these of any branch, and end with an error where the list is missing."""

from fastapi import APIRouter

from weir.absent.schemas import Buckets, Credentials, Functions, Triggers, VpcEndpoints
from weir.authz.access import Access
from weir.errors import BadRequestError, NotFoundError, UnauthorizedError, responses
from weir.kit.schemas import PathId

router = APIRouter(tags=["absent"], responses=responses(UnauthorizedError, BadRequestError, NotFoundError))
_BRANCH = "/projects/{project_id}/branches/{branch_id}"


async def _there(access: Access, project_id: str, branch_id: str | None = None) -> None:
    """An empty list is an answer of a project and a branch that there are."""
    project = await access.project(project_id)
    if branch_id is not None:
        await access.branch(project, branch_id)


@router.get(f"{_BRANCH}/buckets")
async def list_project_branch_buckets(project_id: PathId, branch_id: PathId, access: Access) -> Buckets:
    """Branches have no object storage: always empty."""
    await _there(access, project_id, branch_id)
    return Buckets(buckets=[])


@router.get(f"{_BRANCH}/functions")
async def list_project_branch_functions(project_id: PathId, branch_id: PathId, access: Access) -> Functions:
    """Branches run no functions: always empty."""
    await _there(access, project_id, branch_id)
    return Functions(functions=[])


@router.get(f"{_BRANCH}/triggers")
async def list_project_branch_triggers(project_id: PathId, branch_id: PathId, access: Access) -> Triggers:
    """Nothing triggers functions that there are not: always empty."""
    await _there(access, project_id, branch_id)
    return Triggers(triggers=[])


@router.get(f"{_BRANCH}/credentials")
async def list_credentials(project_id: PathId, branch_id: PathId, access: Access) -> Credentials:
    """Credentials of a branch's object storage and functions: always empty."""
    await _there(access, project_id, branch_id)
    return Credentials(credentials=[])


@router.get("/projects/{project_id}/vpc_endpoints")
async def list_project_vpc_endpoints(project_id: PathId, access: Access) -> VpcEndpoints:
    """Projects are reached by no private networks of a cloud: always empty."""
    await _there(access, project_id)
    return VpcEndpoints(endpoints=[])
