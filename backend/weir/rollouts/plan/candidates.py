"""The input of a plan: every compute that the account sees, with its measurements, read in a handful of queries."""

import asyncio
from dataclasses import dataclass

from weir.authz.access import ProjectAccess
from weir.clients.http import RemoteError
from weir.clients.prometheus import Prometheus
from weir.computes import metrics
from weir.computes.repository import ComputeRepository
from weir.rollouts.features import Candidate
from weir.rollouts.intent import Selector
from weir.rollouts.plan.repository import PlanRepository

# Images come in a burst after each checkpoint, and checkpoints are up to 5 minutes apart unless set otherwise.
RATE_WINDOW_SECONDS = 300
STORED_BYTES = "sum by (timeline_id) (weir_pageserver_layer_bytes)"


@dataclass(frozen=True)
class Measured:
    """What Prometheus says of the fleet: rates by compute, stored bytes by timeline. Empty while it is down."""

    rates: dict[str, metrics.Rates]
    sizes: dict[str, int]


async def measure(prometheus: Prometheus) -> Measured:
    """Before the transaction that plans: it keeps others from planning."""
    rates, sizes = await asyncio.gather(_rates(prometheus), _sizes(prometheus))
    return Measured(rates, sizes)


async def load(
    access: ProjectAccess, measured: Measured, selector: Selector, *, apart_from: str | None = None
) -> list[Candidate]:
    """`apart_from`: a rollout whose own members count as free."""
    if selector.project_ids is not None:
        await access.projects_of_fleet(selector.project_ids)
    fleet = access.principal.fleet
    rows = await ComputeRepository(access.session, fleet).all(selector.project_ids)
    memberships = await PlanRepository(access.session).open_memberships(fleet)
    candidates: list[Candidate] = []
    for row in rows:
        rate = measured.rates.get(row.endpoint.id)
        taken = memberships.get(row.endpoint.id)
        candidates.append(
            Candidate(
                row=row,
                image_rate=None if rate is None else rate.wal_image_bytes_per_second,
                wal_rate=None if rate is None else rate.wal_image_bytes_per_second + rate.wal_rest_bytes_per_second,
                size_bytes=measured.sizes.get(row.branch.timeline_id),
                open_rollout=None if taken is None or taken[0] == apart_from else taken[1],
            )
        )
    return candidates


async def _rates(prometheus: Prometheus) -> dict[str, metrics.Rates]:
    """Plans are made while Prometheus is down too; they say then that nothing is known."""
    try:
        return await metrics.rates_of_wal(prometheus, RATE_WINDOW_SECONDS)
    except RemoteError:
        return {}


async def _sizes(prometheus: Prometheus) -> dict[str, int]:
    try:
        samples = await prometheus.instant(STORED_BYTES)
    except RemoteError:
        return {}
    return {labels["timeline_id"]: round(value) for labels, value in samples if "timeline_id" in labels}
