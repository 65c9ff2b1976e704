"""Bodies of the API's answers about plans."""

from datetime import datetime
from typing import Literal

from weir.kit.pagination import Pagination
from weir.kit.schemas import View
from weir.rollouts.models import ExclusionCode, MemberMode


class PlannedWave(View):
    index: int
    name: str
    soak_seconds: int
    computes: int
    by_cell: dict[str, int]
    expected_wal_saved_bytes_per_second: float | None


class ExcludedCount(View):
    code: str
    computes: int
    # The reason of one of them.
    example: str


class PlanSummary(View):
    waves: list[PlannedWave]
    computes_total: int
    at_next_start_total: int = 0
    excluded_total: int
    excluded_by_code: list[ExcludedCount]
    expected_wal_saved_bytes_per_second: float | None
    created_at: datetime
    # Of `postgres_minor`: the minor that computes are restarted onto.
    target_version: str | None = None


class PlannedCompute(View):
    """Windows are whole checkpoint cycles; sizes, rates and the saving (today's image rate) are null when they are
    not known. `at_next_start`: suspended now."""

    compute_id: str
    project_id: str
    project_name: str
    org_id: str
    region_id: str
    cell: str
    wave: int
    mode: MemberMode
    baseline_seconds: int
    bake_seconds: int
    size_bytes: int | None
    wal_bytes_per_second: float | None
    expected_wal_saved_bytes_per_second: float | None
    previous_version: str | None = None
    target_version: str | None = None


class Excluded(View):
    compute_id: str
    project_id: str
    project_name: str
    region_id: str
    cell: str
    code: ExclusionCode
    reason: str


class Plan(PlanSummary):
    """`computes` and `excluded` hold the first `limit` entries; the totals count all."""

    computes: list[PlannedCompute]
    excluded: list[Excluded]


class PlanResponse(View):
    plan: Plan


class PlanChange(View):
    """A compute whose place would be another if the rollout were planned now. `wave` is the frozen one."""

    compute_id: str
    project_id: str
    project_name: str
    cell: str
    wave: int | None
    change: Literal["would_join", "would_leave", "would_change_mode"]
    reason: str


class PlanDiff(View):
    """The frozen plan against a plan made now, for members that have not been taken up yet. Nothing changes by it:
    members are looked at again by their preflight, and computes that would join need a rollout of their own."""

    frozen_at: datetime
    compared_at: datetime
    computes_frozen: int
    computes_now: int
    expected_wal_saved_bytes_per_second_frozen: float | None
    expected_wal_saved_bytes_per_second_now: float | None
    changes_total: int
    changes: list[PlanChange]


class ExclusionsPage(View):
    excluded: list[Excluded]
    total: int
    pagination: Pagination
