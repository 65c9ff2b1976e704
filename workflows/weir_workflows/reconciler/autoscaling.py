"""Computes that get another size because they are busier, or less busy, than the one they have is for."""

import time
from collections.abc import Callable, Mapping, Sequence

import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from weir.clients.compute import ComputeStatus
from weir.computes.repository import ComputeRow
from weir.errors import ProjectBusyError
from weir.identity import audit
from weir.operations.models import OperationKind
from weir.operations.service import enqueue
from weir_workflows.common.resources import Resources
from weir_workflows.reconciler.idle import lock_running
from weir_workflows.reconciler.sizing import Course, decide

log = structlog.get_logger()

ORIGIN = "autoscaling"


class Autoscaling:
    """What is remembered is lost with the worker: a change comes that much later, and no other way."""

    def __init__(self, resources: Resources, clock: Callable[[], float] = time.monotonic) -> None:
        self._r = resources
        self._clock = clock
        self._courses: dict[str, Course] = {}

    async def resize(
        self,
        rows: Sequence[ComputeRow],
        seen: Mapping[str, ComputeStatus | str],
        rolling: Mapping[str, str],
    ) -> list[str]:
        """Queues the change of computes that are to have another size, and answers with their ids. A compute that a
        rollout works on keeps its size: the windows that the rollout compares would be of two sizes."""
        queued: list[str] = []
        for row in rows:
            endpoint, status = row.endpoint, seen.get(row.endpoint.id)
            if not isinstance(status, ComputeStatus) or status.state != "running" or endpoint.id in rolling:
                self._courses.pop(endpoint.id, None)
                continue
            course = self._courses.get(endpoint.id, Course())
            size, course = decide(endpoint.limits, endpoint.current_cu, status.processors, self._clock(), course)
            self._remember(endpoint.id, course)
            if size != endpoint.current_cu and await self._try_queue(row, size, status.processors):
                queued.append(endpoint.id)
        return queued

    def _remember(self, ident: str, course: Course) -> None:
        if course == Course():
            self._courses.pop(ident, None)
        else:
            self._courses[ident] = course

    async def _try_queue(self, row: ComputeRow, size: float, processors: float | None) -> bool:
        """One endpoint that is busy now must not keep the others from it; it is looked at again in the next round."""
        try:
            async with self._r.database.transaction() as session:
                return await _queue(session, row, size, processors)
        except (SQLAlchemyError, ProjectBusyError) as error:
            log.warning("autoscaling_postponed", endpoint_id=row.endpoint.id, error=str(error))
            return False


async def _queue(session: AsyncSession, row: ComputeRow, size: float, processors: float | None) -> bool:
    endpoint = await lock_running(session, row)
    # Somebody may have changed the limits meanwhile.
    seen = row.endpoint.limits, row.endpoint.current_cu
    if endpoint is None or (endpoint.limits, endpoint.current_cu) != seen:
        return False
    before, endpoint.current_cu = endpoint.current_cu, size
    await enqueue(
        session,
        OperationKind.APPLY_CONFIG,
        endpoint.project_id,
        branch_id=endpoint.branch_id,
        endpoint_id=endpoint.id,
        origin=ORIGIN,
    )
    audit.record_system(
        session, ORIGIN, "endpoint.resize", f"endpoint/{endpoint.id}", endpoint.project_id,
        from_cu=before, to_cu=size, processors=None if processors is None else round(processors, 2),
    )  # fmt: skip
    log.info("endpoint_resized", endpoint_id=endpoint.id, from_cu=before, to_cu=size, processors=processors)
    return True
