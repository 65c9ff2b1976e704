"""Activities on computes. Each looks before it acts, and so may run twice."""

from typing import Any

import structlog
from temporalio import activity

from weir.clients.http import RemoteError
from weir.databases.models import DroppedKind
from weir.databases.repository import DatabaseRepository
from weir.endpoints.models import Endpoint, EndpointState
from weir.endpoints.repository import EndpointRepository
from weir.kit.clock import now
from weir.operations.repository import OperationRepository
from weir_workflows.common.errors import from_remote, missing
from weir_workflows.common.heartbeat import heartbeats
from weir_workflows.common.resources import Resources
from weir_workflows.computes import stages
from weir_workflows.computes.spec import load_spec
from weir_workflows.storage.describing import ensure_described

log = structlog.get_logger()
# What an agent answers to changes while its Postgres starts.
NOT_RUNNING = "not_running"


class ComputeActivities:
    def __init__(self, resources: Resources) -> None:
        self._r = resources

    async def _describe(self, project_id: str) -> None:
        """Before a compute makes a role or a database the object store knows of it: a recovery that does not would
        have the compute drop it."""
        try:
            await ensure_described(self._r, project_id)
        except RemoteError as error:
            raise from_remote(error) from error

    async def _endpoint(self, endpoint_id: str) -> Endpoint:
        async with self._r.database.transaction() as session:
            endpoint = await EndpointRepository(session).get(endpoint_id)
        if endpoint is None:
            raise missing("endpoint", endpoint_id)
        return endpoint

    @activity.defn
    async def start_compute(self, endpoint_id: str) -> None:
        async with self._r.database.transaction() as session:
            endpoint = await EndpointRepository(session).get(endpoint_id)
            if endpoint is None:
                raise missing("endpoint", endpoint_id)
            if endpoint.deleted_at is not None or endpoint.desired_state != EndpointState.ACTIVE:
                # Nobody wants it any more: an abort or a deletion overtook this start.
                return
            stages.count_queue(await OperationRepository(session).asked_for_start(endpoint_id))
        laps = stages.Laps()
        async with heartbeats():
            spec = await self._spec_to_start(endpoint)
            laps.end("spec")
            await self._describe(endpoint.project_id)
            laps.end("description")
            status = await self._r.computes.start(spec)
        laps = stages.Laps()
        async with self._r.database.transaction() as session:
            row = await session.get(Endpoint, endpoint_id, with_for_update=True)
            if row is None:
                raise missing("endpoint", endpoint_id)
            row.state = EndpointState.ACTIVE
            row.running_postgres_version = status.postgres_version
            row.started_at = row.last_active = now()
            row.suspended_at = None
            await OperationRepository(session).announce_endpoint(endpoint_id)
        laps.end("record")
        await self._drop_after_start(endpoint, spec)

    async def _drop_after_start(self, endpoint: Endpoint, spec: dict[str, Any]) -> None:
        """What was deleted while the compute was suspended. The database runs, whatever comes of it: what fails is
        the reconciler's."""
        if not spec["dropped_roles"] and not spec["dropped_databases"]:
            return
        try:
            async with heartbeats():
                await self._r.agent(endpoint).configure(spec)
        except RemoteError as error:
            log.warning("not_dropped_after_start", endpoint_id=endpoint.id, error=str(error))
            return
        await self._dropped(endpoint, spec)

    async def _dropped(self, endpoint: Endpoint, spec: dict[str, Any]) -> None:
        """Postgres has none of what this spec had it drop."""
        at = now()
        async with self._r.database.transaction() as session:
            repository = DatabaseRepository(session)
            for kind, names in (
                (DroppedKind.ROLE, spec["dropped_roles"]),
                (DroppedKind.DATABASE, spec["dropped_databases"]),
            ):
                if names:
                    await repository.mark_dropped(endpoint.branch_id, kind, names, at)

    async def _spec_to_start(self, endpoint: Endpoint) -> dict[str, Any]:
        """With the minor the endpoint is wanted on. At its first start that is the newest, from then on the same,
        unless that one cannot be had any more: no database would be worse than one on another minor.
        """
        wanted = endpoint.postgres_version
        server = await self._r.computes.server(wanted)
        async with self._r.database.transaction() as session:
            row = await session.get(Endpoint, endpoint.id, with_for_update=True, populate_existing=True)
            if row is None:
                raise missing("endpoint", endpoint.id)
            # Somebody who wants another one since will start it again.
            if server.version is not None and row.postgres_version == wanted != server.version:
                if wanted is not None:
                    log.warning(
                        "postgres_version_changed", endpoint_id=endpoint.id, wanted=wanted, instead=server.version
                    )
                row.postgres_version = server.version
            return await load_spec(session, self._r.settings, row, server.bin_dir)

    @activity.defn
    async def stop_compute(self, endpoint_id: str) -> None:
        """A clean stop; by force when that does not work."""
        await self._endpoint(endpoint_id)
        async with heartbeats():
            await self._r.computes.stop(endpoint_id, "suspend")
        await self._at_rest(endpoint_id)

    @activity.defn
    async def abandon_compute(self, endpoint_id: str) -> None:
        """Compensates a start that failed: nothing runs, and nothing is wanted."""
        await self._endpoint(endpoint_id)
        async with heartbeats():
            await self._r.computes.stop(endpoint_id, "immediate")
        async with self._r.database.transaction() as session:
            row = await session.get(Endpoint, endpoint_id, with_for_update=True)
            if row is not None:
                row.desired_state = EndpointState.IDLE
        await self._at_rest(endpoint_id)

    async def _at_rest(self, endpoint_id: str) -> None:
        async with self._r.database.transaction() as session:
            row = await session.get(Endpoint, endpoint_id, with_for_update=True)
            if row is not None and row.state != EndpointState.IDLE:
                row.state = EndpointState.IDLE
                row.suspended_at = now()

    @activity.defn
    async def forget_endpoint(self, endpoint_id: str) -> None:
        await self._r.computes.remove(endpoint_id)
        async with self._r.database.transaction() as session:
            row = await session.get(Endpoint, endpoint_id, with_for_update=True)
            if row is not None and row.deleted_at is None:
                row.deleted_at = now()

    @activity.defn
    async def configure_compute(self, endpoint_id: str) -> str | None:
        """Gives a running compute its current spec; one that does not run reads it at its next start. Answers with
        which settings it goes without, since Postgres refused them before."""
        async with self._r.database.transaction() as session:
            endpoint = await EndpointRepository(session).get(endpoint_id)
            if endpoint is None:
                raise missing("endpoint", endpoint_id)
            started_with = await self._r.computes.server_of(endpoint_id)
            spec = await load_spec(session, self._r.settings, endpoint, started_with or self._r.settings.pg_bin_dir)
        if not await self._r.computes.running([endpoint_id]):
            return None
        try:
            async with heartbeats():
                await self._describe(endpoint.project_id)
                failed = await self._r.agent(endpoint).configure(spec)
        except RemoteError as error:
            if not await self._r.computes.running([endpoint_id]):
                return None
            # One that starts takes the spec as soon as it runs.
            raise (error if error.code == NOT_RUNNING else from_remote(error)) from error
        await self._r.computes.keep_spec(spec)
        await self._dropped(endpoint, spec)
        return "; ".join(f"setting {name} is not in force: {why}" for name, why in failed.items()) or None
