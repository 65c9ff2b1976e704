from datetime import datetime
from typing import Any, Literal

from weir.config import get_settings
from weir.endpoints.address import public_address
from weir.endpoints.models import Endpoint, EndpointState
from weir.kit.schemas import Body, Id, Name, SuspendTimeout, View
from weir.operations.schemas import OperationsResponse

PgSettings = dict[str, Any]


class EndpointSettings(Body):
    """`pg_settings` are passed to Postgres; the pooler's settings are the installation's, and library lists are not
    built."""

    pg_settings: PgSettings | None = None
    pgbouncer_settings: dict[str, Any] | None = None
    preload_libraries: dict[str, Any] | None = None


class EndpointOptions(Body):
    """What may be said of an endpoint; what is not built is refused when it is asked for."""

    name: Name | None = None
    settings: EndpointSettings | None = None
    autoscaling_limit_min_cu: float | None = None
    autoscaling_limit_max_cu: float | None = None
    provisioner: str | None = None
    pooler_enabled: bool | None = None
    pooler_mode: str | None = None
    passwordless_access: bool | None = None
    suspend_timeout_seconds: SuspendTimeout | None = None
    disabled: bool | None = None
    # Whether starts load the pages that were in memory at the suspension before; from the next start on.
    prewarm: bool | None = None


class EndpointCreate(EndpointOptions):
    branch_id: Id
    type: Literal["read_write", "read_only"]
    region_id: str | None = None


class EndpointCreateRequest(Body):
    endpoint: EndpointCreate


class EndpointUpdate(EndpointOptions):
    branch_id: Id | None = None


class EndpointUpdateRequest(Body):
    endpoint: EndpointUpdate


class EndpointSettingsView(View):
    pg_settings: PgSettings


class EndpointView(View):
    # Where clients connect; the compute's own address is that of GET /computes/{id}.
    id: str
    host: str
    port: int
    name: str | None = None
    project_id: str
    branch_id: str
    type: str
    current_state: EndpointState
    pending_state: EndpointState | None = None
    settings: EndpointSettingsView
    full_page_writes: bool
    # The minor it was last seen running, and the one it is wanted on: null until it has been started.
    postgres_version: str | None = None
    wanted_postgres_version: str | None = None
    # Between these its size follows its load, where the installation lets computes have other sizes than 1.
    autoscaling_limit_min_cu: float
    autoscaling_limit_max_cu: float
    # The size that it is to have now.
    current_cu: float
    region_id: str
    # Whether clients can share server connections: they can wherever there is a proxy.
    pooler_enabled: bool
    pooler_mode: str = "transaction"
    disabled: bool
    passwordless_access: bool = False
    creation_source: str = "console"
    created_at: datetime
    updated_at: datetime
    last_active: datetime | None = None
    started_at: datetime | None = None
    suspended_at: datetime | None = None
    proxy_host: str
    # Where clients connect that share server connections; without a domain they name `ENDPOINT-pooler` in `options`
    # (`connection_uri` with `pooled`). Null without a proxy.
    pooler_host: str | None
    suspend_timeout_seconds: int
    # Whether starts load the pages that were in memory at the suspension before.
    prewarm: bool
    provisioner: str = "local"

    @classmethod
    def of(cls, row: Endpoint, region_id: str) -> "EndpointView":
        settings = get_settings()
        address = public_address(row, settings)
        return cls(
            id=row.id,
            host=address.host,
            port=address.port,
            name=row.name,
            project_id=row.project_id,
            branch_id=row.branch_id,
            type=row.type,
            current_state=row.state,
            pending_state=row.desired_state if row.desired_state != row.state else None,
            settings=EndpointSettingsView(pg_settings=row.pg_settings),
            full_page_writes=row.full_page_writes,
            postgres_version=row.running_postgres_version,
            wanted_postgres_version=row.postgres_version,
            autoscaling_limit_min_cu=row.min_cu,
            autoscaling_limit_max_cu=row.max_cu,
            current_cu=row.current_cu,
            region_id=region_id,
            pooler_enabled=settings.has_proxy,
            disabled=row.disabled,
            created_at=row.created_at,
            updated_at=row.updated_at,
            last_active=row.last_active,
            started_at=row.started_at,
            suspended_at=row.suspended_at,
            proxy_host=settings.public_host,
            pooler_host=public_address(row, settings, pooled=True).host if settings.has_proxy else None,
            suspend_timeout_seconds=row.suspend_timeout_seconds,
            prewarm=row.prewarm,
        )


class EndpointResponse(View):
    endpoint: EndpointView


class EndpointsResponse(View):
    endpoints: list[EndpointView]


class EndpointOperations(EndpointResponse, OperationsResponse):
    pass
