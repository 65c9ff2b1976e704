"""Image pushdown: Postgres stops writing page images, and storage makes them. One record in the WAL switches a
compute while it runs.

A rollback is the same record in reverse. It switches page images on first and returns storage to its former
threshold second: in this order chains stay bounded at every moment."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from sqlalchemy import ColumnElement
from sqlalchemy.ext.asyncio import AsyncSession

from weir.clients.compute import ComputeStatus
from weir.clients.http import RemoteError
from weir.endpoints.models import Endpoint, EndpointState
from weir.kit.clock import now
from weir.rollouts.intent import Strategy
from weir.rollouts.models import MemberState
from weir_workflows.common.heartbeat import until
from weir_workflows.common.resources import Resources
from weir_workflows.rollout import members, thresholds
from weir_workflows.rollout.changes import desired
from weir_workflows.rollout.changes.protocol import Figures, Record
from weir_workflows.rollout.limits import CHUNK_SIZE
from weir_workflows.rollout.members import Member, Outcome
from weir_workflows.rollout.probes import RETRY_SECONDS, Probes, retrying
from weir_workflows.rollout.verdict import HardBounds

SWITCH_TIMEOUT_MS = 30_000
CONFIRM_SECONDS = 60


class ImagePushdown:
    feature = "image_pushdown"
    chunk_size = CHUNK_SIZE
    is_back = "full_page_writes is on again"
    not_back = "is not known to write page images again"

    def __init__(self, resources: Resources, probes: Probes) -> None:
        self._r = resources
        self._probes = probes

    def slot(self) -> AbstractAsyncContextManager[Any]:
        return self._probes.slot()

    def moot(self, item: Member) -> str | None:
        if not item.row.endpoint.full_page_writes and item.member.switched_at is None:
            return "full_page_writes was switched off by others after the plan was made"
        return None

    def unready(self, item: Member, status: ComputeStatus) -> Outcome | None:
        del item
        if status.base_backups:
            return MemberState.PENDING, "a base backup is being taken, which forces page images; tried again"
        return None

    async def arm(
        self, rollout_id: str, chunk: list[Member], strategy: Strategy, failures: dict[str, Outcome]
    ) -> list[Member]:
        """Tells storage to keep chains short, the old setting kept first."""
        before: dict[str, int] = {}

        async def read(item: Member) -> None:
            before[item.id] = await thresholds.current(self._r, item)

        async def change(item: Member) -> None:
            await thresholds.arm(self._r, item, strategy, before[item.id])

        await self._each(chunk, read, failures)
        found = [item for item in chunk if item.id not in failures]
        async with self._r.database.transaction() as session:
            kept = await thresholds.stored(session, rollout_id, [item.row.project.id for item in found])
            new = {
                item.id: {"previous_threshold": kept.setdefault(item.row.project.id, before[item.id])}
                for item in found
                if item.member.previous_threshold is None
            }
            await members.write_each(session, rollout_id, new, *members.UNCONFIRMED)
            # Of those whose switch is wished already the state says so, and stays.
            fresh = [item.id for item in found if item.member.switched_at is None]
            await members.write(session, rollout_id, fresh, *members.UNSWITCHED, state=MemberState.ARMING)
        await self._each(found, change, failures)
        return [item for item in found if item.id not in failures]

    async def _each(
        self, chunk: list[Member], step: Callable[[Member], Awaitable[None]], failures: dict[str, Outcome]
    ) -> None:
        async def one(item: Member) -> None:
            async with self._probes.slot():
                try:
                    await retrying(lambda: step(item))
                except RemoteError as error:
                    failures[item.id] = (MemberState.FAILED, f"storage could not be armed: {error}")

        await asyncio.gather(*(one(item) for item in chunk))

    async def blocked(self, session: AsyncSession, items: Sequence[Member]) -> set[str]:
        del session, items
        return set()

    async def set_desired(self, session: AsyncSession, rollout_id: str, items: Sequence[Member]) -> None:
        await self._set_desired(session, rollout_id, items, enabled=False)

    async def restore_desired(self, session: AsyncSession, rollout_id: str, items: Sequence[Member]) -> None:
        await self._set_desired(session, rollout_id, items, enabled=True)

    async def _set_desired(
        self, session: AsyncSession, rollout_id: str, items: Sequence[Member], *, enabled: bool
    ) -> None:
        await desired.store(
            session,
            rollout_id,
            [item.id for item in items],
            Endpoint.full_page_writes.is_not(enabled),
            {"full_page_writes": enabled, "full_page_writes_since": now()},
            "endpoint.full_page_writes",
            enabled=enabled,
        )

    async def send(self, item: Member) -> Record:
        """With the LSN of the record that says so, once a majority has it."""
        agent = self._r.agent(item.row.endpoint)
        return {"fpw_change_lsn": await retrying(lambda: agent.full_page_writes(False, SWITCH_TIMEOUT_MS))}

    async def confirm(self, item: Member, sent: Record) -> Record:
        await until(lambda: self._lacking(item, sent["fpw_change_lsn"], enabled=False), CONFIRM_SECONDS)
        return {}

    async def _lacking(self, item: Member, lsn: str | None, *, enabled: bool) -> str | None:
        if lsn is not None:
            lacking = await self._probes.missing_on_majority(item.row, lsn)
            if lacking is not None:
                return lacking
        return await self._probes.missing_in_storage(item.row, enabled, lsn)

    async def faults(self, item: Member, status: ComputeStatus) -> list[str]:
        del item, status
        return []

    def started_switched(self, item: Member, status: ComputeStatus) -> Record | None:
        del item
        return {"fpw_change_lsn": status.full_page_writes_lsn} if status.full_page_writes is False else None

    async def in_storage(self, item: Member, *, switched: bool) -> bool:
        try:
            timeline = await self._r.pageserver.timeline(item.row.project.tenant_id, item.row.branch.timeline_id)
        except RemoteError:
            return False
        return timeline is not None and timeline.full_page_writes is not switched

    async def send_back(self, item: Member) -> str | None:
        endpoint = item.row.endpoint
        if endpoint.desired_state != EndpointState.ACTIVE:
            return None
        agent = self._r.agent(endpoint)
        lsn = await retrying(lambda: agent.full_page_writes(True, SWITCH_TIMEOUT_MS))
        if lsn is not None:
            await until(lambda: self._lacking(item, lsn, enabled=True), CONFIRM_SECONDS)
        return lsn

    def back_at(self, item: Member, status: ComputeStatus) -> str | None:
        if not item.row.endpoint.full_page_writes or not status.full_page_writes:
            return None
        return status.full_page_writes_lsn or status.start_lsn

    async def disarm(self, items: Sequence[Member], *, patient: bool) -> dict[str, str]:
        return await thresholds.disarm(self._r, self._probes, items, RETRY_SECONDS if patient else 0)

    def has_desired_back(self) -> ColumnElement[bool]:
        return Endpoint.full_page_writes.is_(True)

    def bounds(self, strategy: Strategy) -> HardBounds:
        return HardBounds(
            max_image_share=strategy.max_image_share,
            max_p99_ratio=strategy.max_p99_ratio,
            p99_slack_seconds=strategy.p99_slack_seconds,
            max_chain_length=strategy.max_chain_length,
        )

    def measured(self, item: Member) -> Figures:
        del item
        return {}

    def passes(self, item: Member, before: Figures, after: Figures) -> str:
        del item
        return gain(before, after)

    def controls(self, item: Member) -> list[ColumnElement[bool]]:
        """Who runs with page images."""
        del item
        return [Endpoint.full_page_writes.is_(True)]


def gain(before: Figures, after: Figures) -> str:
    was, is_now = before.get("wal_bytes_per_transaction"), after.get("wal_bytes_per_transaction")
    if not was or is_now is None:
        return "every bound holds"
    sizes = f"{was / 1024:,.1f} KiB to {is_now / 1024:,.1f} KiB"
    return f"every bound holds; WAL a transaction went from {sizes} ({is_now / was - 1:+.0%})"
