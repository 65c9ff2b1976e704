"""Which computes take part in a rollout, in which wave, and which are left out and why. Pure: the same input gives
the same plan."""

import hashlib
import math
from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from weir.branches.models import BranchState
from weir.endpoints.models import EndpointState
from weir.endpoints.settings import checkpoint_timeout_seconds
from weir.errors import BadRequestError
from weir.projects.models import Project
from weir.rollouts.features import Candidate, Feature, feature_of
from weir.rollouts.intent import Selector, Strategy, WaveSpec
from weir.rollouts.models import ExclusionCode, MemberMode
from weir.rollouts.plan.schemas import Excluded, ExcludedCount, Plan, PlannedCompute, PlannedWave, PlanSummary

# Storage sizes are told apart by factors of this: waves hold small and large branches alike.
SIZE_FACTOR = 16


@dataclass(frozen=True)
class Planned:
    """A plan with all its computes, as it is frozen."""

    waves: list[PlannedWave]
    computes: list[PlannedCompute]
    excluded: list[Excluded]
    created_at: datetime
    target_version: str | None = None

    def summary(self) -> PlanSummary:
        codes = Counter(item.code for item in self.excluded)
        examples = {item.code: item.reason for item in reversed(self.excluded)}
        return PlanSummary(
            waves=self.waves,
            computes_total=len(self.computes),
            at_next_start_total=sum(item.mode == MemberMode.AT_NEXT_START for item in self.computes),
            excluded_total=len(self.excluded),
            excluded_by_code=[
                ExcludedCount(code=code, computes=count, example=examples[code])
                for code, count in codes.most_common()
            ],
            expected_wal_saved_bytes_per_second=saving(self.computes),
            created_at=self.created_at,
            target_version=self.target_version,
        )

    def view(self, limit: int) -> Plan:
        summary = self.summary().model_dump()
        return Plan(**summary, computes=self.computes[:limit], excluded=self.excluded[:limit])


def covers(selector: Selector, project: Project) -> bool:
    """Whether the selector chooses computes of this project, as far as that depends on the project alone."""
    tags = project.tags or {}
    return (
        (selector.project_ids is None or project.id in selector.project_ids)
        and (selector.org_ids is None or str(project.account_id) in selector.org_ids)
        and (selector.region_ids is None or project.region_id in selector.region_ids)
        and (selector.cells is None or project.cell in selector.cells)
        and (selector.pg_versions is None or project.pg_version in selector.pg_versions)
        and all(tags.get(name) == value for name, value in (selector.tags or {}).items())
    )


