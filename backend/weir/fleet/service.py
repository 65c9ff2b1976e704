import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import urlsplit
from uuid import UUID

from sqlalchemy import exists, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.branches.members import MemberState, TimelineMember
from weir.branches.models import Branch
from weir.clients.http import HttpClient, RemoteError
from weir.clients.pageserver import Pageserver
from weir.clients.prometheus import Prometheus
from weir.clients.safekeeper import Safekeeper
from weir.computes import metrics, recorded
from weir.computes.repository import ComputeRepository, ComputeRow
from weir.computes.service import observe, state_of, stored_state
from weir.config import Settings, get_settings, with_scheme
from weir.db import release
from weir.endpoints.models import EndpointState
from weir.fleet.schemas import (
    FleetComputes,
    FleetSummary,
    FleetWal,
    PageserverHealth,
    SafekeeperHealth,
    SafekeeperSickness,
    StorageHealth,
    TargetGroup,
)
from weir.kit.http import bracketed
from weir.operations.models import OPEN, Operation, OperationKind

# A larger fleet's computes are counted by what is stored: asking thousands of agents takes longer than a page may.
AGENTS_ASKED = 200
# Listing thousands of timelines is work for a storage node, so a large count may be this old.
COUNT_AGE_SECONDS = 30.0
LARGE_COUNT = 1_000
_counts: dict[str, tuple[float, int, int]] = {}


async def summarise(
    session: AsyncSession, fleet: UUID | None, http: HttpClient, prometheus: Prometheus
) -> FleetSummary:
    """Ends the session's transaction. `fleet` as for `ComputeRepository`."""
    computes = ComputeRepository(session, fleet)
    kinds = await computes.tally()
    total = sum(count for *_, count in kinds)
    rows = await computes.all() if total <= AGENTS_ASKED else []
    ids = None if fleet is None else await computes.ids()
    await release(session)
    if total <= AGENTS_ASKED:
        seen = await observe(rows, http)
        states = Counter(state_of(row.endpoint, seen.get(row.endpoint.id))[0] for row in rows)
    else:
        states = Counter[str]()
        for wanted, stored, _, count in kinds:
            states[stored_state(wanted, stored)] += count
    pushed = sum(count for _, _, full_page_writes, count in kinds if not full_page_writes)
    return FleetSummary(
        computes=FleetComputes(
            total=total,
            by_state=dict(states),
            by_state_source="agents" if total <= AGENTS_ASKED else "stored",
            pushdown_on=pushed,
            pushdown_off=total - pushed,
        ),
        wal=await _wal(ids, prometheus),
        window_seconds=metrics.RATE_WINDOW_SECONDS,
        compute_runtime=get_settings().compute_runtime,
    )


async def _wal(ids: list[str] | None, prometheus: Prometheus) -> FleetWal | None:
    """Of these computes, or of all."""
    try:
        if ids is None:
            image, rest = await metrics.wal_rates(prometheus, "", recorded.WAL)
        else:
            image, rest = await metrics.wal_rates(prometheus, metrics.of_computes(ids))
    except RemoteError:
        return None
    return FleetWal(image_bytes_per_second=image, rest_bytes_per_second=rest)


async def storage_health(
    session: AsyncSession, safekeepers: list[Safekeeper], pageserver: Pageserver, url: str
) -> StorageHealth:
    """Ends the session's transaction."""
    shares, sick = await shares_of_safekeepers(session), await sick_of_safekeepers(session)
    await release(session)
    keepers, server = await asyncio.gather(
        asyncio.gather(
            *(
                _safekeeper(keeper, shares.get(keeper.number, Share()), sick.get(keeper.number, []))
                for keeper in safekeepers
            )
        ),
        _pageserver(pageserver, url),
    )
    return StorageHealth(safekeepers=list(keepers), pageservers=[server])


@dataclass(frozen=True)
class Share:
    """Of one safekeeper: branches with it as a member, those of them whose members are being changed, and those whose
    log it held and lacks now, as the reconciler last saw it."""

    branches: int = 0
    replacing: int = 0
    lost: int = 0


async def shares_of_safekeepers(session: AsyncSession) -> dict[int, Share]:
    under_way = exists().where(
        Operation.branch_id == Branch.id,
        Operation.kind == OperationKind.REPLACE_SAFEKEEPER,
        Operation.status.in_(OPEN),
    )
    statement = (
        select(
            TimelineMember.safekeeper_id,
            func.count(),
            func.count().filter(under_way),
            func.count().filter(TimelineMember.lost_at.is_not(None)),
        )
        .join(Branch, Branch.timeline_id == TimelineMember.timeline_id)
        .where(TimelineMember.state == MemberState.MEMBER, Branch.deleted_at.is_(None))
        .group_by(TimelineMember.safekeeper_id)
    )
    return {row[0]: Share(row[1], row[2], row[3]) for row in (await session.execute(statement)).all()}


