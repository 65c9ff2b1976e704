"""What a compute's WAL is made of, and what it would be: response bodies. Null is not measured, never 0."""

from datetime import datetime
from typing import Any

from pydantic import Field

from weir.computes.schemas import FullPageWrites
from weir.kit.schemas import View


class WalTotals(View):
    """Means over the window; transactions are committed ones."""

    image_bytes_per_second: float | None
    rest_bytes_per_second: float | None
    image_share: float | None
    image_bytes_per_transaction: float | None
    rest_bytes_per_transaction: float | None
    transactions_per_second: float | None


class WalOfRmgr(View):
    rmgr: str
    image_bytes_per_second: float
    rest_bytes_per_second: float


class WalBytes(View):
    image_bytes: int
    rest_bytes: int
    records: int


class WalOfRelation(WalBytes):
    """Names are null for a relation that was dropped or rewritten since; `database` also for shared ones."""

    tablespace_oid: int
    database_oid: int
    relfilenode: int
    database: str | None
    # Called so in the API; `schema` is a method of the base class.
    schema_: str | None = Field(alias="schema")
    relation: str | None
    kind: str | None
    table: str | None


class WalByRelation(View):
    """Of the last minutes, by the compute's agent: largest first, the rest summed in `other`, and records that name
    no relation (commits, checkpoints) apart. No relation is short by more than `undercounted_by_at_most_bytes`."""

    source: str = "agent"
    window_seconds: float
    relations: list[WalOfRelation]
    without_relation: WalBytes
    other: WalBytes
    undercounted_by_at_most_bytes: int


class CheckpointSettings(View):
    max_wal_size_bytes: int | None
    checkpoint_timeout_seconds: int | None
    wal_compression: str | None


class PlacedOnCurve(View):
    """Where this compute stands on the curve: where the curve has its share of page images."""

    image_share: float
    curve_max_wal_size_bytes: float
    arm: str
    clamped: bool


class ArmRates(View):
    full_page_writes: float | None
    full_page_writes_lz4: float | None
    pushdown: float | None


class DistanceEstimate(View):
    """At `distance_factor` times today's checkpoint distance."""

    distance_factor: int
    wal_bytes_between_checkpoints: float | None
    wal_bytes_per_second: ArmRates


class CurvePoint(View):
    """A fixed number of transactions at one `max_wal_size`; the run of median volume among its repeats."""

    arm: str
    max_wal_size_bytes: int
    transactions: int
    wal_bytes: int
    image_bytes: int
    checkpoints: int
    wal_bytes_per_transaction: float
    image_bytes_per_transaction: float
    wal_bytes_min: int
    wal_bytes_max: int
    repeats: int


class MeasuredCurve(View):
    """Measured elsewhere, not on this compute: `label` says so, `provenance` how."""

    label: str
    method: str
    provenance: dict[str, Any]
    arms: list[str]
    series: list[CurvePoint]


class WhatIf(View):
    """`estimates` are estimates; `reason` says why there are none."""

    reason: str | None
    placed: PlacedOnCurve | None
    estimates: list[DistanceEstimate]
    assumptions: list[str]
    curve: MeasuredCurve


class WalCost(View):
    compute_id: str
    from_: datetime = Field(serialization_alias="from")
    to: datetime
    window_seconds: int
    source: str = "prometheus"
    full_page_writes: FullPageWrites
    settings: CheckpointSettings | None
    wal: WalTotals
    by_rmgr: list[WalOfRmgr]
    checkpoints_per_hour: float | None
    wal_bytes_between_checkpoints: float | None
    by_relation: WalByRelation | None
    by_relation_reason: str | None
    what_if: WhatIf
