"""Roles of members of an organisation, from the least to the greatest."""

from enum import StrEnum


class Role(StrEnum):
    """Each role may do all that the one before it may.

    A viewer reads everything but secrets; a member works with projects and is shown passwords; an admin decides on
    projects, rollouts, members and keys; an owner makes owners, and there is always one where there was one."""

    VIEWER = "viewer"
    MEMBER = "member"
    ADMIN = "admin"
    OWNER = "owner"

    @property
    def rank(self) -> int:
        return _ORDER.index(self)

    def covers(self, other: "Role") -> bool:
        """Whether this role may do all that `other` may."""
        return self.rank >= other.rank


_ORDER = (Role.VIEWER, Role.MEMBER, Role.ADMIN, Role.OWNER)


def least(*roles: Role) -> Role:
    """The one that may the least; of one role at least."""
    return min(roles, key=lambda role: role.rank)
