"""The API process: routes, the dispatcher, and the console's files."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST
from sqlalchemy import text
from starlette.types import ASGIApp, Receive, Scope, Send
from temporalio.client import Client
from temporalio.contrib.opentelemetry import TracingInterceptor

from weir import console, errors, logging, telemetry
from weir.absent.router import router as absent
from weir.authz import described
from weir.authz.principal import guard
from weir.branches.history_router import router as branch_history
from weir.branches.router import router as branches
from weir.branches.safekeepers_router import router as branch_safekeepers
from weir.clients.connections import Connections
from weir.clients.pageserver import Pageserver
from weir.computes.router import router as computes
from weir.computes.wal_cost_router import router as wal_cost
from weir.config import Settings, get_settings
from weir.databases.router import router as databases
from weir.databases.schema_router import router as branch_schemas
from weir.db import Database
from weir.durability.router import router as durability
from weir.endpoints.router import router as endpoints
from weir.fleet.router import internal_router
from weir.fleet.router import router as fleet
from weir.fleet.scraping import only_prometheus
from weir.front import install as front
from weir.front.headers import SecurityHeaders
from weir.identity.router import router as identity
from weir.identity.sealing import keep_sealing
from weir.kit.metrics import exposition
from weir.kit.path_names import PathNames
from weir.kit.requests import RequestContext
from weir.kit.routes import RouteIndex
from weir.oidc import settings as oidc_settings
from weir.oidc.provider import Provider
from weir.oidc.router import router as oidc
from weir.operations.dispatcher import Dispatcher
from weir.operations.router import router as operations
from weir.people.invitations_router import router as invitations
from weir.people.keeping_router import router as kept_organizations
from weir.people.organizations_router import router as organizations
from weir.people.router import router as people
from weir.projects.router import router as projects
from weir.proxy.authority_router import router as certificate_authority
from weir.proxy.router import router as proxy
from weir.quotas.measuring import keep_measuring
from weir.quotas.router import router as quotas
from weir.rollouts import assembly as rollouts
from weir.rollouts.control.dispatch import RolloutDispatch
from weir.snapshots.router import router as snapshots
from weir.transfers.router import router as transfers
from weir.usage.router import router as usage

DESCRIPTION = """\
Managed Postgres that you can run yourself.

Shapes follow Neon's API v2 where it has the resource. A change answers at once with the operations it set off;
while a project has open operations, other changes to it answer 423: repeat them. Requests too many answer 429, with
`Retry-After`: nothing was done. Errors are `{request_id, code, message}`."""


async def connect_temporal(settings: Settings) -> Client:
    """Lazy: the API starts, and takes intent, while Temporal is down."""
    return await Client.connect(
        settings.temporal_address,
        namespace=settings.temporal_namespace,
        interceptors=[TracingInterceptor()],
        lazy=True,
    )


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncGenerator[None]:
    settings = get_settings()
    signing_in = oidc_settings.from_environment(os.environ)
    provider = telemetry.configure("weir-api")
    database = Database(settings)
    http = Connections(traced=provider is not None)
    if provider is not None:
        telemetry.instrument_engine(database.engine)
    temporal = await connect_temporal(settings)
    app.state.database, app.state.http, app.state.temporal = database, http, temporal
    app.state.providers = {each.id: Provider(each, http) for each in signing_in}
    app.state.provider_domains = oidc_settings.domains_of(signing_in)
    tasks = [
        asyncio.create_task(Dispatcher(settings, database, temporal, [RolloutDispatch]).run()),
        asyncio.create_task(keep_sealing(database)),
        asyncio.create_task(keep_measuring(database, Pageserver(settings.pageserver_http_url, http))),
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
        await http.aclose()
        await database.close()
        if provider is not None:
            await asyncio.to_thread(provider.shutdown)


def _operation_id(route: object) -> str:
    return str(getattr(route, "name", ""))


class WeirApi(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """Without FastAPI's 422: requests that are not valid get a 400 like any other bad request."""
        if self.openapi_schema is None:
            schema = super().openapi()
            for path in schema["paths"].values():
                for operation in path.values():
                    operation["responses"].pop("422", None)
            for unused in ("HTTPValidationError", "ValidationError"):
                schema["components"]["schemas"].pop(unused, None)
            described.describe(schema)
            front.describe(schema)
        return super().openapi()

    # Around the whole stack, so that answers to unexpected errors have the headers too. As a part of the stack it
    # would keep the tracing from finding its place there.
    @cached_property
    def _with_headers(self) -> ASGIApp:
        return SecurityHeaders(super().__call__, behind_tls=get_settings().behind_tls)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._with_headers(scope, receive, send)


def create_app() -> FastAPI:
    logging.configure()
    app = WeirApi(
        title="Weir",
        version="2",
        description=DESCRIPTION,
        lifespan=_lifespan,
        generate_unique_id_function=_operation_id,
        openapi_url="/api/v2/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    errors.install(app)
    rollouts.register()
    front.install(app, get_settings())
    app.add_middleware(RequestContext)
    app.add_middleware(PathNames)
    api = APIRouter(prefix="/api/v2")
    for router in (
        identity,
        people,
        oidc,
        organizations,
        invitations,
        projects,
        branches,
        branch_history,
        durability,
        branch_safekeepers,
        snapshots,
        databases,
        branch_schemas,
        certificate_authority,
        absent,
        endpoints,
        operations,
        computes,
        wal_cost,
        fleet,
        kept_organizations,
        quotas,
        usage,
        transfers,
        *rollouts.ROUTERS,
    ):
        api.include_router(router)
    # Whatever a route asks for itself: one that no rule knows is refused.
    app.include_router(api, dependencies=[Depends(guard)], responses=errors.responses(errors.ForbiddenError))
    app.include_router(internal_router)
    app.include_router(proxy)

    @app.get("/healthz", include_in_schema=False)
    async def healthz(request: Request) -> Response:
        try:
            async with request.app.state.database.transaction() as session:
                await session.execute(text("SELECT 1"))
        except Exception as error:  # noqa: BLE001  whatever it is, this process cannot do its work
            return JSONResponse(
                {
                    "code": "DATABASE_UNAVAILABLE",
                    "message": f"the metadata database does not answer: {error}",
                },
                status_code=503,
            )
        return JSONResponse({"status": "ok"})

    @app.get("/metrics", include_in_schema=False, dependencies=[Depends(only_prometheus)])
    async def metrics() -> Response:
        return Response(exposition(), media_type=CONTENT_TYPE_LATEST)

    console.install(app, get_settings().console_dir)
    # With all routes there.
    app.router.middleware_stack = RouteIndex(app.router)
    telemetry.instrument_app(app)
    return app


app = create_app()
