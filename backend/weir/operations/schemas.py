from datetime import UTC, datetime
from uuid import UUID

from weir.kit.pagination import Pagination
from weir.kit.schemas import View
from weir.operations.cancellable import why_not
from weir.operations.models import Operation, OperationAction, OperationStatus


class OperationView(View):
    id: UUID
    project_id: str
    branch_id: str | None = None
    endpoint_id: str | None = None
    action: OperationAction
    status: OperationStatus
    error: str | None = None
    warning: str | None = None
    failures_count: int
    created_at: datetime
    updated_at: datetime
    total_duration_ms: int
    # Whether it can be cancelled now.
    cancellable: bool

    @classmethod
    def of(cls, row: Operation) -> "OperationView":
        until = row.finished_at or datetime.now(UTC)
        return cls(
            id=row.id,
            project_id=row.project_id,
            branch_id=row.branch_id,
            endpoint_id=row.endpoint_id,
            action=row.action,
            status=row.status,
            error=row.error,
            warning=row.warning,
            failures_count=row.failures_count,
            created_at=row.created_at,
            updated_at=row.updated_at,
            total_duration_ms=max(0, int((until - row.created_at).total_seconds() * 1000)),
            cancellable=why_not(row) is None,
        )


class OperationResponse(View):
    operation: OperationView


class OperationsResponse(View):
    operations: list[OperationView]


class OperationsPage(OperationsResponse):
    pagination: Pagination
