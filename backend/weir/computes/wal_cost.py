"""Where one compute's WAL comes from, and what it would be at another checkpoint distance, compressed, or without
page images."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

from weir.clients.compute import ComputeStatus, agent_of
from weir.clients.http import HttpClient, RemoteError
from weir.clients.prometheus import Prometheus
from weir.computes import metrics, service
from weir.computes.repository import ComputeRow
from weir.computes.schemas import FullPageWrites
from weir.computes.wal_cost_curve import COMPRESSED, LEAST_IMAGE_SHARE, PLAIN, PUSHDOWN, Curve, curve
from weir.computes.wal_cost_schemas import (
    ArmRates,
    CheckpointSettings,
    CurvePoint,
    DistanceEstimate,
    MeasuredCurve,
    PlacedOnCurve,
    WalByRelation,
    WalCost,
    WalOfRmgr,
    WalTotals,
    WhatIf,
)
from weir.errors import UnavailableError
from weir.kit.clock import now

ASSUMPTIONS = [
    "The curve is of pgbench's transactions, of uniformly random rows; crowded changes make distance help sooner.",
    "This compute stands where the curve has its share of page images, and keeps writing at today's rate.",
    "Compressed images are taken to shrink as the curve's did; how far yours do depends on what is in the pages.",
    "Pushdown is not read from the curve: it is what this compute writes now without its page images.",
]


async def wal_cost(
    row: ComputeRow, prometheus: Prometheus, http: HttpClient, window_seconds: int, at: datetime | None = None
) -> WalCost:
    """Raises UnavailableError when Prometheus does not answer; an agent that does not leaves its part null."""
    end = at or now()
    seen = (await service.observe([row], http)).get(row.endpoint.id)
    by_relation, settings, why_not = await _relations(row, http)
    try:
        rmgrs, totals, checkpoints = await _measured(prometheus, row.endpoint.id, window_seconds, end)
    except RemoteError as error:
        raise UnavailableError(f"metrics cannot be read now: {error}") from error
    between = _between_checkpoints(totals, checkpoints, window_seconds)
    return WalCost(
        compute_id=row.endpoint.id,
        from_=end - timedelta(seconds=window_seconds),
        to=end,
        window_seconds=window_seconds,
        full_page_writes=_full_page_writes(row, seen),
        settings=settings,
        wal=totals,
        by_rmgr=rmgrs,
        checkpoints_per_hour=None if checkpoints is None else checkpoints * 3600 / window_seconds,
        wal_bytes_between_checkpoints=between,
        by_relation=by_relation,
        by_relation_reason=why_not,
        what_if=what_if(curve(), totals, None if settings is None else settings.wal_compression, between),
    )


def _full_page_writes(row: ComputeRow, seen: ComputeStatus | str | None) -> FullPageWrites:
    return service.summary(row, seen, None).full_page_writes


async def _relations(
    row: ComputeRow, http: HttpClient
) -> tuple[WalByRelation | None, CheckpointSettings | None, str | None]:
    def parse(body: dict[str, Any]) -> tuple[WalByRelation, CheckpointSettings]:
        return WalByRelation.model_validate(body), CheckpointSettings.model_validate(body["settings"])

    endpoint = row.endpoint
    try:
        found = await agent_of(endpoint.id, endpoint.host, endpoint.port, http).wal_by_relation(parse)
    except RemoteError as error:
        return None, None, f"WAL by relation is told by a running compute only: {error}"
    return *found, None


async def _measured(
    prometheus: Prometheus, compute_id: str, window: int, end: datetime
) -> tuple[list[WalOfRmgr], WalTotals, float | None]:
    """By resource manager, in all, and the checkpoints of the window."""
    selector = metrics.of_compute(compute_id)
    wal, transactions, checkpoints = await asyncio.gather(
        prometheus.instant(f"sum by (rmgr, part) (rate(weir_compute_wal_bytes_total{{{selector}}}[{window}s]))", end),
        prometheus.value(
            f"sum(rate(weir_compute_transactions_total{{{selector},{metrics.COMMITTED}}}[{window}s]))", end
        ),
        prometheus.value(f"sum(increase(weir_compute_checkpoints_total{{{selector}}}[{window}s]))", end),
    )
    parts: dict[str, dict[str, float]] = {}
    for labels, value in wal:
        parts.setdefault(labels.get("rmgr", ""), {})[labels.get("part", "")] = value
    rows = [
        WalOfRmgr(
            rmgr=rmgr,
            image_bytes_per_second=split.get("image", 0.0),
            rest_bytes_per_second=split.get("rest", 0.0),
        )
        for rmgr, split in parts.items()
    ]
    rows.sort(key=lambda item: -(item.image_bytes_per_second + item.rest_bytes_per_second))
    return rows, _totals(rows, transactions), checkpoints


def _totals(rows: list[WalOfRmgr], transactions: float | None) -> WalTotals:
    image = sum(row.image_bytes_per_second for row in rows) if rows else None
    rest = sum(row.rest_bytes_per_second for row in rows) if rows else None
    total = None if image is None or rest is None else image + rest
    return WalTotals(
        image_bytes_per_second=image,
        rest_bytes_per_second=rest,
        image_share=image / total if image is not None and total else None,
        image_bytes_per_transaction=image / transactions if image is not None and transactions else None,
        rest_bytes_per_transaction=rest / transactions if rest is not None and transactions else None,
        transactions_per_second=transactions,
    )


def _between_checkpoints(totals: WalTotals, checkpoints: float | None, window: int) -> float | None:
    """Mean distance; None in a window that is too short to hold a checkpoint."""
    if not checkpoints or totals.image_bytes_per_second is None or totals.rest_bytes_per_second is None:
        return None
    return (totals.image_bytes_per_second + totals.rest_bytes_per_second) * window / checkpoints


def what_if(measured: Curve, totals: WalTotals, compression: str | None, between: float | None) -> WhatIf:
    """Estimates for a compute that writes `totals`, `between` bytes from checkpoint to checkpoint."""
    image, rest, share = totals.image_bytes_per_second, totals.rest_bytes_per_second, totals.image_share
    shown = _shown(measured)
    if image is None or rest is None or share is None:
        return _none(shown, "this compute wrote no WAL in the window, so there is nothing to estimate from")
    if share < LEAST_IMAGE_SHARE:
        return _none(
            shown,
            f"page images are {share:.1%} of this compute's WAL: neither distance nor compression would save any",
        )
    arm = PLAIN if compression in {None, "off"} else COMPRESSED
    place = measured.place(arm, share)
    if place is None:
        return _none(
            shown,
            f"page images are {share:.1%} of this compute's WAL, less than at any distance measured; without them it "
            f"would write {rest / 1024:,.1f} KiB/s",
        )
    return WhatIf(
        reason=None,
        placed=PlacedOnCurve(
            image_share=share, curve_max_wal_size_bytes=place.distance, arm=place.arm, clamped=place.clamped
        ),
        estimates=[
            DistanceEstimate(
                distance_factor=estimate.factor,
                wal_bytes_between_checkpoints=None if between is None else between * estimate.factor,
                wal_bytes_per_second=ArmRates(
                    full_page_writes=estimate.full_page_writes,
                    full_page_writes_lz4=estimate.full_page_writes_lz4,
                    pushdown=estimate.pushdown,
                ),
            )
            for estimate in measured.estimates(place, image, rest)
        ],
        assumptions=ASSUMPTIONS,
        curve=shown,
    )


def _none(shown: MeasuredCurve, reason: str) -> WhatIf:
    return WhatIf(reason=reason, placed=None, estimates=[], assumptions=[], curve=shown)


def _shown(measured: Curve) -> MeasuredCurve:
    document = measured.document
    settings = document["settings"]
    return MeasuredCurve(
        label=(
            f"Measured elsewhere, not on this compute: {settings['transactions']:,} pgbench transactions at scale "
            f"{settings['scale']} on Postgres {settings['server_version'].split()[0]}, {settings['at'][:10]}"
        ),
        method=document["method"],
        provenance={**settings, "command": "make bench-wal-distance"},
        arms=[PLAIN, COMPRESSED, PUSHDOWN],
        series=[CurvePoint.model_validate(point) for point in document["series"]],
    )