def held_out(feature: str, compute_id: str, percent: float) -> bool:
    """The same answer for a compute in every rollout of a feature, and about `percent` of all computes."""
    digest = hashlib.sha256(f"{feature}/{compute_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < percent / 100 * 2**64


def whole_cycles(seconds: int, cycle: int) -> int:
    """Page images come in bursts after each checkpoint: only whole cycles compare."""
    return math.ceil(seconds / cycle) * cycle


def make_plan(
    candidates: list[Candidate],
    strategy: Strategy,
    at: datetime,
    selector: Selector | None = None,
    feature: str = "image_pushdown",
) -> Planned:
    chosen = selector or Selector()
    rolled_out = feature_of(feature)
    excluded: list[Excluded] = []
    members: list[Candidate] = []
    for candidate in candidates:
        if not covers(chosen, candidate.row.project):
            continue
        outside, found = _outside_ranges(candidate, chosen)
        if outside:
            continue
        found = found or _exclusion(candidate, strategy, rolled_out)
        if found is None:
            members.append(candidate)
        else:
            excluded.append(_excluded(candidate, *found))
    running = sorted((m for m in members if _runs(m)), key=_stratum)
    resting = sorted((m for m in members if not _runs(m)), key=_stratum)
    waves, left = _waves(running, resting, strategy.waves)
    excluded += [_excluded(member, "not_covered", "the waves do not cover it") for member in left]
    computes = [
        _planned(member, index, strategy, rolled_out) for index, (_, wave) in enumerate(waves) for member in wave
    ]
    return Planned(
        waves=[_wave(index, spec, strategy, computes) for index, (spec, _) in enumerate(waves)],
        computes=computes,
        excluded=excluded,
        created_at=at,
        target_version=strategy.target_version,
    )


def saving(planned: list[PlannedCompute]) -> float | None:
    known = [
        item.expected_wal_saved_bytes_per_second
        for item in planned
        if item.expected_wal_saved_bytes_per_second is not None
    ]
    return sum(known) if known else None


def _outside_ranges(candidate: Candidate, selector: Selector) -> tuple[bool, tuple[ExclusionCode, str] | None]:
    """Whether a range leaves the compute out of the selection; one that cannot be told is an exclusion."""
    if selector.size_bytes is not None:
        if candidate.size_bytes is None:
            return False, ("unknown_size", "its size in storage is not known, and the selector asks for a size")
        if not selector.size_bytes.holds(candidate.size_bytes):
            return True, None
    if selector.wal_bytes_per_second is not None:
        if candidate.wal_rate is None:
            return False, ("unknown_write_rate", "its write rate is not known, and the selector asks for one")
        if not selector.wal_bytes_per_second.holds(candidate.wal_rate):
            return True, None
    return False, None


def _exclusion(candidate: Candidate, strategy: Strategy, feature: Feature) -> tuple[ExclusionCode, str] | None:
    endpoint, branch = candidate.row.endpoint, candidate.row.branch
    if candidate.open_rollout is not None:
        return "in_other_rollout", f"takes part in {candidate.open_rollout}, which is still open"
    unneeded = feature.exclusion(candidate, strategy)
    if unneeded is not None:
        return unneeded
    if endpoint.delete_requested_at is not None:
        return "being_deleted", "is being deleted"
    if branch.state != BranchState.READY:
        return "branch_not_ready", f"its branch is {branch.state}"
    if endpoint.disabled:
        return "disabled", "the endpoint is disabled"
    if held_out(feature.name, endpoint.id, strategy.holdout_percent):
        return "held_out", f"is held out: {strategy.holdout_percent:g} % of the fleet stay as they are, as controls"
    if not _runs(candidate) and not strategy.include_suspended:
        return "suspended", "is suspended, and the strategy leaves suspended computes out"
    return None


def _runs(candidate: Candidate) -> bool:
    return candidate.row.endpoint.desired_state == EndpointState.ACTIVE


def _stratum(candidate: Candidate) -> tuple[str, int, float, str]:
    """Sorted like this, every k-th compute is a sample of all cells, sizes and write rates alike."""
    size = candidate.size_bytes or 0
    rate = candidate.wal_rate if candidate.wal_rate is not None else candidate.image_rate
    return (candidate.row.project.cell or "", int(math.log(size + 1, SIZE_FACTOR)), rate or 0.0,
            candidate.row.endpoint.id)  # fmt: skip


def _excluded(candidate: Candidate, code: ExclusionCode, reason: str) -> Excluded:
    row = candidate.row
    return Excluded(
        compute_id=row.endpoint.id,
        project_id=row.project.id,
        project_name=row.project.name,
        region_id=row.project.region_id,
        cell=row.project.cell,
        code=code,
        reason=reason,
    )


def _planned(member: Candidate, wave: int, strategy: Strategy, feature: Feature) -> PlannedCompute:
    endpoint, project = member.row.endpoint, member.row.project
    previous, target = feature.versions(member, strategy)
    cycle = checkpoint_timeout_seconds(endpoint.pg_settings)
    return PlannedCompute(
        compute_id=endpoint.id,
        project_id=project.id,
        project_name=project.name,
        org_id=str(project.account_id),
        region_id=project.region_id,
        cell=project.cell,
        wave=wave,
        mode=MemberMode.RUNNING if _runs(member) else MemberMode.AT_NEXT_START,
        baseline_seconds=whole_cycles(strategy.baseline_seconds, cycle),
        bake_seconds=whole_cycles(strategy.bake_seconds, cycle),
        size_bytes=member.size_bytes,
        wal_bytes_per_second=member.wal_rate,
        expected_wal_saved_bytes_per_second=feature.wal_saved(member),
        previous_version=previous,
        target_version=target,
    )


def _wave(index: int, spec: WaveSpec, strategy: Strategy, computes: list[PlannedCompute]) -> PlannedWave:
    own = [item for item in computes if item.wave == index]
    return PlannedWave(
        index=index,
        name=spec.name or f"wave {index + 1}",
        soak_seconds=strategy.soak_of(spec),
        computes=len(own),
        by_cell=dict(Counter(item.cell for item in own)),
        expected_wal_saved_bytes_per_second=saving(own),
    )


def _waves(
    running: list[Candidate], resting: list[Candidate], specs: list[WaveSpec]
) -> tuple[list[tuple[WaveSpec, list[Candidate]]], list[Candidate]]:
    """Each wave is spread evenly over what is left of the running computes; a wave left without a member is
    dropped. Suspended computes are measured by nobody, so they go with the last wave, after all that are."""
    left = list(running)
    waves: list[tuple[WaveSpec, list[Candidate]]] = []
    reached = 0.0
    for spec in specs:
        if spec.percent is not None:
            if spec.percent <= reached:
                raise BadRequestError(
                    f"waves: {spec.percent} % comes after {reached} %; percents are cumulative and must grow"
                )
            reached = spec.percent
            done = len(running) - len(left)
            size = max(0, math.ceil(len(running) * spec.percent / 100) - done)
        else:
            size = spec.count or 0
        size = min(size, len(left))
        if size == 0:
            continue
        chosen = {(2 * index + 1) * len(left) // (2 * size) for index in range(size)}
        wave = [member for index, member in enumerate(left) if index in chosen]
        left = [member for index, member in enumerate(left) if index not in chosen]
        waves.append((spec, wave))
    if resting and specs[-1].percent != 100:
        # The waves were made to stop short; then they stop short of the suspended computes as well.
        return waves, left + resting
    if resting and waves and waves[-1][0] is specs[-1]:
        waves[-1][1].extend(resting)
    elif resting:
        waves.append((specs[-1], resting))
    return waves, left
