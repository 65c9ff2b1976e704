"""What workflows ask of whatever runs computes, and the driver for this machine's processes."""

from collections.abc import Sequence
from typing import Any, Protocol

from weir.clients.compute import ComputeStatus
from weir.clients.http import HttpClient
from weir_workflows.computes import control
from weir_workflows.runtime.local import BusyError, LocalRuntime


class ComputeDriver(Protocol):
    """Every method states a goal and may be repeated. Keeps nothing between calls."""

    async def start(self, spec: dict[str, Any]) -> ComputeStatus:
        """Returns once the compute of this spec serves queries."""
        ...

    async def stop(self, compute_id: str, mode: str) -> None:
        """Ends the compute: cleanly if it can be (`suspend`), at once (`immediate`), but ends it."""
        ...

    async def running(self, compute_ids: Sequence[str]) -> set[str]:
        """Which of these have something that runs, whatever state it is in."""
        ...

    async def known(self) -> list[str]:
        """Computes of which anything is left here, running or not."""
        ...

    async def keep_spec(self, spec: dict[str, Any]) -> None:
        """The compute runs with this spec now."""
        ...

    async def tidy(self, compute_id: str) -> bool:
        """Removes what a compute that does not run left behind. True if there was anything."""
        ...

    async def remove(self, compute_id: str) -> None:
        """Forgets a stopped compute for good."""
        ...


class LocalDriver:
    """`weir-compute` processes of this machine."""

    def __init__(self, runtime: LocalRuntime, http: HttpClient) -> None:
        self._runtime = runtime
        self._http = http

    async def start(self, spec: dict[str, Any]) -> ComputeStatus:
        return await control.ensure_running(self._runtime, self._http, spec)

    async def stop(self, compute_id: str, mode: str) -> None:
        await control.stop(self._runtime, self._http, compute_id, mode)

    async def running(self, compute_ids: Sequence[str]) -> set[str]:
        return {ident for ident in compute_ids if self._runtime.process(ident) is not None}

    async def known(self) -> list[str]:
        return self._runtime.known()

    async def keep_spec(self, spec: dict[str, Any]) -> None:
        self._runtime.write_spec(spec["compute_id"], spec)

    async def tidy(self, compute_id: str) -> bool:
        try:
            with self._runtime.exclusive(compute_id):
                return self._runtime.process(compute_id) is None and self._runtime.clean(compute_id)
        except BusyError:
            return False

    async def remove(self, compute_id: str) -> None:
        self._runtime.remove(compute_id)
