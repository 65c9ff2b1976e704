from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from weir.kit.pagination import Pagination
from weir.kit.schemas import Body, Id, Name, Timestamp, View
from weir.people.models import User
from weir.people.roles import Role


class ApiKeyCreator(View):
    id: UUID
    name: str
    image: str = ""


class ApiKeyScope(View):
    """What a key may do at most. `project_id`: its only project, left out where the key is for all of the
    organization: Neon's command line takes a null there for a key of nothing, and revokes it. `role` is that of who
    made it, and `read_only` leaves a viewer's of it. `expires_at`: null is never."""

    role: Role
    project_id: Annotated[str | None, Field(exclude_if=lambda project: project is None)] = None
    read_only: bool
    expires_at: datetime | None


class ApiKeyItem(ApiKeyScope):
    id: int
    name: str
    created_at: datetime
    created_by: ApiKeyCreator
    last_used_at: datetime | None
    last_used_from_addr: str


class ApiKeyCreateRequest(Body):
    key_name: Name
    # What narrows it.
    project_id: Id | None = None
    read_only: bool = False
    expires_at: Timestamp | None = None


class ApiKeyCreated(ApiKeyScope):
    """The only time the key itself is shown."""

    id: int
    key: str
    name: str
    created_at: datetime
    created_by: UUID


class ApiKeyRevoked(View):
    id: int
    name: str
    created_at: datetime
    created_by: UUID
    last_used_at: datetime | None
    last_used_from_addr: str
    revoked: bool


class SessionCreateRequest(Body):
    api_key: str


class SessionPerson(View):
    """Who signed in as themselves. `has_password`: false for who signs in by an identity provider alone.
    `second_factor`: signing in asks for a code."""

    name: str
    has_password: bool
    second_factor: bool

    @classmethod
    def of(cls, row: User) -> "SessionPerson":
        return cls(
            name=row.name,
            has_password=row.password_hash is not None,
            second_factor=row.totp_confirmed_at is not None,
        )


class SessionUser(View):
    """Who is signed in, and the organization that requests act in where they name none; null for a person who is in
    none. `operator`: it sees every organization's computes and rollouts. `person`: null where an API key signed in,
    which `project_id` (its only project) and `read_only` are of."""

    id: UUID
    name: str
    email: str
    operator: bool
    organization_id: UUID | None
    role: Role | None
    person: SessionPerson | None
    project_id: str | None
    read_only: bool


class SessionResponse(View):
    user: SessionUser


class CurrentUser(View):
    id: str
    login: str
    name: str
    last_name: str = ""
    email: str
    image: str = ""
    plan: str = "self_hosted"
    auth_accounts: list[dict[str, Any]]
    active_seconds_limit: int = 0
    projects_limit: int = 0
    branches_limit: int = 0
    max_autoscaling_limit: float = 0
    compute_seconds_limit: int = 0


class AuthDetails(View):
    account_id: str
    auth_method: str


class AuditEntryView(View):
    id: int
    at: datetime
    actor: str
    action: str
    resource: str
    project_id: str | None
    request_id: str
    # Where the request came from, and the key it was made with; empty and null for what Weir did by itself.
    address: str
    api_key_id: int | None
    detail: dict[str, Any]


class AuditEntries(View):
    entries: list[AuditEntryView]
    pagination: Pagination
