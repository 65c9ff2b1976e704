"""Seals the audit log while the API runs."""

import asyncio

import structlog
from prometheus_client import Gauge

from weir.db import Database
from weir.identity import seals
from weir.kit.clock import now

log = structlog.get_logger()

POSITION = Gauge(
    "weir_audit_sealed_entries",
    "Entries of the audit log that are sealed, as this process last saw",
    multiprocess_mode="mostrecent",
)
# Short: until an entry is sealed, its removal leaves no trace.
INTERVAL_SECONDS = 2.0


async def keep_sealing(database: Database) -> None:
    """Until it is cancelled. What is down is tried again; entries wait."""
    while True:
        try:
            while await _once(database) == seals.BATCH:
                pass
        except Exception as error:  # noqa: BLE001  the loop outlives whatever is down
            log.warning("audit_sealing_postponed", error=str(error), type=type(error).__name__)
        await asyncio.sleep(INTERVAL_SECONDS)


async def _once(database: Database) -> int:
    async with database.transaction() as session:
        sealed = await seals.seal(session, now())
        await session.flush()
        POSITION.set((await seals.head(session)).position)
        return sealed
