"""One round: compares every endpoint's wish with what runs and queues what is missing.

Takes no input and keeps nothing but how long an agent has been silent, how far round the fleet it is and which checks
of storage are still to come: work derives from the database and from the machine alone, so a missed round costs
seconds and nothing else.

A round looks at so many computes that its cost does not grow with the fleet: at those whose stored state is not the
wanted one, and at the next part of all. A fleet no larger than a part is looked at whole every time; ten thousand
computes are gone round in about a minute.
"""

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

import structlog
from sqlalchemy import ARRAY, Text, any_, literal, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession
from temporalio import activity

from weir.clients.compute import ComputeStatus
from weir.clients.http import RemoteError
from weir.computes.repository import ComputeRepository, ComputeRow
from weir.computes.service import observe
from weir.databases.repository import DatabaseRepository
from weir.durability.levels import level_of
from weir.durability.policy import Policy, wanted
from weir.endpoints.models import Endpoint, EndpointState
from weir.errors import ProjectBusyError
from weir.identity import audit
from weir.kit.clock import now
from weir.operations import scopes
from weir.operations.models import OperationKind
from weir.operations.repository import OperationRepository
from weir.operations.service import enqueue
from weir.rollouts.run.repository import RolloutRepository
from weir.rollouts.run.restarts import restarting
from weir_workflows.common.heartbeat import heartbeats
from weir_workflows.common.resources import Resources
from weir_workflows.reconciler.autoscaling import Autoscaling
from weir_workflows.reconciler.expiry import delete_expired
from weir_workflows.reconciler.idle import lock_idle
from weir_workflows.reconciler.inactivity import suspend_inactive
from weir_workflows.reconciler.replacements import Replacements
from weir_workflows.reconciler.rollbacks import finish_rollbacks, restore_thresholds
from weir_workflows.reconciler.rollouts import confirm_deferred, watch_deadlines
from weir_workflows.reconciler.safekeepers import repair_part
from weir_workflows.reconciler.snapshots import take_due
from weir_workflows.reconciler.storage import repair_descriptions, repair_tenants
from weir_workflows.reconciler.usage import Metering
from weir_workflows.reconciler.versions import finish_restarts, keep_servers, record_versions
from weir_workflows.runtime.local import BusyError

log = structlog.get_logger()

ORIGIN = "reconciler"
SILENCE_SECONDS = 30
FIRST_BACKOFF_SECONDS = 2
LONGEST_BACKOFF_SECONDS = 60
SWITCH_TIMEOUT_MS = 10_000
STORAGE_CHECK_SECONDS = 30
# A round that has spent so much on checks leaves the others to the next one.
CHECKS_SECONDS = 0.5
COMPUTES_A_ROUND = 500
# Together a fraction of a round's time (`policies.ROUND`), even when no switch is answered.
REPAIRS_AT_ONCE = 32
REPAIRS_A_ROUND = 64
_DEAD_STATES = {"failed", "fenced", "stopped"}


@dataclass(frozen=True)
class Round:
    started: list[str]
    stopped: list[str]
    cleaned: list[str]
    switched: list[str]
    configured: list[str]


@dataclass(frozen=True)
class _Finding:
    kind: OperationKind
    reason: str


def backoff(failures: int) -> timedelta:
    return timedelta(seconds=min(LONGEST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2**failures))


