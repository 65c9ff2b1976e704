from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from weir.endpoints.sizes import Limits
from weir.kit.models import Base, Timestamps


class EndpointState(StrEnum):
    INIT = "init"
    ACTIVE = "active"
    IDLE = "idle"


class Endpoint(Timestamps, Base):
    """What is wanted of one compute (`desired_state`, settings, full_page_writes) and what was last seen of
    it (`state`). The reconciler makes the second follow the first."""

    __tablename__ = "endpoints"
    __table_args__ = (
        Index(
            "uq_endpoints_one_writer",
            "branch_id",
            unique=True,
            postgresql_where="type = 'read_write' AND deleted_at IS NULL",
        ),
        Index("uq_endpoints_port", "port", unique=True, postgresql_where="deleted_at IS NULL"),
        Index("ix_endpoints_project", "project_id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    branch_id: Mapped[str] = mapped_column(ForeignKey("branches.id"))
    name: Mapped[str | None]
    type: Mapped[str]
    host: Mapped[str]
    port: Mapped[int]
    desired_state: Mapped[EndpointState]
    state: Mapped[EndpointState] = mapped_column(default=EndpointState.INIT)
    pg_settings: Mapped[dict[str, Any]] = mapped_column(default=dict)
    full_page_writes: Mapped[bool] = mapped_column(default=True)
    # Since when it has been wanted so; null when it was so from the start.
    full_page_writes_since: Mapped[datetime | None]
    # The minor it is wanted on, such as 15.20; null: the newest there is when it starts next. A restart keeps it.
    postgres_version: Mapped[str | None]
    # The minor it was last seen running, as its agent said.
    running_postgres_version: Mapped[str | None]
    disabled: Mapped[bool] = mapped_column(default=False)
    # The sizes that it may have, and the one that it is to have now (`weir.endpoints.sizes`).
    min_cu: Mapped[float] = mapped_column(default=1.0)
    max_cu: Mapped[float] = mapped_column(default=1.0)
    current_cu: Mapped[float] = mapped_column(default=1.0)
    # Whether its starts load the pages that were in memory when it was suspended.
    prewarm: Mapped[bool] = mapped_column(default=True)
    suspend_timeout_seconds: Mapped[int] = mapped_column(default=0)
    started_at: Mapped[datetime | None]
    suspended_at: Mapped[datetime | None]
    last_active: Mapped[datetime | None]
    delete_requested_at: Mapped[datetime | None]
    deleted_at: Mapped[datetime | None]

    @property
    def limits(self) -> Limits:
        return Limits(self.min_cu, self.max_cu)

    def limit_to(self, limits: Limits) -> bool:
        """Takes these limits, and the size within them that is nearest to the one of now; whether that is another."""
        before, self.min_cu, self.max_cu = self.current_cu, limits.least, limits.most
        self.current_cu = limits.nearest(before)
        return self.current_cu != before
