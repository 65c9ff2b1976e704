"""Session-wide programs, and a whole control plane in this process for tests that need one."""

import asyncio
import os
import shutil
import socket
import stat
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import pytest_asyncio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from temporalio.client import Client
from temporalio.worker import Interceptor, Worker

from weir import admin
from weir.config import Settings, get_settings
from weir.identity import service as identity
from weir.kit import transactions
from weir.kit.http import SERVER_KEEP_ALIVE_SECONDS, SERVER_PROTOCOL
from weir.main import create_app
from weir_testing import compute_double, members_double, programs
from weir_testing.storage import Server, StorageDouble, pageserver_app, safekeeper_app
from weir_workflows.common.resources import Resources, open_resources
from weir_workflows.runtime.local import LocalRuntime
from weir_workflows.worker import connect, make_worker

COMPUTE_PORTS = 200
# Of `Weir.wait`: the first pause, by how much each is longer than the one before, and the longest.
POLL_SECONDS = 0.05
POLL_GROWTH = 1.2
POLL_SECONDS_MOST = 0.5
# Of the control planes that run in this process.
_workers: list[Worker] = []


@pytest.fixture(scope="session")
def scratch() -> Generator[Path]:
    """A short path that Postgres's user may enter."""
    path = Path(tempfile.mkdtemp(prefix="weir-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_url(scratch: Path) -> Generator[str]:
    with programs.postgres(scratch / "pg") as url:
        yield url


@pytest.fixture(scope="session")
def temporal_address(scratch: Path) -> Generator[str]:
    with programs.temporal(scratch) as address:
        yield address


@pytest.fixture(scope="session")
def storage() -> Generator[StorageDouble]:
    double = StorageDouble()
    with ExitStack() as stack:
        stack.enter_context(Server(pageserver_app(double), double.pageserver_port))
        for index, port in enumerate(double.keeper_ports):
            stack.enter_context(Server(safekeeper_app(double, index), port))
        yield double


@pytest.fixture(scope="session", autouse=True)
def _requests_refused() -> Generator[list[str]]:
    with transactions.refusing() as refused:
        yield refused


@pytest.fixture(autouse=True)
def _no_requests_in_transactions(_requests_refused: list[str]) -> Generator[None]:
    """Whoever swallowed the refusal: the reconciler's round in the background, say."""
    yield
    found, _requests_refused[:] = list(_requests_refused), []
    assert not found, "\n".join(found)


@pytest.fixture(autouse=True)
def _workers_work() -> None:
    """A Temporal worker that failed takes its error to nobody before it is left: each later test would wait for what
    is never done, and say no more than that it waited."""
    for worker in _workers:
        if worker.is_shutdown:
            raise RuntimeError("the Temporal worker of the tests has ended") from worker._async_context_run_exception


@pytest.fixture(autouse=True)
def _no_faults_left(request: pytest.FixtureRequest) -> Generator[None]:
    yield
    if "storage" in request.fixturenames:
        double = request.getfixturevalue("storage")
        double.faults.clear()
        double.sick.clear()
        double.slow_detaches.clear()


@pytest.fixture(scope="session")
def switch_url(storage: StorageDouble) -> Generator[str]:
    """Where a compute double says what the WAL would say to storage."""

    async def switched(request: Request) -> Response:
        body = await request.json()
        storage.full_page_writes(body["timeline"], body["enabled"], body["lsn"])
        return Response()

    async def members(request: Request) -> Response:
        body = await request.json()
        change = {kind: body[kind] for kind in ("add", "promote", "remove") if kind in body}
        status, answer = storage.members.change(body["timeline_id"], body["by"], change)
        return JSONResponse(answer, status)

    port = programs.free_port()
    routes = [Route("/", switched, methods=["POST"]), Route("/members", members, methods=["POST"])]
    with Server(Starlette(routes=routes), port):
        yield f"http://127.0.0.1:{port}/"


def install_compute_double(directory: Path) -> None:
    directory.mkdir(exist_ok=True)
    for name, double in (("weir-compute", compute_double.__file__), ("weir-members", members_double.__file__)):
        script = directory / name
        source = Path(double).read_text()
        script.write_text(f"#!{sys.executable}\n" + source.split("\n", 1)[1])
        script.chmod(script.stat().st_mode | stat.S_IXUSR)


@pytest.fixture(scope="session")
def environment(
    scratch: Path, postgres_url: str, temporal_address: str, storage: StorageDouble, switch_url: str
) -> Generator[Settings]:
    """The settings of an installation whose schema is in place."""
    install_compute_double(scratch / "bin")
    low = programs.free_port_block(COMPUTE_PORTS)
    values = {
        "WEIR_HOME": str(scratch / "home"),
        "WEIR_DATABASE_URL": postgres_url,
        "WEIR_TEMPORAL_ADDRESS": temporal_address,
        "WEIR_BIN_DIR": str(scratch / "bin"),
        "WEIR_COMPUTE_PORTS": f"{low}-{low + COMPUTE_PORTS - 1}",
        "WEIR_PROMETHEUS_URL": "http://127.0.0.1:9",
        "WEIR_DISPATCH_INTERVAL_SECONDS": "0.5",
        "WEIR_TEST_SWITCH_URL": switch_url,
        "WEIR_TEST_MEMBERS_URL": f"{switch_url}members",
        **storage.environment,
    }
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    get_settings.cache_clear()
    asyncio.run(admin.migrate())
    settings = get_settings()
    yield settings
    runtime = LocalRuntime(settings)
    for compute_id in runtime.known():
        process = runtime.process(compute_id)
        if process is not None:
            runtime.kill(process)
    restore(before)


@dataclass
class Weir:
    """A running control plane and the means to use it."""

    url: str
    api_key: str
    settings: Settings
    client: httpx.AsyncClient
    resources: Resources
    temporal: Client
    storage: StorageDouble

    async def call(self, method: str, path: str, expect: int = 200, **arguments: Any) -> Any:
        response = await self.client.request(method, "/api/v2" + path, **arguments)
        assert response.status_code == expect, f"{method} {path}: {response.status_code} {response.text}"
        return response.json() if response.content else None

    async def wait(
        self, check: Callable[[], Awaitable[Any]], seconds: float = 90, *, seen: Callable[[], Any] = str
    ) -> Any:
        """Polls until the check answers something true, less often the longer it takes: a poll takes processor time
        from what is waited for. The bound only ends a wait for what never comes; how fast it comes is measured in
        `bench/`. `seen` says what the last poll saw, for the failure's text."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        pause = POLL_SECONDS
        while True:
            answer = await check()
            if answer:
                return answer
            assert loop.time() < deadline, f"still not so after {seconds} s: {seen()}"
            await asyncio.sleep(pause)
            pause = min(pause * POLL_GROWTH, POLL_SECONDS_MOST)

    async def finish(self, answer: dict[str, Any], expect: str = "finished") -> list[dict[str, Any]]:
        """Waits for the operations of an answer; every one must end as expected."""
        ended: list[dict[str, Any]] = []
        for operation in answer["operations"]:
            path = f"/projects/{operation['project_id']}/operations/{operation['id']}"

            async def done(path: str = path) -> dict[str, Any] | None:
                current = (await self.call("GET", path))["operation"]
                return None if current["status"] in {"scheduling", "running", "cancelling"} else current

            ended.append(await self.wait(done))
        assert [item["status"] for item in ended] == [expect] * len(ended), ended
        return ended

    @asynccontextmanager
    async def as_account(self, name: str, *, operator: bool = False) -> AsyncGenerator["Weir"]:
        """The same control plane in the hands of a new account."""
        async with self.resources.database.transaction() as session:
            key = await identity.create_account(session, name, f"{name}@localhost", operator=operator)
        headers = {"Authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(base_url=self.url, headers=headers, timeout=20) as client:
            yield replace(self, api_key=key, client=client)

    async def project(self, **fields: Any) -> dict[str, Any]:
        """A project whose compute runs."""
        created = await self.call("POST", "/projects", 201, json={"project": fields})
        await self.finish(created)
        return created

    async def idle(self, project_id: str) -> None:
        """Waits until no operation of the project is under way, so that it takes the next one."""

        async def over() -> bool:
            operations = (await self.call("GET", f"/projects/{project_id}/operations"))["operations"]
            return not any(operation["status"] in {"scheduling", "running", "cancelling"} for operation in operations)

        await self.wait(over)

    async def projects(self) -> list[dict[str, Any]]:
        """All projects of this account."""
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            parameters = {"limit": 100} | ({"cursor": cursor} if cursor else {})
            answer = await self.call("GET", "/projects", params=parameters)
            found += answer["projects"]
            cursor = (answer.get("pagination") or {}).get("cursor")
            if not cursor or not answer["projects"]:
                return found

    async def delete(self, project_id: str) -> None:
        """Deletes a project, whatever state a test has left it in, and waits as long as the deletion goes well."""
        response = await self.client.delete(f"/api/v2/projects/{project_id}")
        if response.is_success:

            async def gone() -> bool:
                return (await self.client.get(f"/api/v2/projects/{project_id}")).status_code == 404

            with suppress(AssertionError):
                await self.wait(gone, 20)


async def serve(app: Any) -> tuple[uvicorn.Server, asyncio.Task[None], str]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=2,
            timeout_keep_alive=SERVER_KEEP_ALIVE_SECONDS,
            http=SERVER_PROTOCOL,
        )
    )
    task = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        if task.done():
            task.result()
        await asyncio.sleep(0.01)
    return server, task, f"http://127.0.0.1:{listener.getsockname()[1]}"


@asynccontextmanager
async def running_api(settings: Settings) -> AsyncGenerator[httpx.AsyncClient]:
    """The API in this process, on a port of its own, and a client that has a key."""
    server, task, url = await serve(create_app())
    key = (settings.secrets_dir / "api_key").read_text().strip()
    try:
        async with httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=20) as client:
            yield client
    finally:
        server.should_exit = True
        await task


@asynccontextmanager
async def control_plane(
    settings: Settings, storage: StorageDouble, interceptors: Sequence[Interceptor] = ()
) -> AsyncGenerator[Weir]:
    temporal = await connect(settings)
    async with (
        running_api(settings) as client,
        open_resources(settings) as resources,
        make_worker(temporal, resources, interceptors) as worker,
    ):
        key = client.headers["authorization"].split()[1]
        _workers.append(worker)
        try:
            yield Weir(str(client.base_url), key, settings, client, resources, temporal, storage)
        finally:
            _workers.remove(worker)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def weir(environment: Settings, storage: StorageDouble) -> AsyncGenerator[Weir]:
    async with control_plane(environment, storage) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def _projects_deleted_at_the_end(weir: Weir) -> AsyncGenerator[None]:
    before = {project["id"] for project in await weir.projects()}
    yield
    left = [project["id"] for project in await weir.projects() if project["id"] not in before]
    await asyncio.gather(*(weir.delete(project_id) for project_id in left))


@pytest.fixture(scope="module", autouse=True)
def _projects_end_with_their_file(request: pytest.FixtureRequest) -> None:
    """The computes of projects that a file's tests leave behind would cost all later files processor time."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    if any("weir" in item.fixturenames for item in items if item.module is request.module):
        request.getfixturevalue("_projects_deleted_at_the_end")


@asynccontextmanager
async def own_database(postgres_url: str, **environment: str) -> AsyncGenerator[Settings]:
    """Settings with a database that the shared control plane does not see, so that it cannot take the work."""
    name = f"own_{os.urandom(4).hex()}"
    plain = postgres_url.replace("postgresql+psycopg", "postgresql")
    async with await psycopg.AsyncConnection.connect(plain, autocommit=True) as connection:
        await connection.execute(f"CREATE DATABASE {name}".encode())
    values = {"WEIR_DATABASE_URL": postgres_url.rsplit("/", 1)[0] + f"/{name}"} | environment
    before = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    get_settings.cache_clear()
    try:
        await admin.migrate()
        yield get_settings()
    finally:
        restore(before)


def restore(before: dict[str, str | None]) -> None:
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    get_settings.cache_clear()
