from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, BigInteger, ForeignKey, Identity, Index, Text, text
from sqlalchemy.dialects.postgresql import ExcludeConstraint
from sqlalchemy.orm import Mapped, mapped_column

from weir.kit.models import Base, Timestamps


class OperationStatus(StrEnum):
    SCHEDULING = "scheduling"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    ERROR = "error"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


OPEN = (OperationStatus.SCHEDULING, OperationStatus.RUNNING, OperationStatus.CANCELLING)


class OperationAction(StrEnum):
    """Names that clients of the API know."""

    CREATE_TIMELINE = "create_timeline"
    CREATE_BRANCH = "create_branch"
    START_COMPUTE = "start_compute"
    SUSPEND_COMPUTE = "suspend_compute"
    APPLY_CONFIG = "apply_config"
    DELETE_TIMELINE = "delete_timeline"
    APPLY_STORAGE_CONFIG = "apply_storage_config"
    SWAP_BINDING_ID = "swap_binding_id"
    DETACH_PARENT_BRANCH = "detach_parent_branch"
    REPLACE_SAFEKEEPER = "replace_safekeeper"


class OperationKind(StrEnum):
    """The workflow that carries the operation out. Also the workflow's registered name."""

    CREATE_PROJECT = "create_project"
    CREATE_BRANCH = "create_branch"
    START_COMPUTE = "start_compute"
    SUSPEND_COMPUTE = "suspend_compute"
    RESTART_COMPUTE = "restart_compute"
    DELETE_COMPUTE = "delete_compute"
    APPLY_CONFIG = "apply_config"
    DELETE_BRANCH = "delete_branch"
    DELETE_PROJECT = "delete_project"
    APPLY_STORAGE_CONFIG = "apply_storage_config"
    RESTORE_BRANCH = "restore_branch"
    DETACH_BRANCH = "detach_branch"
    REPLACE_SAFEKEEPER = "replace_safekeeper"


class Operation(Timestamps, Base):
    """An intent that a workflow carries out. The row is written in the transaction of the intent; `status`
    only repeats, for clients, what the workflow last reported."""

    __tablename__ = "operations"
    __table_args__ = (
        Index("ix_operations_project", "project_id", "created_at", "id"),
        Index(
            "ix_operations_open",
            "sequence",
            postgresql_where="status IN ('scheduling', 'running', 'cancelling')",
        ),
        Index("ix_operations_chain", "chain"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)
    sequence: Mapped[int] = mapped_column(BigInteger, Identity(), unique=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    branch_id: Mapped[str | None] = mapped_column(ForeignKey("branches.id"))
    endpoint_id: Mapped[str | None] = mapped_column(ForeignKey("endpoints.id"))
    action: Mapped[OperationAction]
    kind: Mapped[OperationKind]
    status: Mapped[OperationStatus] = mapped_column(default=OperationStatus.SCHEDULING)
    depends_on: Mapped[UUID | None] = mapped_column(ForeignKey("operations.id"))
    # The first operation of the same request; null of what ended before there were chains.
    chain: Mapped[UUID | None] = mapped_column(ForeignKey("operations.id"))
    # Paths (`weir.operations.scopes`) that nobody else may hold while it is open.
    holds: Mapped[list[str]] = mapped_column(ARRAY(Text), default=list, server_default=text("'{}'"))
    origin: Mapped[str] = mapped_column(default="request")
    payload: Mapped[dict[str, Any]] = mapped_column(default=dict)
    error: Mapped[str | None]
    # Of one that has finished: what it could not do beside its purpose.
    warning: Mapped[str | None]
    failures_count: Mapped[int] = mapped_column(default=0)
    request_id: Mapped[str] = mapped_column(default="")
    trace_context: Mapped[dict[str, Any]] = mapped_column(default=dict)
    started_at: Mapped[datetime | None]
    # When its workflow was asked to stop; null until it has been.
    cancel_asked_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


# The texts from `P/B/` up to `P/B0`: `0` follows `/`.
_PATHS_THAT_BEGIN_SO = "weir_scope(path, left(path, -1) || '0')"


class OperationLock(Base):
    """What the open operations of one chain hold of a project. The database takes no two rows whose paths overlap."""

    __tablename__ = "operation_locks"
    __table_args__ = (
        ExcludeConstraint((text(_PATHS_THAT_BEGIN_SO), "&&"), name="ex_operation_locks_overlap", using="gist"),
        Index("ix_operation_locks_project", "project_id"),
        Index("ix_operation_locks_chain", "chain"),
    )

    path: Mapped[str] = mapped_column(primary_key=True)
    chain: Mapped[UUID] = mapped_column(ForeignKey("operations.id"))
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
