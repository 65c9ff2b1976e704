from datetime import datetime
from typing import Literal

from pydantic import Field

from weir.branches.log_members import SickKind
from weir.kit.pagination import Pagination
from weir.kit.schemas import View


class FleetComputes(View):
    """`by_state_source`: asked of each agent, or, in a large fleet, what was last stored."""

    total: int
    by_state: dict[str, int]
    by_state_source: Literal["agents", "stored"] = "agents"
    pushdown_on: int
    pushdown_off: int


class FleetWal(View):
    image_bytes_per_second: float
    rest_bytes_per_second: float


class FleetSummary(View):
    """`wal` is null while Prometheus cannot be asked. `compute_runtime` is `simulated` where no database runs and
    every figure comes from a model."""

    computes: FleetComputes
    wal: FleetWal | None
    window_seconds: int
    source: str = "prometheus"
    compute_runtime: Literal["local", "simulated"] = "local"


class SafekeeperSickness(View):
    """What is wrong with the logs of so many branches on a safekeeper, as the control plane last saw it. `since`: of
    the one that has been sick for longest, whatever it had first; `reason`: of one of them, in words."""

    kind: SickKind
    branches: int
    since: datetime
    reason: str


class SafekeeperHealth(View):
    id: int
    address: str
    healthy: bool
    reason: str | None = None
    timelines: int | None = None
    # Logs that this safekeeper held and lacks now: its disk was lost. No empty log takes their place.
    lost_timelines: int = 0
    # Branches that have it as a member of their log, as the control plane has it, and of these, those whose members
    # are being changed.
    branches: int = 0
    replacing: int = 0
    sick: list[SafekeeperSickness] = Field(default_factory=list)


class PageserverHealth(View):
    id: int
    address: str
    healthy: bool
    reason: str | None = None
    tenants: int | None = None
    timelines: int | None = None


class StorageHealth(View):
    safekeepers: list[SafekeeperHealth]
    pageservers: list[PageserverHealth]


class TargetGroup(View):
    """One entry of Prometheus's HTTP service discovery."""

    targets: list[str]
    labels: dict[str, str]


class FleetCell(View):
    """A region's cell and what runs there."""

    region_id: str
    cell: str
    computes: int
    projects: int
    pushdown_on: int


class FleetCells(View):
    """What a selector can choose from: cells, and every tag in use with its values."""

    cells: list[FleetCell]
    tags: dict[str, list[str]]


class FleetOrganization(View):
    """An owner of projects (`org_ids` of a selector), and what runs there."""

    org_id: str
    name: str
    projects: int
    computes: int
    pushdown_on: int


class FleetOrganizations(View):
    organizations: list[FleetOrganization]
    pagination: Pagination


class FeatureCompute(View):
    """Whether a compute is wanted to have the feature, `since` when, and if not, why. `confirmed_at` is when a
    rollout saw the switch's record on a safekeeper majority and in storage; null for computes that were made with
    the feature. `rollout_id` is the newest rollout that had to do with it."""

    compute_id: str
    project_id: str
    project_name: str
    region_id: str
    cell: str
    runs: bool
    has: bool
    since: datetime | None
    confirmed_at: datetime | None
    rollout_id: str | None
    why_not_code: str | None
    why_not: str | None


class FeatureCounts(View):
    computes: int
    has: int
    has_not: int


class FeatureCoverage(View):
    feature: str
    counts: FeatureCounts
    computes: list[FeatureCompute]
    pagination: Pagination


class RegionWal(View):
    """One region's WAL, one value a time of the answer's `times`; null where nothing was measured."""

    region_id: str
    computes: int
    wal_image_bytes_per_second: list[float | None]
    wal_rest_bytes_per_second: list[float | None]


class WalSaved(View):
    """The page images that switched computes logged when their rollouts were planned, summed: what they would still
    log at the load of then. Null when it is known of none; `computes_unknown` are not in the sum."""

    bytes_per_second: float | None
    computes: int
    computes_unknown: int


class FleetWalByRegion(View):
    from_: datetime = Field(serialization_alias="from")
    to: datetime
    step_seconds: float
    window_seconds: int
    source: str = "prometheus"
    times: list[float]
    regions: list[RegionWal]
    saved: WalSaved
