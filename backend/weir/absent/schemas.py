from typing import Annotated, Any

from pydantic import StringConstraints

from weir.kit.schemas import Body, View


class Buckets(View):
    buckets: list[dict[str, Any]]


class Functions(View):
    functions: list[dict[str, Any]]


class Triggers(View):
    triggers: list[dict[str, Any]]


class Credentials(View):
    credentials: list[dict[str, Any]]


class ProjectPermission(View):
    id: str
    granted_to_email: str


class ProjectPermissions(View):
    project_permissions: list[ProjectPermission]


class PermissionGrant(Body):
    email: Annotated[str, StringConstraints(min_length=3, max_length=254)]


class Jwks(View):
    id: str
    jwks_url: str


class ProjectJwks(View):
    jwks: list[Jwks]


class JwksAdd(Body):
    jwks_url: Annotated[str, StringConstraints(min_length=1, max_length=2048)]


class VpcEndpoints(View):
    endpoints: list[dict[str, Any]]
