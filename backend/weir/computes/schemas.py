from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from weir.durability.levels import Durability
from weir.kit.pagination import Pagination
from weir.kit.schemas import View

ComputeState = Literal["init", "starting", "active", "idle", "suspending", "failed", "fenced"]


class FullPageWrites(View):
    """`wanted` is intent; `actual`, at `lsn`, is what the running compute says (null when it does not run)."""

    wanted: bool
    actual: bool | None = None
    lsn: str | None = None


class RatesView(View):
    window_seconds: int
    wal_image_bytes_per_second: float
    wal_rest_bytes_per_second: float
    transactions_per_second: float


class ComputeLevel(View):
    """What commits wait for unless their session says otherwise. `wanted` is what the compute is to be given by its
    branch, its own settings and the policies; null when its setting `synchronous_commit` is no value of Postgres's.
    `actual` is what it was given last, null while it does not run."""

    wanted: Durability | None
    actual: Durability | None = None


class ComputeSummary(View):
    id: str
    project_id: str
    project_name: str
    branch_id: str
    branch_name: str
    state: ComputeState
    reason: str | None = None
    host: str
    port: int
    full_page_writes: FullPageWrites
    # The minor it runs, or was last seen running; the one it is wanted on, null until it has been started; and the
    # newest that is installed.
    postgres_version: str | None = None
    wanted_postgres_version: str | None = None
    installed_postgres_version: str | None = None
    rates: RatesView | None = None


class StartReport(View):
    """Where the time of the last start went."""

    total_ms: float | None = None
    elect_ms: float | None = None
    bundle_ms: float | None = None
    postgres_ms: float | None = None
    pages_fetched: int | None = None
    bytes_fetched: int | None = None


class PrewarmReport(View):
    """Loading the pages that were in memory at the last suspension, behind the last start.

    `state`: `off`; `no_list`, of a first start or one after a crash; `ignored`: the list cannot be used, as `reason`
    says; `loading`; `loaded`; `stopped` before the end, as `reason` says. `seconds` count from Postgres's start."""

    state: Literal["off", "no_list", "ignored", "loading", "loaded", "stopped"]
    pages_listed: int
    pages_loaded: int | None = None
    seconds: float | None = None
    reason: str | None = None


class LoadReport(View):
    """How busy Postgres was over the last seconds: processors that its processes used, their memory, and pages that
    sessions found in shared buffers and had to read into them. While they read many, they work with more than there
    is."""

    processors: float
    memory_bytes: int
    buffer_hits_per_second: float
    buffer_reads_per_second: float


class UnconfirmedCommits(View):
    """Commits that no majority of the safekeepers had confirmed when their session stopped waiting, since the compute
    was started, by what ended the wait."""

    canceled: int
    terminated: int
    stopped: int


class ComputeDetail(ComputeSummary):
    term: int | None = None
    start_lsn: str | None = None
    commit_lsn: str | None = None
    ingested_lsn: str | None = None
    started_at: datetime | None = None
    restarts: int | None = None
    durability: ComputeLevel
    commits_waiting: int | None = None
    commits_unconfirmed: UnconfirmedCommits | None = None
    active_connections: int | None = None
    start: StartReport | None = None
    prewarm: PrewarmReport | None = None
    # The size that it is to have, and what it does with it.
    current_cu: float
    load: LoadReport | None = None
    settings: dict[str, Any]


SettingState = Literal["in_force", "pending_restart", "failed", "applying", "unknown"]


class ComputeSetting(View):
    """One Postgres setting of a compute. `wanted` is intent, null for one that was taken back and stays in force
    until the next start; `in_force` is what Postgres says that sessions begin with, null when it does not say.

    `state`: `in_force`; `pending_restart`, from the next start on; `failed`, as `reason` says, which leaves the value
    before in force; `applying`, on its way to the compute; `unknown` while the compute does not run or answer."""

    name: str
    wanted: str | None = None
    in_force: str | None = None
    state: SettingState
    reason: str | None = None


class ComputeSettingsResponse(View):
    settings: list[ComputeSetting]


class ComputesPage(View):
    computes: list[ComputeSummary]
    total: int
    pagination: Pagination


class ComputeResponse(View):
    compute: ComputeDetail


class MetricSeries(View):
    wal_image_bytes_per_second: list[float | None]
    wal_rest_bytes_per_second: list[float | None]
    transactions_per_second: list[float | None]
    commit_p50_seconds: list[float | None]
    commit_p99_seconds: list[float | None]
    storage_read_p50_seconds: list[float | None]
    storage_read_p99_seconds: list[float | None]
    chain_length_p99: list[float | None]


class MetricsResponse(View):
    """Points are rates and quantiles over the `window_seconds` before each time; null where nothing was
    measured."""

    from_: datetime = Field(serialization_alias="from")
    to: datetime
    step_seconds: float
    window_seconds: int
    source: str = "prometheus"
    times: list[float]
    series: MetricSeries
