"""Another minor of Postgres: the compute is stopped cleanly and started on that minor. A rollback is a restart onto
the minor that ran before.

`endpoints.postgres_version` stores the wanted minor, and every start reads it. A compute that crashes after the
minor was stored and before its restart therefore comes up on the wanted minor, in a switch as in a rollback. A step
may be cut off anywhere; its repetition asks the compute which minor runs before it restarts anything."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.clients.compute import ComputeStatus
from weir.clients.http import RemoteError
from weir.endpoints.models import Endpoint, EndpointState
from weir.operations.models import Operation, OperationKind
from weir.rollouts.intent import Strategy
from weir.rollouts.models import MemberState, RolloutMember
from weir_workflows.common.heartbeat import until
from weir_workflows.common.resources import Resources
from weir_workflows.computes.restart import RestartError, restart
from weir_workflows.rollout import members
from weir_workflows.rollout.changes import desired
from weir_workflows.rollout.changes.protocol import ChangeError, Figures, Record
from weir_workflows.rollout.limits import RESTARTS_AT_ONCE
from weir_workflows.rollout.members import Member, Outcome
from weir_workflows.rollout.probes import Probes, retrying
from weir_workflows.rollout.verdict import HardBounds

CONFIRM_SECONDS = 60
RECONCILER = "reconciler"


class PostgresMinor:
    feature = "postgres_minor"
    # Who has been wished and is not restarted yet would come up on the new minor should it crash: few at a time.
    chunk_size = RESTARTS_AT_ONCE
    is_back = "runs its previous minor again"
    not_back = "is not known to run its previous minor again"

    def __init__(self, resources: Resources, probes: Probes) -> None:
        self._r = resources
        self._probes = probes

    def slot(self) -> AbstractAsyncContextManager[Any]:
        return self._probes.restart_slot()

    def moot(self, item: Member) -> str | None:
        endpoint, target = item.row.endpoint, item.member.target_version
        if item.member.switched_at is None and {endpoint.postgres_version, endpoint.running_postgres_version} == {
            target
        }:
            return f"was brought onto {target} by others after the plan was made"
        return None

    def unready(self, item: Member, status: ComputeStatus) -> Outcome | None:
        if status.base_backups:
            return MemberState.PENDING, "a base backup is being taken, which a restart would end; tried again"
        if status.postgres_version is None:
            return MemberState.PENDING, "its agent does not say which minor it runs; tried again"
        return None

    async def arm(
        self, rollout_id: str, chunk: list[Member], strategy: Strategy, failures: dict[str, Outcome]
    ) -> list[Member]:
        """Makes sure of the files of both minors, and keeps the one that runs now: there would be no way back."""
        del strategy
        available = await self._r.computes.versions()
        for item in chunk:
            target, current = item.member.target_version or "", _runs(item)
            if current not in available and item.member.previous_version not in available:
                failures[item.id] = MemberState.FAILED, f"the files of {current}, which it runs, are gone"
            elif (got := (await self._r.computes.server(target)).version) != target:
                failures[item.id] = MemberState.FAILED, f"Postgres {target} cannot be had any more, only {got}"
        found = [item for item in chunk if item.id not in failures]
        fresh = [item for item in found if item.member.switched_at is None]
        async with self._r.database.transaction() as session:
            state = MemberState.ARMING
            kept = {item.id: {"previous_version": _runs(item), "state": state} for item in fresh}
            await members.write_each(session, rollout_id, kept, *members.UNSWITCHED)
        return found

    async def blocked(self, session: AsyncSession, items: Sequence[Member]) -> set[str]:
        """Those that are being worked on, or whose branch as a whole is: a restart must not come between the steps of
        an operation."""
        return set(await members.busy(session, items))

    async def set_desired(self, session: AsyncSession, rollout_id: str, items: Sequence[Member]) -> None:
        for version, ids in _by_version((item.id, item.member.target_version) for item in items):
            await self._set_desired(
                session, rollout_id, ids, version, Endpoint.postgres_version.is_distinct_from(version)
            )

    async def restore_desired(self, session: AsyncSession, rollout_id: str, items: Sequence[Member]) -> None:
        """Of computes that another rollout has brought elsewhere since, that one's wish stands."""
        by_target = _by_version((item.id, item.member.target_version) for item in items)
        before = {item.id: item.member.previous_version for item in items}
        for target, ids in by_target:
            for version, back in _by_version((ident, before[ident]) for ident in ids):
                await self._set_desired(session, rollout_id, back, version, Endpoint.postgres_version == target)

    async def _set_desired(
        self, session: AsyncSession, rollout_id: str, ids: list[str], version: str, only: ColumnElement[bool]
    ) -> None:
        values = {"postgres_version": version}
        await desired.store(session, rollout_id, ids, only, values, "endpoint.postgres_version", version=version)

    async def send(self, item: Member) -> Record:
        """With how long it accepted no connections; what an earlier attempt has measured stays."""
        try:
            seconds = await restart(self._r, item.row.endpoint, item.member.target_version or "")
        except RestartError as error:
            raise ChangeError(str(error)) from error
        return {"downtime_seconds": item.member.downtime_seconds if seconds is None else seconds}

    async def confirm(self, item: Member, sent: Record) -> Record:
        """It says which minor it is, accepts queries, and storage works for it. Restarts are counted afresh: it is
        another process."""
        del sent
        restarts = 0

        async def check() -> str | None:
            nonlocal restarts
            fault, status = await self._probes.faults(item.row)
            if fault is not None or status is None:
                return fault or "its agent does not answer"
            restarts = status.restarts
            return _other(item, status)

        await until(check, CONFIRM_SECONDS)
        return {"restarts_before": restarts}

    async def faults(self, item: Member, status: ComputeStatus) -> list[str]:
        """That its process ended is known from who started it again."""
        other = _other(item, status)
        started = select(func.count()).where(
            Operation.endpoint_id == item.id,
            Operation.kind == OperationKind.START_COMPUTE,
            Operation.origin == RECONCILER,
            Operation.created_at > item.member.confirmed_at,
        )
        async with self._r.database.transaction() as session:
            again = await session.scalar(started) or 0
        ended = [f"its process ended and was started again {again} times"] if again else []
        return ended if other is None else [*ended, other]

    def started_switched(self, item: Member, status: ComputeStatus) -> Record | None:
        return {"restarts_before": status.restarts} if _other(item, status) is None else None

    async def in_storage(self, item: Member, *, switched: bool) -> bool:
        """Storage does not know of minors."""
        del item, switched
        return True

    async def send_back(self, item: Member) -> str | None:
        endpoint, previous = item.row.endpoint, item.member.previous_version
        if endpoint.desired_state != EndpointState.ACTIVE:
            return None
        agent = self._r.agent(endpoint)
        if endpoint.postgres_version == previous and previous is not None:
            try:
                seconds = await restart(self._r, endpoint, previous)
            except RestartError as error:
                raise ChangeError(str(error)) from error
            if seconds is not None:
                rollout = item.member.rollout_id
                async with self._r.database.transaction() as session:
                    await members.write(session, rollout, [item.id], back=True, back_downtime_seconds=seconds)
        try:
            return (await retrying(agent.status)).start_lsn
        except RemoteError as error:
            raise ChangeError(str(error)) from error

    def back_at(self, item: Member, status: ComputeStatus) -> str | None:
        wanted, previous = item.row.endpoint.postgres_version, item.member.previous_version
        # Who is wanted elsewhere since is not this rollout's any more.
        there = status.postgres_version == previous if wanted == previous else wanted != item.member.target_version
        return status.start_lsn if there else None

    async def disarm(self, items: Sequence[Member], *, patient: bool) -> dict[str, str]:
        """Copies go when nobody needs them (`reconciler.versions`)."""
        del items, patient
        return {}

    def has_desired_back(self) -> ColumnElement[bool]:
        return Endpoint.postgres_version == RolloutMember.previous_version

    def bounds(self, strategy: Strategy) -> HardBounds:
        return HardBounds(
            max_image_share=None,
            max_p99_ratio=strategy.max_p99_ratio,
            p99_slack_seconds=strategy.p99_slack_seconds,
            left_out=frozenset({"images", "chain length"}),
        )

    def measured(self, item: Member) -> Figures:
        return {"downtime_seconds": item.member.downtime_seconds}

    def passes(self, item: Member, before: Figures, after: Figures) -> str:
        del before, after
        moved = f"every bound holds on {item.member.target_version}, after {item.member.previous_version}"
        seconds = item.member.downtime_seconds
        return moved if seconds is None else f"{moved}; it accepted no connections for {seconds:.1f} s"

    def controls(self, item: Member) -> list[ColumnElement[bool]]:
        """Whichever minor they run: who was brought onto the new one in an earlier wave has settled there."""
        del item
        return []


def _runs(item: Member) -> str | None:
    return item.row.endpoint.running_postgres_version or item.row.endpoint.postgres_version


def _other(item: Member, status: ComputeStatus) -> str | None:
    """None when it runs the minor it was brought onto."""
    if status.postgres_version == item.member.target_version:
        return None
    return (
        f"it runs {status.postgres_version or 'no Postgres that says its version'}, not {item.member.target_version}"
    )


def _by_version(pairs: Any) -> list[tuple[str, list[str]]]:
    """Ids by the minor they are wanted on."""
    found: dict[str, list[str]] = {}
    for ident, version in pairs:
        if version is not None:
            found.setdefault(version, []).append(ident)
    return sorted(found.items())
