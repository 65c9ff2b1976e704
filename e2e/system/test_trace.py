"""One trace runs from a request to the API through the workflow to the storage engine's handler."""

from __future__ import annotations

import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from stack import Stack, running_stack, wait_for


class Collector:
    """Takes traces as a collector does (OTLP over HTTP, protobuf) and keeps them."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, str, str, str, str]] = []
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
                    self.spans.append((service, span.name, *ids))

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


def test_creating_a_project_is_one_trace_down_to_the_pageserver(traced: Stack, collector: Collector):
    traced.api().create_database("traced", {})

    def whole() -> str | None:
        spans = list(collector.spans)
        roots = {s[2] for s in spans if s[1].startswith("POST") and s[1].endswith("/projects")}
        stored = {s[2] for s in spans if "pageserver" in s[0] and "timeline" in s[1]}
        return next(iter(roots & stored), None)

    try:
        trace = wait_for("a trace with both ends", whole)
    except TimeoutError:
        pytest.fail(
            "no trace has both ends; seen: " + "\n".join(sorted({f"{s[0]}: {s[1]}" for s in collector.spans}))
        )
    members = [span for span in collector.spans if span[2] == trace]
    services = {span[0] for span in members}
    assert len(services) >= 3, services  # the API, the worker, the pageserver
    known = {span[3] for span in members}
    (entry,) = [s for s in members if "pageserver" in s[0] and "timeline" in s[1] and s[1].startswith("POST")][:1]
    parents = {span[3]: span[4] for span in members}
    current, steps = entry[3], 0
    while parents.get(current) in known:
        current, steps = parents[current], steps + 1
    assert steps >= 2, "the pageserver's span does not hang below the request's"
    top = next(span for span in members if span[3] == current)
    assert top[1].startswith("POST"), f"the trace begins at {top[:2]}"
