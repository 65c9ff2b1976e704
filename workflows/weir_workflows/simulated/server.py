"""The simulated fleet over HTTP, on one port: `python -m weir_workflows.simulated.server`.

    /computes/{id}/status|configure|...                                 as the agent of that compute
    /pageserver/v1/...                                                     as the pageserver
    /safekeepers/{1,2,3}/v1/...                                            as that safekeeper
    /metrics                                                               all computes in one scrape
    GET /computes, PUT /computes/{id} (a spec), DELETE /computes/{id}      as whatever starts computes
    PUT /computes (a list of specs), PUT /computes/{id}/plant              for filling and for planting faults

Nothing is kept on disk: a restart of the server loses the fleet's storage, as a restart of no real part would.
Latencies of the switch are slept, everything else answers at once.
"""

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route

from weir.kit.http import SERVER_KEEP_ALIVE_SECONDS
from weir.kit.ids import parse_lsn
from weir_workflows.simulated import exposition, views
from weir_workflows.simulated.compute import Compute, Plant
from weir_workflows.simulated.fleet import SAFEKEEPERS, ConflictError, Fleet, Tenant, UnknownError

SILENCE_SECONDS = 60.0
Handler = Callable[[Fleet, Request], Awaitable[Response]]


def _error(status: int, code: str, message: str) -> JSONResponse:
    return JSONResponse({"code": code, "message": message}, status_code=status)


def _route(path: str, handler: Handler, *methods: str) -> Route:
    async def serve(request: Request) -> Response:
        return await handler(request.app.state.fleet, request)

    return Route(path, serve, methods=list(methods) or ["GET"])


async def _healthz(_fleet: Fleet, _request: Request) -> Response:
    return JSONResponse({"status": "ok", "simulated": True})


async def _metrics(fleet: Fleet, _request: Request) -> Response:
    async def chunks() -> AsyncIterator[str]:
        for text in exposition.of_fleet(list(fleet.computes.values()), time.time()):
            if text:
                yield text
            await asyncio.sleep(0)

    return StreamingResponse(chunks(), media_type=exposition.CONTENT_TYPE)


# What starts computes.


async def _list(fleet: Fleet, _request: Request) -> Response:
    return JSONResponse({"computes": list(fleet.computes)})


async def _fill(fleet: Fleet, request: Request) -> Response:
    return JSONResponse({"added": fleet.take_up(await request.json(), time.time())})


async def _start(fleet: Fleet, request: Request) -> Response:
    spec = await request.json()
    if spec["compute_id"] != request.path_params["compute"]:
        return _error(400, "BAD_SPEC", f"the spec is of {spec['compute_id']}, not {request.path_params['compute']}")
    now = time.time()
    return JSONResponse(views.compute_status(fleet.start(spec, now), now))


async def _stop(fleet: Fleet, request: Request) -> Response:
    fleet.stop(request.path_params["compute"], time.time())
    return Response(status_code=204)


async def _plant(fleet: Fleet, request: Request) -> Response:
    compute = fleet.compute(request.path_params["compute"])
    try:
        compute.plant = Plant(**await request.json())
    except TypeError as error:
        return _error(400, "BAD_PLANT", f"{error}; it takes any of {', '.join(asdict(compute.plant))}")
    return JSONResponse(asdict(compute.plant))


# The agent of one compute.


async def _agent(fleet: Fleet, request: Request) -> Compute:
    compute = fleet.compute(request.path_params["compute"])
    if compute.plant.silent:
        await asyncio.sleep(SILENCE_SECONDS)
    return compute


async def _status(fleet: Fleet, request: Request) -> Response:
    return JSONResponse(views.compute_status(await _agent(fleet, request), time.time()))


async def _configure(fleet: Fleet, request: Request) -> Response:
    compute, spec = await _agent(fleet, request), await request.json()
    compute.switch(spec["full_page_writes"], time.time())
    compute.take(spec)
    return JSONResponse({})


async def _settings(fleet: Fleet, request: Request) -> Response:
    """A simulated compute takes every setting."""
    compute = await _agent(fleet, request)
    taken = [
        {"name": name, "wanted": str(value), "in_force": str(value), "state": "in_force", "reason": None}
        for name, value in compute.settings.items()
    ]
    return JSONResponse({"settings": taken})


