"""Restarting a compute onto the minor it is wanted on: a clean stop and a start, as people's requests do them."""

import asyncio

from temporalio.exceptions import ApplicationError

from weir.clients.http import RemoteError
from weir.endpoints.models import Endpoint
from weir_workflows.common.resources import Resources
from weir_workflows.computes.activities import ComputeActivities
from weir_workflows.computes.control import ComputeStartError
from weir_workflows.runtime.local import BusyError

# A compute starts in a second or two. One that has not come up by then is taken to be broken.
START_SECONDS = 60.0


class RestartError(Exception):
    """The compute was stopped, perhaps, and did not come up; the message says why."""


async def restart(resources: Resources, endpoint: Endpoint, version: str) -> float | None:
    """Seconds for which the compute accepted no connections; None when it runs that minor already. What it starts on
    is what is stored as wanted when it does."""
    try:
        status = await resources.agent(endpoint).status()
        if status.state == "running" and status.postgres_version == version:
            return None
    except RemoteError:
        # It does not answer: all the more reason.
        pass
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        await resources.computes.stop(endpoint.id, "suspend")
        async with asyncio.timeout(START_SECONDS):
            await ComputeActivities(resources).start_compute(endpoint.id)
    except TimeoutError as error:
        raise RestartError(f"Postgres {version} did not come up within {START_SECONDS:.0f} s") from error
    except (ApplicationError, ComputeStartError, BusyError, RemoteError, RuntimeError, OSError) as error:
        raise RestartError(f"Postgres {version} did not come up: {error}") from error
    return round(loop.time() - began, 3)
