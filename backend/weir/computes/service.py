"""What runs now: intent from the database, observation from the agents and from Prometheus."""

import asyncio
from dataclasses import asdict
from datetime import datetime
from typing import Any

from weir.clients.compute import ComputeStatus, status_of
from weir.clients.http import HttpClient, RemoteError
from weir.clients.prometheus import Prometheus
from weir.computes import metrics
from weir.computes.repository import ComputeRow
from weir.computes.schemas import (
    ComputeDetail,
    ComputeLevel,
    ComputeState,
    ComputeSummary,
    FullPageWrites,
    LoadReport,
    PrewarmReport,
    RatesView,
    StartReport,
    UnconfirmedCommits,
)
from weir.config import get_settings
from weir.durability.levels import level_of
from weir.durability.policy import policy_of, wanted
from weir.endpoints.models import Endpoint, EndpointState
from weir.postgres_versions import TESTED, installed

_AGENT_STATES: dict[str, ComputeState] = {
    "starting": "starting",
    "running": "active",
    "stopping": "suspending",
    "stopped": "idle",
    "failed": "failed",
    "fenced": "fenced",
}
STATUS_TIMEOUT_SECONDS = 1.5
# A page at once, so that a page of silent computes is one time-out and not several.
PARALLEL_STATUS_CALLS = 100


async def observe(rows: list[ComputeRow], http: HttpClient) -> dict[str, ComputeStatus | str]:
    """Each compute's own status, or why it could not be had; idle ones are not asked."""
    limit = asyncio.Semaphore(PARALLEL_STATUS_CALLS)

    async def one(endpoint: Endpoint) -> ComputeStatus | str:
        async with limit:
            return await status_of(endpoint.id, endpoint.host, endpoint.port, http, STATUS_TIMEOUT_SECONDS)

    asked = [row.endpoint for row in rows if not _at_rest(row.endpoint)]
    answers = await asyncio.gather(*(one(endpoint) for endpoint in asked))
    return {endpoint.id: answer for endpoint, answer in zip(asked, answers, strict=True)}


def _at_rest(endpoint: Endpoint) -> bool:
    return endpoint.desired_state == EndpointState.IDLE and endpoint.state == EndpointState.IDLE


def state_of(endpoint: Endpoint, seen: ComputeStatus | str | None) -> tuple[ComputeState, str | None]:
    if isinstance(seen, ComputeStatus):
        return _AGENT_STATES.get(seen.state, "failed"), seen.reason
    state = stored_state(endpoint.desired_state, endpoint.state)
    if state != "active":
        return state, None
    return "failed", f"the compute should run but does not answer; it is started again ({seen})"


def stored_state(wanted: EndpointState, stored: EndpointState) -> ComputeState:
    """The state without asking the compute: what is wanted of it, and what was recorded last."""
    if wanted == EndpointState.IDLE and stored == EndpointState.IDLE:
        return "idle"
    if stored == EndpointState.INIT:
        return "init"
    if wanted == EndpointState.IDLE:
        return "suspending"
    return "starting" if stored == EndpointState.IDLE else "active"


def _full_page_writes(endpoint: Endpoint, seen: ComputeStatus | str | None) -> FullPageWrites:
    if isinstance(seen, ComputeStatus):
        return FullPageWrites(
            wanted=endpoint.full_page_writes, actual=seen.full_page_writes, lsn=seen.full_page_writes_lsn
        )
    return FullPageWrites(wanted=endpoint.full_page_writes)


def _running_version(endpoint: Endpoint, seen: ComputeStatus | str | None) -> str | None:
    asked = seen.postgres_version if isinstance(seen, ComputeStatus) else None
    return asked or endpoint.running_postgres_version


def installed_postgres() -> str | None:
    """The minor that a compute without a wish would be started with."""
    settings = get_settings()
    if settings.compute_runtime == "simulated":
        return max(TESTED.items())[1][-1]
    return installed(settings.pg_bin_dir)


def summary(row: ComputeRow, seen: ComputeStatus | str | None, rates: metrics.Rates | None) -> ComputeSummary:
    state, reason = state_of(row.endpoint, seen)
    return ComputeSummary(
        id=row.endpoint.id,
        project_id=row.project.id,
        project_name=row.project.name,
        branch_id=row.branch.id,
        branch_name=row.branch.name,
        state=state,
        reason=reason,
        host=row.endpoint.host,
        port=row.endpoint.port,
        full_page_writes=_full_page_writes(row.endpoint, seen),
        postgres_version=_running_version(row.endpoint, seen),
        wanted_postgres_version=row.endpoint.postgres_version,
        installed_postgres_version=installed_postgres(),
        rates=None if rates is None else RatesView(window_seconds=metrics.RATE_WINDOW_SECONDS, **asdict(rates)),
    )


def durability(row: ComputeRow, seen: ComputeStatus | str | None) -> ComputeLevel:
    told = seen.synchronous_commit if isinstance(seen, ComputeStatus) else None
    return ComputeLevel(
        wanted=wanted(policy_of(row.project), row.branch.durability, row.endpoint.pg_settings).level,
        actual=None if told is None else level_of(told),
    )


def detail(row: ComputeRow, seen: ComputeStatus | str | None, rates: metrics.Rates | None) -> ComputeDetail:
    base: dict[str, Any] = summary(row, seen, rates).model_dump()
    base["durability"] = durability(row, seen)
    base["current_cu"] = row.endpoint.current_cu
    settings = row.endpoint.pg_settings
    if not isinstance(seen, ComputeStatus):
        return ComputeDetail(**base, settings=settings)
    return ComputeDetail(
        **base,
        settings=settings,
        term=seen.term,
        start_lsn=seen.start_lsn,
        commit_lsn=seen.commit_lsn,
        ingested_lsn=seen.ingested_lsn,
        started_at=None if seen.started_at is None else datetime.fromisoformat(seen.started_at),
        restarts=seen.restarts,
        commits_waiting=seen.commits_waiting,
        commits_unconfirmed=(
            None if seen.commits_unconfirmed is None else UnconfirmedCommits.model_validate(seen.commits_unconfirmed)
        ),
        active_connections=seen.active_connections,
        start=None if seen.start is None else StartReport.model_validate(seen.start),
        prewarm=None if seen.prewarm is None else PrewarmReport.model_validate(seen.prewarm),
        load=None if seen.load is None else LoadReport.model_validate(seen.load),
    )


async def rates_or_none(prometheus: Prometheus, compute_ids: list[str]) -> dict[str, metrics.Rates]:
    """Pages about computes stay up when Prometheus is down; they show no rates then."""
    try:
        return await metrics.rates(prometheus, compute_ids=compute_ids)
    except RemoteError:
        return {}