class ReconcilerActivities:
    def __init__(self, resources: Resources) -> None:
        self._r = resources
        self._silent_since: dict[str, float] = {}
        self._next_storage_check = 0.0
        self._checks: deque[Callable[[], Awaitable[None]]] = deque()
        self._seen_to = ""
        self._to_drop: set[str] = set()
        self._replacements = Replacements(resources)
        self._autoscaling = Autoscaling(resources)
        self._metering = Metering(resources)

    @activity.defn
    async def reconcile(self) -> Round:
        async with heartbeats():
            whole_round = not self._seen_to
            async with self._r.database.transaction() as session:
                rows = await self._part(ComputeRepository(session, None))
                rolling = await RolloutRepository(session).in_progress([row.endpoint.id for row in rows])
                branches = [row.branch.id for row in rows]
                self._to_drop = await DatabaseRepository(session).branches_to_drop_in(branches)
            running = await self._r.computes.running([row.endpoint.id for row in rows])
            seen = await observe([row for row in rows if row.endpoint.id in running], self._r.http)
            queued: dict[OperationKind, list[str]] = defaultdict(list)
            for row in rows:
                finding = self._judge(row, row.endpoint.id in running, seen.get(row.endpoint.id))
                if finding is not None and await self._try_queue(row, finding):
                    queued[finding.kind].append(row.endpoint.id)
            cleaned = await self._clean(rows, running, strangers_too=whole_round)
            await confirm_deferred(self._r, rows, seen)
            await record_versions(self._r, rows, seen)
            await finish_restarts(self._r, rows, seen, rolling)
            await watch_deadlines(self._r)
            await delete_expired(self._r, now())
            await take_due(self._r, now())
            await suspend_inactive(self._r, rows, seen, rolling)
            await self._autoscaling.resize(rows, seen, rolling)
            await finish_rollbacks(self._r, rows, seen)
            await restore_thresholds(self._r)
            await self._metering.round(rows, seen, now())
            # Last, since it talks to computes that may not answer.
            switched = await self._repair_switches(rows, seen, rolling)
            await self._check_storage()
        return Round(
            started=queued[OperationKind.START_COMPUTE],
            stopped=queued[OperationKind.SUSPEND_COMPUTE],
            cleaned=cleaned,
            switched=switched,
            configured=queued[OperationKind.APPLY_CONFIG],
        )

    async def _check_storage(self) -> None:
        """In a small installation all checks go into one round. In a large one, a part of one fills it, and the next
        round goes on."""
        if not self._checks and time.monotonic() >= self._next_storage_check:
            self._next_storage_check = time.monotonic() + STORAGE_CHECK_SECONDS
            self._checks = deque((self._check_safekeepers, self._check_descriptions, self._check_machine))
        begun = time.monotonic()
        while self._checks:
            # Whether it goes well or not, the others have their turn.
            await self._checks.popleft()()
            if time.monotonic() - begun >= CHECKS_SECONDS:
                return

    async def _check_safekeepers(self, after: str = "") -> None:
        seen_to = (await repair_part(self._r, after)).seen_to
        if seen_to:
            self._checks.appendleft(partial(self._check_safekeepers, seen_to))
            return
        # What is stored of sick members has just been renewed.
        await self._replacements.replace_sick()

    async def _check_descriptions(self, after: str = "") -> None:
        seen_to = (await repair_descriptions(self._r, after)).seen_to
        if seen_to:
            self._checks.appendleft(partial(self._check_descriptions, seen_to))

    async def _check_machine(self) -> None:
        await repair_tenants(self._r)
        await keep_servers(self._r)

    async def _part(self, computes: ComputeRepository) -> list[ComputeRow]:
        """The computes of this round, and moves on."""
        part = await computes.beyond(self._seen_to, COMPUTES_A_ROUND)
        self._seen_to = part[-1].endpoint.id if len(part) == COMPUTES_A_ROUND else ""
        unmet = await computes.unmet(COMPUTES_A_ROUND)
        return list({row.endpoint.id: row for row in [*unmet, *part]}.values())

    def _judge(self, row: ComputeRow, alive: bool, seen: ComputeStatus | str | None) -> _Finding | None:
        endpoint = row.endpoint
        if endpoint.desired_state == EndpointState.IDLE:
            self._silent_since.pop(endpoint.id, None)
            return _Finding(OperationKind.SUSPEND_COMPUTE, "should be idle but runs") if alive else None
        if not alive:
            self._silent_since.pop(endpoint.id, None)
            return _Finding(OperationKind.START_COMPUTE, "should run but its process is gone")
        if isinstance(seen, ComputeStatus):
            self._silent_since.pop(endpoint.id, None)
            if seen.state in _DEAD_STATES:
                return _Finding(OperationKind.START_COMPUTE, f"is {seen.state}: {seen.reason}")
            if seen.state == "running" and endpoint.state != EndpointState.ACTIVE:
                return _Finding(OperationKind.START_COMPUTE, "runs, which was never recorded")
            return self._judge_durability(row, seen) or self._judge_size(row, seen) or self._judge_dropping(row, seen)
        since = self._silent_since.setdefault(endpoint.id, time.monotonic())
        if time.monotonic() - since > SILENCE_SECONDS:
            return _Finding(OperationKind.START_COMPUTE, f"has not answered for {SILENCE_SECONDS} s")
        return None

    def _judge_durability(self, row: ComputeRow, seen: ComputeStatus) -> _Finding | None:
        """Since a policy of the installation changed, say, or its configuration failed when the level was chosen."""
        policy = Policy.of(self._r.settings.forbidden_durability, row.project.forbidden_durability)
        level = wanted(policy, row.branch.durability, row.endpoint.pg_settings).level
        actual = None if seen.synchronous_commit is None else level_of(seen.synchronous_commit)
        if seen.state != "running" or level is None or actual in {None, level}:
            return None
        return _Finding(OperationKind.APPLY_CONFIG, f"commits at {actual}, should at {level}")

    def _judge_size(self, row: ComputeRow, seen: ComputeStatus) -> _Finding | None:
        """Its configuration failed, or was never heard of again, when another size was chosen for it."""
        has, wanted_cu = seen.compute_units, row.endpoint.current_cu
        if seen.state != "running" or has is None or has == wanted_cu:
            return None
        return _Finding(OperationKind.APPLY_CONFIG, f"has size {has:g}, should have {wanted_cu:g}")

    def _judge_dropping(self, row: ComputeRow, seen: ComputeStatus) -> _Finding | None:
        """Deleted roles and databases that Postgres still has: dropping them failed, or was never heard of again."""
        if seen.state != "running" or row.branch.id not in self._to_drop:
            return None
        return _Finding(OperationKind.APPLY_CONFIG, "has roles or databases that were deleted")

    async def _try_queue(self, row: ComputeRow, finding: _Finding) -> bool:
        """One endpoint that cannot be helped now must not keep the others from it."""
        try:
            return await self._queue(row, finding)
        except (SQLAlchemyError, ProjectBusyError) as error:
            log.warning("reconciler_postponed", endpoint_id=row.endpoint.id, error=str(error))
            return False

    async def _queue(self, row: ComputeRow, finding: _Finding) -> bool:
        """Through the same operations as people's requests, so that the two never work on an endpoint at once."""
        async with self._r.database.transaction() as session:
            scope = scopes.of_endpoint(row.project.id, row.branch.id, row.endpoint.id)
            if await lock_idle(session, row.project.id, scope, half_deleted_too=True) is None:
                return False
            repository = OperationRepository(session)
            endpoint = await session.get(Endpoint, row.endpoint.id, populate_existing=True)
            if endpoint is None or endpoint.deleted_at is not None:
                return False
            if await restarting(session, endpoint.id):
                return False
            idle = finding.kind == OperationKind.SUSPEND_COMPUTE
            if (endpoint.desired_state == EndpointState.IDLE) != idle or not await self._due(
                repository, endpoint.id, finding.kind
            ):
                return False
            if finding.kind == OperationKind.START_COMPUTE:
                endpoint.state = EndpointState.IDLE
            await self._enqueue(session, endpoint, finding)
        log.info("reconciler_queued", endpoint_id=row.endpoint.id, kind=finding.kind.value, reason=finding.reason)
        return True

    async def _due(self, repository: OperationRepository, endpoint_id: str, kind: OperationKind) -> bool:
        failures, last = await repository.consecutive_failures(endpoint_id, kind)
        return last is None or now() >= _earliest(last, failures)

    async def _enqueue(self, session: AsyncSession, endpoint: Endpoint, finding: _Finding) -> None:
        await enqueue(
            session,
            finding.kind,
            endpoint.project_id,
            branch_id=endpoint.branch_id,
            endpoint_id=endpoint.id,
            origin=ORIGIN,
        )
        audit.record_system(
            session,
            ORIGIN,
            f"endpoint.{finding.kind.value}",
            f"endpoint/{endpoint.id}",
            endpoint.project_id,
            reason=finding.reason,
        )

    async def _clean(self, rows: list[ComputeRow], running: set[str], *, strangers_too: bool) -> list[str]:
        """Pid files and mounts of dead computes, and, once in each round of the fleet, computes of endpoints that
        were deleted. A directory with a name the database has never heard of is left alone."""
        # Of idle computes only: one that should run is being started, which cleans up itself.
        idle = [row.endpoint.id for row in rows if row.endpoint.desired_state == EndpointState.IDLE]
        cleaned = await self._r.computes.tidy([ident for ident in idle if ident not in running])
        if strangers_too:
            live = {row.endpoint.id for row in rows}
            strangers = [ident for ident in await self._r.computes.known() if ident not in live]
            cleaned += [ident for ident in sorted(await self._deleted(strangers)) if await self._remove(ident)]
        return cleaned

    async def _remove(self, ident: str) -> bool:
        try:
            await self._r.computes.stop(ident, "immediate")
            await self._r.computes.remove(ident)
        except (RuntimeError, OSError, BusyError, RemoteError) as error:
            log.warning("compute_not_removed", endpoint_id=ident, error=str(error))
            return False
        return True

    async def _deleted(self, ids: list[str]) -> set[str]:
        if not ids:
            return set()
        async with self._r.database.transaction() as session:
            # One parameter, however many: Postgres takes no more than 65,535 of them.
            asked = Endpoint.id == any_(literal(ids, ARRAY(Text)))
            statement = select(Endpoint.id).where(asked, Endpoint.deleted_at.is_not(None))
            return set((await session.scalars(statement)).all())

    async def _repair_switches(
        self, rows: list[ComputeRow], seen: dict[str, ComputeStatus | str], rolling: dict[str, str]
    ) -> list[str]:
        """A compute whose full_page_writes is not what is wanted, because somebody switched it by hand or it came
        back from elsewhere, is switched; those that a rollout works on now are that rollout's business."""
        drifted = [
            (row, status)
            for row in rows
            if row.endpoint.id not in rolling
            and isinstance(status := seen.get(row.endpoint.id), ComputeStatus)
            and status.state == "running"
            and status.full_page_writes not in {None, row.endpoint.full_page_writes}
        ]
        # Who is to write images again comes first: it went back for a reason. Then who has waited longest.
        drifted.sort(key=lambda pair: (not pair[0].endpoint.full_page_writes, _since(pair[0].endpoint)))
        limit = asyncio.Semaphore(REPAIRS_AT_ONCE)

        async def one(row: ComputeRow, status: ComputeStatus) -> bool:
            async with limit:
                return await self._repair_switch(row.endpoint, status)

        chosen = drifted[:REPAIRS_A_ROUND]
        done = await asyncio.gather(*(one(row, status) for row, status in chosen))
        return [row.endpoint.id for (row, _), good in zip(chosen, done, strict=True) if good]

    async def _repair_switch(self, endpoint: Endpoint, status: ComputeStatus) -> bool:
        if not await self._still_drifted(endpoint.id, status):
            return False
        try:
            await self._r.agent(endpoint).full_page_writes(endpoint.full_page_writes, SWITCH_TIMEOUT_MS)
        except RemoteError as error:
            log.warning("switch_not_repaired", endpoint_id=endpoint.id, error=str(error))
            return False
        async with self._r.database.transaction() as session:
            audit.record_system(
                session,
                ORIGIN,
                "endpoint.full_page_writes",
                f"endpoint/{endpoint.id}",
                endpoint.project_id,
                enabled=endpoint.full_page_writes,
            )
        return True

    async def _still_drifted(self, ident: str, status: ComputeStatus) -> bool:
        """The round began a while ago: a rollout may have taken the compute up, or stored another wish, since."""
        async with self._r.database.transaction() as session:
            endpoint = await session.get(Endpoint, ident)
            rolling = await RolloutRepository(session).in_progress([ident])
        return endpoint is not None and endpoint.full_page_writes != status.full_page_writes and not rolling


def _since(endpoint: Endpoint) -> float:
    since = endpoint.full_page_writes_since
    return 0.0 if since is None else since.timestamp()


def _earliest(last: datetime, failures: int) -> datetime:
    return last + backoff(failures)