async def sick_of_safekeepers(session: AsyncSession) -> dict[int, list[SafekeeperSickness]]:
    columns = (
        TimelineMember.safekeeper_id,
        TimelineMember.sick_kind,
        func.count(),
        func.min(TimelineMember.sick_since),
        func.min(TimelineMember.sick_reason),
    )
    statement = (
        select(*columns)
        .join(Branch, Branch.timeline_id == TimelineMember.timeline_id)
        .where(
            TimelineMember.state == MemberState.MEMBER,
            TimelineMember.sick_kind.is_not(None),
            Branch.deleted_at.is_(None),
        )
        .group_by(TimelineMember.safekeeper_id, TimelineMember.sick_kind)
        .order_by(TimelineMember.safekeeper_id, TimelineMember.sick_kind)
    )
    found: defaultdict[int, list[SafekeeperSickness]] = defaultdict(list)
    for number, kind, branches, since, reason in (await session.execute(statement)).all():
        # The three are null together.
        if kind is not None and since is not None:
            sickness = SafekeeperSickness(kind=kind, branches=branches, since=since, reason=reason or "")
            found[number].append(sickness)
    return found


async def _safekeeper(keeper: Safekeeper, share: Share, sick: list[SafekeeperSickness]) -> SafekeeperHealth:
    health = SafekeeperHealth(
        id=keeper.number,
        address=urlsplit(keeper.base_url).netloc,
        healthy=True,
        lost_timelines=share.lost,
        branches=share.branches,
        replacing=share.replacing,
        sick=sick,
    )
    try:
        await keeper.healthy()

        async def count() -> tuple[int, int]:
            return 0, len(await keeper.timelines())

        _, timelines = await _counted(keeper.base_url, count)
    except RemoteError as error:
        return health.model_copy(update={"healthy": False, "reason": str(error)})
    return health.model_copy(update={"reason": _loss(share.lost), "timelines": timelines})


def _loss(count: int) -> str | None:
    if count == 0:
        return None
    return (
        f"lacks the WAL of {count} branch{'es' if count > 1 else ''} that it held before. Bring its disk back, or "
        "replace it (weir safekeepers replace); until then these have a safekeeper less, and no empty log takes "
        "the place "
        "of a lost one"
    )


async def _counted(url: str, count: Callable[[], Awaitable[tuple[int, int]]]) -> tuple[int, int]:
    """Tenants and timelines of a node."""
    held = _counts.get(url)
    if held is None or held[2] < LARGE_COUNT or time.monotonic() - held[0] > COUNT_AGE_SECONDS:
        held = _counts[url] = (time.monotonic(), *await count())
    return held[1], held[2]


async def _pageserver(pageserver: Pageserver, url: str) -> PageserverHealth:
    address = urlsplit(url).netloc
    try:
        await pageserver.healthy()

        async def count() -> tuple[int, int]:
            held = await pageserver.tenants()
            return len(held), sum(len(tenant.get("timelines", [])) for tenant in held)

        tenants, timelines = await _counted(url, count)
    except RemoteError as error:
        return PageserverHealth(id=1, address=address, healthy=False, reason=str(error))
    return PageserverHealth(id=1, address=address, healthy=True, tenants=tenants, timelines=timelines)


def targets(rows: list[ComputeRow], settings: Settings) -> list[TargetGroup]:
    """Everything Prometheus should scrape. Computes that should not run are left out."""
    groups = [
        TargetGroup(targets=[urlsplit(settings.api_url).netloc], labels={"job": "api"}),
        TargetGroup(
            targets=[f"{bracketed(settings.worker_metrics_host)}:{settings.worker_metrics_port}"],
            labels={"job": "worker"},
        ),
    ]
    if settings.proxy_http:
        groups.append(
            TargetGroup(targets=[urlsplit(with_scheme(settings.proxy_http)).netloc], labels={"job": "proxy"})
        )
    if settings.compute_runtime == "simulated":
        # One scrape shows all computes; storage has no figures of its own there.
        labels = {"job": "compute", "region_id": settings.region_id}
        return [*groups, TargetGroup(targets=[urlsplit(settings.simulator_url).netloc], labels=labels)]
    # What Prometheus takes for http without it.
    scheme = {} if settings.tls_file is None else {"__scheme__": settings.parts_scheme}
    groups += [
        TargetGroup(
            targets=[urlsplit(settings.pageserver_http_url).netloc],
            labels={"job": "pageserver", "pageserver_id": "1", **scheme},
        ),
    ]
    groups += [
        TargetGroup(
            targets=[urlsplit(url).netloc], labels={"job": "safekeeper", "safekeeper_id": str(index), **scheme}
        )
        for index, url in enumerate(settings.safekeeper_http_urls, 1)
    ]
    groups += [
        TargetGroup(
            targets=[f"{row.endpoint.host}:{row.endpoint.port + 1}"],
            labels={
                "job": "compute",
                "region_id": row.project.region_id,
                "project_id": row.project.id,
                "branch_id": row.branch.id,
                "endpoint_id": row.endpoint.id,
                **scheme,
            },
        )
        for row in rows
        if row.endpoint.desired_state == EndpointState.ACTIVE
    ]
    return groups
