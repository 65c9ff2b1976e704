"""Filling a simulated Weir with a fleet: rows straight into the metadata store, specs straight to the simulated
fleet's server. Ten thousand requests for a project would each run workflows; that is not what is measured here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from sqlalchemy import Table, create_engine, insert, select

from weir.branches.models import Branch
from weir.endpoints.models import Endpoint
from weir.identity.models import Account
from weir.kit.models import Base
from weir.projects.models import Project

CELLS = 10
CHECKPOINT_TIMEOUT = "5min"
SPECS_A_REQUEST = 500
PG_VERSION = 15


@dataclass(frozen=True)
class Seeded:
    """One project with its branch and its running compute."""

    number: int

    @property
    def project_id(self) -> str:
        return f"simulated-{self.number:05d}"

    @property
    def compute_id(self) -> str:
        return f"ep-simulated-{self.number:05d}"

    @property
    def branch_id(self) -> str:
        return f"br-simulated-{self.number:05d}"

    def storage_id(self, kind: str) -> str:
        return hashlib.blake2b(f"{kind}/{self.number}".encode(), digest_size=16).hexdigest()

    @property
    def cell(self) -> str:
        return f"cell-{self.number % CELLS + 1}"

    def spec(self, port: int) -> dict[str, Any]:
        return {
            "compute_id": self.compute_id,
            "tenant_id": self.storage_id("tenant"),
            "timeline_id": self.storage_id("timeline"),
            "pg_version": PG_VERSION,
            "port": port,
            "settings": {"checkpoint_timeout": CHECKPOINT_TIMEOUT},
            "full_page_writes": True,
        }


def _parts(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]


def fill(database_url: str, simulator_url: str, first_port: int, computes: int) -> list[str]:
    """The computes' ids. The computes run before their rows exist, so that nothing finds one missing. A simulated
    compute has no Postgres: its port is a number that keeps it apart from others."""
    fleet = [Seeded(number) for number in range(computes)]
    ports = [first_port + 2 * number for number in range(computes)]
    with httpx.Client(base_url=simulator_url, timeout=120) as client:
        for part in _parts([one.spec(port) for one, port in zip(fleet, ports, strict=True)], SPECS_A_REQUEST):
            client.put("/computes", json=list(part)).raise_for_status()
    engine = create_engine(database_url)
    try:
        with engine.begin() as connection:
            account = connection.execute(select(Account.id).order_by(Account.created_at).limit(1)).scalar_one()
            for table, rows in _rows(fleet, ports, account):
                connection.execute(insert(table), rows)
    finally:
        engine.dispose()
    return [one.compute_id for one in fleet]


def _rows(fleet: list[Seeded], ports: list[int], account: Any) -> Iterator[tuple[Table, list[dict[str, Any]]]]:
    # Distinct times, since pages of the API are in the order of creation.
    born = [datetime.now(UTC) - timedelta(milliseconds=len(fleet) - one.number) for one in fleet]
    yield (
        _table(Project),
        [
            # The history that the simulated tenants have, so that there is nothing to repair.
            {
                "id": one.project_id, "name": one.project_id, "account_id": account,
                "tenant_id": one.storage_id("tenant"), "pg_version": PG_VERSION, "region_id": "local",
                "cell": one.cell, "tags": {}, "history_retention_seconds": 604800, "settings": {},
                "default_endpoint_settings": {},
                "created_at": at, "updated_at": at,
            }
            for one, at in zip(fleet, born, strict=True)
        ],
    )  # fmt: skip
    yield (
        _table(Branch),
        [
            {
                "id": one.branch_id, "project_id": one.project_id, "name": "main",
                "timeline_id": one.storage_id("timeline"), "state": "ready", "is_default": True, "protected": False,
                "created_at": at, "updated_at": at,
            }
            for one, at in zip(fleet, born, strict=True)
        ],
    )  # fmt: skip
    yield (
        _table(Endpoint),
        [
            {
                "id": one.compute_id, "project_id": one.project_id, "branch_id": one.branch_id, "type": "read_write",
                "host": "127.0.0.1", "port": port, "desired_state": "active", "state": "active",
                "pg_settings": {"checkpoint_timeout": CHECKPOINT_TIMEOUT}, "full_page_writes": True,
                "disabled": False, "suspend_timeout_seconds": 0, "started_at": at, "created_at": at, "updated_at": at,
            }
            for one, port, at in zip(fleet, ports, born, strict=True)
        ],
    )  # fmt: skip


def _table(model: type[Base]) -> Table:
    table = model.__table__
    assert isinstance(table, Table)  # noqa: S101  every model is one table
    return table
