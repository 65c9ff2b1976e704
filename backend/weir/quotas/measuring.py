"""Asks storage how much projects hold for which somebody has set a quota of storage, and keeps the answers.

A creation cannot ask: it holds locks, and storage may take seconds. So what it compares is up to a round old.
"""

import asyncio

import structlog
from prometheus_client import Gauge
from sqlalchemy import String, and_, cast, or_, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from weir.clients.http import RemoteError
from weir.clients.pageserver import Pageserver
from weir.config import get_settings
from weir.db import Database
from weir.kit.clock import now
from weir.projects.models import Project
from weir.quotas.models import Quota, StorageUse
from weir.quotas.names import OwnerKind, QuotaName, parse_defaults

log = structlog.get_logger()

INTERVAL_SECONDS = 60.0
MEASURED = Gauge(
    "weir_quota_storage_measured_projects",
    "Projects with a quota of storage, as measured last",
    multiprocess_mode="mostrecent",
)


async def keep_measuring(database: Database, pageserver: Pageserver) -> None:
    """Until it is cancelled. What is down is asked again in the next round."""
    while True:
        try:
            await measure(database, pageserver)
        except Exception as error:  # noqa: BLE001  the loop outlives whatever is down
            log.warning("storage_measuring_postponed", error=str(error), type=type(error).__name__)
        await asyncio.sleep(INTERVAL_SECONDS)


async def measure(database: Database, pageserver: Pageserver) -> int:
    """One round; of how many projects storage has told. Each answer is a transaction of its own."""
    async with database.transaction() as session:
        asked = await _with_quota(session)
    told = 0
    for project_id, tenant_id in asked:
        try:
            timelines = await pageserver.timelines(tenant_id)
        except RemoteError as error:
            log.warning("storage_use_not_known", project_id=project_id, error=str(error))
            continue
        held = sum((timeline.logical_size or 0) + (timeline.history_bytes or 0) for timeline in timelines)
        async with database.transaction() as session:
            await _record(session, project_id, held)
        told += 1
    MEASURED.set(told)
    return told


async def _with_quota(session: AsyncSession) -> list[tuple[str, str]]:
    """Ids and tenants of the projects that a quota of storage holds for, their own or their owner's."""
    statement = select(Project.id, Project.tenant_id).where(Project.deleted_at.is_(None))
    if parse_defaults(get_settings().quotas).get(QuotaName.STORAGE_BYTES) is None:
        set_for = and_(Quota.name == QuotaName.STORAGE_BYTES, Quota.most.is_not(None))
        statement = statement.where(
            or_(
                select(Quota.owner_id)
                .where(set_for, Quota.owner_kind == OwnerKind.PROJECT, Quota.owner_id == Project.id)
                .exists(),
                select(Quota.owner_id)
                .where(
                    set_for,
                    Quota.owner_kind == OwnerKind.ACCOUNT,
                    Quota.owner_id == cast(Project.account_id, String),
                )
                .exists(),
            )
        )
    rows = (await session.execute(statement.order_by(Project.id))).all()
    return [(row[0], row[1]) for row in rows]


async def _record(session: AsyncSession, project_id: str, held: int) -> None:
    at = now()
    statement = insert(StorageUse).values(project_id=project_id, bytes=held, measured_at=at)
    await session.execute(
        statement.on_conflict_do_update(index_elements=["project_id"], set_={"bytes": held, "measured_at": at})
    )
