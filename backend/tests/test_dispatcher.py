"""Intent is never lost and never carried out twice, whatever is down and however many processes dispatch."""

import asyncio
import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select, update
from weir_testing import programs
from weir_testing.fixtures import Weir, own_database, running_api

from weir.config import Settings, get_settings
from weir.db import Database
from weir.identity.models import Account
from weir.kit.clock import now
from weir.main import connect_temporal
from weir.operations.dispatcher import Dispatcher
from weir.operations.messages import CANCEL_SIGNAL, operation_workflow_id
from weir.operations.models import Operation, OperationKind, OperationLock, OperationStatus
from weir.operations.service import enqueue
from weir.projects.models import Project


@pytest.fixture(name="own_queue")
def _own_queue(environment: Settings) -> Iterator[Settings]:
    """Dispatchers of these tests hand to a queue that no worker serves: workflows are started, not run."""
    os.environ["WEIR_TASK_QUEUE"] = "nobody"
    get_settings.cache_clear()
    yield get_settings()
    del os.environ["WEIR_TASK_QUEUE"]
    get_settings.cache_clear()


async def _settle(weir: Weir) -> None:
    """Until the shared control plane has nothing left to dispatch."""

    async def idle() -> bool:
        async with weir.resources.database.transaction() as session:
            statement = select(Operation.id).where(Operation.status == OperationStatus.SCHEDULING)
            return (await session.scalars(statement)).first() is None

    await weir.wait(idle)


async def test_many_dispatchers_start_each_workflow_once(weir: Weir) -> None:
    """Ten at once over the same rows: every operation runs, and Temporal sees one start of each."""
    created = [await weir.project(name=f"many-{index}") for index in range(3)]
    await _settle(weir)
    ids: list[str] = []
    async with weir.resources.database.transaction() as session:
        for item in created:
            operation = await enqueue(
                session,
                OperationKind.APPLY_CONFIG,
                item["project"]["id"],
                branch_id=item["branch"]["id"],
                endpoint_id=item["endpoints"][0]["id"],
            )
            ids.append(str(operation.id))
    dispatchers = [Dispatcher(weir.settings, weir.resources.database, weir.temporal) for _ in range(10)]
    await asyncio.gather(*(dispatcher.dispatch_all() for dispatcher in dispatchers))
    for item, ident in zip(created, ids, strict=True):
        await weir.finish({"operations": [{"project_id": item["project"]["id"], "id": ident}]})
        runs = [run async for run in weir.temporal.list_workflows(f"WorkflowId = 'operation/{ident}'")]
        assert len(runs) <= 1


async def test_a_start_repeated_after_a_crash_is_taken_for_done(weir: Weir) -> None:
    """The dispatcher died after Temporal had answered and before it could commit."""
    created = await weir.project(name="crashed")
    ident = created["operations"][1]["id"]
    async with weir.resources.database.transaction() as session:
        await session.execute(
            update(Operation)
            .where(Operation.id == ident)
            .values(status=OperationStatus.SCHEDULING, finished_at=None, started_at=None)
        )
    await Dispatcher(weir.settings, weir.resources.database, weir.temporal).dispatch_all()
    async with weir.resources.database.transaction() as session:
        row = await session.get_one(Operation, ident)
        assert row.status == OperationStatus.RUNNING
        # Its workflow had reported before; the report is repeated by hand here to leave the project free.
        row.status = OperationStatus.FINISHED


@asynccontextmanager
async def _api_with_temporal_at(address: str) -> AsyncGenerator[httpx.AsyncClient]:
    before = os.environ["WEIR_TEMPORAL_ADDRESS"]
    os.environ["WEIR_TEMPORAL_ADDRESS"] = address
    get_settings.cache_clear()
    try:
        async with running_api(get_settings()) as client:
            yield client
    finally:
        os.environ["WEIR_TEMPORAL_ADDRESS"] = before
        get_settings.cache_clear()


