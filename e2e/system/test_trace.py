"""One trace runs from a request to the API through the workflow to the storage engine's handler."""

from __future__ import annotations

import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from stack import Stack, running_stack, wait_for


class Span(NamedTuple):
    service: str
    name: str
    trace: str
    id: str
    parent: str


class Collector:
    """Takes traces as a collector does (OTLP over HTTP, protobuf) and keeps them."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path.endswith("/v1/traces"):
                    collector.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def take(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            names = [a.value.string_value for a in resource.resource.attributes if a.key == "service.name"]
            service = names[0] if names else "?"
            for scope in resource.scope_spans:
                for span in scope.spans:
                    ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
                    self.spans.append(Span(service, span.name, *ids))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture(scope="module")
def collector() -> Generator[Collector]:
    made = Collector()
    yield made
    made.server.shutdown()


@pytest.fixture(scope="module")
def traced(collector: Collector) -> Generator[Stack]:
    with running_stack({"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}) as stack:
        yield stack


def is_request(span: Span) -> bool:
    return span.name.startswith("POST") and span.name.endswith("/projects")


def ascent(spans: list[Span], trace: str) -> list[Span]:
    """From where the pageserver made a timeline up to the first span whose parent is not known (yet)."""
    known = {span.id: span for span in spans if span.trace == trace}
    made = (
        s for s in known.values() if "pageserver" in s.service and "timeline" in s.name and s.name.startswith("POST")
    )
    path, current = [], next(made, None)
    while current is not None:
        path.append(current)
        current = known.get(current.parent)
    return path


def test_creating_a_project_is_one_trace_down_to_the_pageserver(traced: Stack, collector: Collector):
    traced.api().create_database("traced", {})

    def whole() -> list[Span] | None:
        spans = list(collector.spans)
        roots = {s.trace for s in spans if is_request(s)}
        paths = [ascent(spans, trace) for trace in roots]
        # Programs send their spans when they please: both ends are there long before all that lies between.
        return next((path for path in paths if path and is_request(path[-1])), None)

    try:
        path = wait_for("a trace from the request to the pageserver", whole)
    except TimeoutError:
        seen = sorted({f"{s.service}: {s.name} of {s.trace}" for s in collector.spans})
        pytest.fail("no trace goes from the request to the pageserver; seen: " + "\n".join(seen))
    assert len(path) >= 3, path  # the request, what it started, the pageserver
    members = {span.service for span in collector.spans if span.trace == path[0].trace}
    assert len(members) >= 3, members  # the API, the worker, the pageserver
