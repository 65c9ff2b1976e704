from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from weir.durability.levels import Durability
from weir.kit.models import Base, Timestamps

# Storage keeps at least this much, whatever a project asks for: a branch point that has just been chosen must still
# be there when the branch is made.
SHORTEST_WINDOW_SECONDS = 300
# Among a project's settings: its computes drop no role or database for not being listed; the lists may lack some.
KEEP_UNLISTED = "keep_unlisted_roles_and_databases"


class UnloggedOnSuspend(StrEnum):
    """What a suspend or restart that somebody asks for does while unlogged tables hold rows, which it would lose."""

    REFUSE = "refuse"
    DISCARD = "discard"


def allowed_ips(settings: dict[str, Any], *, protected: bool) -> list[str] | None:
    """By a project's settings, the ranges that clients of its protected or other branches may come from, as they were
    given; None is any address."""
    given = settings.get("allowed_ips") or {}
    if given.get("protected_branches_only") and not protected:
        return None
    return given.get("ips") or None


def storage_config(history_retention_seconds: int) -> dict[str, Any]:
    return {"history_window_seconds": max(SHORTEST_WINDOW_SECONDS, history_retention_seconds)}


class Project(Timestamps, Base):
    """Deleting is an intent first (`delete_requested_at`); `deleted_at` follows when the storage is gone."""

    __tablename__ = "projects"
    # Lists are of an account, the newest first.
    __table_args__ = (
        Index("ix_projects_account", "account_id", "created_at", "id", postgresql_where="deleted_at IS NULL"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    account_id: Mapped[UUID] = mapped_column(ForeignKey("accounts.id"))
    tenant_id: Mapped[str] = mapped_column(unique=True)
    pg_version: Mapped[int]
    region_id: Mapped[str]
    # Which of the region's cells, failure domains that share nothing, its computes run in.
    cell: Mapped[str] = mapped_column(server_default="")
    tags: Mapped[dict[str, Any]] = mapped_column(default=dict, server_default="{}")
    history_retention_seconds: Mapped[int]
    settings: Mapped[dict[str, Any]] = mapped_column(default=dict)
    default_endpoint_settings: Mapped[dict[str, Any]] = mapped_column(default=dict)
    # When it became the organisation's; null of one that has been its own from the start.
    transferred_at: Mapped[datetime | None]
    delete_requested_at: Mapped[datetime | None]
    deleted_at: Mapped[datetime | None]

    def storage_config(self) -> dict[str, Any]:
        """The pageserver's tenant settings that follow from the project's."""
        return storage_config(self.history_retention_seconds)

    @property
    def keeps_unlisted(self) -> bool:
        return bool(self.settings.get(KEEP_UNLISTED))

    @property
    def unlogged_on_suspend(self) -> UnloggedOnSuspend:
        return UnloggedOnSuspend(self.settings.get("unlogged_on_suspend", UnloggedOnSuspend.REFUSE))

    @property
    def forbidden_durability(self) -> frozenset[Durability]:
        """Levels that the project's own policy forbids; the installation's may forbid more."""
        return frozenset(Durability(level) for level in (self.settings.get("durability") or {}).get("forbid", []))

    @property
    def logical_size_limit(self) -> int | None:
        """Bytes of data that each of its branches may hold; None is no limit."""
        return (self.settings.get("quota") or {}).get("logical_size_bytes") or None

    @property
    def wal_rate_limit(self) -> int | None:
        """Bytes of WAL that each of its computes may write a second; None is no limit."""
        return (self.settings.get("quota") or {}).get("wal_bytes_per_second") or None
