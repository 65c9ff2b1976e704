"""Compute runtime `simulated`: computes are entries of the simulated fleet's server (`weir_workflows.simulated`)."""

from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from weir.clients.compute import ComputeStatus
from weir.clients.http import HttpClient, JsonClient
from weir.postgres_versions import TESTED
from weir_workflows.runtime.servers import Server
from weir_workflows.simulated.compute import POSTGRES_MAJOR, server_directory


class SimulatedDriver:
    """A compute there either runs or is nothing, so there is never anything to tidy."""

    def __init__(self, base_url: str, http: HttpClient) -> None:
        self._http = JsonClient("the simulated fleet", base_url, http)

    async def server(self, wanted: str | None) -> Server:
        version = wanted or (await self.versions())[-1]
        return Server(version, Path(server_directory(version)))

    async def versions(self) -> list[str]:
        return list(TESTED[POSTGRES_MAJOR])

    async def server_of(self, compute_id: str) -> Path | None:
        """The simulated agent takes any."""
        del compute_id
        return None

    async def keep_servers(self, wanted: Collection[str]) -> list[str]:
        del wanted
        return []

    async def start(self, spec: dict[str, Any]) -> ComputeStatus:
        path = f"/computes/{spec['compute_id']}"
        return await self._http.read(ComputeStatus.parse, "PUT", path, json=spec)

    async def stop(self, compute_id: str, mode: str) -> None:
        del mode
        await self._http.call("DELETE", f"/computes/{compute_id}")

    async def running(self, compute_ids: Sequence[str]) -> set[str]:
        return set(await self.known()).intersection(compute_ids)

    @asynccontextmanager
    async def at_rest(self, compute_ids: Sequence[str]) -> AsyncGenerator[list[int] | None]:
        yield None if await self.running(compute_ids) else []

    async def known(self) -> list[str]:
        def idents(body: dict[str, list[str]]) -> list[str]:
            return body["computes"]

        return await self._http.read(idents, "GET", "/computes")

    async def keep_spec(self, spec: dict[str, Any]) -> None:
        """The agent has taken it already."""

    async def tidy(self, compute_ids: Sequence[str]) -> list[str]:
        del compute_ids
        return []

    async def remove(self, compute_id: str) -> None:
        await self.stop(compute_id, "immediate")
