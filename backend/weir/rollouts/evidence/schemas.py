"""What a rollout did to WAL, latency and storage: response bodies. Null means not measured, and is never 0."""

from datetime import datetime
from typing import Any, Literal

from weir.computes.schemas import MetricSeries
from weir.kit.pagination import Pagination
from weir.kit.schemas import View
from weir.rollouts.evidence.figures import WindowFigures
from weir.rollouts.models import MemberMode, MemberState, RolloutStatus


class EvidenceSum(View):
    """Computes whose both windows were measured, together: their rates added, percentiles of their summed histograms.
    `wal_saved_bytes_per_second` compares bytes a transaction, at the rate of transactions after the switch, so that
    less work does not look like a saving."""

    computes: int
    before: WindowFigures
    after: WindowFigures
    wal_saved_bytes_per_second: float | None


class WaveEvidence(EvidenceSum):
    index: int
    name: str


class CellEvidence(EvidenceSum):
    region_id: str
    cell: str


class MemberEvidence(View):
    """One compute. `before` and `after` are null until it has been measured."""

    compute_id: str
    project_id: str
    project_name: str
    region_id: str
    cell: str
    wave: int
    mode: MemberMode
    state: MemberState
    verdict: str | None
    reason: str | None
    switched_at: datetime | None
    fpw_change_lsn: str | None
    previous_version: str | None = None
    target_version: str | None = None
    downtime_seconds: float | None = None
    rolled_back_at: datetime | None
    measured_at: datetime | None
    before: WindowFigures | None
    after: WindowFigures | None
    wal_saved_bytes_per_second: float | None


class EvidenceSeries(MetricSeries):
    """As the chart of a compute, kept: each point covers the `window_seconds` before it."""

    times: list[float]
    step_seconds: float
    window_seconds: int


class ExpectedSeries(View):
    """A compute's figures had it changed as its controls did: theirs, scaled to its own baseline. Null where either
    was not measured. WAL is images and the rest together."""

    wal_bytes_per_second: list[float | None]
    transactions_per_second: list[float | None]
    commit_p50_seconds: list[float | None]
    commit_p99_seconds: list[float | None]
    storage_read_p50_seconds: list[float | None]
    storage_read_p99_seconds: list[float | None]
    chain_length_p99: list[float | None]


class Course(View):
    """A compute's figures across its switch. `source`: asked of Prometheus, or, once that has forgotten, as kept with
    the verdict. `expected` is null until a verdict has chosen controls; `controls` is how many they are. Each point
    covers the `window_seconds` before it; no times at all when nobody knows of the compute any more."""

    source: Literal["prometheus", "kept"]
    times: list[float]
    step_seconds: float
    window_seconds: int
    series: MetricSeries
    controls: int
    expected: ExpectedSeries | None


class CourseResponse(View):
    course: Course


class MemberEvidenceDetail(MemberEvidence):
    """With the bounds and the comparison behind the verdict, and the course of the figures across the switch."""

    bounds: list[dict[str, Any]]
    analysis: dict[str, Any]
    series: EvidenceSeries | None


class RolloutEvidenceView(View):
    """A rollout's evidence from the database: it stays when the metrics are gone."""

    rollout_id: str
    status: RolloutStatus
    members_total: int
    members_measured: int
    fleet: EvidenceSum
    waves: list[WaveEvidence]
    cells: list[CellEvidence]
    members: list[MemberEvidence]
    pagination: Pagination


class MemberEvidenceResponse(View):
    evidence: MemberEvidenceDetail
