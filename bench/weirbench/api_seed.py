"""A large installation as users of the API find it, and what they ask of it: 10,000 projects with a suspended compute
each, and what was done to them before."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from random import Random

import httpx
from sqlalchemy import create_engine, text

from .open_loop import Request
from .reconciler_seed import PG_VERSION, Seeded, fill_database

# Operations that have ended, of each project.
OPERATIONS = 10
PAGE = 100
SPECS_A_REQUEST = 500
_HISTORY = text("""
INSERT INTO operations (
    id, project_id, branch_id, endpoint_id, action, kind, status, origin, payload, failures_count, request_id,
    trace_context, created_at, updated_at, started_at, finished_at
)
SELECT gen_random_uuid(), endpoints.project_id, endpoints.branch_id, endpoints.id,
    CASE WHEN n % 2 = 1 THEN 'start_compute' ELSE 'suspend_compute' END,
    CASE WHEN n % 2 = 1 THEN 'start_compute' ELSE 'suspend_compute' END,
    'finished', 'request', '{}', 0, '', '{}', at, at, at, at + interval '200 ms'
FROM endpoints, generate_series(1, :operations) n,
    LATERAL (SELECT now() - n * interval '1 hour' - random() * interval '1 minute' AS at) times
""")
_DISTINCT_TIMES = text("""
UPDATE projects SET created_at = created_at - numbered.n * interval '1 second'
FROM (SELECT id, row_number() OVER (ORDER BY id DESC) n FROM projects) numbered WHERE numbered.id = projects.id
""")


def fill(database_url: str, simulator_url: str, fleet: list[Seeded]) -> None:
    """Storage has the timelines before the rows say so: the worker finds none missing."""
    specs = [
        {
            "tenant_id": one.storage_id("tenant"),
            "timeline_id": one.storage_id("timeline"),
            "pg_version": PG_VERSION,
            "suspended": True,
        }
        for one in fleet
    ]
    with httpx.Client(base_url=simulator_url, timeout=120) as client:
        for first in range(0, len(specs), SPECS_A_REQUEST):
            client.put("/computes", json=specs[first : first + SPECS_A_REQUEST]).raise_for_status()
    fill_database(database_url, fleet)
    engine = create_engine(database_url)
    try:
        with engine.begin() as connection:
            connection.execute(_HISTORY, {"operations": OPERATIONS})
            # Pages are in the order of creation.
            connection.execute(_DISTINCT_TIMES)
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
    finally:
        engine.dispose()


class Mix:
    """Draws requests. Each start is of a project that none was of before, so that none finds another's operation in
    its way; the other requests are of any."""

    def __init__(self, fleet: list[Seeded], random: Random) -> None:
        self._fleet = fleet
        self._random = random
        self._to_start = iter(random.sample(fleet, len(fleet)))
        self._number = itertools.count()
        self._weighted: list[tuple[int, Callable[[Seeded], Request]]] = [
            (6, lambda _: self._get("projects, first page", f"/projects?limit={PAGE}")),
            (4, lambda _: self._get("projects, 10 a page", "/projects?limit=10")),
            (3, lambda one: self._get("projects, by name", f"/projects?limit=10&search={one.project_id[-4:]}")),
            (18, lambda one: self._get("project", f"/projects/{one.project_id}")),
            (10, lambda one: self._get("branches", f"/projects/{one.project_id}/branches")),
            (6, lambda one: self._get("branch", f"/projects/{one.project_id}/branches/{one.branch_id}")),
            (8, lambda one: self._get("endpoints", f"/projects/{one.project_id}/endpoints")),
            (8, lambda one: self._get("endpoint", f"/projects/{one.project_id}/endpoints/{one.compute_id}")),
            (8, lambda one: self._get("operations", f"/projects/{one.project_id}/operations?limit=20")),
            (5, lambda one: self._get("roles", self._branch(one) + "/roles")),
            (4, lambda one: self._get("databases", self._branch(one) + "/databases")),
            (6, self._rename_project),
            (5, self._rename_branch),
            (5, self._time_out),
            (3, self._add_role),
            (1, self._start),
        ]

    def draw(self) -> Request:
        (_, make), *_ = self._random.choices(self._weighted, [weight for weight, _ in self._weighted])
        return make(self._random.choice(self._fleet))

    def of_each(self, count: int) -> Iterator[list[Request]]:
        """So many requests of each kind; of starts, each of which leaves a compute that runs, a tenth."""
        for _, make in self._weighted:
            number = count if make != self._start else max(1, count // 10)
            yield [make(self._random.choice(self._fleet)) for _ in range(number)]

    def weights(self) -> dict[str, int]:
        """How often each kind of request is drawn, against the others."""
        return {make(self._fleet[0]).what: weight for weight, make in self._weighted}

    def planned(self, due: list[float]) -> Iterator[tuple[float, Request]]:
        return ((at, self.draw()) for at in due)

    def _branch(self, one: Seeded) -> str:
        return f"/projects/{one.project_id}/branches/{one.branch_id}"

    def _get(self, what: str, path: str) -> Request:
        return Request(what, "read", "GET", path)

    def _rename_project(self, one: Seeded) -> Request:
        body = {"project": {"name": f"renamed-{next(self._number)}"}}
        return Request("rename a project", "write", "PATCH", f"/projects/{one.project_id}", body)

    def _rename_branch(self, one: Seeded) -> Request:
        body = {"branch": {"name": f"renamed-{next(self._number)}"}}
        return Request("rename a branch", "write", "PATCH", self._branch(one), body)

    def _time_out(self, one: Seeded) -> Request:
        body = {"endpoint": {"suspend_timeout_seconds": self._random.randrange(60, 3_600)}}
        path = f"/projects/{one.project_id}/endpoints/{one.compute_id}"
        return Request("change an endpoint", "write", "PATCH", path, body)

    def _add_role(self, one: Seeded) -> Request:
        body = {"role": {"name": f"reader_{next(self._number)}"}}
        return Request("add a role", "write", "POST", self._branch(one) + "/roles", body, (201,))

    def _start(self, _: Seeded) -> Request:
        one = next(self._to_start)
        path = f"/projects/{one.project_id}/endpoints/{one.compute_id}/start"
        return Request("start a compute", "write", "POST", path)
