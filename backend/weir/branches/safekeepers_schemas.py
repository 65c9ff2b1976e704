from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from weir.branches.log_members import SickKind
from weir.kit.schemas import Body, Id, View

SafekeeperId = Annotated[int, Field(ge=1, description="Number of a safekeeper in the installation, from 1")]


MemberHealth = Literal["active"] | SickKind


class BranchSafekeeper(View):
    """A member of the branch's log, or a safekeeper that holds a log of it without being one (`none`)."""

    safekeeper_id: int
    role: Literal["voter", "learner", "none"] = Field(
        description="`learner`: receives the log and counts for nothing yet. `none`: no member; its log is kept, set "
        "aside, and counts for nothing"
    )
    disk: str | None = Field(
        description="The disk that the log names for this member, or, of `none`, the one that the log lies on: 32 "
        "hex digits. Null where nobody says"
    )
    incarnation: int | None = Field(description="How often that disk has been given this log")
    state: MemberHealth = Field(
        description="`unreachable`: the safekeeper does not answer. `lost`: it answers and lacks this log, or has "
        "another one than the member that is named, as with a new disk. `stopped`: its log does not go on. "
        "`diverged`: its log is not the one whose WAL the pageserver has. `damaged`: WAL that it stored does not "
        "read as it was written; the safekeeper repairs it from the others"
    )
    reason: str | None = Field(description="In words, unless it is `active`")
    term: int | None = Field(description="The highest term it has promised to follow; null unless it shows its log")
    flush_lsn: str | None = Field(description="Up to where its log is on its disk")
    commit_lsn: str | None = Field(description="Up to where it knows that a majority has the log")
    lag_bytes: int | None = Field(description="By how much its log is shorter than that of the member that has most")
    since: datetime | None = Field(description="When it became what `role` says, as far as the control plane knows")
    sick_since: datetime | None = Field(
        description="Since when the control plane has seen it other than `active`, whatever it was first. Null while "
        "it is `active`, and before the control plane has seen it so"
    )


class BranchSafekeepers(View):
    """The members of a branch's log, as the safekeepers themselves say."""

    generation: int | None = Field(
        description="Changes of the members so far. 0: the log does not name its members yet. Null: no safekeeper "
        "shows the log"
    )
    generation_term: int | None = Field(description="The term that confirmed the generation")
    reason: str | None = Field(description="Why what is shown may not be the newest; null when it is")
    members: list[BranchSafekeeper]
    operation_id: UUID | None = Field(description="The replacement that is under way, an operation of the project")
    wanted: list[int] | None = Field(
        description="The voters that the replacement under way is to leave, or that the last one did not get to"
    )
    available: list[int] = Field(description="Safekeepers of the installation that are no members")


class BranchSafekeepersRequest(Body):
    """Which safekeepers are to be the log's voters: 3 or 5, or the only one of the installation. One that is named
    and has lost the log gets it again."""

    safekeepers: Annotated[list[SafekeeperId], Field(min_length=1, max_length=9)]


class SafekeeperReplaceRequest(Body):
    """`with`: the safekeeper that takes the other one's place. The same one: logs that it has lost are made again on
    it. `after`: `next` of the answer before."""

    with_: SafekeeperId = Field(alias="with")
    after: Id | None = None


class QueuedReplacement(View):
    branch_id: str
    project_id: str
    operation_id: UUID


class ReplacementNotQueued(View):
    branch_id: str
    project_id: str
    reason: str


class SafekeeperReplacement(View):
    """What became of the branches that have the safekeeper as a member. `remaining` have not been looked at, since
    one request looks at 200 branches at most: repeat it with `after` set to `next`."""

    queued: int
    remaining: int
    next: str | None
    operations: list[QueuedReplacement]
    not_queued: list[ReplacementNotQueued]
