from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import ColumnElement, func, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from weir.kit.pagination import PageRequest
from weir.operations.models import Operation, OperationKind, OperationStatus

CHANNEL = "weir_operations"
# Its notices name endpoints whose state, or an operation on them, has changed.
ENDPOINTS_CHANNEL = "weir_endpoints"
_HANDED_OVER = (OperationStatus.RUNNING, OperationStatus.CANCELLING)


class OperationRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def add(self, operation: Operation) -> None:
        """Writes the row and wakes the dispatchers: Postgres delivers the notice when the intent commits."""
        self._session.add(operation)
        await self._session.flush()
        await self.wake_dispatchers()

    async def wake_dispatchers(self) -> None:
        await self._session.execute(text(f"NOTIFY {CHANNEL}"))

    async def announce_endpoint(self, endpoint_id: str) -> None:
        """Wakes those who wait for the endpoint, in every API process, once this is committed."""
        await self._session.execute(select(func.pg_notify(ENDPOINTS_CHANNEL, endpoint_id)))

    async def get(self, project_id: str, operation_id: UUID) -> Operation | None:
        statement = select(Operation).where(Operation.project_id == project_id, Operation.id == operation_id)
        return (await self._session.scalars(statement)).one_or_none()

    async def by_id(self, operation_id: UUID) -> Operation | None:
        return await self._session.get(Operation, operation_id)

    async def asked_for_start(self, endpoint_id: str) -> datetime | None:
        """When the start that is under way was asked for; None where no operation of its own starts the endpoint."""
        statement = (
            select(Operation.created_at)
            .where(
                Operation.endpoint_id == endpoint_id,
                Operation.kind == OperationKind.START_COMPUTE,
                Operation.finished_at.is_(None),
            )
            .order_by(Operation.sequence.desc())
            .limit(1)
        )
        return (await self._session.scalars(statement)).one_or_none()

    async def page(self, project_id: str, page: PageRequest) -> list[Operation]:
        statement = page.apply(
            select(Operation).where(Operation.project_id == project_id),
            Operation.__table__.c.created_at,
            Operation.__table__.c.id,
        )
        return list((await self._session.scalars(statement)).all())

    async def newest(self) -> int:
        """Sequence of the newest operation of all that are committed; 0 without one. With a project locked, whatever
        is begun with it later has a higher one."""
        return (await self._session.scalars(select(func.coalesce(func.max(Operation.sequence), 0)))).one()

    async def begun_since(self, project_id: str, sequence: int) -> list[Operation]:
        """Operations of the project with a later number, open or over."""
        statement = select(Operation).where(Operation.project_id == project_id, Operation.sequence > sequence)
        return list((await self._session.scalars(statement)).all())

    async def next_ready(self) -> Operation | None:
        """The oldest scheduled operation whose predecessor has finished, locked for this dispatcher."""
        before = aliased(Operation)
        statement = (
            select(Operation)
            .outerjoin(before, before.id == Operation.depends_on)
            .where(
                Operation.status == OperationStatus.SCHEDULING,
                (Operation.depends_on.is_(None)) | (before.status == OperationStatus.FINISHED),
            )
            .order_by(Operation.sequence)
            .limit(1)
            .with_for_update(of=Operation, skip_locked=True)
        )
        return (await self._session.scalars(statement)).one_or_none()

    async def skip_orphans(self, at: datetime) -> Sequence[UUID]:
        """Ends operations that wait for one that will never finish. Answers with their chains, which hold less
        now."""
        before = aliased(Operation)
        lost = (
            OperationStatus.FAILED,
            OperationStatus.CANCELLED,
            OperationStatus.SKIPPED,
            OperationStatus.ERROR,
        )
        statement = (
            update(Operation)
            .where(
                Operation.status == OperationStatus.SCHEDULING,
                Operation.depends_on == before.id,
                before.status.in_(lost),
            )
            .values(
                status=OperationStatus.SKIPPED,
                error="an operation this one depends on did not succeed",
                finished_at=at,
            )
            .returning(Operation.chain)
            .execution_options(synchronize_session=False)
        )
        chains = (await self._session.scalars(statement)).all()
        return [chain for chain in dict.fromkeys(chains) if chain is not None]

    async def next_to_cancel(self) -> Operation | None:
        """The oldest operation whose workflow has yet to be asked to stop, locked for this dispatcher."""
        statement = (
            select(Operation)
            .where(Operation.status == OperationStatus.CANCELLING, Operation.cancel_asked_at.is_(None))
            .order_by(Operation.sequence)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        return (await self._session.scalars(statement)).one_or_none()

    async def running_since_before(self, at: datetime) -> list[Operation]:
        """Those that Temporal has had since before then, and that have not ended."""
        statement = select(Operation).where(Operation.status.in_(_HANDED_OVER), Operation.started_at < at)
        return list((await self._session.scalars(statement)).all())

    async def consecutive_failures(self, endpoint_id: str, kind: OperationKind) -> tuple[int, datetime | None]:
        """How often in a row this kind failed on the endpoint since it last succeeded, and when last."""
        return await self._failures(Operation.endpoint_id == endpoint_id, kind)

    async def consecutive_failures_of_branch(
        self, branch_id: str, kind: OperationKind
    ) -> tuple[int, datetime | None]:
        return await self._failures(Operation.branch_id == branch_id, kind)

    async def _failures(self, of: ColumnElement[bool], kind: OperationKind) -> tuple[int, datetime | None]:
        last_good = (
            select(func.coalesce(func.max(Operation.sequence), 0))
            .where(
                of,
                Operation.kind == kind,
                Operation.status == OperationStatus.FINISHED,
            )
            .scalar_subquery()
        )
        row = (
            await self._session.execute(
                select(func.count(), func.max(Operation.finished_at)).where(
                    of,
                    Operation.kind == kind,
                    Operation.status == OperationStatus.FAILED,
                    Operation.sequence > last_good,
                )
            )
        ).one()
        return row[0], row[1]