async def _chosen(fleet: Fleet, request: Request) -> Response:
    """Nobody connects to a simulated compute, so no role has chosen anything."""
    await _agent(fleet, request)
    return JSONResponse({"chosen": [], "more": False})


async def _switch(fleet: Fleet, request: Request) -> Response:
    """Answers once the record is committed: after the reload and a quorum's fsync."""
    compute, body = await _agent(fleet, request), await request.json()
    if compute.plant.refuse_switch:
        return _error(503, "NOT_COMMITTED", f"compute {compute.compute_id} has no quorum (planted)")
    if body["enabled"] != compute.full_page_writes:
        await asyncio.sleep(compute.profile.switch_seconds)
    compute.switch(body["enabled"], time.time())
    lsn = views.compute_status(compute, time.time())["full_page_writes"]["lsn"]
    return JSONResponse({"enabled": compute.full_page_writes, "lsn": lsn, "record_lsn": lsn, "committed": True})


async def _terminate(fleet: Fleet, request: Request) -> Response:
    fleet.stop((await _agent(fleet, request)).compute_id, time.time())
    return JSONResponse({}, status_code=202)


async def _compute_metrics(fleet: Fleet, request: Request) -> Response:
    compute = await _agent(fleet, request)
    return Response(exposition.of_compute(compute, time.time()), media_type=exposition.CONTENT_TYPE)


# The pageserver.


async def _tenants(fleet: Fleet, _request: Request) -> Response:
    return JSONResponse([views.tenant(ident, held) for ident, held in fleet.tenants.items()])


async def _tenant(fleet: Fleet, request: Request) -> Response:
    ident: str = request.path_params["tenant"]
    if request.method == "PUT":
        fleet.tenants.setdefault(ident, Tenant())
    elif request.method == "DELETE":
        fleet.delete_tenant(ident)
        return Response(status_code=204)
    return JSONResponse(views.tenant(ident, fleet.tenant(ident)))


async def _config(fleet: Fleet, request: Request) -> Response:
    ident: str = request.path_params["tenant"]
    return JSONResponse(views.tenant(ident, fleet.configure(ident, await request.json())))


async def _create_timeline(fleet: Fleet, request: Request) -> Response:
    ident: str = request.path_params["tenant"]
    body: dict[str, Any] = await request.json()
    at, now = body.get("ancestor_start_lsn"), time.time()
    timeline, new = fleet.create_timeline(
        ident,
        body["new_timeline_id"],
        body["pg_version"],
        body.get("ancestor_timeline_id"),
        None if at is None else parse_lsn(at),
        now,
    )
    view = views.timeline_at_pageserver(timeline, fleet.tenant(ident), now)
    return JSONResponse(view, status_code=201 if new else 200)


async def _timeline(fleet: Fleet, request: Request) -> Response:
    tenant, timeline = request.path_params["tenant"], request.path_params["timeline"]
    if request.method == "DELETE":
        fleet.delete_timeline(tenant, timeline)
        return Response(status_code=204)
    view = views.timeline_at_pageserver(fleet.timeline(tenant, timeline), fleet.tenant(tenant), time.time())
    return JSONResponse(view)


async def _detach(fleet: Fleet, request: Request) -> Response:
    timeline = fleet.timeline(request.path_params["tenant"], request.path_params["timeline"])
    return JSONResponse(views.detached(fleet.detach(timeline) if request.method == "POST" else timeline))


async def _lsn_by_timestamp(fleet: Fleet, request: Request) -> Response:
    timeline = fleet.timeline(request.path_params["tenant"], request.path_params["timeline"])
    lsn = views.timeline_at_safekeeper(timeline, time.time())["commit_lsn"]
    return JSONResponse({"lsn": lsn, "kind": "present"})


async def _timestamp_of_lsn(fleet: Fleet, request: Request) -> Response:
    """A model has no commits, and so no times of them."""
    fleet.timeline(request.path_params["tenant"], request.path_params["timeline"])
    return JSONResponse({"timestamp": None})


# The safekeepers.


async def _keeper_timelines(fleet: Fleet, request: Request) -> Response:
    number: int = request.path_params["number"] - 1
    now = time.time()
    return JSONResponse(
        [views.timeline_at_safekeeper(held, now) for held in fleet.timelines.values() if number in held.keepers]
    )


