"""Bodies of organisations and their members, in the shapes of Neon's API v2."""

import re
from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import AfterValidator, StringConstraints

from weir.identity.models import Account
from weir.kit.schemas import Body, View
from weir.people.models import Membership, User
from weir.people.roles import Role

_EMAIL = re.compile(r"[^@\s\x00-\x1f]{1,64}@[^@\s\x00-\x1f]{1,189}")


def is_email(text: str) -> bool:
    """Whether it looks like one; whether anybody reads mail there, nothing here knows."""
    return _EMAIL.fullmatch(text) is not None


def _email(text: str) -> str:
    if not is_email(text):
        raise ValueError("give an email such as name@example.org")
    return text.lower()


Email = Annotated[str, StringConstraints(min_length=3, max_length=254), AfterValidator(_email)]


class OrganizationChoice(Body):
    org_id: UUID


class Organization(View):
    id: str
    name: str
    handle: str
    plan: str = "self_hosted"
    created_at: datetime
    updated_at: datetime
    managed_by: str = "console"

    @classmethod
    def of(cls, row: Account) -> "Organization":
        return cls(
            id=str(row.id), name=row.name, handle=row.name, created_at=row.created_at, updated_at=row.created_at
        )


class Organizations(View):
    organizations: list[Organization]


class Member(View):
    id: UUID
    user_id: UUID
    org_id: str
    role: Role
    joined_at: datetime

    @classmethod
    def of(cls, row: Membership) -> "Member":
        return cls(id=row.id, user_id=row.user_id, org_id=str(row.account_id), role=row.role, joined_at=row.joined_at)


class MemberUser(View):
    email: str
    name: str
    has_mfa: bool


class MemberWithUser(View):
    member: Member
    user: MemberUser

    @classmethod
    def of(cls, row: Membership, user: User) -> "MemberWithUser":
        shown = MemberUser(email=user.email, name=user.name, has_mfa=user.totp_confirmed_at is not None)
        return cls(member=Member.of(row), user=shown)


class Members(View):
    members: list[MemberWithUser]


class MemberAddRequest(Body):
    """A person whom Weir knows, by email."""

    email: Email
    role: Role = Role.MEMBER


class MemberUpdateRequest(Body):
    role: Role
