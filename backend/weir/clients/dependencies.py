"""The clients as FastAPI dependencies; they share the process's HTTP connections.

They are coroutines though they wait for nothing, as all dependencies of operations are: FastAPI runs any other
function in a thread.
"""

from typing import Annotated

from fastapi import Depends, Request
from temporalio.client import Client

from weir.clients.http import HttpClient
from weir.clients.pageserver import Pageserver
from weir.clients.prometheus import Prometheus
from weir.clients.safekeeper import Safekeeper
from weir.config import get_settings


async def _http(request: Request) -> HttpClient:
    return request.app.state.http


Http = Annotated[HttpClient, Depends(_http)]


async def _pageserver(http: Http) -> Pageserver:
    return Pageserver(get_settings().pageserver_http_url, http)


async def _safekeepers(http: Http) -> list[Safekeeper]:
    return [Safekeeper(number, url, http) for number, url in enumerate(get_settings().safekeeper_http_urls, 1)]


async def _prometheus(http: Http) -> Prometheus:
    settings = get_settings()
    return Prometheus(settings.prometheus_url, http, settings.prometheus_part)


async def _temporal(request: Request) -> Client:
    return request.app.state.temporal


PageserverClient = Annotated[Pageserver, Depends(_pageserver)]
SafekeeperClients = Annotated[list[Safekeeper], Depends(_safekeepers)]
PrometheusClient = Annotated[Prometheus, Depends(_prometheus)]
TemporalClient = Annotated[Client, Depends(_temporal)]
