"""A large installation as the reconciler finds it when nothing is to be done: rows of the metadata store, what
computes left on disk, and what storage lists. Every project has one branch with its default role and database, and a
compute that ran and is suspended.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from sqlalchemy import Table, create_engine, insert, select

from weir.branches.members import TimelineMember
from weir.branches.models import Branch
from weir.databases.models import BranchDatabase, Role
from weir.endpoints.models import Endpoint
from weir.identity.models import Account
from weir.kit.models import Base
from weir.projects.models import Project, storage_config

PG_VERSION = 15
RETENTION_SECONDS = 604_800
SAFEKEEPERS = 3
SYSTEM_IDENTIFIER = "7300000000000000001"
HEAD = "0/2000000"
_MEMBERS = [
    {"node": number, "disk": f"{number:032x}", "incarnation": 1, "role": "voter"}
    for number in range(1, SAFEKEEPERS + 1)
]


@dataclass(frozen=True)
class Seeded:
    number: int

    @property
    def project_id(self) -> str:
        return f"seeded-{self.number:05d}"

    @property
    def branch_id(self) -> str:
        return f"br-seeded-{self.number:05d}"

    @property
    def compute_id(self) -> str:
        return f"ep-seeded-{self.number:05d}"

    @property
    def port(self) -> int:
        return 1_024 + 2 * self.number

    def storage_id(self, kind: str) -> str:
        return hashlib.blake2b(f"{kind}/{self.number}".encode(), digest_size=16).hexdigest()


def fleet_of(projects: int) -> list[Seeded]:
    return [Seeded(number) for number in range(projects)]


def fill_database(url: str, fleet: list[Seeded]) -> None:
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            account = connection.execute(select(Account.id).order_by(Account.created_at).limit(1)).scalar_one()
            for model, rows in _rows(fleet, account):
                connection.execute(insert(_table(model)), rows)
            connection.exec_driver_sql("ANALYZE")
    finally:
        engine.dispose()


def _rows(fleet: list[Seeded], account: Any) -> Iterator[tuple[type[Base], list[dict[str, Any]]]]:
    at = datetime.now(UTC) - timedelta(days=1)
    times = {"created_at": at, "updated_at": at}
    yield Project, [
        {
            "id": one.project_id, "name": one.project_id, "account_id": account,
            "tenant_id": one.storage_id("tenant"), "pg_version": PG_VERSION, "region_id": "local", "cell": "",
            "tags": {}, "history_retention_seconds": RETENTION_SECONDS, "settings": {},
            "default_endpoint_settings": {}, **times,
        }
        for one in fleet
    ]  # fmt: skip
    yield Branch, [
        {
            "id": one.branch_id, "project_id": one.project_id, "name": "main",
            "timeline_id": one.storage_id("timeline"), "state": "ready", "is_default": True, "protected": False,
            **times,
        }
        for one in fleet
    ]  # fmt: skip
    yield Role, [{"branch_id": one.branch_id, "name": "owner", **times} for one in fleet]
    yield (
        BranchDatabase,
        [{"branch_id": one.branch_id, "name": "app", "owner_name": "owner", **times} for one in fleet],
    )
    yield Endpoint, [
        {
            "id": one.compute_id, "project_id": one.project_id, "branch_id": one.branch_id, "type": "read_write",
            "host": "127.0.0.1", "port": one.port, "desired_state": "idle", "state": "idle", "pg_settings": {},
            "full_page_writes": True, "disabled": False, "suspend_timeout_seconds": 0, "started_at": at,
            "suspended_at": at, **times,
        }
        for one in fleet
    ]  # fmt: skip
    yield TimelineMember, [
        {
            "timeline_id": one.storage_id("timeline"), "safekeeper_id": number, "state": "member", "since": at,
            "asked_at": at, "founded_at": at,
        }
        for one in fleet
        for number in range(1, SAFEKEEPERS + 1)
    ]  # fmt: skip


def _table(model: type[Base]) -> Table:
    table = model.__table__
    assert isinstance(table, Table)  # noqa: S101  every model is one table
    return table


def fill_disk(computes: Path, fleet: list[Seeded]) -> None:
    """As suspended computes leave it: a spec, a log and the file of the lock, and no pid."""
    for one in fleet:
        directory = computes / one.compute_id
        directory.mkdir(parents=True)
        spec = {"compute_id": one.compute_id, "timeline_id": one.storage_id("timeline"), "port": one.port}
        (directory / "spec.json").write_text(json.dumps(spec))
        (directory / "log").write_text("suspended\n")
        (directory / "lock").touch()


def listings(fleet: list[Seeded], revisions: Mapping[str, str]) -> dict[str, list[dict[str, Any]]]:
    """What the programs of storage list, by path. `revisions`: of the projects' documents."""
    return {
        "/v1/tenant": [
            {
                "id": one.storage_id("tenant"),
                "config": storage_config(RETENTION_SECONDS),
                "about_revision": revisions[one.project_id],
                "timelines": [one.storage_id("timeline")],
            }
            for one in fleet
        ],
        "/v1/sick_safekeepers": [],
        **{f"/{number}/v1/timelines": [_log(one, number) for one in fleet] for number in range(1, SAFEKEEPERS + 1)},
    }


def _log(one: Seeded, number: int) -> dict[str, Any]:
    """As a safekeeper shows a log that its compute has confirmed."""
    return {
        "tenant_id": one.storage_id("tenant"), "timeline_id": one.storage_id("timeline"), "state": "active",
        "reason": None, "term": 2, "start_lsn": "0/1500000", "flush_lsn": HEAD, "commit_lsn": HEAD,
        "member": _MEMBERS[number - 1], "members": _MEMBERS, "generation": 1, "generation_term": 2,
        "damage": [], "verified": None,
    }  # fmt: skip


@contextmanager
def storage(answers: Mapping[str, list[dict[str, Any]]]) -> Generator[str]:
    """Serves listings from a process of its own, which costs the measured one what storage would: reading answers.
    Gives its URL; the safekeepers' are below it, by their numbers."""
    context = get_context("spawn")
    here, there = context.Pipe()
    bodies = {path: json.dumps(answer).encode() for path, answer in answers.items()}
    process = context.Process(target=_serve, args=(there, bodies), daemon=True)
    process.start()
    # So that the end of the process is seen here.
    there.close()
    try:
        if not here.poll(60):
            raise RuntimeError("the process that stands for storage did not come up within a minute")
        yield f"http://127.0.0.1:{here.recv()}"
    finally:
        process.terminate()
        process.join(10)


def _serve(port_to: Connection, bodies: dict[str, bytes]) -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

        def do_GET(self) -> None:
            body = bodies.get(self.path, b'{"code": "NOT_FOUND", "message": "not listed"}')
            self.send_response(200 if self.path in bodies else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    port_to.send(server.server_address[1])
    server.serve_forever()
