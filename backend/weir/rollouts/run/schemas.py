"""Response bodies about rollouts. Request bodies are in `intent`."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from weir.kit.pagination import Pagination
from weir.kit.schemas import View
from weir.rollouts.intent import Strategy
from weir.rollouts.models import MemberMode, MemberState, RolloutStatus, WaveState
from weir.rollouts.plan.schemas import PlanSummary


class Wave(View):
    index: int
    name: str
    state: WaveState
    reason: str | None
    soak_seconds: int
    started_at: datetime | None
    soak_until: datetime | None
    finished_at: datetime | None
    computes_total: int
    counts: dict[MemberState, int]


class Alert(View):
    id: int
    kind: str
    message: str
    compute_id: str | None
    wave: int | None
    raised_at: datetime
    cleared_at: datetime | None


class AlertsPage(View):
    alerts: list[Alert]


class Window(View):
    from_: datetime = Field(serialization_alias="from")
    to: datetime | None


class BeforeAfter(View):
    before: float | None
    after: float | None


class Bound(View):
    """A hard bound, what was measured, and whether it held. One that was not `judged`, for want of a figure or of a
    limit, is `ok` and proves nothing."""

    name: str
    ok: bool
    detail: str
    judged: bool = True


class Evidence(View):
    """`analysis`: the comparison with computes that were not switched, where there was one."""

    verdict: Literal["pass", "inconclusive", "regress"]
    reason: str
    metrics: dict[str, BeforeAfter]
    bounds: list[Bound]
    analysis: dict[str, Any]
    created_at: datetime


class RolloutCompute(View):
    compute_id: str
    project_id: str
    project_name: str
    org_id: str
    region_id: str
    cell: str
    wave: int
    mode: MemberMode
    state: MemberState
    reason: str | None
    size_bytes: int | None
    wal_bytes_per_second: float | None
    expected_wal_saved_bytes_per_second: float | None
    baseline_seconds: int
    bake_seconds: int
    fpw_change_lsn: str | None
    rollback_lsn: str | None
    # Of `postgres_minor`: from which minor onto which, and for how long the compute accepted no connections.
    previous_version: str | None
    target_version: str | None
    downtime_seconds: float | None
    back_downtime_seconds: float | None
    switched_at: datetime | None
    confirmed_at: datetime | None
    rolled_back_at: datetime | None
    deadline_at: datetime | None
    updated_at: datetime | None
    baseline: Window | None
    after: Window | None
    evidence: Evidence | None


class RolloutComputeResponse(View):
    compute: RolloutCompute


class RolloutComputesPage(View):
    """In the order of waves. `total` counts what the filters leave."""

    computes: list[RolloutCompute]
    total: int
    pagination: Pagination


class GridCell(View):
    """One cell of the fleet and how far its computes are."""

    region_id: str
    cell: str
    computes_total: int
    counts: dict[MemberState, int]


class GridComputes(View):
    """Columns of one length, for every compute of the rollout. `cell` and `state` index `cells` and `states`."""

    compute_id: list[str]
    project_name: list[str]
    cell: list[int]
    wave: list[int]
    state: list[int]
    # Why, for those that did not simply pass: an index into the grid's `reasons`, which holds each text once.
    reason: list[int | None]


class Grid(View):
    """All computes of a rollout, small enough to be asked for often. With `since`, `computes` and `reasons` hold
    only what has changed from then on; `cells` always counts all."""

    at: datetime
    cells: list[GridCell]
    states: list[MemberState]
    computes: GridComputes
    reasons: list[str]


class RolloutView(View):
    """`whole_fleet`: made by an operator, over every account's computes."""

    id: str
    name: str
    owner_id: str
    whole_fleet: bool
    feature: str
    status: RolloutStatus
    status_reason: str | None
    # What it is held at, to be named by `approve`.
    gate: str | None
    selector: dict[str, Any]
    strategy: Strategy
    created_by: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    current_wave: int | None
    plan: PlanSummary
    waves: list[Wave]
    computes_total: int
    counts: dict[MemberState, int]
    # Computes that have been switched by this rollout and not gone back.
    switched_total: int
    # Open ones, oldest first, at most 20.
    alerts: list[Alert]
    alerts_total: int


class RolloutSummary(View):
    id: str
    name: str
    owner_id: str
    whole_fleet: bool
    feature: str
    status: RolloutStatus
    status_reason: str | None
    created_by: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    current_wave: int | None
    waves_total: int
    computes_total: int
    computes_passed: int
    alerts_total: int


class RolloutResponse(View):
    rollout: RolloutView


class RolloutsPage(View):
    rollouts: list[RolloutSummary]
    pagination: Pagination
