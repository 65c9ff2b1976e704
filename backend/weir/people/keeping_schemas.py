"""Bodies of organisations for those who run the installation. Neon has none of these operations; what an
organisation looks like is as its members see it, with what only an operator is told."""

from typing import Annotated

from pydantic import StringConstraints

from weir.identity.models import Account
from weir.kit.schemas import Body
from weir.people.schemas import Email, Organization

# Written in commands, the audit log and settings of identity providers.
OrganizationName = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f\x7f]+$")]


class OrganizationCreateRequest(Body):
    """`email`: of whom to write to about the organisation. `owner`: email of a person whom Weir knows, who becomes
    its owner and adds the others; without one `weir-admin user member` or `weir-admin account key` lets the first one
    in."""

    name: OrganizationName
    email: Email
    owner: Email | None = None


class OrganizationChange(Body):
    """What is left out, or null, stays as it is."""

    name: OrganizationName | None = None
    email: Email | None = None


class KeptOrganization(Organization):
    """`operator`: whether it runs the installation."""

    email: str
    operator: bool

    @classmethod
    def of(cls, row: Account) -> "KeptOrganization":
        seen = Organization.of(row).model_dump()
        return cls(**seen, email=row.email, operator=row.operator)
