"""Doubles of the pageserver and the safekeepers: their management APIs, in memory.

They keep the promises of docs/interfaces.md that workflows rely on (idempotent creates, 404, 412), note every
call with its trace, and fail on demand.
"""

import threading
from dataclasses import dataclass, field
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from weir.kit.http import SERVER_KEEP_ALIVE_SECONDS
from weir.kit.ids import format_lsn, parse_lsn
from weir_testing.members import Members, wal_address
from weir_testing.programs import free_port

START_LSN = "0/1500000"
HEAD_LSN = "0/2000000"
# Three for the logs of new branches, and two spares.
SAFEKEEPERS = 5
_TIMELINE = "/v1/tenant/{tenant}/timeline/{timeline}"


@dataclass
class Fault:
    """Answers `status` to the next `times` calls whose method and path part match."""

    server: str
    method: str
    path_part: str
    status: int
    times: int


@dataclass
class Call:
    server: str
    method: str
    path: str
    body: Any
    traceparent: str | None


@dataclass
class StorageDouble:
    calls: list[Call] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    tenants: dict[str, dict[str, Any]] = field(default_factory=dict)
    timelines: dict[str, dict[str, Any]] = field(default_factory=dict)
    # What a project's document says, as it was put: revision and about.
    described: dict[str, dict[str, Any]] = field(default_factory=dict)
    # How far the WAL of a timeline is in the object store.
    offloaded: dict[str, str] = field(default_factory=dict[str, str])
    # Timelines whose detach does not end by itself, and those of them that are being detached.
    slow_detaches: set[str] = field(default_factory=set[str])
    detaching: set[str] = field(default_factory=set[str])
    # What the pageserver says of safekeepers that it does not read from.
    sick: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    keepers: list[dict[str, dict[str, Any]]] = field(default_factory=lambda: [{} for _ in range(SAFEKEEPERS)])
    members: "Members" = field(init=False)
    pageserver_port: int = field(default_factory=free_port)
    keeper_ports: list[int] = field(default_factory=lambda: [free_port() for _ in range(SAFEKEEPERS)])

    def __post_init__(self) -> None:
        self.members = Members(self.keepers)

    def fail(self, server: str, method: str, path_part: str, status: int, times: int = 1) -> None:
        self.faults.append(Fault(server, method, path_part, status, times))

    def calls_of(self, server: str, method: str, path_part: str) -> list[Call]:
        return [c for c in self.calls if c.server == server and c.method == method and path_part in c.path]

    @property
    def environment(self) -> dict[str, str]:
        return {
            "WEIR_PAGESERVER_HTTP": f"http://127.0.0.1:{self.pageserver_port}",
            "WEIR_PAGESERVER_PAGES": "127.0.0.1:9",
            "WEIR_SAFEKEEPERS_HTTP": ",".join(f"http://127.0.0.1:{port}" for port in self.keeper_ports),
            "WEIR_SAFEKEEPERS_WAL": ",".join(wal_address(number) for number in range(1, SAFEKEEPERS + 1)),
        }

    async def intercept(self, server: str, request: Request) -> Response | None:
        body = await request.json() if await request.body() else None
        path = request.url.path
        self.calls.append(Call(server, request.method, path, body, request.headers.get("traceparent")))
        for fault in self.faults:
            if (
                fault.times > 0
                and fault.server == server
                and fault.method == request.method
                and fault.path_part in path
            ):
                fault.times -= 1
                return _error(fault.status, "INJECTED", "a fault of the test")
        return None

    # A compute's switch, as storage would see it in the WAL.
    def full_page_writes(self, timeline: str, enabled: bool, lsn: str) -> None:
        if timeline in self.timelines:
            self.timelines[timeline]["full_page_writes"] = {"enabled": enabled, "lsn": lsn}
            self.advance(timeline, lsn)

    def trim(self, timeline: str, oldest_lsn: str, oldest_timestamp: str) -> None:
        self.timelines[timeline] |= {"oldest_lsn": oldest_lsn, "oldest_timestamp": oldest_timestamp}

    def found_sick(self, timeline: str, number: int, kind: str, since: str = "2026-01-01T00:00:00Z") -> None:
        """By the pageserver."""
        reason = f"a {kind} record of the test"
        mark = {"timeline_id": timeline, "safekeeper": wal_address(number), "kind": kind, "lsn": HEAD_LSN}
        self.sick.append(
            mark | {"tenant_id": self.timelines[timeline]["tenant_id"], "reason": reason, "since": since}
        )

    def damaged(self, timeline: str, number: int, unrepaired: str | None = None) -> None:
        """By the safekeeper itself."""
        damage = {"segment": "0" * 24, "from_lsn": "0/1600000", "to_lsn": "0/1601000", "reason": "a wrong checksum"}
        self.keepers[number - 1][timeline]["damage"] = [damage | {"since": START_LSN, "unrepaired": unrepaired}]

    def committed(self, timeline: str, lsn: str, at: str) -> None:
        self.timelines[timeline]["commits"][lsn] = at
        self.advance(timeline, lsn)

    def advance(self, timeline: str, lsn: str) -> None:
        if parse_lsn(lsn) > parse_lsn(self.timelines[timeline]["last_record_lsn"]):
            self.timelines[timeline]["last_record_lsn"] = lsn
        for keeper in self.keepers:
            if timeline in keeper:
                keeper[timeline]["flush_lsn"] = keeper[timeline]["commit_lsn"] = lsn


