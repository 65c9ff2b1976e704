"""One trace from `POST /projects` to the pageserver's handler: real API, worker, pageserver and safekeepers, each
its own process, sending OTLP to a receiver in this one."""

import asyncio
import gzip
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from weir_testing import programs
from weir_testing.fixtures import own_database
from weir_testing.storage import Server

from weir.config import Settings
from weir.kit.http import SERVER_KEEP_ALIVE_SECONDS

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", Path("~/.cache/weir/target").expanduser()))
BIN_DIR = Path(os.environ.get("WEIR_BIN_DIR", TARGET / "release"))
SAFEKEEPERS = (1, 2, 3)


@dataclass(frozen=True)
class Span:
    service: str
    name: str
    trace: str
    ident: str
    parent: str
    attributes: tuple[tuple[str, str], ...]


class Receiver:
    """What an OpenTelemetry collector would be sent."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.port = programs.free_port()

    async def receive(self, request: Request) -> Response:
        body = await request.body()
        if request.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        message = ExportTraceServiceRequest.FromString(body)
        for resource in message.resource_spans:
            names = [item.value.string_value for item in resource.resource.attributes if item.key == "service.name"]
            for scope in resource.scope_spans:
                self.spans += [
                    Span(
                        names[0],
                        span.name,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        tuple((item.key, item.value.string_value) for item in span.attributes),
                    )
                    for span in scope.spans
                ]
        return Response(media_type="application/x-protobuf")

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/v1/traces", self.receive, methods=["POST"])])

    def path_to_root(self, span: Span) -> list[Span]:
        known = {item.ident: item for item in self.spans if item.trace == span.trace}
        path = [span]
        while path[-1].parent in known:
            path.append(known[path[-1].parent])
        return path


@pytest.fixture(name="receiver")
async def _receiver() -> AsyncGenerator[Receiver]:
    receiver = Receiver()
    with Server(receiver.app(), receiver.port):
        yield receiver


@pytest.fixture(name="api")
async def _api(
    receiver: Receiver, environment: Settings, postgres_url: str, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[httpx.AsyncClient]:
    if not (BIN_DIR / "weir-pageserver").exists():
        pytest.skip(f"the storage engine is not built in {BIN_DIR}")
    del environment
    home = scratch / "traced"
    home.mkdir()
    ports = {name: programs.free_port() for name in ("api", "worker", "pages", "pageserver")}
    wal = [programs.free_port() for _ in SAFEKEEPERS]
    http = [programs.free_port() for _ in SAFEKEEPERS]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{receiver.port}")
    variables = {
        "WEIR_TASK_QUEUE": f"traced-{ports['api']}",
        "WEIR_WORKER_METRICS_PORT": str(ports["worker"]),
        "WEIR_PAGESERVER_HTTP": f"http://127.0.0.1:{ports['pageserver']}",
        "WEIR_PAGESERVER_PAGES": f"127.0.0.1:{ports['pages']}",
        "WEIR_SAFEKEEPERS_WAL": ",".join(f"127.0.0.1:{port}" for port in wal),
        "WEIR_SAFEKEEPERS_HTTP": ",".join(f"http://127.0.0.1:{port}" for port in http),
    }
    async with AsyncExitStack() as stack:
        settings = await stack.enter_async_context(own_database(postgres_url, **variables))

        def start(name: str, command: list[str], port: int) -> None:
            check = f"http://127.0.0.1:{port}/healthz"
            stack.enter_context(programs.program(command, home / f"{name}.log", check))

        for number, wal_port, http_port in zip(SAFEKEEPERS, wal, http, strict=True):
            start(f"safekeeper-{number}", _safekeeper(home, number, wal_port, http_port), http_port)
        start("pageserver", _pageserver(home, ports["pages"], ports["pageserver"], settings), ports["pageserver"])
        uvicorn = [sys.executable, "-m", "uvicorn", "weir.main:app", "--port", str(ports["api"])]
        uvicorn += ["--timeout-keep-alive", str(SERVER_KEEP_ALIVE_SECONDS)]
        start("api", uvicorn, ports["api"])
        start("worker", [sys.executable, "-m", "weir_workflows.worker"], ports["worker"])
        key = (settings.secrets_dir / "api_key").read_text().strip()
        headers = {"Authorization": f"Bearer {key}"}
        base = f"http://127.0.0.1:{ports['api']}/api/v2"
        yield await stack.enter_async_context(httpx.AsyncClient(base_url=base, headers=headers, timeout=20))


def _safekeeper(home: Path, number: int, wal: int, http: int) -> list[str]:
    directory = home / f"safekeeper-{number}"
    return [
        str(BIN_DIR / "weir-safekeeper"), "--id", str(number), "--listen-wal", f"127.0.0.1:{wal}",
        "--listen-http", f"127.0.0.1:{http}", "--data-dir", str(directory),
    ]  # fmt: skip


def _pageserver(home: Path, pages: int, http: int, settings: Settings) -> list[str]:
    return [
        str(BIN_DIR / "weir-pageserver"), "--listen-pages", f"127.0.0.1:{pages}",
        "--listen-http", f"127.0.0.1:{http}", "--data-dir", str(home / "pageserver"),
        "--object-store", f"file://{home / 'objects'}", "--pg-bin-dir", str(settings.pg_bin_dir),
        "--pg-user", settings.pg_user,
    ]  # fmt: skip


async def test_one_trace_from_the_request_to_the_storage_engine(receiver: Receiver, api: httpx.AsyncClient) -> None:
    created = (await api.post("/projects", json={"project": {"name": "traced"}})).json()
    assert created["operations"]

    def handler() -> Span | None:
        """The pageserver's span of the request that made the timeline."""
        spans = [
            span
            for span in receiver.spans
            if span.service == "weir-pageserver"
            and "timeline" in span.name + str(span.attributes)
            and any(item.service == "weir-api" and item.trace == span.trace for item in receiver.spans)
        ]
        complete = [span for span in spans if receiver.path_to_root(span)[-1].service == "weir-api"]
        return complete[0] if complete else None

    def missing() -> list[str]:
        """What the trace still lacks; spans come in batches, in any order."""
        span = handler()
        if span is None:
            return ["the pageserver's handler below the API's request"]
        mine = [(item.service, item.name) for item in receiver.spans if item.trace == span.trace]
        wanted = {
            "the workflow's run": ("weir-worker", "RunWorkflow:create_project") in mine,
            # SQLAlchemy's instrumentation says it does not fit 2.1 and would be silently absent.
            "the API's inserts": any(s == "weir-api" and name.startswith("INSERT") for s, name in mine),
            "the safekeepers": any(s == "weir-safekeeper" for s, _ in mine),
        }
        return [what for what, there in wanted.items() if not there]

    for _ in range(300):
        if not missing():
            break
        await asyncio.sleep(0.1)
    assert missing() == [], sorted({(span.service, span.name) for span in receiver.spans})
    found = handler()
    assert found is not None
    path = [(span.service, span.name) for span in reversed(receiver.path_to_root(found))]
    names = [name for _, name in path]
    assert path[0] == ("weir-api", "POST /api/v2/projects")
    assert path[-1][0] == "weir-pageserver"
    assert names.index("StartWorkflow:create_project") < names.index("StartActivity:create_timeline")
    assert names.index("StartActivity:create_timeline") < names.index("RunActivity:create_timeline")