async def _keeper_timeline(fleet: Fleet, request: Request) -> Response:
    number: int = request.path_params["number"] - 1
    if not 0 <= number < SAFEKEEPERS:
        return _error(404, "NOT_FOUND", f"there are safekeepers 1 to {SAFEKEEPERS}, not {number + 1}")
    tenant, timeline = request.path_params["tenant"], request.path_params["timeline"]
    if request.method == "DELETE":
        held = fleet.timelines.get(timeline)
        if held is not None:
            held.keepers.discard(number)
        return Response(status_code=204)
    found = fleet.timeline(tenant, timeline)
    if request.method == "POST":
        found.keepers.add(number)
    elif number not in found.keepers:
        raise UnknownError(f"safekeeper {number + 1} has no timeline {timeline}")
    return JSONResponse(views.timeline_at_safekeeper(found, time.time()))


async def _unknown(_request: Request, error: Exception) -> Response:
    return _error(404, "NOT_FOUND", str(error))


async def _conflict(_request: Request, error: Exception) -> Response:
    return _error(409, "CONFLICT", str(error))


async def _no_route(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    return _error(status, "NOT_SIMULATED", f"the simulated fleet has no {request.method} {request.url.path}")


def _routes() -> list[BaseRoute]:
    timeline = "/v1/tenant/{tenant}/timeline/{timeline}"
    # Ordered by how often a rollout asks.
    return [
        Mount(
            "/safekeepers/{number:int}",
            routes=[
                _route(timeline, _keeper_timeline, "GET", "POST", "DELETE"),
                _route("/v1/timelines", _keeper_timelines),
                _route("/healthz", _healthz),
            ],
        ),
        Mount(
            "/pageserver",
            routes=[
                _route(timeline, _timeline, "GET", "DELETE"),
                _route("/v1/tenant/{tenant}/config", _config, "PATCH"),
                _route("/v1/tenant/{tenant}", _tenant, "GET", "PUT", "DELETE"),
                _route("/v1/tenant/{tenant}/timeline", _create_timeline, "POST"),
                _route(f"{timeline}/lsn_by_timestamp", _lsn_by_timestamp),
                _route(f"{timeline}/timestamp_of_lsn", _timestamp_of_lsn),
                _route(f"{timeline}/detach", _detach, "GET", "POST"),
                _route("/v1/tenant", _tenants),
                _route("/healthz", _healthz),
            ],
        ),
        _route("/computes/{compute}/status", _status),
        _route("/computes/{compute}/synchronous_commit", _chosen),
        _route("/computes/{compute}/full_page_writes", _switch, "POST"),
        _route("/computes/{compute}/settings", _settings),
        _route("/computes/{compute}/configure", _configure, "POST"),
        _route("/computes/{compute}/terminate", _terminate, "POST"),
        _route("/computes/{compute}/metrics", _compute_metrics),
        _route("/computes/{compute}/plant", _plant, "PUT"),
        _route("/computes/{compute}", _start, "PUT"),
        _route("/computes/{compute}", _stop, "DELETE"),
        _route("/computes", _list),
        _route("/computes", _fill, "PUT"),
        _route("/metrics", _metrics),
        _route("/healthz", _healthz),
    ]


def app(fleet: Fleet) -> Starlette:
    made = Starlette(
        routes=_routes(),
        exception_handlers={UnknownError: _unknown, ConflictError: _conflict, HTTPException: _no_route},
    )
    made.state.fleet = fleet
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description="A simulated fleet; see docs/operating.md.")
    parser.add_argument("--listen", default="127.0.0.1:7650", help="HOST:PORT (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="what the computes are like (default %(default)s)")
    parser.add_argument(
        "--regress-share", type=float, default=0.0, help="share of computes that get slower when switched (default 0)"
    )
    parser.add_argument("--regress-ratio", type=float, default=1.5, help="how much slower they read (default 1.5)")
    arguments = parser.parse_args()
    host, _, port = arguments.listen.rpartition(":")
    fleet = Fleet(arguments.seed, arguments.regress_share, arguments.regress_ratio)
    uvicorn.run(
        app(fleet),
        host=host,
        port=int(port),
        access_log=False,
        log_level="warning",
        timeout_keep_alive=SERVER_KEEP_ALIVE_SECONDS,
    )


if __name__ == "__main__":
    main()