def _error(status: int, code: str, message: str) -> JSONResponse:
    return JSONResponse({"code": code, "message": message}, status)


def pageserver_app(double: StorageDouble) -> Starlette:
    async def handle(request: Request) -> Response:
        fault = await double.intercept("pageserver", request)
        return fault or await _pageserver(double, request)

    paths = ["/healthz", "/v1/sick_safekeepers", "/v1/tenant", "/v1/tenant/{tenant}", "/v1/tenant/{tenant}/config",
             "/v1/tenant/{tenant}/timeline", _TIMELINE, _TIMELINE + "/lsn_by_timestamp",
             _TIMELINE + "/safekeepers", _TIMELINE + "/timestamp_of_lsn", _TIMELINE + "/detach",
             "/v1/tenant/{tenant}/about"]  # fmt: skip
    return Starlette(routes=[Route(p, handle, methods=["GET", "PUT", "POST", "PATCH", "DELETE"]) for p in paths])


async def _pageserver(double: StorageDouble, request: Request) -> Response:  # noqa: C901, PLR0912  one case a route
    tenant, timeline = request.path_params.get("tenant"), request.path_params.get("timeline")
    path, method = request.url.path, request.method
    body = await request.json() if await request.body() else {}
    if path == "/healthz":
        return PlainTextResponse("ok\n")
    if path == "/v1/sick_safekeepers":
        return JSONResponse(double.sick)
    if tenant is None:
        return JSONResponse([_tenant(double, ident) for ident in double.tenants])
    if path.endswith("/about"):
        double.described[tenant] = body
        return Response(status_code=204)
    if path.endswith("/safekeepers"):
        double.timelines[timeline or ""]["safekeepers"] = body["safekeepers"]
        return JSONResponse(double.timelines[timeline or ""])
    if method == "PUT":
        double.tenants.setdefault(tenant, {"image_threshold_pushdown": 32})
        return JSONResponse({})
    if method == "DELETE" and timeline is None:
        double.tenants.pop(tenant, None)
        double.described.pop(tenant, None)
        for ident in [i for i, t in double.timelines.items() if t["tenant_id"] == tenant]:
            del double.timelines[ident]
        return Response(status_code=204)
    if tenant not in double.tenants:
        return _error(404, "NOT_FOUND", f"tenant {tenant} does not exist")
    if path.endswith("/config"):
        double.tenants[tenant] |= body
        return JSONResponse({})
    if path.endswith("/timeline") and method == "GET":
        return JSONResponse([found for found in double.timelines.values() if found["tenant_id"] == tenant])
    if path.endswith("/timeline"):
        return _create_timeline(double, tenant, body)
    if path.endswith("/lsn_by_timestamp"):
        return JSONResponse(_lsn_by_timestamp(double.timelines[timeline or ""], request.query_params["timestamp"]))
    if path.endswith("/detach"):
        return _detach(double, double.timelines[timeline or ""], method)
    if path.endswith("/timestamp_of_lsn"):
        return _timestamp_of_lsn(double.timelines.get(timeline or ""), request.query_params["lsn"])
    if timeline is None:
        return JSONResponse(_tenant(double, tenant))
    found = double.timelines.get(timeline)
    if method == "DELETE":
        if any(t["ancestor_timeline_id"] == timeline for t in double.timelines.values()):
            return _error(412, "HAS_CHILDREN", f"timeline {timeline} has children")
        double.timelines.pop(timeline, None)
        return Response(status_code=204)
    return JSONResponse(found) if found else _error(404, "NOT_FOUND", f"timeline {timeline} does not exist")


