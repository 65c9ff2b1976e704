"""Who owns a project, as quotas see it: the one place to change when something else than an account owns projects."""

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import ColumnElement

from weir.identity.models import ApiKey
from weir.projects.models import Project
from weir.quotas.names import OwnerKind


@dataclass(frozen=True)
class Owner:
    """An owner of projects, or one project for the quotas that it has of its own."""

    kind: OwnerKind
    id: str

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


def account(account_id: UUID) -> Owner:
    return Owner(OwnerKind.ACCOUNT, str(account_id))


def owner_of(project: Project) -> Owner:
    return account(project.account_id)


def itself(project_id: str) -> Owner:
    return Owner(OwnerKind.PROJECT, project_id)


def owns_projects(owner: Owner) -> ColumnElement[bool]:
    """True of the projects that the owner has, or is."""
    if owner.kind is OwnerKind.PROJECT:
        return Project.id == owner.id
    return Project.account_id == UUID(owner.id)


def owns_keys(owner: Owner) -> ColumnElement[bool]:
    """True of the owner's API keys; a project has none."""
    return ApiKey.account_id == UUID(owner.id)
