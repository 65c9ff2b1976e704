from datetime import datetime
from typing import Annotated

from pydantic import Field, StringConstraints

from weir.branches.models import Branch, BranchState
from weir.branches.schemas import BranchResponse, Sizes
from weir.endpoints.schemas import EndpointsResponse
from weir.kit.schemas import Body, Id, Timestamp, View
from weir.operations.schemas import OperationsResponse
from weir.snapshots.models import BackupScheduleItem, Frequency, Snapshot

# As at Neon, for scheduled snapshots: what they are kept unless the schedule says less, and the most it can say.
LONGEST_RETENTION_SECONDS = 35 * 86400
SHORTEST_RETENTION_SECONDS = 3600
MOST_ITEMS = 12
SnapshotName = Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"^[^\x00]+$")]


class SnapshotCreator(View):
    name: str


class SnapshotView(View):
    id: str
    name: str
    # Absent until the operation that takes it has found where the branch's head is.
    lsn: str | None = None
    # The moment it is of. Absent where nothing was committed by then.
    timestamp: datetime | None = None
    source_branch_id: str | None = None
    created_at: datetime
    created_by: SnapshotCreator
    # Absent of one that stays.
    expires_at: datetime | None = None
    # Taken by somebody's request and not by a schedule.
    manual: bool
    current_state: BranchState
    # Bytes of the data. Absent while storage does not answer.
    full_size: int | None = None

    @classmethod
    def of(cls, row: Snapshot, held: Branch, sizes: Sizes | None = None) -> "SnapshotView":
        full_size, _ = (sizes or {}).get(held.timeline_id, (None, None))
        return cls(
            id=row.id,
            name=row.name,
            lsn=held.parent_lsn,
            timestamp=row.timestamp,
            source_branch_id=row.source_branch_id,
            created_at=row.created_at,
            created_by=SnapshotCreator(name=row.created_by),
            expires_at=held.expires_at,
            manual=row.manual,
            current_state=held.state,
            full_size=full_size,
        )


class SnapshotResponse(View):
    snapshot: SnapshotView


class SnapshotCreated(SnapshotResponse, OperationsResponse):
    pass


class SnapshotsResponse(View):
    snapshots: list[SnapshotView]


class SnapshotUpdate(Body):
    name: SnapshotName | None = None
    # Null: it stays.
    expires_at: Timestamp | None = None


class SnapshotUpdateRequest(Body):
    snapshot: SnapshotUpdate


class SnapshotRestoreRequest(Body):
    """`target_branch_id`: the branch that gets the state, at once with `finalize_restore` or when the restore is
    finalized; the one the snapshot was taken of unless given. `name` is the new branch's; one that is finalized at
    once has its target's name."""

    name: SnapshotName | None = None
    target_branch_id: Id | None = None
    finalize_restore: bool = False


class SnapshotRestored(BranchResponse, EndpointsResponse, OperationsResponse):
    pass


class FinalizeRestoreRequest(Body):
    """`name`: what the replaced state is kept under; one is made up unless given."""

    name: SnapshotName | None = None


class ScheduleItem(Body):
    """Times are in UTC. `hour`: 0 unless given. `day`: of the week, 1 for Monday to 7 for Sunday (0 is Sunday as
    well), or of the month, where a month without it takes its last day; the first unless given. Neither belongs to
    `hourly`, `day` not to `daily`."""

    frequency: Frequency
    hour: int | None = Field(default=None, ge=0, le=23)
    day: int | None = Field(default=None, ge=0, le=31)
    # Clients of Neon's API may send it; no schedule here has a month.
    month: int | None = Field(default=None, ge=0, le=12)
    retention_seconds: int = Field(
        default=LONGEST_RETENTION_SECONDS, ge=SHORTEST_RETENTION_SECONDS, le=LONGEST_RETENTION_SECONDS
    )


class ScheduleItemView(View):
    frequency: Frequency
    hour: int | None = None
    day: int | None = None
    retention_seconds: int
    # When the next snapshot is due.
    next_at: datetime

    @classmethod
    def of(cls, row: BackupScheduleItem) -> "ScheduleItemView":
        return cls.model_validate(row)


class BackupSchedule(Body):
    """An empty list ends the schedule."""

    schedule: list[ScheduleItem] = Field(max_length=MOST_ITEMS)


class BackupScheduleResponse(View):
    schedule: list[ScheduleItemView]