async def test_intent_taken_while_temporal_is_down_is_carried_out_when_it_is_back(
    environment: Settings, own_queue: Settings, scratch: Path, postgres_url: str
) -> None:
    del environment, own_queue
    port = programs.free_port()
    directory = scratch / "late-temporal"
    directory.mkdir()
    async with own_database(postgres_url), _api_with_temporal_at(f"127.0.0.1:{port}") as client:
        created = (await client.post("/api/v2/projects", json={"project": {"name": "patient"}})).json()
        ident = created["operations"][0]["id"]
        path = f"/api/v2/projects/{created['project']['id']}/operations/{ident}"
        await asyncio.sleep(1)
        assert (await client.get(path)).json()["operation"]["status"] == "scheduling"
        with programs.temporal(directory, port):

            async def dispatched() -> bool:
                return (await client.get(path)).json()["operation"]["status"] == "running"

            for _ in range(300):
                if await dispatched():
                    break
                await asyncio.sleep(0.1)
            temporal = await connect_temporal(
                get_settings().model_copy(update={"temporal_address": f"127.0.0.1:{port}"})
            )
            description = await temporal.get_workflow_handle(operation_workflow_id(ident)).describe()
            assert description.workflow_type == "create_project"


async def test_an_operation_temporal_has_lost_is_started_again(
    own_queue: Settings, temporal_address: str, postgres_url: str, environment: Settings
) -> None:
    """Temporal's database was replaced: what ran in it runs again under the same id."""
    del environment
    async with own_database(postgres_url):
        settings = get_settings().model_copy(
            update={"temporal_address": temporal_address, "task_queue": own_queue.task_queue}
        )
        database = Database(settings)
        temporal = await connect_temporal(settings)
        try:
            ident = await _running_operation(database)
            await Dispatcher(settings, database, temporal).recover_lost()
            handle = temporal.get_workflow_handle(operation_workflow_id(ident))
            assert (await handle.describe()).workflow_type == "create_project"
            # And one that was ended from outside is reported as failed, so that the project is free again.
            await handle.terminate("test")
            await Dispatcher(settings, database, temporal).recover_lost()
            async with database.transaction() as session:
                row = await session.get_one(Operation, ident)
            assert row.status == OperationStatus.FAILED
            assert row.error is not None
            assert "terminated" in row.error
            async with database.transaction() as session:
                assert (await session.scalars(select(OperationLock))).all() == []
        finally:
            await database.close()


async def test_a_lost_operation_that_was_to_be_cancelled_is_asked_to_stop_again(
    own_queue: Settings, temporal_address: str, postgres_url: str, environment: Settings
) -> None:
    del environment
    async with own_database(postgres_url):
        settings = get_settings().model_copy(
            update={"temporal_address": temporal_address, "task_queue": own_queue.task_queue}
        )
        database = Database(settings)
        temporal = await connect_temporal(settings)
        try:
            ident = await _running_operation(database)
            async with database.transaction() as session:
                row = await session.get_one(Operation, ident)
                row.status, row.cancel_asked_at = OperationStatus.CANCELLING, now()
            dispatcher = Dispatcher(settings, database, temporal)
            await dispatcher.recover_lost()
            await dispatcher.dispatch_all()
            handle = temporal.get_workflow_handle(operation_workflow_id(ident))
            signals = [
                event.workflow_execution_signaled_event_attributes.signal_name
                async for event in handle.fetch_history_events()
                if event.HasField("workflow_execution_signaled_event_attributes")
            ]
            assert signals == [CANCEL_SIGNAL]
            async with database.transaction() as session:
                assert (await session.get_one(Operation, ident)).cancel_asked_at is not None
            await handle.terminate("test")
        finally:
            await database.close()


async def _running_operation(database: Database) -> Any:
    """A project whose first operation was handed over long ago."""
    async with database.transaction() as session:
        account = (await session.scalars(select(Account))).one()
        project = Project(
            id="lost-project",
            name="lost",
            account_id=account.id,
            tenant_id="0" * 32,
            pg_version=15,
            region_id="local",
            history_retention_seconds=0,
            settings={},
            default_endpoint_settings={},
        )
        session.add(project)
        await session.flush()
        operation = await enqueue(session, OperationKind.CREATE_PROJECT, project.id)
        operation.status = OperationStatus.RUNNING
        operation.started_at = now() - timedelta(minutes=5)
    return operation.id
