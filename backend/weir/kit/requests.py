"""What each request to the API gets around it: an id, a line of log, and its place in the metrics."""

import re
import time
from uuid import uuid4

import structlog
from prometheus_client import Counter, Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = structlog.get_logger()

REQUESTS = Counter("weir_api_requests_total", "Requests answered", ["method", "route", "status"])
SECONDS = Histogram("weir_api_request_seconds", "Time to answer", ["method", "route"])
_REQUEST_ID = re.compile(r"^[A-Za-z0-9._-]{8,64}$")
_NOT_ANSWERED = 500


class RequestContext:
    """Gives the request its id, which the answer repeats in `x-request-id`, logs and counts it.

    A middleware of ASGI itself: Starlette's `BaseHTTPMiddleware` runs each request in a task of its own and hands its
    body on through a queue, which costs as much as a statement of the database."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _REQUEST_ID.match(given) else str(uuid4())
        scope.setdefault("state", {})["request_id"] = request_id
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=request_id)
        started, status = time.perf_counter(), _NOT_ANSWERED

        async def with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        try:
            await self._app(scope, receive, with_id)
        finally:
            _count(scope, status, time.perf_counter() - started)


def _count(scope: Scope, status: int, seconds: float) -> None:
    route = getattr(scope.get("route"), "path", "none")
    REQUESTS.labels(scope["method"], route, status).inc()
    SECONDS.labels(scope["method"], route).observe(seconds)
    if scope["path"].startswith("/api"):
        log.info("request", method=scope["method"], path=scope["path"], status=status, ms=round(seconds * 1000, 1))
