"""Bodies of invitations. Neon's API v2 has the shapes of asking for them and of listing them; what is Weir's own is
when they end, and the token, which Neon sends by mail."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field, StringConstraints

from weir.kit.schemas import Body, View
from weir.people.models import Invitation
from weir.people.roles import Role
from weir.people.schemas import Email
from weir.people.sign_in_schemas import NewPassword, Secret

MOST_AT_ONCE = 20


class InvitationAsked(Body):
    email: Email
    role: Role = Role.MEMBER


class InvitationsRequest(Body):
    invitations: Annotated[list[InvitationAsked], Field(min_length=1, max_length=MOST_AT_ONCE)]


class InvitationItem(View):
    """`invited_by`: the person, or, for an API key that no person made, the organization."""

    id: UUID
    email: str
    org_id: str
    invited_by: UUID
    invited_at: datetime
    expires_at: datetime
    role: Role

    @classmethod
    def of(cls, row: Invitation) -> "InvitationItem":
        return cls(
            id=row.id,
            email=row.email,
            org_id=str(row.account_id),
            invited_by=row.invited_by or row.account_id,
            invited_at=row.invited_at,
            expires_at=row.expires_at,
            role=row.role,
        )


class Invitations(View):
    invitations: list[InvitationItem]


class InvitationMade(InvitationItem):
    """The only time that the token is shown, alone and in a link to the console. Weir sends no mail: hand it on."""

    token: str
    link: str


class InvitationsMade(View):
    invitations: list[InvitationMade]


class InvitationAcceptance(Secret):
    """`password` and `name` make an account for the invited email, where nobody is signed in."""

    token: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    password: NewPassword | None = None
    name: Annotated[str, StringConstraints(max_length=256, strip_whitespace=True)] = ""


class InvitationAccepted(View):
    """What the person is now a member of."""

    org_id: str
    org_name: str
    email: str
    role: Role