def _tenant(double: StorageDouble, ident: str) -> dict[str, Any]:
    revision = double.described.get(ident, {}).get("revision")
    return {"id": ident, "timelines": [], "config": double.tenants[ident], "about_revision": revision}


def _detach(double: StorageDouble, timeline: dict[str, Any], method: str) -> Response:
    """Asked for once it is under way, and done by the next look, unless it is a slow one."""
    ident = timeline["timeline_id"]
    if timeline["ancestor_timeline_id"] is None:
        return JSONResponse({"state": "detached", "reason": None, "layers": 3, "layers_copied": 3})
    if method == "POST":
        double.detaching.add(ident)
    elif method == "DELETE":
        double.detaching.discard(ident)
    elif ident in double.detaching and ident not in double.slow_detaches:
        double.detaching.discard(ident)
        timeline |= {"ancestor_timeline_id": None, "ancestor_lsn": None}
    state, status = ("running", 202) if method != "DELETE" else ("attached", 200)
    return JSONResponse({"state": state, "reason": None, "layers": 3, "layers_copied": 1}, status)


def _lsn_by_timestamp(timeline: dict[str, Any], timestamp: str) -> dict[str, str]:
    """Before the history nothing, and after its beginning the newest."""
    oldest = timeline["oldest_timestamp"]
    if oldest is not None and timestamp < oldest:
        return {"lsn": timeline["oldest_lsn"], "kind": "past"}
    return {"lsn": HEAD_LSN, "kind": "present"}


def _timestamp_of_lsn(timeline: dict[str, Any] | None, lsn: str) -> Response:
    """What `committed` says, and of any other LSN the oldest there is."""
    if timeline is None:
        return _error(404, "NOT_FOUND", "the timeline does not exist")
    if parse_lsn(lsn) > parse_lsn(timeline["last_record_lsn"]):
        return _error(400, "BAD_REQUEST", f"LSN {lsn} is not ingested yet")
    return JSONResponse({"timestamp": timeline["commits"].get(lsn, timeline["oldest_timestamp"])})


def _create_timeline(double: StorageDouble, tenant: str, body: dict[str, Any]) -> Response:
    ident = body["new_timeline_id"]
    if ident in double.timelines:
        return JSONResponse(double.timelines[ident], 200)
    ancestor = body.get("ancestor_timeline_id")
    if ancestor is not None and ancestor not in double.timelines:
        return _error(404, "NOT_FOUND", f"ancestor {ancestor} does not exist")
    start = body.get("ancestor_start_lsn") or START_LSN
    fpw = double.timelines[ancestor]["full_page_writes"] if ancestor else {"enabled": True, "lsn": None}
    double.timelines[ident] = {
        "timeline_id": ident,
        "tenant_id": tenant,
        "state": "active",
        "reason": None,
        "pg_version": body["pg_version"],
        "system_identifier": str(7_000_000_000_000_000_000 + len(double.timelines)),
        "start_lsn": start,
        "oldest_lsn": double.timelines[ancestor]["oldest_lsn"] if ancestor else start,
        "oldest_timestamp": double.timelines[ancestor]["oldest_timestamp"] if ancestor else None,
        "commits": dict(double.timelines[ancestor]["commits"]) if ancestor else {},
        "last_record_lsn": start,
        "remote_consistent_lsn": start,
        "safekeepers": body["safekeepers"],
        "ancestor_timeline_id": ancestor,
        "ancestor_lsn": start if ancestor else None,
        "full_page_writes": dict(fpw),
        "current_logical_size": 1,
        "history_bytes": 2,
    }
    return JSONResponse(double.timelines[ident], 201)


