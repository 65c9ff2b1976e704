from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StringConstraints

from weir.branches.schemas import BranchResponse
from weir.databases.schemas import ConnectionDetails, DatabasesResponse, RolesResponse
from weir.durability.levels import Durability
from weir.durability.schemas import DurabilityPolicy
from weir.endpoints.schemas import EndpointSettings, EndpointsResponse
from weir.kit.addresses import parse_range
from weir.kit.pagination import Pagination
from weir.kit.schemas import Body, Id, Label, Name, SqlName, SuspendTimeout, TagValue, View
from weir.kit.windows import WeeklyWindow
from weir.operations.schemas import OperationsResponse
from weir.projects.models import Project, UnloggedOnSuspend
from weir.usage.reading import Consumed

MAX_RETENTION_SECONDS = 30 * 86400
Retention = Annotated[int, Field(ge=0, le=MAX_RETENTION_SECONDS)]


# Below it a single checkpoint of a small database would take minutes.
MIN_WAL_BYTES_PER_SECOND = 1 << 18


def _no_limit_or_enough(value: int | None) -> int | None:
    if value and value < MIN_WAL_BYTES_PER_SECOND:
        raise ValueError(f"must be 0 (no limit) or at least {MIN_WAL_BYTES_PER_SECOND}")
    return value


class ProjectQuota(Body):
    """0 is no limit. What is limited is the logical size of each branch, which then takes no more data, and the WAL
    that each compute may write a second, whose commits wait for their turn."""

    active_time_seconds: int | None = None
    compute_time_seconds: int | None = None
    written_data_bytes: int | None = None
    data_transfer_bytes: int | None = None
    logical_size_bytes: int | None = Field(default=None, ge=0, le=2**60)
    # Weir's own.
    wal_bytes_per_second: Annotated[int | None, AfterValidator(_no_limit_or_enough)] = Field(
        default=None, ge=0, le=2**40
    )


def _ranges(texts: list[str] | None) -> list[str] | None:
    for text in texts or []:
        parse_range(text)
    return texts


# A network of a company has some dozens.
MOST_RANGES = 500


class AllowedIps(Body):
    """The addresses that clients of the project's databases may come from. `ips`: addresses, ADDRESS/BITS or
    FIRST-LAST, of IPv4 or IPv6; empty: any address. `protected_branches_only`: whether the list holds for protected
    branches only. What is left out stays as it is."""

    ips: Annotated[
        list[Annotated[str, StringConstraints(min_length=1, max_length=100)]] | None, AfterValidator(_ranges)
    ] = Field(default=None, max_length=MOST_RANGES)
    protected_branches_only: bool | None = None


class ProjectSettings(Body):
    quota: ProjectQuota | None = None
    allowed_ips: AllowedIps | None = None
    enable_logical_replication: bool | None = None
    # UTC. A rollout switches the project's computes only then.
    maintenance_window: WeeklyWindow | None = None
    # Levels that none of its branches and endpoints may have, beside those that the installation forbids.
    durability: DurabilityPolicy | None = None
    # Weir's own: whether a suspend or restart that somebody asks for may lose unlogged rows; by default not.
    unlogged_on_suspend: UnloggedOnSuspend | None = None
    block_public_connections: bool | None = None
    block_vpc_connections: bool | None = None
    audit_log_level: str | None = None
    hipaa: bool | None = None
    preload_libraries: dict[str, Any] | None = None


class DefaultEndpointSettings(EndpointSettings):
    autoscaling_limit_min_cu: float | None = None
    autoscaling_limit_max_cu: float | None = None
    suspend_timeout_seconds: SuspendTimeout | None = None


class FirstBranch(Body):
    name: Name | None = None
    role_name: SqlName | None = None
    database_name: SqlName | None = None
    annotations: dict[str, Any] | None = None
    durability: Durability | None = None


class ProjectFields(Body):
    name: Name | None = None
    settings: ProjectSettings | None = None
    branch: FirstBranch | None = None
    autoscaling_limit_min_cu: float | None = None
    autoscaling_limit_max_cu: float | None = None
    provisioner: str | None = None
    region_id: str | None = None
    default_endpoint_settings: DefaultEndpointSettings | None = None
    pg_version: int | None = None
    store_passwords: bool | None = None
    history_retention_seconds: Retention | None = None
    org_id: Id | None = None
    # Weir's own: where the project's computes run, and labels that a rollout's selector can choose by.
    cell: Label | None = None
    tags: dict[Label, TagValue] | None = Field(default=None, max_length=50)


