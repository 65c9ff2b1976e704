"""`neonctl status` and others list these of any branch, and end with an error where the list is missing."""

from fastapi import APIRouter

from weir.absent.schemas import (
    Buckets,
    Credentials,
    Functions,
    Jwks,
    JwksAdd,
    PermissionGrant,
    ProjectJwks,
    ProjectPermission,
    ProjectPermissions,
    Triggers,
    VpcEndpoints,
)
from weir.authz.access import Access
from weir.errors import BadRequestError, NotBuiltError, NotFoundError, UnauthorizedError, responses
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


@router.get("/projects/{project_id}/permissions")
async def list_project_permissions(project_id: PathId, access: Access) -> ProjectPermissions:
    """Nobody has a project without being a member of its organization: always empty."""
    await _there(access, project_id)
    return ProjectPermissions(project_permissions=[])


@router.post("/projects/{project_id}/permissions", responses=responses(NotBuiltError))
async def grant_permission_to_project(project_id: PathId, body: PermissionGrant, access: Access) -> ProjectPermission:
    """Always refused: projects are not shared one by one."""
    await _there(access, project_id)
    raise NotBuiltError(
        f"projects are not shared one by one here: make {body.email!r} a member of the organization, with the role "
        "viewer to look alone (POST /organizations/{org_id}/members), or give a program a key of this project "
        "(POST /api_keys with `project_id`)"
    )


@router.delete("/projects/{project_id}/permissions/{permission_id}")
async def revoke_permission_from_project(project_id: PathId, permission_id: str, access: Access) -> ProjectPermission:
    """There is none to revoke: always 404."""
    await _there(access, project_id)
    raise NotFoundError.of("permission", permission_id)


@router.get("/projects/{project_id}/jwks")
async def get_project_jwks(project_id: PathId, access: Access) -> ProjectJwks:
    """No key of another issuer opens a database: always empty."""
    await _there(access, project_id)
    return ProjectJwks(jwks=[])


@router.post("/projects/{project_id}/jwks", responses=responses(NotBuiltError))
async def add_project_jwks(project_id: PathId, body: JwksAdd, access: Access) -> Jwks:
    """Always refused: databases know their roles' passwords alone."""
    del body
    await _there(access, project_id)
    raise NotBuiltError(
        "databases are opened by their roles' passwords alone: neither the proxy nor a compute checks JSON Web "
        "Tokens; have the program that checks them connect with a role of its own"
    )


@router.delete("/projects/{project_id}/jwks/{jwks_id}")
async def delete_project_jwks(project_id: PathId, jwks_id: str, access: Access) -> Jwks:
    """There is none to delete: always 404."""
    await _there(access, project_id)
    raise NotFoundError.of("JWKS", jwks_id)
