"""What activities work with: settings, the database, and clients of the programs they drive."""

from collections.abc import AsyncGenerator, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from weir.clients.compute import ComputeAgent, agent_of
from weir.clients.connections import Connections
from weir.clients.http import HttpClient
from weir.clients.pageserver import Pageserver
from weir.clients.prometheus import Prometheus
from weir.clients.safekeeper import Safekeeper
from weir.config import Settings
from weir.db import Database
from weir.endpoints.models import Endpoint
from weir_workflows.runtime.driver import ComputeDriver, LocalDriver
from weir_workflows.runtime.local import LocalRuntime
from weir_workflows.runtime.simulated import SimulatedDriver


@dataclass(frozen=True)
class Resources:
    settings: Settings
    database: Database
    http: HttpClient
    runtime: LocalRuntime

    @property
    def pageserver(self) -> Pageserver:
        return Pageserver(self.settings.pageserver_http_url, self.http)

    @property
    def safekeepers(self) -> list[Safekeeper]:
        urls = self.settings.safekeeper_http_urls
        return [Safekeeper(number, url, self.http) for number, url in enumerate(urls, 1)]

    def numbered(self, numbers: Collection[int]) -> list[Safekeeper]:
        """Those of the installation's safekeepers, in order."""
        return [keeper for keeper in self.safekeepers if keeper.number in numbers]

    def wal_addresses(self, numbers: Iterable[int]) -> list[str]:
        """`host:port` of each of these safekeepers, as computes and the pageserver are told."""
        return self.settings.wal_addresses(numbers)

    @property
    def prometheus(self) -> Prometheus:
        return Prometheus(self.settings.prometheus_url, self.http, self.settings.prometheus_part)

    def agent(self, endpoint: Endpoint) -> ComputeAgent:
        return agent_of(endpoint.id, endpoint.host, endpoint.port, self.http)

    @property
    def computes(self) -> ComputeDriver:
        """What starts and stops computes here; `runtime` is the machine below the local one."""
        if self.settings.compute_runtime == "simulated":
            return SimulatedDriver(self.settings.simulator_url, self.http)
        return LocalDriver(self.runtime, self.http)


@asynccontextmanager
async def open_resources(settings: Settings, *, traced: bool = False) -> AsyncGenerator[Resources]:
    database = Database(settings)
    async with Connections(traced=traced) as http:
        try:
            yield Resources(settings, database, http, LocalRuntime(settings))
        finally:
            await database.close()