class ProjectCreateRequest(Body):
    project: ProjectFields


class ProjectUpdate(Body):
    name: Name | None = None
    settings: ProjectSettings | None = None
    default_endpoint_settings: DefaultEndpointSettings | None = None
    history_retention_seconds: Retention | None = None
    tags: dict[Label, TagValue] | None = Field(default=None, max_length=50)


class ProjectUpdateRequest(Body):
    project: ProjectUpdate


class ProjectListItem(View):
    id: str
    platform_id: str = "local"
    region_id: str
    name: str
    provisioner: str = "local"
    default_endpoint_settings: dict[str, Any]
    settings: dict[str, Any]
    pg_version: int
    tenant_id: str
    proxy_host: str
    branch_logical_size_limit: int = 0
    branch_logical_size_limit_bytes: int = 0
    store_passwords: bool = True
    # Of the current month (UTC): seconds that computes ran, and that they kept processors busy.
    active_time: int
    cpu_used_sec: int
    creation_source: str = "console"
    created_at: datetime
    updated_at: datetime
    # Bytes of data and of the WAL of the history, when storage was asked last; null where it was not this month.
    synthetic_storage_size: int | None
    owner_id: str
    org_id: str
    history_retention_seconds: int
    cell: str
    tags: dict[str, str]

    @classmethod
    def of(cls, row: Project, host: str, consumed: Consumed) -> "ProjectListItem":
        return cls(**_fields(row, host, consumed))


class ProjectView(ProjectListItem):
    """What it used is of the current month (UTC), from `consumption_period_start` on; measured about each minute."""

    data_storage_bytes_hour: int
    # Nobody counts what clients are sent: always 0.
    data_transfer_bytes: int = 0
    written_data_bytes: int
    compute_time_seconds: int
    active_time_seconds: int
    consumption_period_start: datetime
    consumption_period_end: datetime

    @classmethod
    def of(cls, row: Project, host: str, consumed: Consumed) -> "ProjectView":
        amounts = consumed.amounts
        return cls(
            **_fields(row, host, consumed),
            data_storage_bytes_hour=round(
                amounts.root_byte_hours
                + amounts.child_byte_hours
                + amounts.snapshot_byte_hours
                + amounts.history_byte_hours
            ),
            written_data_bytes=amounts.written_bytes,
            compute_time_seconds=round(amounts.unit_seconds),
            active_time_seconds=round(amounts.active_seconds),
            consumption_period_start=consumed.start,
            consumption_period_end=consumed.end,
        )


def _fields(row: Project, host: str, consumed: Consumed) -> dict[str, Any]:
    amounts = consumed.amounts
    data, history = amounts.logical_bytes, amounts.history_bytes
    return {
        "active_time": round(amounts.active_seconds),
        "cpu_used_sec": round(amounts.processor_seconds),
        "synthetic_storage_size": None if data is None else data + (history or 0),
        "id": row.id,
        "region_id": row.region_id,
        "name": row.name,
        "default_endpoint_settings": row.default_endpoint_settings,
        "settings": row.settings,
        "branch_logical_size_limit": (row.logical_size_limit or 0) // 2**20,
        "branch_logical_size_limit_bytes": row.logical_size_limit or 0,
        "pg_version": row.pg_version,
        "tenant_id": row.tenant_id,
        "proxy_host": host,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "owner_id": str(row.account_id),
        "org_id": str(row.account_id),
        "history_retention_seconds": row.history_retention_seconds,
        "cell": row.cell,
        "tags": row.tags,
    }


class ProjectResponse(View):
    project: ProjectView


class ProjectOperations(ProjectResponse, OperationsResponse):
    pass


class ProjectCreated(ProjectOperations, BranchResponse, RolesResponse, DatabasesResponse, EndpointsResponse):
    connection_uris: list[ConnectionDetails]


class ProjectsPage(View):
    projects: list[ProjectListItem]
    pagination: Pagination


class RegionView(View):
    region_id: str
    name: str
    default: bool = True
    geo_lat: str = "0"
    geo_long: str = "0"


class Regions(View):
    regions: list[RegionView]
