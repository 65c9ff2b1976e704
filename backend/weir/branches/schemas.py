from datetime import datetime
from typing import Any, Literal

from weir.branches.models import Branch, BranchState
from weir.databases.schemas import ConnectionDetails, DatabasesResponse, RolesResponse
from weir.durability.levels import Durability
from weir.endpoints.schemas import EndpointOptions, EndpointsResponse
from weir.kit.schemas import Body, Id, Lsn, Name, Timestamp, View
from weir.operations.schemas import OperationsResponse
from weir.usage.metering import Amounts


class BranchEndpoint(EndpointOptions):
    type: str


class BranchFields(Body):
    parent_id: Id | None = None
    name: Name | None = None
    parent_lsn: Lsn | None = None
    parent_timestamp: Timestamp | None = None
    protected: bool | None = None
    archived: bool | None = None
    init_source: str | None = None
    expires_at: Timestamp | None = None
    # What commits wait for unless their session says otherwise; the parent's unless given.
    durability: Durability | None = None


class BranchCreateRequest(Body):
    """Without a body: a branch of the default branch's head, without an endpoint."""

    branch: BranchFields | None = None
    endpoints: list[BranchEndpoint] | None = None
    annotation_value: dict[str, Any] | None = None


class BranchRestoreRequest(Body):
    """Which state the branch is to have: the source's at an LSN or a moment, or its newest. What the branch is now
    stays as a branch under `preserve_under_name`, or goes."""

    source_branch_id: Id
    source_lsn: Lsn | None = None
    source_timestamp: Timestamp | None = None
    preserve_under_name: Name | None = None


class BranchUpdate(Body):
    name: Name | None = None
    protected: bool | None = None
    # Null: it stays.
    expires_at: Timestamp | None = None
    # Running computes have it at once, for sessions that have not chosen themselves.
    durability: Durability | None = None


class BranchUpdateRequest(Body):
    branch: BranchUpdate


def _ttl(row: Branch) -> int | None:
    """Seconds from its creation to its expiry."""
    return None if row.expires_at is None else round((row.expires_at - row.created_at).total_seconds())


RestoreStatus = Literal["restored", "finalized"]


def _restore_status(row: Branch) -> RestoreStatus | None:
    if row.restored_from is None:
        return None
    return "finalized" if row.restored_as is None else "restored"


# Logical size and history size by timeline.
Sizes = dict[str, tuple[int | None, int | None]]


class BranchView(View):
    id: str
    project_id: str
    parent_id: str | None = None
    parent_lsn: str | None = None
    parent_timestamp: datetime | None = None
    name: str
    timeline_id: str
    current_state: BranchState
    pending_state: BranchState | None = None
    state_changed_at: datetime
    # When it is deleted; absent of one that stays.
    expires_at: datetime | None = None
    ttl_interval_seconds: int | None = None
    # When a restore last gave it another state.
    last_reset_at: datetime | None = None
    # The snapshot its state is of. `restored`: the restore waits to be finalized, and `restored_as` is the branch
    # that is to have this one's state then; `finalized`: it waits for nothing.
    restored_from: str | None = None
    restored_as: str | None = None
    restore_status: RestoreStatus | None = None
    # Bytes: of the data at the newest LSN, and of the WAL of the history the branch keeps by itself. Absent while
    # storage does not answer.
    logical_size: int | None = None
    history_size: int | None = None
    creation_source: str = "console"
    primary: bool
    default: bool
    protected: bool
    # As chosen; computes may be given more by a policy (`GET .../durability`).
    durability: Durability
    # Of the current month (UTC), as its project's. What clients are sent nobody counts: `data_transfer_bytes` is 0.
    cpu_used_sec: int
    compute_time_seconds: int
    active_time_seconds: int
    written_data_bytes: int
    data_transfer_bytes: int = 0
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, row: Branch, used: Amounts, sizes: Sizes | None = None) -> "BranchView":
        """`used`: in the current month; `Amounts()` of a branch that is made now."""
        logical, history = (sizes or {}).get(row.timeline_id, (None, None))
        return cls(
            logical_size=logical,
            history_size=history,
            id=row.id,
            project_id=row.project_id,
            # A snapshot is no branch to go to: `restored_from` names it.
            parent_id=None if row.restored_from else row.parent_id,
            parent_lsn=row.parent_lsn,
            parent_timestamp=row.parent_timestamp,
            name=row.name,
            timeline_id=row.timeline_id,
            current_state=row.state,
            pending_state=BranchState.READY if row.state == BranchState.INIT else None,
            state_changed_at=row.state_changed_at,
            expires_at=row.expires_at,
            ttl_interval_seconds=_ttl(row),
            last_reset_at=row.last_reset_at,
            restored_from=row.restored_from,
            restored_as=row.restored_as,
            restore_status=_restore_status(row),
            primary=row.is_default,
            default=row.is_default,
            protected=row.protected,
            durability=row.durability,
            cpu_used_sec=round(used.processor_seconds),
            compute_time_seconds=round(used.unit_seconds),
            active_time_seconds=round(used.active_seconds),
            written_data_bytes=used.written_bytes,
            created_at=row.created_at,
            updated_at=row.updated_at,
        )


class BranchPagination(View):
    next: str | None = None
    sort_by: str = "created_at"
    sort_order: str = "desc"


class AnnotationObject(View):
    type: str
    id: str


class Annotation(View):
    object: AnnotationObject
    value: dict[str, Any]


class BranchResponse(View):
    branch: BranchView


class BranchDetail(BranchResponse):
    annotation: Annotation


class BranchesPage(View):
    branches: list[BranchView]
    annotations: dict[str, Annotation]
    pagination: BranchPagination


class BranchOperations(BranchResponse, OperationsResponse):
    pass


class BranchCreated(BranchOperations, EndpointsResponse, RolesResponse, DatabasesResponse):
    connection_uris: list[ConnectionDetails]


class BranchCount(View):
    count: int
