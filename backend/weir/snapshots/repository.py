from datetime import datetime

from sqlalchemy import Select, delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.branches.models import Branch
from weir.snapshots.models import BackupScheduleItem, Snapshot


def _there(project_id: str, at: datetime) -> Select[Snapshot, Branch]:
    """Snapshots, each with the branch that holds it, that are neither deleted nor expired at the moment."""
    return (
        select(Snapshot, Branch)
        .join(Branch, Branch.id == Snapshot.branch_id)
        .where(
            Snapshot.project_id == project_id,
            Snapshot.delete_requested_at.is_(None),
            Branch.deleted_at.is_(None),
            Branch.expires_at.is_(None) | (Branch.expires_at > at),
        )
    )


class SnapshotRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    def add(self, snapshot: Snapshot) -> None:
        self._session.add(snapshot)

    async def of_project(self, project_id: str, at: datetime) -> list[tuple[Snapshot, Branch]]:
        """Newest first."""
        statement = _there(project_id, at).order_by(Snapshot.created_at.desc(), Snapshot.id)
        return [(row[0], row[1]) for row in (await self._session.execute(statement)).all()]

    async def get(self, project_id: str, ident: str, at: datetime) -> tuple[Snapshot, Branch] | None:
        statement = _there(project_id, at).where(Snapshot.id == ident)
        row = (await self._session.execute(statement)).one_or_none()
        return None if row is None else (row[0], row[1])

    async def schedule(self, branch_id: str) -> list[BackupScheduleItem]:
        statement = select(BackupScheduleItem).where(BackupScheduleItem.branch_id == branch_id)
        return list((await self._session.scalars(statement.order_by(BackupScheduleItem.position))).all())

    async def replace_schedule(self, branch_id: str, items: list[BackupScheduleItem]) -> None:
        await self._session.execute(delete(BackupScheduleItem).where(BackupScheduleItem.branch_id == branch_id))
        self._session.add_all(items)
        await self._session.flush()