def safekeeper_app(double: StorageDouble, index: int) -> Starlette:
    name, held = f"safekeeper-{index + 1}", double.keepers[index]

    async def handle(request: Request) -> Response:
        fault = await double.intercept(name, request)
        if fault is not None:
            return fault
        if request.url.path == "/healthz":
            return PlainTextResponse("ok\n")
        if request.url.path == "/v1/disk":
            return JSONResponse({"node": index + 1, "disk": double.members.disk(index + 1)})
        timeline = request.path_params.get("timeline")
        if timeline is None:
            return JSONResponse(list(held.values()))
        if request.method == "DELETE":
            held.pop(timeline, None)
            return Response(status_code=204)
        if request.url.path.endswith("/fill"):
            return _fill(double, held.get(timeline), timeline, await request.json())
        if request.method == "POST":
            return _create_on_keeper(double, index, timeline, await request.json())
        return JSONResponse(held[timeline]) if timeline in held else _error(404, "NOT_FOUND", "no such timeline")

    paths = ["/healthz", "/v1/timelines", "/v1/disk", _TIMELINE, _TIMELINE + "/fill"]
    return Starlette(routes=[Route(p, handle, methods=["GET", "POST", "DELETE"]) for p in paths])


def _create_on_keeper(double: StorageDouble, index: int, timeline: str, body: dict[str, Any]) -> Response:
    held = double.keepers[index]
    known = held.get(timeline)
    if known is not None:
        same = known["system_identifier"] == body["system_identifier"] and known["start_lsn"] == body["start_lsn"]
        return JSONResponse(known, 200) if same else _error(409, "CONFLICT", "exists with other values")
    held[timeline] = (
        body
        | {
            "timeline_id": timeline,
            "term": 1,
            "flush_lsn": format_lsn(parse_lsn(body["start_lsn"])),
            "commit_lsn": body["start_lsn"],
            "state": "active",
            "reason": None,
        }
        | double.members.begin(index + 1, timeline, body)
    )
    return JSONResponse(held[timeline], 201)


def _fill(double: StorageDouble, log: dict[str, Any] | None, timeline: str, body: dict[str, Any]) -> Response:
    """A log that does not vote takes what the store has, up to what is asked for."""
    if log is None:
        return _error(404, "not_found", "no such timeline")
    if timeline not in double.offloaded:
        return JSONResponse({"filled_to": log["flush_lsn"], "segments": 0, "bytes": 0})
    if log["member"]["role"] == "voter":
        return _error(409, "refused", "the log votes")
    if not parse_lsn(body["begin_by"]) <= parse_lsn(double.timelines[timeline]["remote_consistent_lsn"]):
        return _error(409, "gap", "the log would begin too late")
    end = min(double.offloaded[timeline], body["up_to"], key=parse_lsn)
    log["flush_lsn"] = max(log["flush_lsn"], end, key=parse_lsn)
    return JSONResponse({"filled_to": log["flush_lsn"], "segments": 1, "bytes": 1})


class Server:
    """A Starlette application on a port of its own, in a thread of its own."""

    def __init__(self, app: Any, port: int) -> None:
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                host="127.0.0.1",
                port=port,
                log_level="error",
                lifespan="off",
                timeout_keep_alive=SERVER_KEEP_ALIVE_SECONDS,
            )
        )
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise RuntimeError("a double did not start")
            threading.Event().wait(0.01)
        return self

    def __exit__(self, *error: object) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=10)
