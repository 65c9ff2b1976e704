"""What workflows ask of whatever runs computes, and the driver for this machine's processes."""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

from weir.clients.compute import ComputeStatus
from weir.clients.http import HttpClient
from weir_workflows.computes import control
from weir_workflows.runtime.local import BusyError, LocalRuntime
from weir_workflows.runtime.servers import Server


class ComputeDriver(Protocol):
    """Every method states a goal and may be repeated. Keeps nothing between calls."""

    async def server(self, wanted: str | None) -> Server:
        """Postgres of the wanted minor to start a compute with; of the newest when none is wanted, or when the wanted
        one cannot be had any more."""
        ...

    async def versions(self) -> list[str]:
        """Minors that a compute can be started with, oldest first."""
        ...

    async def server_of(self, compute_id: str) -> Path | None:
        """The programs a compute was started with; None when it is not known here."""
        ...

    async def keep_servers(self, wanted: Collection[str]) -> list[str]:
        """Makes sure of the minor that is installed, which may be replaced soon, and removes minors that neither
        these wishes nor anything that runs needs. Returns the removed ones."""
        ...

    async def start(self, spec: dict[str, Any]) -> ComputeStatus:
        """Returns once the compute of this spec serves queries."""
        ...

    async def stop(self, compute_id: str, mode: str) -> None:
        """Ends the compute: cleanly if it can be (`suspend`), at once (`immediate`), but ends it."""
        ...

    async def running(self, compute_ids: Sequence[str]) -> set[str]:
        """Which of these have something that runs, whatever state it is in."""
        ...

    def at_rest(self, compute_ids: Sequence[str]) -> AbstractAsyncContextManager[list[int] | None]:
        """Keeps these computes from being started meanwhile; None when one of them runs. A program that inherits the
        descriptors keeps them down until it ends."""
        ...

    async def known(self) -> list[str]:
        """Computes of which anything is left here, running or not."""
        ...

    async def keep_spec(self, spec: dict[str, Any]) -> None:
        """The compute runs with this spec now."""
        ...

    async def tidy(self, compute_ids: Sequence[str]) -> list[str]:
        """Removes what those of these computes left behind that do not run. Answers with those that had anything."""
        ...

    async def remove(self, compute_id: str) -> None:
        """Forgets a stopped compute for good."""
        ...


class LocalDriver:
    """`weir-compute` processes of this machine."""

    def __init__(self, runtime: LocalRuntime, http: HttpClient) -> None:
        self._runtime = runtime
        self._http = http

    async def server(self, wanted: str | None) -> Server:
        return await asyncio.to_thread(self._runtime.servers.provide, wanted)

    async def versions(self) -> list[str]:
        return await asyncio.to_thread(self._runtime.servers.available)

    async def server_of(self, compute_id: str) -> Path | None:
        spec = self._runtime.spec(compute_id)
        return None if spec is None or "pg_bin_dir" not in spec else Path(spec["pg_bin_dir"])

    async def keep_servers(self, wanted: Collection[str]) -> list[str]:
        return await asyncio.to_thread(self._runtime.keep_servers, wanted)

    async def start(self, spec: dict[str, Any]) -> ComputeStatus:
        return await control.ensure_running(self._runtime, self._http, spec)

    async def stop(self, compute_id: str, mode: str) -> None:
        await control.stop(self._runtime, self._http, compute_id, mode)

    async def running(self, compute_ids: Sequence[str]) -> set[str]:
        return set(self._runtime.processes(compute_ids))

    def at_rest(self, compute_ids: Sequence[str]) -> AbstractAsyncContextManager[list[int] | None]:
        return control.at_rest(self._runtime, compute_ids)

    async def known(self) -> list[str]:
        return self._runtime.known()

    async def keep_spec(self, spec: dict[str, Any]) -> None:
        self._runtime.write_spec(spec["compute_id"], spec)

    async def tidy(self, compute_ids: Sequence[str]) -> list[str]:
        return [ident for ident in sorted(self._runtime.untidy(compute_ids)) if self._tidy(ident)]

    def _tidy(self, compute_id: str) -> bool:
        try:
            with self._runtime.exclusive(compute_id):
                return self._runtime.process(compute_id) is None and self._runtime.clean(compute_id)
        except BusyError:
            return False

    async def remove(self, compute_id: str) -> None:
        self._runtime.remove(compute_id)
